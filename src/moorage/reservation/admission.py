"""Admission: decide on the calendar in memory, verify under lock, commit. No overbooking by any number of processes.

The calendar may be out of date. That is harmless both ways: a plan is verified against SQL with its hosts locked
before it is committed, and a refusal is only given out on a calendar that was just read. A request that others overtake
again and again is decided with all hosts locked: it waits, and is refused for lack of room only.
"""

import threading
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.core.errors import Conflict
from moorage.db.transactions import in_transaction, read
from moorage.reservation import host_store, pick
from moorage.reservation.calendar import Calendar, Usage

T = TypeVar("T")

#: How often a plan that others may overtake is made before all hosts are locked for it.
ATTEMPTS = 5


class NotEnoughHostsAvailable(Conflict):
    """`fields`: reservation_id, free (slots that could be had)."""

    code = "reservation.not_enough_hosts"


class _Overtaken(Exception):
    """The plan does not hold any more."""


class Admission:
    """One per process. `admit` is the only way to new host allocations."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._lock = threading.Lock()
        self._cached: Calendar | None = None

    def calendar(self, *, fresh: bool = False) -> Calendar:
        with self._lock:
            cached = self._cached
        if cached is not None and not fresh:
            return cached
        with read(self._engine) as connection:
            calendar = Calendar(
                host_store.capacities(connection), host_store.live_usages(connection, self._clock.now())
            )
        with self._lock:
            self._cached = calendar
        return calendar

    def forget(self) -> None:
        """Hosts or capacities changed: read anew at the next question."""
        with self._lock:
            self._cached = None

    def admit(
        self,
        asks: Sequence[pick.Ask],
        start: datetime,
        end: datetime,
        *,
        before: Callable[[Connection], None] = lambda _: None,
        commit: Callable[[Connection, pick.Plan], T],
        without: Collection[str] = (),
    ) -> T:
        """Plan `asks`, lock the chosen hosts, verify, and run `commit` in the same transaction.

        `before` runs first in that transaction (it locks the lease: leases before hosts); what it raises is passed
        on. The usage of the reservations `without` does not count: they are planned anew. Both callables may run
        several times. Raises `NotEnoughHostsAvailable`.
        """
        fresh = False
        for _ in range(ATTEMPTS):
            calendar = self._calendar_without(without, fresh=fresh)
            plan = pick.plan(calendar, asks, start, end)
            if isinstance(plan, pick.Shortage):
                if fresh:
                    raise _not_enough(plan)
                fresh = True
                continue
            try:
                result = self._commit(plan, asks, start, end, before, commit, without)
            except _Overtaken:
                fresh = True
                continue
            if without:
                self.forget()
            else:
                self._remember(asks, plan, start, end)
            return result
        self.forget()
        return in_transaction(
            self._engine, lambda connection: self._decided(connection, asks, start, end, before, commit, without)
        )

    def _decided(
        self,
        connection: Connection,
        asks: Sequence[pick.Ask],
        start: datetime,
        end: datetime,
        before: Callable[[Connection], None],
        commit: Callable[[Connection, pick.Plan], T],
        without: Collection[str],
    ) -> T:
        """Plan with all hosts locked: nobody can overtake."""
        before(connection)
        host_store.lock_hosts(connection, [each.host for each in host_store.capacities(connection)])
        capacities = host_store.capacities(connection)
        hosts = [each.host for each in capacities]
        calendar = Calendar(capacities, host_store.usages_between(connection, hosts, start, end, without))
        plan = pick.plan(calendar, asks, start, end)
        if isinstance(plan, pick.Shortage):
            raise _not_enough(plan)
        return commit(connection, plan)

    def _commit(
        self,
        plan: pick.Plan,
        asks: Sequence[pick.Ask],
        start: datetime,
        end: datetime,
        before: Callable[[Connection], None],
        commit: Callable[[Connection, pick.Plan], T],
        without: Collection[str],
    ) -> T:
        chosen = {host for picked in plan.values() for host in picked}

        def work(connection: Connection) -> T:
            before(connection)
            if chosen:
                host_store.lock_hosts(connection, chosen)
                now_there = Calendar(
                    host_store.capacities(connection, chosen),
                    host_store.usages_between(connection, chosen, start, end, without),
                )
                if not pick.holds(now_there, asks, plan, start, end):
                    raise _Overtaken
            return commit(connection, plan)

        return in_transaction(self._engine, work)

    def _calendar_without(self, reservation_ids: Collection[str], *, fresh: bool) -> Calendar:
        calendar = self.calendar(fresh=fresh)
        if not reservation_ids:
            return calendar
        with read(self._engine) as connection:
            own = host_store.allocations_of(connection, reservation_ids)
        return calendar.with_usage(
            Usage(each.host_id, each.start_date, each.end_date, each.resources).released() for each in own
        )

    def _remember(self, asks: Sequence[pick.Ask], plan: pick.Plan, start: datetime, end: datetime) -> None:
        """Put our own commit into the cached calendar, so that the next request need not read everything."""
        with self._lock:
            if self._cached is not None:
                for ask in asks:
                    picked = plan[ask.reservation_id]
                    self._cached = self._cached.with_usage(pick.usages(ask.resources, picked, start, end))


def _not_enough(shortage: pick.Shortage) -> NotEnoughHostsAvailable:
    return NotEnoughHostsAvailable(
        f"Not enough hosts available: {shortage.reason}", reservation_id=shortage.reservation_id, free=shortage.free
    )
