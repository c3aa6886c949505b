"""Why a server would find a host or not, without creating one; and the same for an existing server."""

import pytest
from rich.console import Console

from moorage.cli.commands.explain_server import print_explanation
from moorage.compute.client.compute_client import ExplainClient
from moorage.core.names import RESERVED_HOST_TRAIT
from tests.wire.compute.conftest import IMAGE, Host

ADMIN = {"who": "root:admin", "roles": "admin"}


@pytest.fixture
def hosts(plane, host):
    other = Host(plane, "compute-2")
    other.offer(VCPU=4, MEMORY_MB=4096, DISK_GB=100)
    return [host, other]


def explained(plane, flavor, hints=None, *, who=None, **server):
    body = {"server": {"flavorRef": flavor, **server}, "os:scheduler_hints": hints or {}}
    status, _, document = plane.send("POST", "/moorage/v1/explain-server", body, **(who or {}))
    return document["explanation"] if status == 200 else (status, document)


def held(plane, hosts):
    return [plane.placement.usages(one.provider.uuid)["VCPU"] for one in hosts]


def test_a_dry_run_names_the_suitable_hosts_and_creates_nothing(plane, hosts):
    plane.flavor("small", vcpus=2)
    found = explained(plane, "small", imageRef=IMAGE, who=ADMIN)
    assert (found["text"], found["hosts"], found["host_names"]) == (
        "2 hosts can run the server.", 2, ["compute-1", "compute-2"],
    )  # fmt: skip
    assert plane.send("GET", "/v2.1/servers")[2]["servers"] == []
    plane.settle(*hosts)
    assert held(plane, hosts) == [0, 0]


def test_an_explanation_has_the_text_of_the_fault(plane, hosts):
    plane.flavor("large", vcpus=12)
    plane.clock.sleep(61)
    hosts[1].register()
    found = explained(plane, "large", who=ADMIN)

    assert found["filters"] == [{"filter": "service_is_up", "before": 1, "after": 0}]
    assert found["rejected_hosts"] == {"compute-1": "its compute service is down"}
    server_id = plane.boot("large")
    plane.settle()
    fault = plane.show(server_id)["fault"]["message"]
    assert fault.endswith("1 host: its compute service is down.")
    assert found["text"].endswith("1 host: its compute service is down.")


def test_an_explanation_says_that_a_host_is_reserved(plane, hosts):
    """Placement only has the traits for it; the explanation names the reservation."""
    plane.flavor("small")
    for one in hosts:
        generation, traits = plane.placement.traits(one.provider.uuid)
        plane.placement.ensure_trait(RESERVED_HOST_TRAIT)
        plane.placement.set_traits(one.provider.uuid, generation, {*traits, RESERVED_HOST_TRAIT})
    found = explained(plane, "small", who=ADMIN)
    assert found["text"] == ("No valid host was found. 2 hosts considered; enabled and not under reservation left 0.")
    assert "compute-1 has CUSTOM_RESERVATION_HOST" in found["examples"]


def test_members_see_counts_and_no_names(plane, hosts):
    plane.flavor("huge", vcpus=100)
    found = explained(plane, "huge")
    assert found["text"].startswith("No valid host was found. 2 hosts considered; resources:VCPU=100 left 0")
    assert set(found) == {"text", "hosts", "constraints", "filters", "rejected", "fault"}
    assert "compute-" not in str(found)
    assert "compute-1" in str(explained(plane, "huge", who=ADMIN)["closest"])
    assert "change" in explained(plane, "huge", who=ADMIN)


def test_a_failed_server_is_explained_by_its_id(plane, hosts):
    server_id = plane.boot(plane.flavor("huge", vcpus=100))
    plane.settle(*hosts)
    path = f"/moorage/v1/servers/{server_id}/explanation"
    found = plane.send("GET", path)[2]["explanation"]
    assert found["fault"] == plane.show(server_id)["fault"]["message"]
    assert found["text"] == found["fault"]
    hosts[0].offer(VCPU=200, MEMORY_MB=32768, DISK_GB=500)
    assert plane.send("GET", path)[2]["explanation"]["text"] == "1 host can run the server."
    assert plane.send("GET", path, who="bob:blue")[0] == 404


def test_a_running_server_is_explained_with_its_own_host_excluded(plane, hosts):
    server_id = plane.boot(plane.flavor("small"))
    plane.settle(*hosts)
    found = plane.admin("GET", f"/moorage/v1/servers/{server_id}/explanation")[2]["explanation"]
    on = plane.show(server_id)["OS-EXT-SRV-ATTR:host"]
    assert (found["hosts"], found["rejected_hosts"]) == (1, {on: "the server is on this host now"})


def test_an_explanation_respects_the_group_and_the_zone(plane, hosts):
    plane.flavor("small")
    group = {"server_group": {"name": "g", "policy": "anti-affinity"}}
    group_id = plane.send("POST", "/v2.1/os-server-groups", group, version="2.64")[2]["server_group"]["id"]
    server = {"name": "vm", "imageRef": IMAGE, "flavorRef": "small", "networks": "none"}
    plane.send("POST", "/v2.1/servers", {"server": server, "os:scheduler_hints": {"group": group_id}})
    plane.settle(*hosts)
    found = explained(plane, "small", {"group": group_id}, who=ADMIN)
    assert (found["hosts"], list(found["rejected"])) == (1, ["its server group allows 1 server on a host"])
    assert explained(plane, "small", availability_zone="nova:compute-2", who=ADMIN)["host_names"] == ["compute-2"]


def test_an_invalid_request_is_refused_as_in_a_creation(plane, hosts):
    plane.flavor("odd", {"resources:CUSTOM_NOWHERE": "1"})
    status, document = explained(plane, "odd")
    assert (status, "Placement has no resource class CUSTOM_NOWHERE" in document["badRequest"]["message"]) == (
        400,
        True,
    )
    assert explained(plane, "nope")[0] == 400
    assert plane.send("POST", "/moorage/v1/explain-server", {"server": {}})[0] == 400
    assert plane.send("GET", f"/moorage/v1/servers/{IMAGE}/explanation")[0] == 404


def test_the_command_prints_an_explanation_within_100_columns(plane, hosts, capsys):
    plane.flavor("huge", vcpus=100)
    found = ExplainClient(plane.agent._http).explain_new_server({"flavorRef": "huge"}, {})
    print_explanation(Console(width=100, highlight=False, color_system=None), found)
    printed = capsys.readouterr().out
    assert "resources:VCPU=100" in printed
    assert "Closest" in printed
    assert "Smallest change:" in printed
    assert max(len(line) for line in printed.splitlines()) <= 100
