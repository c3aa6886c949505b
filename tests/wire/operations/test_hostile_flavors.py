"""With any flavor and image, through the Compute API and with a real Placement and hosts, a server gets its
accelerators or a typed refusal, and leaves nothing else behind.

Each run has two hundred extra specs and metadata documents, `EXPLORE=1` ten thousand. They are those of
tests/property/accelerator/test_hostile.py, which tries them on the agent alone.
"""

import os
import re
from random import Random

import pytest

from moorage.accelerator.drivers.simulated import REGION_TYPE_CARD_0
from moorage.core.errors import RemoteError
from tests.images import put_image
from tests.property.accelerator.test_hostile import AES, PROPERTIES, extra_specs, mostly
from tests.unit.accelerator.rig import SHA

EXPLORE = bool(os.environ.get("EXPLORE"))
FPGA = {"resources:CUSTOM_ACCELERATOR_FPGA": "1"}


@pytest.fixture
def cloud(make_cloud, monkeypatch):
    """One host."""
    monkeypatch.setattr(
        "os.fsync", lambda _: None
    )  # durability takes most of the time, and power failures do not matter here
    monkeypatch.setattr("os.fdatasync", lambda _: None)
    return make_cloud(accelerators=True)


def nothing_is_held(cloud):
    (host,) = cloud.hosts.values()
    assert (cloud.used(host.name), host.plugged, host.accelerators.attach_state.handles) == ({}, {}, {})


def tried(cloud, number, specs):
    """The status of a server with a flavor with `specs`, which is then deleted; None if the request was refused."""
    flavor = f"hostile-{number}"
    cloud.flavor(flavor, vcpus=1, ram=64, disk=1)
    status, body, _ = cloud.admin("POST", f"/v2.1/flavors/{flavor}/os-extra_specs", {"extra_specs": specs})
    assert status in (200, 400), body
    body = {"name": "vm", "imageRef": cloud.image, "flavorRef": flavor, "networks": "none"}
    status, answer, _ = cloud.send("POST", "/v2.1/servers", {"server": body})
    seen = None
    if status == 202:
        seen = ended(cloud, answer["server"]["id"])
    else:
        assert 400 <= status < 500, answer
        (error,) = answer.values()
        assert error["message"]
    assert cloud.admin("DELETE", f"/v2.1/flavors/{flavor}")[0] == 202
    nothing_is_held(cloud)
    return seen


def ended(cloud, server_id):
    (host,) = cloud.hosts.values()
    cloud.settle()
    server = cloud.show(server_id)
    assert server["status"] in ("ACTIVE", "ERROR"), server
    if server["status"] == "ERROR":
        fault = server["fault"]
        by_host = re.search("build: (.*)", fault.get("details", ""))
        assert fault["message"]
        assert by_host[1].startswith("accelerator.") if by_host else "No valid host" in fault["message"], fault
        assert cloud.held(server_id) == {}, "a refused server holds something"
        assert server_id not in host.plugged
    assert cloud.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    cloud.settle()
    return server["status"]


def test_a_server_with_hostile_extra_specs_leaves_nothing_behind(cloud):
    random = Random(7 if not EXPLORE else None)
    function(cloud, {"region_uuid": REGION_TYPE_CARD_0, "function_uuid": AES})
    seen = [tried(cloud, number, extra_specs(random)) for number in range(5000 if EXPLORE else 140)]
    assert {"ACTIVE", "ERROR"} <= set(seen)


def test_a_server_with_hostile_image_properties_leaves_nothing_behind(cloud):
    random, seen = Random(8 if not EXPLORE else None), []
    for number in range(5000 if EXPLORE else 60):
        image = function(cloud, properties(random))
        seen.append(tried(cloud, number, FPGA | {f"function:{AES}": "required"}))
        if image:
            cloud.client("image").request("DELETE", f"/v2/images/{image}")
    assert {"ACTIVE", "ERROR"} <= set(seen)


def properties(random):
    made = {"region_uuid": REGION_TYPE_CARD_0, random.choice(["function_uuid", "accel:function_id"]): AES}
    for name in random.sample(PROPERTIES, random.randrange(3)):
        made[name] = mostly(random, [REGION_TYPE_CARD_0, AES, SHA, f"{AES},{SHA}", "intel"], None)
    return made


def function(cloud, properties):
    """The id of a bitstream that the Image API accepted."""
    try:
        return put_image(cloud.client("image"), cloud.ids.uuid(), "aes", properties=properties)
    except RemoteError as error:
        if error.status >= 500:
            raise
        return None
