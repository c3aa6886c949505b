"""The FPGA regions of reservations, and which of them were programmed, on each database."""

from dataclasses import replace
from datetime import timedelta

import pytest

from moorage.db.session import read, write
from moorage.reservation.capacity.calendar import HostCapacity
from moorage.reservation.model.leases import Allocation, EventType
from moorage.reservation.model.reservation_requests import FPGA
from moorage.reservation.model.slot_demand import label
from moorage.reservation.model.steps import ProgramRegion, RetireRegion
from moorage.reservation.store import event_store, host_store, lease_store, region_store
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database
from tests.store.reservation.worlds import END, NOW, START, add_host, new_lease

SECOND = label(FPGA, 1)


@pytest.fixture
def engine(kind):
    with migrated_engine("reservation", kind) as engine:
        yield engine


@pytest.fixture
def world(engine, ids):
    """(engine, two leases, hosts): two hosts with two regions each, of which the first is up."""
    leases = [new_lease(ids), new_lease(ids)]
    hosts = [add_host(engine, name) for name in ("a", "b")]
    with write(engine) as connection:
        for name, host in zip(("a", "b"), hosts, strict=True):
            providers = {"VCPU": name, FPGA: f"{name}_R1", SECOND: f"{name}_R2"}
            capacity = HostCapacity(host, dict.fromkeys(providers, 4), {}, providers)
            host_store.set_capacity(connection, host, capacity)
        host_store.set_reservable(connection, hosts[1], False, NOW)
        for lease in leases:
            lease_store.insert_lease(connection, lease)
    return engine, leases, hosts


def slot(ids, lease, host, place):
    return Allocation(ids.uuid(), host, lease.reservations[0].id, START, END, {"VCPU": 1, place: 2})


@on_every_database
def test_the_regions_of_a_reservation_are_those_of_its_slots(world, ids):
    """Each region is found with the state of its host. Another lease has a region during the period of its slot."""
    engine, (one, two), (up, down) = world
    rows = [slot(ids, one, up, FPGA), slot(ids, one, down, SECOND), slot(ids, two, up, SECOND)]
    with read(engine) as connection:
        assert region_store.held(connection, rows) == {
            one.reservations[0].id: {"a_R1": True, "b_R2": False},
            two.reservations[0].id: {"a_R2": True},
        }
        assert region_store.held(connection, [replace(rows[0], resources={"VCPU": 1})]) == {}
    with write(engine) as connection:
        host_store.insert_allocations(connection, [slot(ids, two, up, SECOND)], NOW)
    mine = [one.reservations[0].id]
    named = ["a_R1", "a_R2", "gone"]
    with read(engine) as connection:
        assert region_store.of_others(connection, named, mine, START) == {"a_R2"}
        assert region_store.of_others(connection, named, [*mine, two.reservations[0].id], START) == frozenset()
        assert region_store.of_others(connection, named, mine, START - timedelta(seconds=1)) == frozenset()
        assert region_store.of_others(connection, named, mine, END) == frozenset()
        assert region_store.of_others(connection, [], mine, START) == frozenset()


@on_every_database
def test_the_last_step_in_the_journal_says_whether_a_region_was_programmed(world, ids):
    engine, (one, _), _ = world
    own = one.reservations[0].id

    def journal(event, *plan):
        """`plan`: (step, whether it is done); those come first"""
        with write(engine) as connection:
            event_store.insert_steps(connection, {event.id: event_store.new_rows(step for step, _ in plan)}, NOW)
            event_store.steps_done(connection, {event.id: sum(done for _, done in plan)}, NOW)

    def update(minutes):
        event = replace(
            one.event(EventType.START),
            id=ids.uuid(),
            type=EventType.UPDATE,
            created_at=NOW + timedelta(minutes=minutes),
        )
        with write(engine) as connection:
            event_store.insert_events(connection, [event])
        return event

    def load(region):
        return ProgramRegion(own, "p", region)

    def leave(region):
        return RetireRegion(own, region)

    journal(one.event(EventType.START), (load("a_R1"), True), (load("a_R2"), True), (load("b_R1"), False))
    journal(update(1), (leave("a_R1"), True), (load("b_R2"), True))
    journal(update(2), (leave("b_R2"), True), (load("a_R1"), True))
    with read(engine) as connection:
        found = {own: {"a_R1": True, "a_R2": True, "b_R1": False, "b_R2": False}}
        assert region_store.ordered(connection, one.id) == found
