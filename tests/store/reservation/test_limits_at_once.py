"""Concurrent requests never exceed a limit together, on all three databases."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from moorage.core.clock import VirtualClock
from moorage.core.errors import OverQuota
from moorage.core.ids import SeededIds
from moorage.reservation.booking.admission import Admission, Booking
from moorage.reservation.booking.enforcement import Enforcement, Rules
from moorage.reservation.capacity.host_selection import CapacityRequest
from moorage.reservation.model.limits import Limits
from moorage.reservation.model.reservation_requests import InstanceRequest, Size
from moorage.reservation.model.slot_demand import SlotDemand
from moorage.reservation.store import hold_store, lease_store
from moorage.reservation.store.hold_store import Hold
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database
from tests.store.reservation.worlds import END, NOW, START, add_host, new_lease


@pytest.fixture
def database(kind):
    with migrated_engine("reservation", kind) as engine:
        for number in range(12):
            add_host(engine, f"compute-{number}")
        yield engine


def at_once(database, rules, request):
    """Makes twelve requests from six processes at once; returns the number of accepted ones.

    Each asks for another host, so that the locks on hosts do not serialise them.
    """
    enforcements = [Enforcement(database, VirtualClock(NOW), rules) for _ in range(6)]
    admissions = [Admission(database, VirtualClock(NOW)) for _ in range(6)]

    def ask(number):
        ids = SeededIds(number)
        size = InstanceRequest(Size(1, 1024, 1), 1)
        lease = replace(new_lease(ids, size, project=f"p{number % 2}"), user_id="u")
        wanted = CapacityRequest(
            lease.reservations[0].id, SlotDemand(size.size.resources()), 1, eligible=frozenset({number + 1})
        )
        enforcement = enforcements[number % 6]
        enforcement.before_create(lease, dict)
        try:
            limits, commit = request(enforcement, lease, ids)
            admissions[number % 6].admit(Booking([wanted], START, END), limits=limits, commit=commit)
        except OverQuota:
            return 0
        return 1

    with ThreadPoolExecutor(6) as pool:
        return sum(pool.map(ask, range(12)))


def leased(enforcement, lease, ids):
    return enforcement.creation_check([lease]), lambda connection, plan: lease_store.insert_lease(connection, lease)


def held(enforcement, lease, ids):
    period = lease.start_date, lease.end_date
    hold = Hold(lease.id, lease.user_id, lease.project_id, *period, NOW + timedelta(minutes=10), [], NOW)

    def commit(connection, plan):
        hold_store.insert_hold(connection, hold, [])

    return enforcement.hold_check(hold, lease), commit


@on_every_database
@pytest.mark.parametrize(
    ("rules", "accepted"),
    [
        (Rules(limits=Limits(now={"VCPU": 2})), 4),
        (Rules(limits=Limits(hours={"VCPU": 48})), 4),
        (Rules(limits=Limits(now={"LEASES": 2})), 4),
        (Rules(user_limits=Limits(now={"VCPU": 3})), 3),
    ],
)
def test_leases_do_not_exceed_a_limit_together(database, rules, accepted):
    """The requests come from two projects and one user."""
    assert at_once(database, rules, leased) == accepted


@on_every_database
@pytest.mark.parametrize(
    ("rules", "accepted"), [(Rules(max_holds=3), 3), (Rules(hold_minutes_per_day=50, max_holds=99), 5)]
)
def test_holds_do_not_exceed_a_limit_together(database, rules, accepted):
    assert at_once(database, rules, held) == accepted
