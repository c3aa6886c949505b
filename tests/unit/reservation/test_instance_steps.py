from dataclasses import replace
from datetime import UTC, datetime

import pytest

from moorage.reservation.capacity.step_plans import plan_change, plan_create, plan_end, plan_hosts, plan_start
from moorage.reservation.model.leases import Reservation, ReservationGeneration, ReservationStatus, generation_of
from moorage.reservation.model.reservation_requests import InstanceRequest, Size
from moorage.reservation.model.steps import (
    DropInventory,
    GrantAccess,
    JoinAggregate,
    PutInventory,
    journal_entry,
    step_from_journal,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SLOTS = {"a": {"compute-2": 1, "compute-1": 3}, "b": {"compute-1": 2}}


def reservation(name, status=ReservationStatus.PENDING):
    request = InstanceRequest(Size(1, 512, 0), 4)
    return Reservation(name, "l", "x", "virtual:instance", status, False, False, request, name, None, None, NOW, None)


A, B = reservation("a"), reservation("b")

#: What an older system made, and the names of compute services where they differ from the hosts'.
HYBRID = replace(reservation("b"), generation=ReservationGeneration.HYBRID, aggregate_id=7, server_group_id="group")
AGGREGATE = replace(HYBRID, generation=ReservationGeneration.AGGREGATE, server_group_id=None)
SERVICES = {"compute-1": "service-1", "compute-2": "service-2"}


def kinds(steps):
    return [(step.kind, step.reservation_id) for step in steps]


def test_the_resource_class_is_created_before_the_flavor_that_names_it():
    """R8, R9 (instance-reservation)."""
    assert kinds(plan_create([A, B])) == [
        ("ensure_class", "a"),
        ("ensure_flavor", "a"),
        ("ensure_class", "b"),
        ("ensure_flavor", "b"),
    ]


def test_a_start_writes_one_inventory_per_host_and_grants_access_last():
    """R20, R24 (instance-reservation)."""
    assert plan_start([A, B], SLOTS, {}, "p") == [
        PutInventory("a", "compute-1", 3),
        PutInventory("a", "compute-2", 1),
        PutInventory("b", "compute-1", 2),
        GrantAccess("a", "p"),
        GrantAccess("b", "p"),
    ]


def test_an_end_removes_access_servers_flavor_inventories_and_class_in_this_order():
    """R29, R30, R31, R32 (instance-reservation): one step for the inventory of each host."""
    steps = plan_end([A], SLOTS, {}, "p")
    assert [step.kind for step in steps] == [
        "revoke_access",
        "delete_servers",
        "delete_flavor",
        "reclaim_inventory",
        "reclaim_inventory",
        "delete_class",
    ]


def test_a_deleted_reservation_has_no_steps_at_the_end():
    assert plan_end([reservation("a", ReservationStatus.DELETED)], SLOTS, {}, "p") == []


def test_steps_read_back_the_same_from_the_journal():
    steps = [
        *plan_create([A]),
        *plan_start([A, HYBRID], SLOTS, SERVICES, "p"),
        *plan_end([A, HYBRID], SLOTS, SERVICES, "p"),
        *plan_change(A, InstanceRequest(Size(2, 512, 1), 4)),
    ]
    assert [step_from_journal(**journal_entry(step)) for step in steps] == steps


@pytest.mark.parametrize(
    ("aggregate_id", "group_id", "has_class", "generation"),
    [
        (None, None, True, ReservationGeneration.PURE),
        (7, None, True, ReservationGeneration.HYBRID),
        (None, "group", True, ReservationGeneration.HYBRID),
        (7, None, False, ReservationGeneration.AGGREGATE),
        (7, "group", False, ReservationGeneration.AGGREGATE),
    ],
)
def test_the_three_generations_of_reservations_are_distinguished(aggregate_id, group_id, has_class, generation):
    """A1 (instance-reservation): with the columns alone, every row of the peer would be one without inventory."""
    assert generation_of(aggregate_id, group_id, has_class=has_class) is generation


def test_the_start_of_an_older_reservation_adds_its_hosts_to_its_aggregate():
    """R25 (instance-reservation): access is granted last here, too; without a class there is no inventory."""
    joined = [JoinAggregate("b", "service-1", 7), GrantAccess("b", "p")]
    assert plan_start([HYBRID], SLOTS, SERVICES, "p") == [PutInventory("b", "compute-1", 2), *joined]
    assert plan_start([AGGREGATE], SLOTS, SERVICES, "p") == joined


def test_the_end_of_an_older_reservation_deletes_its_server_group_and_aggregate():
    """R33 (instance-reservation)."""
    kinds_of = [step.kind for step in plan_end([HYBRID], SLOTS, SERVICES, "p")]
    assert kinds_of == [
        "revoke_access",
        "delete_servers",
        "delete_server_group",
        "delete_flavor",
        "delete_aggregate",
        "reclaim_inventory",
        "delete_class",
    ]
    assert [step.kind for step in plan_end([AGGREGATE], SLOTS, SERVICES, "p")] == [
        "revoke_access",
        "delete_servers",
        "delete_flavor",
        "delete_aggregate",
    ]


def test_the_inventory_of_a_host_that_has_no_slots_any_more_is_dropped():
    """A4 (instance-reservation): an inventory of 0 is not allowed, so it is deleted."""
    steps = plan_hosts(A, {"a": {"compute-1": 2}}, {}, {"compute-1": 1, "compute-2": 1})
    assert steps == [PutInventory("a", "compute-1", 2), DropInventory("a", "compute-2")]
