"""Servers, hosts and allocations that disagree, on a whole plane: found, repaired, and undone by the receipt."""

import json
from uuid import uuid4

import pytest

from moorage.audit.model import FindingKind
from moorage.core.names import reservation_class
from tests.system.audit.rig import AuditedPlane, undo

pytestmark = pytest.mark.slow


@pytest.fixture
def plane(tmp_path):
    with AuditedPlane(tmp_path) as plane:
        yield plane


def second_host(plane) -> str:
    """A hypervisor whose agent registered once; returns its provider."""
    uuid = plane.provider("compute-2", str(uuid4()))
    for name, total in (("VCPU", 8), ("MEMORY_MB", 4096), ("DISK_GB", 100)):
        plane.offer(uuid, name, total)
    plane.services.compute.register_host(
        "compute-2", provider_uuid=uuid, hypervisor_type="QEMU", hypervisor_version=1, host_ip="192.0.2.2", vcpus=8,
        memory_mb=4096, local_gb=100, devices=0,
    )  # fmt: skip
    return uuid


def hold(plane, server: str, allocations: dict[str, dict[str, int]]) -> None:
    """Writes an allocation that no service of ours would write."""
    body = plane.placement.get(f"/allocations/{server}")
    rows = {provider: {"resources": resources} for provider, resources in allocations.items()}
    plane.placement.request("PUT", f"/allocations/{server}", json=body | {"allocations": rows})


def holding(plane, server: str) -> dict[str, dict[str, int]]:
    return {provider: row["resources"] for provider, row in plane.held(server).items()}


def test_a_server_without_an_allocation_gets_that_of_its_flavor(plane):
    server = plane.new_server()
    right = holding(plane, server)
    assert right
    plane.placement.request("DELETE", f"/allocations/{server}")
    assert plane.audit() == [], "it may just be moving"
    plane.pass_grace()
    (found,) = plane.audit()
    assert (found.kind, found.subject, found.where) == (FindingKind.SERVER_WITHOUT_ALLOCATION, server, "compute-1")
    (outcome,) = plane.fix([found])
    assert outcome.is_done
    assert holding(plane, server) == right
    assert plane.placement.get(f"/allocations/{server}")["project_id"] == plane.server(server)["tenant_id"]
    assert plane.audit() == []
    undo(plane, plane.receipt_path.read_text())
    assert holding(plane, server) == {}


def test_a_reserved_server_without_an_allocation_gets_a_slot_of_its_reservation(plane):
    reservation = plane.running_lease(2)[1]
    server = plane.create_server(flavor=reservation)
    plane.settle()
    right = holding(plane, server)
    plane.placement.request("DELETE", f"/allocations/{server}")
    plane.pass_grace()
    (outcome,) = plane.fix(plane.audit())
    assert outcome.is_done
    assert holding(plane, server) == right
    assert right[plane.services.placement.provider_by_name("blazar_compute-1").uuid] == {
        reservation_class(reservation): 1
    }


def test_an_allocation_on_a_wrong_host_is_moved_only_if_the_server_is_named(plane):
    server, other = plane.new_server(), second_host(plane)
    right = holding(plane, server)
    hold(plane, server, {other: {"VCPU": 1, "MEMORY_MB": 64}})
    plane.pass_grace()
    found = plane.audit()
    assert [(one.kind, one.subject) for one in found] == [(FindingKind.ALLOCATION_ELSEWHERE, server)]
    assert found[0].why == "it is on compute-1, but has allocations on compute-2"
    assert plane.fix(found) == []
    plane.receipt_path.unlink()
    (outcome,) = plane.fix(found, server)
    assert outcome.is_done
    assert holding(plane, server) == right
    assert plane.audit() == []
    undo(plane, plane.receipt_path.read_text())
    assert holding(plane, server) == {other: {"VCPU": 1, "MEMORY_MB": 64}}


def test_the_allocation_of_a_server_without_a_host_is_released_only_if_it_is_named(plane):
    server = plane.create_server(flavor=plane.create_flavor("big", **{"resources:CUSTOM_ACCELERATOR_FPGA": "99"}))
    plane.settle()
    assert plane.server(server)["status"] == "ERROR"
    plane.take(server, plane.host, {"VCPU": 1})
    plane.pass_grace()
    found = plane.audit()
    assert [(one.kind, one.subject) for one in found] == [(FindingKind.ALLOCATION_ELSEWHERE, server)]
    (outcome,) = plane.fix(found, server)
    assert outcome.is_done
    assert plane.held(server) == {}
    undo(plane, plane.receipt_path.read_text())
    assert holding(plane, server) == {plane.host: {"VCPU": 1}}


def test_a_server_on_an_unknown_host_is_reported(plane):
    server = plane.new_server()
    plane.pass_grace()
    with plane.broken("UPDATE servers SET host = 'compute-9'", service="compute"):
        found = plane.audit()
    assert [(one.kind, one.subject, one.where, one.action) for one in found] == [
        (FindingKind.SERVER_WITHOUT_HOST, server, "compute-9", None)
    ]


@pytest.mark.parametrize("moment", ["server", "holding"])
def test_a_server_that_changed_after_the_audit_is_not_repaired(plane, moment):
    server = plane.new_server()
    plane.placement.request("DELETE", f"/allocations/{server}")
    plane.pass_grace()
    found = plane.audit()

    def stop() -> None:
        plane.compute.request("POST", f"/servers/{server}/action", json={"os-stop": None})

    if moment == "server":
        stop()
        expected = "left alone: the server changed meanwhile"
    else:
        plane.before["PUT", "placement", f"/allocations/{server}"] = lambda: plane.take(server, plane.host, {"VCPU": 3})
        expected = "left alone: it changed meanwhile"
    (outcome,) = plane.fix(found)
    assert outcome.text.startswith(expected)
    assert holding(plane, server) == ({} if moment == "server" else {plane.host: {"VCPU": 3}})
    ended = [
        entry["done"] for line in plane.receipt_path.read_text().splitlines() if "done" in (entry := json.loads(line))
    ]
    assert ended == [False]


def test_a_server_described_without_flavor_or_host_causes_no_finding(plane):
    """Nova describes servers so if their cell does not answer, and to users who are not administrators."""
    server = plane.new_server()
    hold(plane, server, {plane.host: {"VCPU": 5}})
    plane.pass_grace()
    assert [one.kind for one in plane.audit()] == [FindingKind.WRONG_AMOUNTS]
    whole = plane.server(server)
    without = {
        "a flavor": {"id": server, "status": "UNKNOWN"} | {key: whole[key] for key in ("tenant_id", "created")},
        "extra specs": whole | {"flavor": {k: v for k, v in whole["flavor"].items() if k != "extra_specs"}},
        "a host": {key: value for key, value in whole.items() if key != "OS-EXT-SRV-ATTR:hypervisor_hostname"},
    }
    for missing, row in without.items():
        told = json.dumps({"servers": [row]}).encode()
        plane.answers["compute"] = lambda path, told=told: told if path.startswith("/v2.1/servers/detail?") else None
        assert plane.audit() == [], f"without {missing}"
        assert plane.snapshot.compute.servers == {server}
