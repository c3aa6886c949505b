"""Runs one event of a lease: claims it, runs its steps, records each of them, and finishes the event.

    claim (epoch + 1) -> journal -> step, step, ... -> finish: lease, reservations and event change together
                                     |-> waits or fails: the claim is released, and the event is due again later

A crash leaves the journal behind. The next process to claim the event continues at the first step that is not done.
A worker that lost its claim stops, because each of its writes raises `Fenced`. Nothing here waits: a step that needs
time returns `Waiting`.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.core.errors import MoorageError
from moorage.core.ids import Ids
from moorage.db.session import in_transaction, read
from moorage.reservation.capacity.addresses import build_address_requests
from moorage.reservation.model.event_order import UnfinishedEvent
from moorage.reservation.model.leases import (
    CLAIM,
    DUE_IMMEDIATELY,
    RUNS_IN,
    WIRE_EVENTS,
    Event,
    EventStatus,
    EventType,
    Generation,
    Lease,
    LeaseStatus,
    Reservation,
    ReservationStatus,
    status_after_update,
)
from moorage.reservation.model.steps import Further, Step, Waiting
from moorage.reservation.steps.plan_builder import PlanBuilder
from moorage.reservation.steps.step_registry import StepRegistry
from moorage.reservation.store import (
    address_store,
    batch_event_store,
    event_store,
    host_store,
    lease_store,
    limit_store,
)
from moorage.reservation.store.event_store import Fenced, StepRow, StepState

log = logging.getLogger(__name__)

#: A waiting step is retried after 1, 2, 4 ... s, a failed one after 2, 4, 8 ... s, up to these bounds.
MAX_WAIT_S = 8
MAX_BACKOFF_S = 60

#: Attempts per before_end action, and how long the end of the lease waits for an action in progress.
ACTION_TRIES = 5
ACTION_GRACE = timedelta(seconds=60)


class EventOutcome(StrEnum):
    FINISHED = "finished"
    WAITING = "waiting"  #: not finished; due again later
    FAILED = "failed"  #: given up
    FENCED = "fenced"  #: another worker has claimed the event


@dataclass(frozen=True, slots=True)
class EventClaim:
    """The right to run an event, until another worker raises the epoch."""

    event_id: str
    lease_id: str
    type: EventType
    epoch: int


@dataclass(frozen=True, slots=True)
class StepResult:
    outcome: EventOutcome
    reason: str = ""
    error: MoorageError | None = None  #: the error whose message is `reason`, if any


class EventExecutor:
    """Thread-safe; several in one process and any number of processes work on one database."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        step_registry: StepRegistry,
        plan_builder: PlanBuilder,
        generation: Callable[[Reservation], Generation],
        *,
        worker: str,
        start_deadline_s: int,
    ) -> None:
        """`generation` determines the generation of an older system's reservation; it may call other services."""
        self._engine = engine
        self._clock = clock
        self._ids = ids
        self._step_registry = step_registry
        self._generation = generation
        self._start_deadline = timedelta(seconds=start_deadline_s)
        self.plan_builder = plan_builder
        self.worker = worker

    def claim(self, event: UnfinishedEvent) -> EventClaim | None:
        """Claims a due event; None if another worker was first or the lease's state no longer admits it."""

        def claim_in_transaction(connection: Connection) -> EventClaim | None:
            now = self._clock.now()
            lease = lease_store.lock(connection, event.lease_id)
            admitted, running = RUNS_IN[event.type]
            if lease is None or lease.status not in admitted:
                return None
            if any(other.claimed(now) for other in lease.events):
                return None
            epoch = event_store.claim(connection, event.event_id, event.epoch, self.worker, now + CLAIM, now)
            if epoch is None:
                return None
            if running is not None and lease.status is not running:
                lease_store.move(connection, lease, running, now)
            return EventClaim(event.event_id, lease.id, event.type, epoch)

        return in_transaction(self._engine, claim_in_transaction)

    def new_claimed_event(self, lease_id: str, kind: EventType) -> Event:
        """A new event that this worker has claimed already, for operations that a request runs itself."""
        now = self._clock.now()
        return Event(
            id=self._ids.uuid(),
            lease_id=lease_id,
            type=kind,
            time=DUE_IMMEDIATELY,
            status=EventStatus.IN_PROGRESS,
            created_at=now,
            updated_at=None,
            epoch=1,
            attempt=1,
            claimed_by=self.worker,
            claim_until=now + CLAIM,
        )

    def run_event(self, claim: EventClaim) -> StepResult:
        """Runs the steps that are not done yet. Handles errors of other services; returns the outcome."""
        try:
            with read(self._engine) as connection:
                lease = lease_store.find_lease(connection, claim.lease_id)
            # before_end actions have a deadline of their own, checked before each action below.
            if claim.type is not EventType.BEFORE_END and (late := self._too_late(claim, lease)):
                self._give_up(claim, late)
                return StepResult(EventOutcome.FAILED, late)
            if lease is not None and (unknown := self._determine_generations_or_wait(claim, lease)):
                return unknown
            for row in self._journal(claim):
                if row.state is not StepState.UNDONE:
                    continue
                if claim.type is EventType.BEFORE_END and (late := self._too_late(claim, lease, ACTION_GRACE)):
                    self._give_up(claim, late)
                    return StepResult(EventOutcome.FAILED, late)
                if trouble := self._step(claim, row):
                    return trouble
            self._finish(claim)
        except Fenced as error:
            return self.release_lost_claim(claim, error)
        log.info("lease event done", extra={"lease_id": claim.lease_id, "type": claim.type})
        return StepResult(EventOutcome.FINISHED)

    def run_creation(self, claim: EventClaim, steps: Sequence[Step]) -> StepResult:
        """Runs a creation whose journal (`steps`) the caller has just written, with one transaction at the end.

        Records all steps as done in the transaction that finishes the event. If a step waits, finds further steps or
        takes long, starts again with `run_event`, which is harmless because steps may be repeated.
        """
        renewal = self._clock.now() + CLAIM / 4
        for seq, step in enumerate(steps, 1):
            try:
                found = self._step_registry.run_step(step)
            except MoorageError as error:
                return self.record_stopped_step(claim, seq, step, error)
            if found is not None or self._clock.now() >= renewal:
                return self.run_event(claim)

        def finish(connection: Connection) -> None:
            now = self._clock.now()
            lease_store.lock_rows(connection, [claim.lease_id])
            batch_event_store.finish(connection, {claim.event_id: claim.epoch}, now)
            lease_store.move_all(connection, [claim.lease_id], LeaseStatus.CREATING, LeaseStatus.PENDING, now)

        try:
            in_transaction(self._engine, finish)
        except Fenced as error:
            return self.release_lost_claim(claim, error)
        log.info("lease event done", extra={"lease_id": claim.lease_id, "type": claim.type})
        return StepResult(EventOutcome.FINISHED)

    def release_lost_claim(self, claim: EventClaim, error: Fenced | None = None) -> StepResult:
        """Another worker has the event: drop our claim, so that it need not wait for the claim to expire."""
        log.warning(
            "lost the claim on an event to another worker",
            extra={"event_id": claim.event_id, "lease_id": claim.lease_id},
        )
        in_transaction(self._engine, lambda connection: event_store.drop_claim(connection, claim.event_id, self.worker))
        return StepResult(EventOutcome.FENCED, error.message if error else "")

    def record_stopped_step(self, claim: EventClaim, seq: int, step: Step, why: MoorageError | Waiting) -> StepResult:
        """Handles a failed or waiting step in an event's first attempt: releases the event, or undoes a creation."""
        row = StepRow(seq, step, StepState.UNDONE, 0, None)
        try:
            stop = self._waits(claim, row, why) if isinstance(why, Waiting) else self._failed(claim, row, why)
        except Fenced as error:
            return self.release_lost_claim(claim, error)
        return stop or StepResult(EventOutcome.WAITING)

    def determine_generations(self, lease: Lease) -> bool:
        """Determines and stores the generation of each of the lease's older reservations, once (A1).

        Returns True if any was unknown. Raises a `MoorageError` if Placement does not answer.
        """
        unknown = [reservation for reservation in lease.reservations if reservation.generation is None]
        for reservation in unknown:
            generation = self._generation(reservation)

            def store_generation(
                connection: Connection, reservation: Reservation = reservation, generation: Generation = generation
            ) -> None:
                lease_store.set_generation(connection, reservation.id, generation)

            in_transaction(self._engine, store_generation)
        return bool(unknown)

    def _determine_generations_or_wait(self, claim: EventClaim, lease: Lease) -> StepResult | None:
        try:
            self.determine_generations(lease)
        except MoorageError as error:
            reason = f"cannot determine the generation of an older reservation: {error.message}"

            def release_claim(connection: Connection) -> None:
                now = self._clock.now()
                retry_at = now + timedelta(seconds=MAX_WAIT_S)
                event_store.release(connection, claim.event_id, claim.epoch, retry_at=retry_at, error=reason, now=now)

            in_transaction(self._engine, release_claim)
            return StepResult(EventOutcome.WAITING, reason)
        return None

    def _journal(self, claim: EventClaim) -> list[StepRow]:
        """The event's steps; plans and stores them in the event's first attempt."""

        def read_or_plan_steps(connection: Connection) -> list[StepRow]:
            now = self._clock.now()
            event_store.hold(connection, claim.event_id, claim.epoch, now + CLAIM)
            rows = event_store.steps_of(connection, claim.event_id)
            if not rows:
                lease = lease_store.find_lease(connection, claim.lease_id)
                steps = [] if lease is None else self.plan_builder.event_steps(connection, lease, claim.type, now)
                event_store.insert_steps(connection, {claim.event_id: steps}, now)
                rows = event_store.steps_of(connection, claim.event_id)
            return rows

        return in_transaction(self._engine, read_or_plan_steps)

    def _step(self, claim: EventClaim, row: StepRow) -> StepResult | None:
        """Runs one step. None if it is done, else the result with which the event stops, temporarily or finally."""
        try:
            found = self._step_registry.run_step(row.step)
        except MoorageError as error:
            return self._failed(claim, row, error)
        if isinstance(found, Waiting):
            return self._waits(claim, row, found)
        further = found.steps if isinstance(found, Further) else ()

        def record_step(connection: Connection) -> StepResult | None:
            now = self._clock.now()
            event_store.hold(connection, claim.event_id, claim.epoch, now + CLAIM)
            event_store.step_done(connection, claim.event_id, row.seq, now)
            if not further:
                return None
            there = len(event_store.steps_of(connection, claim.event_id))
            event_store.insert_steps(connection, {claim.event_id: further}, now, there)
            reason = f"{row.step.kind}: {len(further)} further steps"
            event_store.release(connection, claim.event_id, claim.epoch, retry_at=now, error=reason, now=now)
            return StepResult(EventOutcome.WAITING, reason)

        return in_transaction(self._engine, record_step)

    def _failed(self, claim: EventClaim, row: StepRow, error: MoorageError) -> StepResult | None:
        reason = f"{row.step.kind}: {error.message}"
        log.warning("a step of a lease event failed", extra={"lease_id": claim.lease_id, "reason": reason})
        if claim.type is EventType.CREATE:
            self._give_up(claim, reason)  # a request waits for the answer: undo at once, see `lease_service`
            return StepResult(EventOutcome.FAILED, error.message, error)
        if claim.type is EventType.BEFORE_END and self._abandoned(claim, row, reason):
            return None
        return self._retry_later(claim, row, reason, min(MAX_BACKOFF_S, 2 ** min(row.attempt + 1, 10)))

    def _waits(self, claim: EventClaim, row: StepRow, found: Waiting) -> StepResult:
        return self._retry_later(
            claim, row, f"{row.step.kind}: {found.reason}", min(MAX_WAIT_S, 2 ** min(row.attempt, 10))
        )

    def _abandoned(self, claim: EventClaim, row: StepRow, reason: str) -> bool:
        """Gives up a before_end action after `ACTION_TRIES` or at the lease's end; the other actions continue."""

        def record_failure(connection: Connection) -> bool:
            now = self._clock.now()
            lease = lease_store.find_lease(connection, claim.lease_id)
            if lease is None or (row.attempt + 1 < ACTION_TRIES and now < lease.end_date):
                return False
            event_store.hold(connection, claim.event_id, claim.epoch, now + CLAIM)
            tries, failed = row.attempt + 1, StepState.FAILED
            event_store.step_not_done(connection, claim.event_id, row.seq, tries, reason, now, failed)
            return True

        return in_transaction(self._engine, record_failure)

    def _retry_later(self, claim: EventClaim, row: StepRow, reason: str, pause_s: int) -> StepResult:
        """Releases the event until the pause is over, or until its deadline, when it is given up."""

        def release_event(connection: Connection) -> None:
            now = self._clock.now()
            retry_at = now + timedelta(seconds=pause_s)
            lease = lease_store.find_lease(connection, claim.lease_id)
            if lease is not None and (deadline := self._deadline(lease, claim.type)):
                retry_at = min(retry_at, max(deadline, now))
            event_store.release(connection, claim.event_id, claim.epoch, retry_at=retry_at, error=reason, now=now)
            event_store.step_not_done(connection, claim.event_id, row.seq, row.attempt + 1, reason, now)

        in_transaction(self._engine, release_event)
        return StepResult(EventOutcome.WAITING, reason)

    def _too_late(self, claim: EventClaim, lease: Lease | None, grace: timedelta = timedelta(0)) -> str | None:
        if lease is None or not self.is_late(lease, claim.type, grace):
            return None
        deadline = self._deadline(lease, claim.type)
        last = next((event.last_error for event in lease.events if event.id == claim.event_id), None)
        return f"not finished by the deadline {deadline:%Y-%m-%d %H:%M}" + (f"; {last}" if last else "")

    def is_late(self, lease: Lease, kind: EventType, grace: timedelta = timedelta(0)) -> bool:
        """True if the deadline of an event of this kind has passed, plus `grace`."""
        deadline = self._deadline(lease, kind)
        return deadline is not None and self._clock.now() >= deadline + grace

    def _deadline(self, lease: Lease, kind: EventType) -> datetime | None:
        """When the event is given up. None: never, because ends and deletions must be completed."""
        if kind is EventType.START:
            return min(lease.end_date, lease.start_date + self._start_deadline)
        return lease.end_date if kind in (EventType.UPDATE, EventType.BEFORE_END) else None

    def _give_up(self, claim: EventClaim, reason: str) -> None:
        def finish_with_error(connection: Connection) -> None:
            now = self._clock.now()
            lease = lease_store.lock(connection, claim.lease_id)
            event_store.finish(connection, claim.event_id, claim.epoch, EventStatus.ERROR, now, reason)
            if lease is None:
                return
            if claim.type is EventType.CREATE:
                self._replace_by_delete(connection, lease, claim)
            elif claim.type is EventType.UPDATE:
                lease_store.move(connection, lease, status_after_update(lease), now)
            elif claim.type is EventType.START:
                lease_store.move(connection, lease, LeaseStatus.ERROR, now)
                lease_store.move_reservations(connection, [lease.id], ReservationStatus.ERROR, now)

        log.error("gave up a lease event", extra={"lease_id": claim.lease_id, "reason": reason})
        in_transaction(self._engine, finish_with_error)

    def _replace_by_delete(self, connection: Connection, lease: Lease, claim: EventClaim) -> None:
        """Undoes a failed creation by deleting the lease (R12)."""
        now = self._clock.now()
        lease_store.move(connection, lease, LeaseStatus.DELETING, now)
        event_store.insert_event(
            connection,
            Event(self._ids.uuid(), lease.id, EventType.DELETE, DUE_IMMEDIATELY, EventStatus.UNDONE, now, None),
        )

    def _finish(self, claim: EventClaim) -> None:
        def finish_event(connection: Connection) -> None:
            now = self._clock.now()
            lease = lease_store.lock(connection, claim.lease_id)
            error = event_store.failures(connection, claim.event_id) if claim.type is EventType.BEFORE_END else None
            status = EventStatus.ERROR if error else EventStatus.DONE
            event_store.finish(connection, claim.event_id, claim.epoch, status, now, error)
            if lease is not None:
                self._after(connection, claim, lease)

        in_transaction(self._engine, finish_event)

    def _after(self, connection: Connection, claim: EventClaim, lease: Lease) -> None:
        """Changes the lease and its reservations as the finished event requires."""
        now = self._clock.now()
        ids = [reservation.id for reservation in lease.reservations]
        match claim.type:
            case EventType.CREATE:
                lease_store.move(connection, lease, LeaseStatus.PENDING, now)
            case EventType.START:
                lease_store.move(connection, lease, LeaseStatus.ACTIVE, now)
                lease_store.move_reservations(connection, [lease.id], ReservationStatus.ACTIVE, now)
            case EventType.UPDATE:
                lease_store.move(connection, lease, status_after_update(lease), now)
            case EventType.END:
                lease_store.move(connection, lease, LeaseStatus.TERMINATED, now)
                lease_store.move_reservations(connection, [lease.id], ReservationStatus.DELETED, now)
                host_store.delete_allocations_of(connection, ids)
                address_store.release_all(
                    connection, [want.reservation_id for want in build_address_requests(lease.reservations)]
                )
                limit_store.close(connection, lease.id, now)
                _close(connection, lease, claim.event_id, now)
            case EventType.DELETE:
                host_store.delete_allocations_of(connection, ids)
                address_store.release_all(
                    connection, [want.reservation_id for want in build_address_requests(lease.reservations)]
                )
                limit_store.close(connection, lease.id, now)
                lease_store.delete_lease(connection, lease.id)
            case EventType.BEFORE_END:
                pass  # the lease does not change


def _close(connection: Connection, lease: Lease, event_id: str, now: datetime) -> None:
    """Marks the events of an ended lease that never ran as done."""
    for event in lease.events:
        if event.id != event_id and event.type in WIRE_EVENTS and event.status is EventStatus.UNDONE:
            event_store.move_event(connection, event, event.time, now, EventStatus.DONE)
