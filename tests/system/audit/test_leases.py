"""Leases that disagree with other services, on a whole plane: found, repaired, and undone by the receipt."""

import json

import pytest

from moorage.audit.model import FindingKind
from moorage.core.errors import RemoteError
from moorage.core.names import reservation_class, reservation_flavor, reservation_zone
from tests.system.audit.rig import GRACE, AuditedPlane, undo

pytestmark = pytest.mark.slow

LEFT = "00000006-0000-4000-8000-000000000000"


@pytest.fixture
def plane(tmp_path):
    with AuditedPlane(tmp_path) as plane:
        yield plane


def kinds(found) -> list[tuple[FindingKind, str]]:
    return [(one.kind, one.subject) for one in found]


def fixed(plane) -> None:
    (outcome,) = plane.fix(plane.audit())
    assert outcome.is_done, outcome.text
    assert plane.audit() == []


def slots(plane, reservation: str) -> int | None:
    provider = plane.services.placement.provider_by_name("blazar_compute-1").uuid
    inventory = plane.services.placement.inventories(provider)[1].get(reservation_class(reservation))
    return None if inventory is None else inventory.total


def offer(plane, reservation: str, total: int) -> None:
    provider = plane.services.placement.provider_by_name("blazar_compute-1").uuid
    generation = plane.placement.get(f"/resource_providers/{provider}")["generation"]
    path = f"/resource_providers/{provider}/inventories/{reservation_class(reservation)}"
    body = {"resource_provider_generation": generation, "total": total, "max_unit": 1}
    plane.placement.request("PUT", path, json=body)


def test_a_wrong_number_of_slots_is_set_to_that_of_the_lease(plane):
    reservation = plane.running_lease(2)[1]
    offer(plane, reservation, 5)
    assert kinds(plane.audit()) == [(FindingKind.WRONG_SLOTS, reservation)]
    fixed(plane)
    assert slots(plane, reservation) == 2
    undo(plane, plane.receipt_path.read_text())
    assert slots(plane, reservation) == 5


def test_slots_of_a_lease_that_changed_after_the_audit_are_not_changed(plane):
    lease, reservation = plane.running_lease(2)
    offer(plane, reservation, 5)
    found = plane.audit()
    plane.reservation.request("DELETE", f"/v1/leases/{lease}")
    plane.settle()
    (outcome,) = plane.fix(found)
    assert outcome.text == "left alone: the lease changed meanwhile"


def test_a_lease_that_grows_during_the_audit_causes_no_finding(plane):
    """Placement is read first, so the audit reads its inventories again before it reports the finding."""
    lease, reservation = plane.running_lease(2)
    change = {"reservations": [{"id": reservation, "amount": 3}]}

    def grow() -> None:
        plane.reservation.request("PUT", f"/v1/leases/{lease}", json=change)
        plane.settle()

    plane.before["GET", "reservation", "/v1/os-hosts/allocations"] = grow
    assert plane.audit() == []
    assert (slots(plane, reservation), plane.snapshot.reservations.slots[reservation]) == (3, {"compute-1": 3})


def test_a_flavor_without_a_lease_is_deleted_and_restored_by_the_receipt(plane):
    plane.running_lease(1)
    flavor = {"id": LEFT, "name": reservation_flavor(LEFT), "vcpus": 1, "ram": 64, "disk": 1}
    plane.compute.request("POST", "/flavors", json={"flavor": flavor | {"os-flavor-access:is_public": False}})
    specs = {f"resources:{reservation_class(LEFT)}": "1"}
    plane.compute.request("POST", f"/flavors/{LEFT}/os-extra_specs", json={"extra_specs": specs})
    plane.services.compute.add_flavor_access(LEFT, "alpha")
    before = plane.services.compute.flavor(LEFT)
    assert kinds(plane.audit()) == [(FindingKind.FLAVOR_WITHOUT_LEASE, LEFT)]
    fixed(plane)
    assert plane.services.compute.flavor(LEFT) is None
    undo(plane, plane.receipt_path.read_text())
    assert plane.services.compute.flavor(LEFT) == before
    assert plane.services.compute.flavor_access(LEFT) == {"alpha"}


def test_a_flavor_without_a_lease_is_kept_if_a_server_uses_it(plane):
    flavor = {"id": LEFT, "name": reservation_flavor(LEFT), "vcpus": 1, "ram": 64, "disk": 1}
    plane.compute.request("POST", "/flavors", json={"flavor": flavor})
    server = plane.create_server(flavor=LEFT)
    plane.settle()
    (outcome,) = plane.fix(plane.audit())
    assert outcome.text == f"left alone: 1 server(s) have it, {server} among them"


def test_the_lost_flavor_access_of_a_running_lease_is_granted_again(plane):
    lease, reservation = plane.running_lease(1)
    project = plane.services.reservations.lease(lease).project_id
    plane.services.compute.remove_flavor_access(reservation, project)
    assert kinds(plane.audit()) == [(FindingKind.LEASE_WITHOUT_ACCESS, reservation)]
    fixed(plane)
    assert plane.services.compute.flavor_access(reservation) == {project}
    undo(plane, plane.receipt_path.read_text())
    assert plane.services.compute.flavor_access(reservation) == set()


def test_a_lease_before_its_start_or_after_its_end_causes_no_finding(plane):
    plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
    lease = plane.create_lease(start=plane.clock.now() + GRACE, end=plane.clock.now() + 3 * GRACE, amount=1)
    plane.settle()
    assert plane.audit() == []
    assert plane.snapshot.compute.reservation_flavors == {plane.reservation_id(lease)}
    plane.run_until(plane.clock.now() + 4 * GRACE)
    assert plane.audit() == []


def test_a_registered_host_outside_the_free_pool_is_added_to_it(plane):
    plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
    pool = plane.services.compute.aggregate_by_name("freepool")
    plane.services.compute.remove_host(pool.id, "compute-1")
    assert kinds(plane.audit()) == [(FindingKind.HOST_OUTSIDE_POOL, "compute-1")]
    fixed(plane)
    assert plane.services.compute.aggregate_by_name("freepool").hosts == ("compute-1",)
    undo(plane, plane.receipt_path.read_text())
    assert plane.services.compute.aggregate_by_name("freepool").hosts == ()


def test_an_unregistered_host_in_the_free_pool_and_an_aggregate_without_a_lease_are_reported(plane):
    compute = plane.services.compute
    compute.add_host(compute.create_aggregate("freepool").id, "compute-1")
    assert kinds(plane.audit()) == [(FindingKind.STRANGER_IN_POOL, "compute-1")]
    compute.delete_aggregate(compute.aggregate_by_name("freepool").id)
    compute.add_host(compute.create_aggregate(LEFT, reservation_zone(LEFT)).id, "compute-1")
    assert kinds(plane.audit()) == [(FindingKind.AGGREGATE_WITHOUT_LEASE, LEFT)]


def set_vcpus(plane, **changes: float) -> None:
    """As `openstack resource provider inventory set`: reads all inventories, changes one, and puts all."""
    path = f"/resource_providers/{plane.host}/inventories"
    document = plane.placement.get(path)
    document["inventories"]["VCPU"] |= changes
    plane.placement.request("PUT", path, json=document)


@pytest.mark.parametrize("less", [{"total": 1, "max_unit": 1}, {"reserved": 15}], ids=["total", "reserved"])
def test_capacity_that_an_operator_takes_away_is_noticed_by_admission_lease_and_audit(plane, less):
    """Issue 18.2, as an operator of an all-in-one plane does it: 16 processors, a lease of 2, and 1 is left."""
    lease, reservation = plane.running_lease(2)
    set_vcpus(plane, allocation_ratio=1.0, **less)
    with pytest.raises(RemoteError, match="Not enough hosts available"):
        plane.create_lease(start=plane.clock.now() + GRACE, end=plane.clock.now() + 2 * GRACE, amount=1)
    # Until the reservation service has looked, only the audit knows.
    (found,) = plane.audit()
    assert (found.kind, found.subject) == (FindingKind.OVERBOOKED_HOST, plane.host)
    assert found.why == "active leases have 2 VCPU there, of 1"
    plane.task("reservation.watch").run_once()
    plane.settle()
    shown = plane.lease(lease)
    assert (shown["status"], shown["degraded"]) == ("ACTIVE", True)
    assert shown["reservations"][0]["missing_resources"] is True
    assert kinds(plane.audit()) == [(FindingKind.LEASE_WITHOUT_RESOURCES, reservation)]
    calendar = plane.reservation.get("/v1/calendar", version="1.1")["calendar"]
    assert calendar["capacity"]["VCPU"] == 1
    timeline = plane.reservation.get(f"/v1/leases/{lease}/timeline", version="1.1")["timeline"]
    assert "resources_lost" in [entry["event_type"] for entry in timeline]
    set_vcpus(plane, total=16, max_unit=16, reserved=0)
    plane.task("reservation.watch").run_once()
    plane.settle()
    assert plane.lease(lease)["degraded"] is False
    assert (slots(plane, reservation), plane.audit()) == (2, [])


def test_a_lease_that_ended_without_its_resources_is_no_finding(plane):
    lease, reservation = plane.running_lease(2)
    set_vcpus(plane, allocation_ratio=1.0, total=1, max_unit=1)
    plane.task("reservation.watch").run_once()
    plane.settle()
    assert kinds(plane.audit()) == [(FindingKind.LEASE_WITHOUT_RESOURCES, reservation)]
    plane.run_until(plane.clock.now() + 100 * GRACE)
    ended = plane.lease(lease)
    assert (ended["status"], ended["degraded"]) == ("TERMINATED", True)
    assert plane.audit() == []


def set_faults(plane, *faults: dict[str, object]) -> None:
    """The simulated cards of compute-1 have these faults from now on; the host and the reservation service look."""
    path = plane.state / "accelerators" / "simulated" / "control.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"faults": [{**fault, "times": 0} for fault in faults]}))
    for task in ("resources", "reservation.watch"):
        plane.task(task).run_once()
        plane.settle()


def test_a_lease_moves_to_another_device_of_the_host_and_is_flagged_when_there_is_none(plane):
    """Issue 18.2: of four GPUs the lease has three; two fail, and later one is gone."""
    plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
    start, end = (
        (plane.clock.now() + GRACE * periods).strftime("%Y-%m-%d %H:%M") for periods in (1, 99)
    )  # fmt: skip
    wanted = {"resource_type": "resource:any", "resources": {"CUSTOM_ACCELERATOR_GPU": 1, "VCPU": 1}}

    def book(amount: int) -> str:
        body = {"name": "gpus", "start_date": start, "end_date": end, "reservations": [{**wanted, "amount": amount}]}
        return plane.reservation.request("POST", "/v1/leases", json=body, version="1.1")["lease"]["id"]

    def look() -> tuple[bool, list[FindingKind]]:
        return plane.lease(lease)["degraded"], [finding.kind for finding in plane.audit()]

    lease = book(3)
    sick = [{"verb": "health", "kind": "sick", "at": card} for card in ("0000:17:00.0", "0000:65:00.0")]
    set_faults(plane, sick[0])
    assert look() == (False, [])
    with pytest.raises(RemoteError, match="Not enough hosts available"):
        book(1)
    set_faults(plane, *sick)
    assert look() == (True, [FindingKind.LEASE_WITHOUT_RESOURCES])
    set_faults(plane, {"verb": "discover", "kind": "vanishes", "at": "0000:e3:00.0"})
    assert look() == (False, [])
    plane.run_until(plane.clock.now() + 2 * GRACE)
    assert (plane.lease(lease)["status"], look()) == ("ACTIVE", (False, []))
