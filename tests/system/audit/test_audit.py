"""A whole plane with every kind of fault: the audit finds each one, repairs it if that is safe, and the receipt undoes
the repair.
"""

import json
from dataclasses import replace

import pytest

from moorage.audit.collector import audited_consumer
from moorage.audit.model import INCOMPLETE, FindingKind
from moorage.audit.rules.findings import all_findings
from moorage.core.errors import StartError, Unavailable
from moorage.core.names import reservation_class
from tests.system.audit.rig import GRACE, AuditedPlane, undo

pytestmark = pytest.mark.slow

ORPHAN, OTHER, STRANGER = (f"{number:08d}-0000-4000-8000-000000000000" for number in (1, 2, 3))
NODE = "0badbeef-0000-4000-8000-000000000000"


@pytest.fixture
def plane(tmp_path):
    with AuditedPlane(tmp_path) as plane:
        yield plane


def kinds(found) -> list[tuple[FindingKind, str]]:
    return [(one.kind, one.subject) for one in found]


def test_the_audit_of_a_working_plane_finds_nothing(plane):
    _, reservation = plane.running_lease(2)
    plane.create_server(flavor=reservation)
    plane.settle()
    plane.pass_grace()
    assert plane.audit() == []
    assert plane.snapshot.compute.servers
    assert plane.snapshot.accelerators.deployables
    assert plane.snapshot.reservations.reservations


def delete_reservation_provider(plane) -> None:
    """Deletes the provider as Nova does with a host's whole tree when its compute service is deleted."""
    uuid = plane.services.placement.provider_by_name("blazar_compute-1").uuid
    plane.placement.request("DELETE", f"/resource_providers/{uuid}")


def test_the_audit_finds_every_kind_of_fault(plane):
    reservation = plane.running_lease(1)[1]
    delete_reservation_provider(plane)
    plane.services.compute.delete_flavor(reservation)
    server = plane.create_server(flavor=plane.create_flavor("small"))  # in ERROR: its only host is reserved
    plane.settle()
    row = [{"resource_provider": {"uuid": plane.host}, "resources": {"VCPU": 1}}]
    plane.placement.request("PUT", f"/allocations/{server}", json={"allocations": row}, version="1.0")
    plane.take(ORPHAN, plane.host, {"VCPU": 1})
    plane.take(OTHER, plane.host, {"VCPU": 1}, "CONTAINER")
    plane.take(STRANGER, plane.host, {"VCPU": 1}, None)
    plane.provider("old-host", NODE)
    device = plane.provider("compute-1_gone", "0badbeef-0000-4000-8000-000000000001", plane.host)
    plane.placement.request("PUT", f"/resource_providers/{device}/traits",
                            json={"traits": ["OWNER_CYBORG"], "resource_provider_generation": 0})  # fmt: skip
    lost = reservation_class(OTHER)
    plane.offer(plane.host, lost, 3)
    plane.offer(plane.host, "CUSTOM_ODD", 4)
    plane.offer(plane.host, "CUSTOM_FULL", 4)
    plane.offer(plane.host, "CUSTOM_LOST", 4)
    plane.take("00000004-0000-4000-8000-000000000000", plane.host, {"CUSTOM_FULL": 4, "CUSTOM_LOST": 4})
    plane.pass_grace()
    of = "FROM resource_classes WHERE name ="
    with plane.broken(
        f"UPDATE inventories SET reserved = 5, min_unit = 3, max_unit = 2 WHERE class_id = (SELECT id {of} 'CUSTOM_ODD')",
        f"UPDATE inventories SET total = 3 WHERE class_id = (SELECT id {of} 'CUSTOM_FULL')",
        f"DELETE FROM inventories WHERE class_id = (SELECT id {of} 'CUSTOM_LOST')",
        "UPDATE providers SET root_id = (SELECT id FROM providers WHERE name = 'old-host') "
        "WHERE name LIKE 'compute-1_0000%17%00.0'",
    ):
        found = plane.audit()
    leaf = plane.services.placement.provider_by_name("compute-1_0000:17:00.0").uuid
    assert sorted(kinds(found)) == sorted([
        (FindingKind.UNKNOWN_CONSUMER, ORPHAN),
        (FindingKind.UNKNOWN_CONSUMER, OTHER),
        (FindingKind.UNKNOWN_CONSUMER, STRANGER),
        (FindingKind.UNKNOWN_CONSUMER, "00000004-0000-4000-8000-000000000000"),
        (FindingKind.INCOMPLETE_CONSUMER, server),
        (FindingKind.OVER_CAPACITY, plane.host),
        (FindingKind.IMPOSSIBLE_INVENTORY, plane.host),
        (FindingKind.MISSING_INVENTORY, plane.host),
        (FindingKind.OWNERLESS_INVENTORY, plane.host),
        (FindingKind.OWNERLESS_PROVIDER, NODE),
        (FindingKind.OWNERLESS_PROVIDER, device),
        (FindingKind.WRONG_ROOT, leaf),
        (FindingKind.LOST_INVENTORY, reservation),
        (FindingKind.LEASE_WITHOUT_FLAVOR, reservation),
        (FindingKind.ALLOCATION_ELSEWHERE, server),
    ])  # fmt: skip


# --- repairs ----------------------------------------------------------------------------------------------------


def test_allocations_of_an_unknown_consumer_are_released_and_restored_by_the_receipt(plane):
    plane.take(ORPHAN, plane.host, {"VCPU": 2, "MEMORY_MB": 512})
    before = plane.held(ORPHAN)
    plane.pass_grace()
    (outcome,) = plane.fix(plane.audit())
    assert (outcome.is_done, outcome.text) == (True, "done")
    assert plane.held(ORPHAN) == {}
    assert plane.audit() == []
    about, ended = map(json.loads, plane.receipt_path.read_text().splitlines())
    assert about["before"]["allocations"] == {plane.host: {"VCPU": 2, "MEMORY_MB": 512}}
    assert ended["done"] is True
    undo(plane, plane.receipt_path.read_text())
    assert plane.held(ORPHAN)[plane.host]["resources"] == before[plane.host]["resources"]


def test_a_consumer_of_unknown_type_is_released_only_if_it_is_named(plane):
    plane.take(STRANGER, plane.host, {"VCPU": 1}, None)
    plane.pass_grace()
    found = plane.audit()
    assert plane.fix(found) == []
    assert plane.held(STRANGER)
    plane.receipt_path.unlink()
    (outcome,) = plane.fix(found, STRANGER)
    assert outcome.is_done
    assert plane.held(STRANGER) == {}
    undo(plane, plane.receipt_path.read_text())
    assert plane.placement.get(f"/allocations/{STRANGER}")["consumer_type"] == "unknown"


def test_an_incomplete_consumer_gets_its_project_and_user(plane):
    server = plane.new_server()
    plane.placement.request("DELETE", f"/allocations/{server}")
    row = [{"resource_provider": {"uuid": plane.host}, "resources": {"VCPU": 1}}]
    plane.placement.request("PUT", f"/allocations/{server}", json={"allocations": row}, version="1.0")
    assert plane.placement.get(f"/allocations/{server}")["project_id"] == INCOMPLETE
    (outcome,) = plane.fix(plane.audit())
    assert outcome.is_done
    shown = plane.server(server)
    owned = plane.placement.get(f"/allocations/{server}")
    assert (owned["project_id"], owned["user_id"]) == (shown["tenant_id"], shown["user_id"])
    assert owned["allocations"][plane.host]["resources"] == {"VCPU": 1}
    assert plane.audit() == []
    undo(plane, plane.receipt_path.read_text())
    assert plane.placement.get(f"/allocations/{server}")["project_id"] == INCOMPLETE


def test_an_inventory_without_a_lease_is_deleted_and_restored_by_the_receipt(plane):
    lost = reservation_class(OTHER)
    plane.offer(plane.host, lost, 3)
    others = plane.services.placement.inventories(plane.host)[1]
    (outcome,) = plane.fix(plane.audit())
    assert outcome.is_done
    left = plane.services.placement.inventories(plane.host)[1]
    assert left == {name: inventory for name, inventory in others.items() if name != lost}
    undo(plane, plane.receipt_path.read_text())
    assert plane.services.placement.inventories(plane.host)[1] == others


def test_a_provider_without_an_owner_is_deleted_only_if_named_and_restored_by_the_receipt(plane):
    plane.provider("old-host", NODE)
    plane.offer(NODE, "VCPU", 4, reserved=1)
    plane.services.placement.set_aggregates(NODE, 1, [ORPHAN])
    found = plane.audit()
    assert plane.fix(found) == []
    plane.receipt_path.unlink()
    (outcome,) = plane.fix(found, NODE)
    assert outcome.is_done
    assert plane.services.placement.provider(NODE) is None
    undo(plane, plane.receipt_path.read_text())
    assert plane.services.placement.inventories(NODE)[1]["VCPU"].reserved == 1
    assert plane.services.placement.aggregates(NODE)[1] == {ORPHAN}


def test_the_lost_provider_of_a_running_reservation_is_created_again(plane):
    """A11 (instance-reservation): provider and inventory are created again, and reserved servers can be launched."""
    lease, reservation = plane.running_lease(2)
    name, find = reservation_class(reservation), plane.services.placement.provider_by_name
    offered = plane.services.placement.inventories(find("blazar_compute-1").uuid)[1]
    delete_reservation_provider(plane)
    found = plane.audit()
    assert kinds(found) == [(FindingKind.LOST_INVENTORY, reservation)]
    assert find("blazar_compute-1") is None  # without --fix nothing changes
    (outcome,) = plane.fix(found)
    assert outcome.is_done
    made = find("blazar_compute-1")
    assert made.parent_uuid == plane.host
    assert plane.services.placement.inventories(made.uuid)[1] == offered
    assert offered[name].total == 2
    assert plane.audit() == []
    undo(plane, plane.receipt_path.read_text())
    assert find("blazar_compute-1") is None
    plane.receipt_path.unlink()
    plane.fix(plane.audit())
    plane.placement.request("DELETE", f"/resource_providers/{made.uuid}/inventories/{name}")
    plane.receipt_path.unlink()
    (outcome,) = plane.fix(plane.audit())  # creates only the inventory
    assert outcome.is_done
    undo(plane, plane.receipt_path.read_text())
    assert find("blazar_compute-1") is not None
    assert name not in plane.services.placement.inventories(made.uuid)[1]
    plane.receipt_path.unlink()
    plane.fix(plane.audit())
    server = plane.create_server(flavor=reservation)
    plane.settle()
    assert plane.server(server)["status"] == "ACTIVE"
    assert plane.held(server)[made.uuid]["resources"] == {name: 1}
    plane.reservation.request("DELETE", f"/v1/leases/{lease}")


# --- races ------------------------------------------------------------------------------------------------------


def skipped_repair(plane, *also: str) -> str:
    (outcome,) = plane.fix(plane.audit(), *also)
    assert not outcome.is_done
    (ended,) = [entry for line in plane.receipt_path.read_text().splitlines()
                if "done" in (entry := json.loads(line))]  # fmt: skip
    assert ended["done"] is False
    return outcome.text


def test_a_consumer_that_changed_after_the_audit_read_it_is_not_released(plane):
    """Another client writes right before the audit's write, which carries the generation that the audit read."""
    plane.take(ORPHAN, plane.host, {"VCPU": 1})
    plane.pass_grace()

    def write_again() -> None:
        held = plane.placement.get(f"/allocations/{ORPHAN}")
        held["allocations"][plane.host] = {"resources": {"VCPU": 3}}
        plane.placement.request("PUT", f"/allocations/{ORPHAN}", json=held)

    plane.before["PUT", "placement", f"/allocations/{ORPHAN}"] = write_again
    assert skipped_repair(plane).startswith("left alone: it changed meanwhile")
    assert plane.held(ORPHAN)[plane.host]["resources"] == {"VCPU": 3}


def test_a_consumer_that_was_deleted_and_created_again_is_not_released(plane):
    """Same uuid, same allocations, same generation: only the age of the consumer differs."""
    plane.take(ORPHAN, plane.host, {"VCPU": 1})
    plane.pass_grace()

    def come_again() -> None:
        plane.placement.request("DELETE", f"/allocations/{ORPHAN}")
        plane.take(ORPHAN, plane.host, {"VCPU": 1})

    found = plane.audit()
    come_again()
    (outcome,) = plane.fix(found)
    assert outcome.text == "left alone: it changed meanwhile"
    assert plane.held(ORPHAN)


def test_allocations_of_a_server_that_compute_knows_by_now_are_not_released(plane):
    """For example one that was created between the two requests, or in a cell that did not answer the first one."""
    server = plane.new_server()
    plane.pass_grace()
    assert plane.audit() == []
    nobody = replace(plane.snapshot.compute, servers=frozenset())
    holder = audited_consumer(plane.services.placement.holder(server))
    plane.snapshot = replace(plane.snapshot, consumers={server: holder}, compute=nobody)
    (outcome,) = plane.fix(all_findings(plane.snapshot, GRACE))
    assert outcome.text == "left alone: compute knows it now"
    assert plane.held(server)


def test_a_server_missing_from_the_list_is_requested_by_its_id(plane):
    """Nova omits soft-deleted servers, which keep their allocations."""
    server = plane.new_server()
    plane.pass_grace()
    plane.answers["compute"] = lambda path: b'{"servers": []}' if path.startswith("/v2.1/servers/detail?") else None
    assert plane.audit() == []
    assert plane.snapshot.compute.servers == {server}


def test_an_inventory_that_changed_after_the_audit_read_it_is_not_deleted(plane):
    lost = reservation_class(OTHER)
    plane.offer(plane.host, lost, 3)
    path = f"/resource_providers/{plane.host}/inventories"

    def write_other() -> None:
        plane.offer(plane.host, "CUSTOM_NEW", 1)

    plane.before["PUT", "placement", path] = write_other
    assert skipped_repair(plane).startswith("left alone: it changed meanwhile")
    assert {lost, "CUSTOM_NEW"} <= plane.services.placement.inventories(plane.host)[1].keys()


def test_a_lease_that_starts_during_the_audit_causes_no_finding(plane):
    """The audit reads placement first, when the lease has no inventory yet."""
    plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
    plane.create_lease(start=plane.clock.now() + GRACE, end=plane.clock.now() + 9 * GRACE, amount=2)
    plane.before["GET", "reservation", "/v1/os-hosts/allocations"] = lambda: plane.run_until(
        plane.clock.now() + 2 * GRACE
    )
    assert plane.audit() == []
    assert plane.snapshot.reservations.slots


def test_the_provider_of_a_lease_that_ended_after_the_audit_is_not_created_again(plane):
    lease, _ = plane.running_lease(2)
    delete_reservation_provider(plane)
    found = plane.audit()
    plane.reservation.request("DELETE", f"/v1/leases/{lease}")
    plane.settle()
    (outcome,) = plane.fix(found)
    assert outcome.text == "left alone: the lease changed meanwhile"
    assert plane.services.placement.provider_by_name("blazar_compute-1") is None


def test_a_provider_that_gets_an_allocation_right_before_its_deletion_is_kept(plane):
    plane.provider("old-host", NODE)
    plane.offer(NODE, "VCPU", 4)
    deleting = "DELETE", "placement", f"/resource_providers/{NODE}"
    plane.before[deleting] = lambda: plane.take(ORPHAN, NODE, {"VCPU": 1})
    assert skipped_repair(plane, NODE).startswith("left alone: it changed meanwhile")
    assert plane.services.placement.provider(NODE) is not None


def test_a_provider_that_changes_while_the_audit_reads_it_is_read_again(plane):
    """Otherwise the audit would compare the inventories of one generation with the allocations of another."""
    reading = "GET", "placement", f"/resource_providers/{plane.host}/inventories"
    plane.before[reading] = lambda: plane.offer(plane.host, "CUSTOM_NEW", 1)
    assert plane.audit() == []
    assert "CUSTOM_NEW" in plane.snapshot.providers[plane.host].inventories


# --- failures ---------------------------------------------------------------------------------------------------


def test_an_audit_fails_if_one_of_the_services_does_not_answer(plane):
    def gone(_path: str) -> None:
        raise Unavailable("nobody answers")

    plane.take(ORPHAN, plane.host, {"VCPU": 1})
    for service in ("placement", "compute", "accelerator", "reservation"):
        plane.answers = {service: gone}
        with pytest.raises(Unavailable, match="nobody answers"):
            plane.audit()


def test_a_provider_deleted_during_the_audit_causes_no_finding(plane):
    plane.provider("old-host", NODE)
    reading = "GET", "placement", f"/resource_providers/{NODE}/allocations"
    plane.before[reading] = lambda: plane.placement.request("DELETE", f"/resource_providers/{NODE}")
    assert plane.audit() == []


def test_the_receipt_lists_the_steps_done_before_placement_stopped_answering(plane):
    for consumer in (ORPHAN, OTHER):
        plane.take(consumer, plane.host, {"VCPU": 1})
    plane.pass_grace()
    writing = "PUT", "placement", f"/allocations/{OTHER}"

    def gone() -> None:
        plane.before[writing] = gone
        raise Unavailable("placement does not answer")

    plane.before[writing] = gone
    with pytest.raises(Unavailable):
        plane.fix(plane.audit())
    entries = [json.loads(line) for line in plane.receipt_path.read_text().splitlines()]
    assert [entry.get("about_to", entry.get("result")) for entry in entries] == ["release", "done", "release"]
    assert plane.held(ORPHAN) == {}
    assert plane.held(OTHER)


def test_an_existing_receipt_is_not_overwritten_and_nothing_is_repaired(plane):
    plane.receipt_path.write_text("the last one")
    plane.take(ORPHAN, plane.host, {"VCPU": 1})
    plane.pass_grace()
    with pytest.raises(StartError, match=r"receipt\.jsonl cannot be created: File exists"):
        plane.fix(plane.audit())
    assert plane.held(ORPHAN)
