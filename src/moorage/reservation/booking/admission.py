"""Admission: plan on the calendar in memory, verify under lock, commit. Prevents overbooking by concurrent processes.

A stale calendar is harmless: a plan is verified in SQL with its hosts locked before it is committed, and a request is
refused only on a calendar that was just refreshed. A request that keeps losing against concurrent ones is planned with
all hosts locked, so it can only be refused for lack of capacity.

Every request that takes capacity on hosts calls `admit_all`, with a `LimitCheck`.

A refresh reads only changed hosts: every write of allocations raises the `revision` of its hosts.

Before each plan, the capacity of hosts is compared with Placement (`placement_capacity`), so that no lease is booked
into resources that are gone.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias, TypeVar

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.core.errors import Conflict, MoorageError
from moorage.db.session import in_transaction, read
from moorage.reservation.capacity import host_selection
from moorage.reservation.capacity.calendar import Calendar, HostUsage
from moorage.reservation.capacity.next_slot import first_fit
from moorage.reservation.store import hold_store, host_store

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Checks and records the limits of an account, in the transaction that writes. Raises `OverQuota`. See `Enforcement`.
LimitCheck: TypeAlias = Callable[[Connection, Sequence[host_selection.Plan]], None]

#: Optimistic attempts before all hosts are locked.
ATTEMPTS = 5

#: How far ahead a refusal searches for a time at which the request would fit.
HORIZON = timedelta(days=90)


class NotEnoughHostsAvailable(Conflict):
    """`fields`: reservation_id, free (available slots), later (first start within `HORIZON` where all fit, or None)."""

    code = "reservation.not_enough_hosts"


@dataclass(frozen=True, slots=True)
class Booking:
    """Capacity requests that are planned together for one period."""

    asks: Sequence[host_selection.CapacityRequest]
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Excluding:
    """Usage to ignore: reservations that are planned again, a hold that becomes a lease, or lost slots of any lease
    (by id), which use no capacity that exists.
    """

    reservations: Collection[str] = ()
    hold: str | None = None
    lost: Collection[str] = ()

    def __bool__(self) -> bool:
        return bool(self.reservations) or self.hold is not None or bool(self.lost)


class _PlanInvalidated(Exception):
    """The hosts of a plan have changed since it was made."""


@dataclass(frozen=True, slots=True)
class _CalendarSnapshot:
    """The calendar without holds, and the revision of each host that it includes."""

    calendar: Calendar
    revised: Mapping[int, tuple[int, int, int]]  #: the result of `host_store.revised`
    revisions: Mapping[int, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class _Refused:
    shortage: host_selection.Shortage
    booking: Booking
    of: int  #: number of bookings planned together


class Admission:
    """One per process. Only `admit` and `admit_all` create allocations of hosts.

    `refresh_capacity`: see `PlacementCapacity.refresh`. Admission fails with its errors; the calendar is also shown
    without it.
    """

    def __init__(self, engine: Engine, clock: Clock, refresh_capacity: Callable[[], object] = lambda: None) -> None:
        self._engine = engine
        self._clock = clock
        self._refresh_capacity = refresh_capacity
        self._lock = threading.Lock()
        self._snapshot: _CalendarSnapshot | None = None
        self._is_old = False

    def invalidate(self) -> None:
        """Forces a refresh before the next plan, after allocations were deleted."""
        with self._lock:
            self._is_old = True

    def calendar(self, excluding: Excluding = Excluding()) -> Calendar:
        """The calendar, refreshed and including holds. If Placement does not answer, it has the last known capacity."""
        try:
            self._refresh_capacity()
        except MoorageError as error:
            log.warning("the calendar uses the last known capacity of the hosts", extra={"reason": error.message})
        return self._calendar(excluding, fresh=True)[0]

    def plan_all(self, bookings: Sequence[Booking], excluding: Excluding = Excluding()) -> list[host_selection.Plan]:
        """The plans that `admit_all` would choose now, without writing. Raises `NotEnoughHostsAvailable`."""
        self._refresh_capacity()
        calendar = self._calendar(excluding, fresh=True)[0]
        plans = _planned(calendar, bookings)
        if isinstance(plans, _Refused):
            raise _not_enough(plans, calendar, excluding)
        return plans

    def admit(
        self,
        booking: Booking,
        *,
        limits: LimitCheck,
        before: Callable[[Connection], None] = lambda _: None,
        commit: Callable[[Connection, host_selection.Plan], T],
        excluding: Excluding = Excluding(),
        only_held: bool = False,
    ) -> T:
        """`admit_all` for one booking."""
        return self.admit_all(
            [booking],
            limits=limits,
            before=before,
            commit=lambda connection, plans: commit(connection, plans[0]),
            excluding=excluding,
            only_held=only_held,
        )

    def admit_all(
        self,
        bookings: Sequence[Booking],
        *,
        limits: LimitCheck,
        before: Callable[[Connection], None] = lambda _: None,
        commit: Callable[[Connection, Sequence[host_selection.Plan]], T],
        excluding: Excluding = Excluding(),
        only_held: bool = False,
    ) -> T:
        """Plans the bookings, locks the chosen hosts, verifies, and runs `commit` and `limits` in the same transaction.

        Admits all bookings or none. `before` runs first in that transaction (it locks the lease: leases are locked
        before hosts); its errors are passed on. `limits` runs last, so that it sees all that `commit` wrote. All
        callables may run several times. `only_held`: `commit` writes a hold, not a lease. Raises
        `NotEnoughHostsAvailable`.
        """

        def write(connection: Connection, plans: Sequence[host_selection.Plan]) -> T:
            result = commit(connection, plans)
            limits(connection, plans)
            return result

        if any(booking.asks for booking in bookings):
            self._refresh_capacity()
        fresh = False
        for _ in range(ATTEMPTS):
            calendar, seen = self._calendar(excluding, fresh=fresh)
            plans = _planned(calendar, bookings)
            if isinstance(plans, _Refused):
                if fresh:
                    raise _not_enough(plans, calendar, excluding)
                fresh = True
                continue
            try:
                result = self._commit(plans, bookings, before, write, excluding)
            except _PlanInvalidated:
                fresh = True
                continue
            if excluding:
                self.invalidate()
            elif not only_held:
                self._add_to_snapshot(seen, bookings, plans)
            return result
        return in_transaction(
            self._engine,
            lambda connection: self._admit_with_all_hosts_locked(connection, bookings, before, write, excluding),
        )

    def _admit_with_all_hosts_locked(
        self,
        connection: Connection,
        bookings: Sequence[Booking],
        before: Callable[[Connection], None],
        commit: Callable[[Connection, Sequence[host_selection.Plan]], T],
        excluding: Excluding,
    ) -> T:
        """Plans with all hosts locked, so that no concurrent request can invalidate the plan."""
        before(connection)
        host_store.lock_hosts(connection, [each.host for each in host_store.capacities(connection)])
        calendar = self._locked(connection, None, bookings, excluding)
        plans = _planned(calendar, bookings)
        if isinstance(plans, _Refused):
            raise _not_enough(plans, calendar, excluding)
        return commit(connection, plans)

    def _commit(
        self,
        plans: Sequence[host_selection.Plan],
        bookings: Sequence[Booking],
        before: Callable[[Connection], None],
        commit: Callable[[Connection, Sequence[host_selection.Plan]], T],
        excluding: Excluding,
    ) -> T:
        chosen = {host for plan in plans for picked in plan.values() for host in picked}

        def verify_and_commit(connection: Connection) -> T:
            before(connection)
            if chosen:
                host_store.lock_hosts(connection, chosen)
                there = self._locked(connection, chosen, bookings, excluding)
                for booking, plan in zip(bookings, plans, strict=True):
                    if not host_selection.still_fits(there, plan, booking.start, booking.end):
                        raise _PlanInvalidated
                    there = _with(there, booking, plan)
            return commit(connection, plans)

        return in_transaction(self._engine, verify_and_commit)

    def _locked(
        self, connection: Connection, hosts: Collection[int] | None, bookings: Sequence[Booking], excluding: Excluding
    ) -> Calendar:
        """The calendar of these hosts (None: all), read in this transaction for the period of the bookings."""
        capacities = host_store.capacities(connection, hosts)
        ids = [each.host for each in capacities]
        start, end = min(each.start for each in bookings), max(each.end for each in bookings)
        used = host_store.usages_between(connection, ids, start, end, excluding.reservations, excluding.lost)
        held = hold_store.usages(connection, self._clock.now(), ids, without=excluding.hold)
        return Calendar(capacities, [*used, *held])

    def _calendar(self, excluding: Excluding, *, fresh: bool) -> tuple[Calendar, _CalendarSnapshot]:
        """(the calendar with holds but without the usage `excluding`, the snapshot that it is based on).

        Unless `fresh`, it may be the last snapshot, without a refresh and without holds.
        """
        with self._lock:
            snapshot, is_old = self._snapshot, self._is_old
            self._is_old = False
        if not (fresh or is_old or excluding) and snapshot is not None:
            return snapshot.calendar, snapshot
        with read(self._engine) as connection:
            snapshot = _refreshed_snapshot(connection, snapshot, self._clock.now())
            own = host_store.allocations_of(connection, excluding.reservations, excluding.lost)
            held = hold_store.usages(connection, self._clock.now(), without=excluding.hold)
        with self._lock:
            self._snapshot = snapshot
        released = [HostUsage(each.host_id, each.start_date, each.end_date, each.resources).released() for each in own]
        return snapshot.calendar.with_usage([*released, *held]), snapshot

    def _add_to_snapshot(
        self, seen: _CalendarSnapshot, bookings: Sequence[Booking], plans: Sequence[host_selection.Plan]
    ) -> None:
        """Adds our commit to the snapshot that it was planned on, so that the next request need not read it.

        Does nothing if another thread has refreshed the snapshot: it then contains the commit.
        """
        calendar = seen.calendar
        for booking, plan in zip(bookings, plans, strict=True):
            calendar = _with(calendar, booking, plan)
        with self._lock:
            if self._snapshot is seen:
                self._snapshot = replace(seen, calendar=calendar)


def _refreshed_snapshot(connection: Connection, seen: _CalendarSnapshot | None, now: datetime) -> _CalendarSnapshot:
    """The snapshot after reading the changed hosts.

    Reads revisions before allocations. A write in between is read now and again next time, but is counted once.
    """
    revised = host_store.revised(connection)
    if seen is not None and seen.revised == revised:
        return seen
    before = {} if seen is None else seen.revised
    parts = [part for part in before.keys() | revised.keys() if before.get(part) != revised.get(part)]
    read = host_store.revisions(connection, parts)
    if seen is not None and all(read[part].keys() == seen.revisions.get(part, {}).keys() for part in parts):
        changed = [host for part in parts for host, n in read[part].items() if seen.revisions[part][host] != n]
        capacities = host_store.capacities(connection, changed)
        usages = host_store.live_usages(connection, now, changed)
        # A host that is no longer reservable has no capacity that could be replaced; then everything is read.
        if len(capacities) == len(changed) and seen.calendar.knows(capacities, usages):
            return _CalendarSnapshot(seen.calendar.replaced(capacities, usages), revised, {**seen.revisions, **read})
    calendar = Calendar(host_store.capacities(connection), host_store.live_usages(connection, now))
    return _CalendarSnapshot(calendar, revised, read if seen is None else {**seen.revisions, **read})


def _planned(calendar: Calendar, bookings: Sequence[Booking]) -> list[host_selection.Plan] | _Refused:
    """Plans the bookings in order, each on the capacity that the earlier ones leave."""
    plans = []
    for booking in bookings:
        plan = host_selection.plan(calendar, booking.asks, booking.start, booking.end)
        if isinstance(plan, host_selection.Shortage):
            return _Refused(plan, booking, len(bookings))
        plans.append(plan)
        calendar = _with(calendar, booking, plan) if len(bookings) > 1 else calendar
    return plans


def _with(calendar: Calendar, booking: Booking, plan: host_selection.Plan) -> Calendar:
    return calendar.with_usage(
        usage for placing in plan.values() for usage in host_selection.usages(placing, booking.start, booking.end)
    )


def _not_enough(refused: _Refused, calendar: Calendar, excluding: Excluding) -> NotEnoughHostsAvailable:
    """The error for a shortage. For new reservations it includes the next start at which all fit."""
    shortage, booking = refused.shortage, refused.booking
    later = None
    words = name_lease_in_batch(refused.of, booking.start, f"Not enough hosts available: {shortage.reason}")
    if not excluding.reservations:
        length = booking.end - booking.start
        later = first_fit(calendar, booking.asks, booking.start, booking.start + HORIZON, length)
        when = f"from {later:%Y-%m-%d %H:%M} on" if later else f"at no time within {HORIZON.days} days"
        words += f"; the whole lease fits {when}"
    return NotEnoughHostsAvailable(words, reservation_id=shortage.reservation_id, free=shortage.free, later=later)


def name_lease_in_batch(number: int, start: datetime, words: str) -> str:
    """Adds the lease's number and period to a refusal, if several leases are created together."""
    return words if number == 1 else f"The lease that starts {start:%Y-%m-%d %H:%M} (one of {number}): {words}"
