"""Leases that start at the same time start together: what their starts have in common is done once.

    claim    events, leases, journal: one transaction for all
    offer    inventories, by host: one request each, or two for all that a host is to have
    hold     the inventories are done, the claims go on: one transaction
    open     the other steps, lease by lease: access, for most
    finish   leases, reservations, events: one transaction

What is due before the end of leases that ask for nothing then is claimed and finished in one transaction for all.

What is special is left to `event_executor`, which carries out one event at a time and writes down each step: leases of an
older system, late ones, steps that take long, and whatever was begun before. So is each start in which a step failed or
waits, each after a crash, and all of a round in which not every event was still ours at the end. Every effect may be
repeated, so nothing is lost by it. See docs/evidence/decisions/0018-leases-that-start-together-share-their-transactions.md
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.core.errors import Conflict, MoorageError
from moorage.db.transactions import in_transaction
from moorage.reservation.events.event_executor import EventClaim, EventExecutor
from moorage.reservation.events.parallel_requests import AtOnce
from moorage.reservation.model.event_order import Unfinished
from moorage.reservation.model.leases import CLAIM, Event, EventStatus, EventType, Lease, LeaseStatus, ReservationStatus
from moorage.reservation.model.steps import Further, Step, StepKind, Waiting
from moorage.reservation.steps.step_registry import Effects
from moorage.reservation.store import batch_event_store, lease_store
from moorage.reservation.store.event_store import OPEN

log = logging.getLogger(__name__)

#: So many at once: what they share is then next to nothing for each, and the first has not long to wait for the last.
MOST = 100

#: Claims are extended when so much of them is over, between two requests.
_RENEWAL = CLAIM / 4

#: Steps that are quick and of no more than a few requests. One with others starts by itself.
_QUICK = frozenset(
    {
        StepKind.PUT_INVENTORY,
        StepKind.GRANT_ACCESS,
        StepKind.CLEAR_HOST,
        StepKind.LEND_HOST,
        StepKind.OPEN_AGGREGATE,
    }
)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Ids of events: `done` are carried out or given back, `gone` somebody else's. The others are for `EventExecutor`."""

    done: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Start:
    claim: EventClaim
    steps: Sequence[Step]


@dataclass(slots=True)
class _Round:
    """Starts under way, {event id: start}: those that are still ours and in which nothing has failed."""

    starts: dict[str, _Start]
    renew_at: datetime
    failed: list[tuple[_Start, int, MoorageError | Waiting]] = field(default_factory=list)  #: (start, step, why)

    def held(self) -> dict[str, int]:
        return {event_id: start.claim.epoch for event_id, start in self.starts.items()}

    def fails(self, event_id: str, position: int, why: MoorageError | Waiting) -> None:
        if start := self.starts.pop(event_id, None):
            self.failed.append((start, position, why))


class BatchExecutor:
    """Thread-safe, as `EventExecutor` is."""

    def __init__(
        self, engine: Engine, clock: Clock, effects: Effects, operations: EventExecutor, *, requests_at_once: int
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._effects = effects
        self._operations = operations
        self._at_once = AtOnce(requests_at_once)

    def start(self, events: Sequence[Unfinished]) -> BatchResult:
        """Carry out those of these starts that can share their way; the others are untouched."""
        try:
            starts, gone = in_transaction(self._engine, lambda connection: self._claim(connection, events))
        except Conflict:
            return BatchResult()  # one by one it shows which
        now = _Round({start.claim.event_id: start for start in starts}, self._clock.now() + _RENEWAL)
        if starts:
            self._carry_out(now)
        return BatchResult(frozenset(start.claim.event_id for start in starts), gone)

    def pass_by(self, events: Sequence[Unfinished]) -> BatchResult:
        """These are due before an end: finish those before whose end nothing is to be done; the others are untouched."""
        try:
            done, gone = in_transaction(self._engine, lambda connection: self._pass_by(connection, events))
        except Conflict:
            return BatchResult()  # one by one it shows which
        for event in events:
            if event.event_id in done:
                log.info("lease event done", extra={"lease_id": event.lease_id, "type": event.type})
        return BatchResult(done, gone)

    def _pass_by(self, connection: Connection, events: Sequence[Unfinished]) -> tuple[frozenset[str], frozenset[str]]:
        now = self._clock.now()
        there, gone = _as_seen(connection, events, now)
        plan = self._operations.planning.steps
        idle = {
            event_id: event.epoch
            for event_id, (event, lease) in there.items()
            if _is_new(event, lease) and not plan(connection, lease, event.type, now)
        }
        if idle:
            held = batch_event_store.claim(connection, idle, self._operations.worker, now + CLAIM, now)
            batch_event_store.finish(connection, held, now)
        return frozenset(idle), gone

    def _carry_out(self, now: _Round) -> None:
        self._offer(now)
        self._hold(now, StepKind.PUT_INVENTORY)
        self._open(now)
        self._finish(now)
        for start, position, why in now.failed:
            self._operations.stopped(start.claim, position + 1, start.steps[position], why)

    def _claim(self, connection: Connection, events: Sequence[Unfinished]) -> tuple[list[_Start], frozenset[str]]:
        """What is ours now, and the ids of the events that are not any more what they were seen to be."""
        now = self._clock.now()
        there, gone = _as_seen(connection, events, now)
        fit = {
            event_id: (event, lease)
            for event_id, (event, lease) in there.items()
            if _is_new(event, lease) and not self._operations.is_late(lease, EventType.START)
        }
        plans = self._operations.planning.starts(connection, [lease for _, lease in fit.values()])
        taken = {
            event_id: (event, plans[lease.id])
            for event_id, (event, lease) in fit.items()
            if all(step.kind in _QUICK for step in plans[lease.id])
        }
        if not taken:
            return [], gone
        seen = {event_id: event.epoch for event_id, (event, _) in taken.items()}
        epochs = batch_event_store.claim(connection, seen, self._operations.worker, now + CLAIM, now)
        leases = [event.lease_id for event, _ in taken.values()]
        lease_store.move_all(connection, leases, LeaseStatus.PENDING, LeaseStatus.STARTING, now)
        batch_event_store.insert_steps(connection, {event_id: plan for event_id, (_, plan) in taken.items()}, now)
        return [
            _Start(EventClaim(event_id, event.lease_id, event.type, epochs[event_id]), plan)
            for event_id, (event, plan) in taken.items()
        ], gone

    def _offer(self, now: _Round) -> None:
        """Every inventory of every lease: before the first access of any (R24)."""
        which = [
            (event_id, position)
            for event_id, start in now.starts.items()
            for position, step in enumerate(start.steps)
            if step.kind is StepKind.PUT_INVENTORY
        ]
        steps = [now.starts[event_id].steps[position] for event_id, position in which]
        for numbers, error in self._at_once(self._effects.joint(StepKind.PUT_INVENTORY, steps)):
            if error is not None:
                for number in numbers:
                    now.fails(*which[number], error)
            self._renew(now)

    def _open(self, now: _Round) -> None:
        rest = [partial(self._rest_of, now, start) for start in now.starts.values()]
        for event_id, position, why in self._at_once(rest):
            if why is not None:
                now.fails(event_id, position, why)
            self._renew(now)

    def _rest_of(self, now: _Round, start: _Start) -> tuple[str, int, MoorageError | Waiting | None]:
        """What is left of a start, as long as it is ours: (event id, the step that ended it, why)."""
        event_id = start.claim.event_id
        for position, step in enumerate(start.steps):
            if event_id not in now.starts:
                break
            if step.kind is not StepKind.PUT_INVENTORY and (why := self._run(step)) is not None:
                return event_id, position, why
        return event_id, 0, None

    def _run(self, step: Step) -> MoorageError | Waiting | None:
        try:
            found = self._effects.run(step)
        except MoorageError as error:
            return error
        if isinstance(found, Further):
            raise TypeError(f"{step.kind} finds more to do: it cannot be among the quick ones")
        return found

    def _renew(self, now: _Round) -> None:
        if now.starts and self._clock.now() >= now.renew_at:
            self._hold(now)

    def _hold(self, now: _Round, done: StepKind | None = None) -> None:
        """Go on with those that are still ours; `done`: steps of this kind are, of all of them."""
        held = now.held()

        def work(connection: Connection) -> batch_event_store.Held:
            moment = self._clock.now()
            mine = batch_event_store.hold(connection, held, moment + CLAIM)
            if done is not None:
                batch_event_store.steps_done(connection, mine, moment, done)
            return mine

        mine = in_transaction(self._engine, work)
        now.renew_at = self._clock.now() + _RENEWAL
        for event_id in held.keys() - mine.keys():
            self._operations.lost(now.starts.pop(event_id).claim)

    def _finish(self, now: _Round) -> None:
        if not now.starts:
            return
        held, leases = now.held(), [start.claim.lease_id for start in now.starts.values()]

        def work(connection: Connection) -> None:
            moment = self._clock.now()
            lease_store.lock_rows(connection, leases)
            batch_event_store.finish(connection, held, moment)
            lease_store.move_all(connection, leases, LeaseStatus.STARTING, LeaseStatus.ACTIVE, moment)
            lease_store.move_reservations(connection, leases, ReservationStatus.ACTIVE, moment)

        try:
            in_transaction(self._engine, work)
        except Conflict:
            for start in now.starts.values():
                self._operations.carry_out(start.claim)
            return
        for start in now.starts.values():
            log.info("lease event done", extra={"lease_id": start.claim.lease_id, "type": start.claim.type})


def _as_seen(
    connection: Connection, events: Sequence[Unfinished], now: datetime
) -> tuple[dict[str, tuple[Unfinished, Lease]], frozenset[str]]:
    """{event id: (event, its lease, which is locked)}, and the ids of the events that are not any more what they were."""
    found = lease_store.lock_all(connection, [event.lease_id for event in events])
    there = {
        event.event_id: (event, lease)
        for event in events
        if (lease := found.get(event.lease_id)) is not None and _is_as_seen(event, lease, now)
    }
    return there, frozenset(event.event_id for event in events) - there.keys()


def _is_as_seen(seen: Unfinished, lease: Lease, now: datetime) -> bool:
    """Nobody works on anything of the lease, and nobody has taken up this since."""
    event = _event(seen, lease)
    return (
        event is not None
        and (event.type, event.epoch) == (seen.type, seen.epoch)
        and event.status in OPEN
        and lease.status is seen.lease_status
        and not any(each.claimed(now) for each in lease.events)
    )


def _is_new(seen: Unfinished, lease: Lease) -> bool:
    """Nobody has ever taken it up, and nothing of its lease is of an older system and still to be told apart."""
    event = _event(seen, lease)
    is_untouched = event is not None and (event.status, event.attempt) == (EventStatus.UNDONE, 0)
    return is_untouched and all(each.generation is not None for each in lease.reservations)


def _event(seen: Unfinished, lease: Lease) -> Event | None:
    return next((each for each in lease.events if each.id == seen.event_id), None)
