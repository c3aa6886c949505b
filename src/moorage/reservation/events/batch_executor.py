"""Runs many lease starts together, with shared transactions and one inventory write per host.

    claim    events, leases, journal: one transaction for all
    publish  the inventories of each host: one request for each, or two requests for all of them
    hold     record the inventories as done and extend the claims: one transaction
    open     the other steps of each lease, usually access to the flavor
    finish   leases, reservations, events: one transaction

`before_end` events of leases without actions are claimed and finished in batches of 100 as well.

`event_executor` runs everything else, one event at a time with a record of each step: leases of an older system, late
leases, slow steps, and events that were begun before. It also takes over each start in which a step failed or waits,
and a whole batch if a claim was lost before the end. This is harmless, because every step may be repeated. See
docs/evidence/decisions/0018-leases-that-start-together-share-their-transactions.md
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.core.errors import Conflict, MoorageError
from moorage.db.session import in_transaction
from moorage.reservation.events.event_executor import EventClaim, EventExecutor
from moorage.reservation.model.event_order import UnfinishedEvent
from moorage.reservation.model.leases import CLAIM, Event, EventStatus, EventType, Lease, LeaseStatus, ReservationStatus
from moorage.reservation.model.steps import (
    ClearHost,
    Further,
    GrantAccess,
    LendHost,
    OpenAggregate,
    PutInventory,
    ReservationStep,
    Step,
    Waiting,
)
from moorage.reservation.steps.step_registry import StepRegistry
from moorage.reservation.store import batch_event_store, event_store, lease_store
from moorage.reservation.store.event_store import OPEN

log = logging.getLogger(__name__)

#: Events per batch: enough to make the shared cost negligible, few enough that the first need not wait long.
MAX_BATCH = 100

#: Claims are extended, between two requests, after this time.
_RENEWAL = CLAIM / 4

#: Steps that take a few requests. A start with any other step runs alone.
_QUICK = (PutInventory, GrantAccess, ClearHost, LendHost, OpenAggregate)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Ids of events: `done` were run or released here, `gone` have another worker; `EventExecutor` runs the rest."""

    done: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Start:
    claim: EventClaim
    steps: Sequence[Step]


@dataclass(slots=True)
class _Round:
    """Starts in progress, {event id: start}: claimed by this worker, without a failed step."""

    starts: dict[str, _Start]
    renew_at: datetime
    failed: list[tuple[_Start, int, MoorageError | Waiting]] = field(default_factory=list)  #: (start, step, why)

    def held(self) -> dict[str, int]:
        return {event_id: start.claim.epoch for event_id, start in self.starts.items()}

    def fails(self, event_id: str, position: int, why: MoorageError | Waiting) -> None:
        if start := self.starts.pop(event_id, None):
            self.failed.append((start, position, why))


class BatchExecutor:
    """Thread-safe, like `EventExecutor`."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        step_registry: StepRegistry,
        executor: EventExecutor,
        *,
        requests_at_once: int,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._step_registry = step_registry
        self._executor = executor
        self._in_parallel = ParallelRequests(requests_at_once)

    def start_leases(self, events: Sequence[UnfinishedEvent]) -> BatchResult:
        """Runs the starts that can be batched; leaves the others untouched."""
        try:
            starts, gone = in_transaction(self._engine, lambda connection: self._claim(connection, events))
        except Conflict:
            return BatchResult()  # `EventExecutor` runs them one by one and finds the conflicting one
        batch = _Round({start.claim.event_id: start for start in starts}, self._clock.now() + _RENEWAL)
        if starts:
            self._run_round(batch)
        return BatchResult(frozenset(start.claim.event_id for start in starts), gone)

    def finish_idle_before_end(self, events: Sequence[UnfinishedEvent]) -> BatchResult:
        """Finishes the `before_end` events that have no steps; leaves the others untouched."""
        try:
            done, gone = in_transaction(self._engine, lambda connection: self._finish_idle(connection, events))
        except Conflict:
            return BatchResult()  # `EventExecutor` runs them one by one and finds the conflicting one
        for event in events:
            if event.event_id in done:
                log.info("lease event done", extra={"lease_id": event.lease_id, "type": event.type})
        return BatchResult(done, gone)

    def _finish_idle(
        self, connection: Connection, events: Sequence[UnfinishedEvent]
    ) -> tuple[frozenset[str], frozenset[str]]:
        now = self._clock.now()
        there, gone = _as_seen(connection, events, now)
        plan = self._executor.plan_builder.event_steps
        idle = {
            event_id: event.epoch
            for event_id, (event, lease) in there.items()
            if _is_new(event, lease) and not plan(connection, lease, event.type, now)
        }
        if idle:
            held = batch_event_store.claim(connection, idle, self._executor.worker, now + CLAIM, now)
            batch_event_store.finish(connection, held, now)
        return frozenset(idle), gone

    def _run_round(self, batch: _Round) -> None:
        self._publish(batch)
        self._extend_claims(batch, PutInventory)
        self._open(batch)
        self._finish(batch)
        for start, position, why in batch.failed:
            self._executor.record_stopped_step(start.claim, position + 1, start.steps[position], why)

    def _claim(self, connection: Connection, events: Sequence[UnfinishedEvent]) -> tuple[list[_Start], frozenset[str]]:
        """(the starts that were claimed, the ids of events that changed since they were read)"""
        now = self._clock.now()
        there, gone = _as_seen(connection, events, now)
        fit = {
            event_id: (event, lease)
            for event_id, (event, lease) in there.items()
            if _is_new(event, lease) and not self._executor.is_late(lease, EventType.START)
        }
        plans = self._executor.plan_builder.start_steps(connection, [lease for _, lease in fit.values()])
        taken = {
            event_id: (event, plans[lease.id])
            for event_id, (event, lease) in fit.items()
            if all(isinstance(step, _QUICK) for step in plans[lease.id])
        }
        if not taken:
            return [], gone
        seen = {event_id: event.epoch for event_id, (event, _) in taken.items()}
        epochs = batch_event_store.claim(connection, seen, self._executor.worker, now + CLAIM, now)
        leases = [event.lease_id for event, _ in taken.values()]
        lease_store.move_all(connection, leases, LeaseStatus.PENDING, LeaseStatus.STARTING, now)
        event_store.insert_steps(connection, {event_id: plan for event_id, (_, plan) in taken.items()}, now)
        return [
            _Start(EventClaim(event_id, event.lease_id, event.type, epochs[event_id]), plan)
            for event_id, (event, plan) in taken.items()
        ], gone

    def _publish(self, batch: _Round) -> None:
        """Writes the inventories of all leases, before any project gets access (R24)."""
        which = [
            (event_id, position)
            for event_id, start in batch.starts.items()
            for position, step in enumerate(start.steps)
            if isinstance(step, PutInventory)
        ]
        steps = [batch.starts[event_id].steps[position] for event_id, position in which]
        for numbers, error in self._in_parallel(self._step_registry.joint_parts(PutInventory, steps)):
            if error is not None:
                for number in numbers:
                    batch.fails(*which[number], error)
            self._renew(batch)

    def _open(self, batch: _Round) -> None:
        rest = [partial(self._rest_of, batch, start) for start in batch.starts.values()]
        for event_id, position, why in self._in_parallel(rest):
            if why is not None:
                batch.fails(event_id, position, why)
            self._renew(batch)

    def _rest_of(self, batch: _Round, start: _Start) -> tuple[str, int, MoorageError | Waiting | None]:
        """Runs the other steps of a start while it is claimed; returns (event id, position of the failed step, why)."""
        event_id = start.claim.event_id
        for position, step in enumerate(start.steps):
            if event_id not in batch.starts:
                break
            if not isinstance(step, PutInventory) and (why := self._run(step)) is not None:
                return event_id, position, why
        return event_id, 0, None

    def _run(self, step: Step) -> MoorageError | Waiting | None:
        try:
            found = self._step_registry.run_step(step)
        except MoorageError as error:
            return error
        if isinstance(found, Further):
            raise TypeError(f"{step.kind} returns further steps, so it must not be in _QUICK")
        return found

    def _renew(self, batch: _Round) -> None:
        if batch.starts and self._clock.now() >= batch.renew_at:
            self._extend_claims(batch)

    def _extend_claims(self, batch: _Round, done: type[ReservationStep] | None = None) -> None:
        """Extends the claims and drops starts that were lost. Records steps of class `done` as done."""
        held = batch.held()

        def extend_claims(connection: Connection) -> batch_event_store.Held:
            now = self._clock.now()
            mine = batch_event_store.hold(connection, held, now + CLAIM)
            if done is not None:
                batch_event_store.steps_done(connection, mine, now, done)
            return mine

        mine = in_transaction(self._engine, extend_claims)
        batch.renew_at = self._clock.now() + _RENEWAL
        for event_id in held.keys() - mine.keys():
            self._executor.release_lost_claim(batch.starts.pop(event_id).claim)

    def _finish(self, batch: _Round) -> None:
        if not batch.starts:
            return
        held, leases = batch.held(), [start.claim.lease_id for start in batch.starts.values()]

        def finish_batch(connection: Connection) -> None:
            now = self._clock.now()
            lease_store.lock_rows(connection, leases)
            batch_event_store.finish(connection, held, now)
            lease_store.move_all(connection, leases, LeaseStatus.STARTING, LeaseStatus.ACTIVE, now)
            lease_store.move_reservations(connection, leases, ReservationStatus.ACTIVE, now)

        try:
            in_transaction(self._engine, finish_batch)
        except Conflict:
            for start in batch.starts.values():
                self._executor.run_event(start.claim)
            return
        for start in batch.starts.values():
            log.info("lease event done", extra={"lease_id": start.claim.lease_id, "type": start.claim.type})


def _as_seen(
    connection: Connection, events: Sequence[UnfinishedEvent], now: datetime
) -> tuple[dict[str, tuple[UnfinishedEvent, Lease]], frozenset[str]]:
    """({event id: (event, its lease, locked)}, ids of events that changed since they were read)"""
    found = lease_store.lock_all(connection, [event.lease_id for event in events])
    there = {
        event.event_id: (event, lease)
        for event in events
        if (lease := found.get(event.lease_id)) is not None and _is_as_seen(event, lease, now)
    }
    return there, frozenset(event.event_id for event in events) - there.keys()


def _is_as_seen(seen: UnfinishedEvent, lease: Lease, now: datetime) -> bool:
    """True if no event of the lease is claimed and this one is unchanged since it was read."""
    event = _event(seen, lease)
    return (
        event is not None
        and (event.type, event.epoch) == (seen.type, seen.epoch)
        and event.status in OPEN
        and lease.status is seen.lease_status
        and not any(each.claimed(now) for each in lease.events)
    )


def _is_new(seen: UnfinishedEvent, lease: Lease) -> bool:
    """True if the event was never attempted and the generations of all reservations are known."""
    event = _event(seen, lease)
    is_untouched = event is not None and (event.status, event.attempt) == (EventStatus.UNDONE, 0)
    return is_untouched and all(each.generation is not None for each in lease.reservations)


def _event(seen: UnfinishedEvent, lease: Lease) -> Event | None:
    return next((each for each in lease.events if each.id == seen.event_id), None)


T = TypeVar("T")

#: Parallel requests: enough to use the waiting time; more would compete for one processor.
REQUESTS_AT_ONCE = 8


class ParallelRequests:
    """Runs independent callables in up to `threads` threads; with one, in the caller's thread and in order.

    Most of each request is waiting for a disk elsewhere. The threads are daemons made for one call: a pool would make
    the process wait for them when it stops.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def __call__(self, requests: Sequence[Callable[[], T]]) -> Iterator[T]:
        """Yields results as they arrive. An exception is raised to the caller; the other callables still run."""
        if self._threads < 2 or len(requests) < 2:
            yield from (request() for request in requests)
            return
        todo: SimpleQueue[Callable[[], T]] = SimpleQueue()
        done: SimpleQueue[Future[T]] = SimpleQueue()
        for request in requests:
            todo.put(request)
        for number in range(min(self._threads, len(requests))):
            threading.Thread(target=_run_queue, args=(todo, done), name=f"at-once-{number}", daemon=True).start()
        for _ in requests:
            yield done.get().result()


def _run_queue(todo: SimpleQueue[Callable[[], T]], done: SimpleQueue[Future[T]]) -> None:
    while True:
        try:
            request = todo.get_nowait()
        except Empty:
            return
        future: Future[T] = Future()
        try:
            future.set_result(request())
        except BaseException as error:  # noqa: BLE001 - the top of a thread: the thread that waits raises it again
            future.set_exception(error)
        done.put(future)
