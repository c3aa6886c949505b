"""A port with a device profile: Nova's own function reads our answer for the port's binding profile."""

import json
import subprocess
from dataclasses import replace

import pytest

from tests.processes import python_of
from tests.unit.accelerator.rig import many_gpus, new_instance, rp
from tests.wire.accelerator.test_binding import CARD, Plane

CARDS = "0000:01:00.0", "0000:02:00.0"

#: Runs in Nova's environment: reads requests, prints the part of the port's binding profile that Nova makes of each.
_NOVA = """
import json, sys
from nova.accelerator.cyborg import get_arq_pci_device_profile
json.dump([get_arq_pci_device_profile(arq) for arq in json.load(sys.stdin)], sys.stdout)
"""


@pytest.fixture
def bound(tmp_path, wire, process, clock):
    """Two bound requests, of a card with a physical network and of one without."""
    with_network, without = many_gpus(2)
    with_network = replace(with_network, details=(("physical_network", "physnet0"),))
    plane = Plane(tmp_path, wire, process.engine("accelerator"), clock, (with_network, without))
    plane.profile("port", CARD, CARD)
    places = {arq["uuid"]: rp(card) for arq, card in zip(plane.requests("port"), CARDS, strict=True)}
    instance = new_instance()
    assert plane.bind(places, instance).status == 202
    plane.run_host()
    return [plane.wire("GET", f"/v2/accelerator_requests/{uuid}").body for uuid in places]


def wanted(arqs):
    return [
        {"physical_network": network, "pci_slot": card, "arq_uuid": arq["uuid"]}
        for arq, card, network in zip(arqs, CARDS, ("physnet0", None), strict=True)
    ]


@pytest.mark.nova
def test_nova_makes_the_binding_profile_of_a_port_from_our_request(bound):
    nova = subprocess.run(
        [python_of(".venv-nova"), "-c", _NOVA],
        input=json.dumps(bound), check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert nova.returncode == 0, nova.stderr[-2000:]
    assert json.loads(nova.stdout) == wanted(bound)


def test_a_bound_request_has_the_fields_that_nova_reads_for_a_port(bound):
    """Recorded from Nova 34: `physical_network` must be there, and may be null."""
    info = [arq["attach_handle_info"] for arq in bound]
    made = [
        {
            "physical_network": one["physical_network"],
            "pci_slot": "{domain}:{bus}:{device}.{function}".format(**one),
            "arq_uuid": arq["uuid"],
        }
        for one, arq in zip(info, bound, strict=True)
    ]
    assert made == wanted(bound)
