"""Audit findings about leases, in small examples; tests/system/audit/test_leases.py uses a real plane."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moorage.audit.lease_collector import audited_aggregate
from moorage.audit.model import (
    AuditedAggregate,
    AuditedProvider,
    AuditSnapshot,
    Compute,
    FindingKind,
    Repair,
    Reservations,
    ReservedFlavor,
)
from moorage.audit.rules.findings import all_findings
from moorage.compute.client.values import Aggregate as ComputeAggregate
from moorage.core.inventories import Inventory
from moorage.core.names import reservation_class

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
GRACE = timedelta(minutes=10)
ONE, TWO = "4d17d41a-830d-47b2-91c7-4f9fc0ae611e", "5d17d41a-830d-47b2-91c7-4f9fc0ae611e"
CLASS = reservation_class(ONE)
POOL = AuditedAggregate("freepool", frozenset({"svc"}), is_lent=False)
COMPUTE = Compute(
    frozenset(), frozenset(), frozenset({"h"}), nodes={"host": "h"}, reservation_flavors=frozenset({ONE}), aggregates=(POOL,)
)  # fmt: skip
RESERVATIONS = Reservations(
    frozenset({"l"}), frozenset({ONE}), frozenset({"host"}), {ONE: {"host": 3}},
    {ONE: ReservedFlavor("alpha", frozenset({"alpha"}))}, {"host": "svc"}, frozenset({"svc"}),
)  # fmt: skip


def snapshot(total: int = 3, used: int = 0, **services: object) -> AuditSnapshot:
    held = {"s": {CLASS: used}} if used else {}
    providers = {
        "h": AuditedProvider("h", "host", None, "h"),
        "b": AuditedProvider("b", "blazar_host", "h", "h", {CLASS: Inventory(total)}, held),
    }
    return replace(AuditSnapshot(NOW, providers, {}, COMPUTE, None, RESERVATIONS), **services)


def only(whole: AuditSnapshot):
    beside = (FindingKind.OVER_CAPACITY, FindingKind.LOST_INVENTORY)
    (found,) = (one for one in all_findings(whole, GRACE) if one.kind not in beside)
    return found


def test_a_lease_with_its_inventory_flavor_and_hosts_gives_no_finding():
    assert all_findings(snapshot(), GRACE) == []


@pytest.mark.parametrize(
    ("planned", "total", "used", "advice", "is_safe"),
    [
        (3, 2, 0, "offers 3 there", True),
        (3, 5, 3, "offers 3 there", True),
        (3, 5, 4, "nothing: 4 are in use; delete 1 of its servers there", False),
        (0, 2, 0, "removes the inventory", True),
    ],
)
def test_an_inventory_with_another_number_of_slots_than_the_lease_is_found(planned, total, used, advice, is_safe):
    slots = {ONE: {"host": planned} if planned else {"elsewhere": 1}}
    found = only(snapshot(total, used, compute=None, reservations=replace(RESERVATIONS, slots=slots)))
    assert (found.kind, found.subject, found.where) == (FindingKind.WRONG_SLOTS, ONE, "blazar_host")
    assert (found.advice, found.is_safe, found.action) == (advice, is_safe, Repair.SET_SLOTS if is_safe else None)


def test_slots_in_use_on_a_host_that_the_lease_left_are_not_found():
    moved = replace(RESERVATIONS, slots={ONE: {"elsewhere": 1}})
    found = all_findings(snapshot(2, 2, compute=None, reservations=moved), GRACE)
    assert FindingKind.WRONG_SLOTS not in {one.kind for one in found}


def test_flavors_without_lease_leases_without_flavor_and_missing_access_are_found():
    left = only(snapshot(compute=replace(COMPUTE, reservation_flavors=frozenset({ONE, TWO}))))
    assert (left.kind, left.subject, left.action, left.is_safe) == (
        FindingKind.FLAVOR_WITHOUT_LEASE, TWO, Repair.DELETE_FLAVOR, True,
    )  # fmt: skip
    gone = only(snapshot(reservations=replace(RESERVATIONS, flavors={ONE: ReservedFlavor("alpha", None)})))
    assert (gone.kind, gone.subject, gone.action) == (FindingKind.LEASE_WITHOUT_FLAVOR, ONE, None)
    others = {ONE: ReservedFlavor("alpha", frozenset({"beta"}))}
    closed = only(snapshot(reservations=replace(RESERVATIONS, flavors=others)))
    assert (closed.kind, closed.action, closed.is_safe) == (FindingKind.LEASE_WITHOUT_ACCESS, Repair.GRANT_ACCESS, True)


def test_an_aggregate_of_a_host_reservation_without_lease_is_found():
    lent = AuditedAggregate(ONE, frozenset({"svc"}), is_lent=True)
    assert all_findings(snapshot(compute=replace(COMPUTE, aggregates=(POOL, lent))), GRACE) == []
    left = only(snapshot(compute=replace(COMPUTE, aggregates=(POOL, replace(lent, name=TWO)))))
    assert (left.kind, left.subject, left.where, left.action) == (FindingKind.AGGREGATE_WITHOUT_LEASE, TWO, "svc", None)


@pytest.mark.parametrize(
    ("name", "zone", "is_lent"),
    [(ONE, f"blazar_{ONE}", True), (ONE, f"other-{ONE}", True), (ONE, "nova", False), ("rack", "blazar_rack", False)],
)
def test_the_aggregate_of_a_host_reservation_is_recognised_by_its_name_and_zone(name, zone, is_lent):
    read = ComputeAggregate(1, name, ("svc",), {"availability_zone": zone})
    assert audited_aggregate(read) == AuditedAggregate(name, frozenset({"svc"}), is_lent)


def test_a_registered_host_outside_the_free_pool_and_a_stranger_in_it_are_found():
    outside = only(snapshot(reservations=replace(RESERVATIONS, in_aggregates=frozenset())))
    assert (outside.kind, outside.subject, outside.where) == (FindingKind.HOST_OUTSIDE_POOL, "svc", "host")
    assert (outside.action, outside.is_safe) == (Repair.JOIN_POOL, True)
    crowded = replace(POOL, hosts=frozenset({"svc", "other"}))
    stranger = only(snapshot(compute=replace(COMPUTE, aggregates=(crowded,))))
    assert (stranger.kind, stranger.subject, stranger.action) == (FindingKind.STRANGER_IN_POOL, "other", None)
    assert stranger.why == "reservations do not know it, nor does compute"


def needing(units: int, **more: object) -> AuditSnapshot:
    """A host with 4 VCPU at a ratio of 2, of which 1 is reserved, and 3 more on a child; its leases need `units`."""
    whole = snapshot()
    vcpu = Inventory(4, reserved=1, allocation_ratio=2.0)
    providers = {
        **whole.providers,
        "h": replace(whole.providers["h"], inventories={"VCPU": vcpu}),
        "n": AuditedProvider("n", "host_numa", "h", "h", {"VCPU": Inventory(3)}),
        "other": AuditedProvider("other", "else", None, "other", {"VCPU": Inventory(99)}),
    }
    reservations = replace(RESERVATIONS, needs={"host": {"VCPU": units}}, **more)
    return replace(whole, providers=providers, reservations=reservations)


def overbooked(whole: AuditSnapshot):
    return [one for one in all_findings(whole, GRACE) if one.kind is FindingKind.OVERBOOKED_HOST]


def test_a_host_with_less_than_its_leases_have_is_reported():
    assert overbooked(needing(9)) == []
    (found,) = overbooked(needing(10))
    assert (found.subject, found.where, found.why) == ("h", "host", "active leases have 10 VCPU there, of 9")
    assert (found.action, found.is_safe) == (None, False)


def test_lost_slots_that_the_reservation_service_reports_are_not_reported_twice():
    whole = needing(10, short={ONE: "mine"}, short_hosts=frozenset({"host"}))
    about_capacity = (FindingKind.OVERBOOKED_HOST, FindingKind.LEASE_WITHOUT_RESOURCES)
    (found,) = (one for one in all_findings(whole, GRACE) if one.kind in about_capacity)
    assert (found.kind, found.subject, found.where) == (FindingKind.LEASE_WITHOUT_RESOURCES, ONE, "mine")
