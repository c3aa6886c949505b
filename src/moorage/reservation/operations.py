"""Carrying out one event of a lease: claim it, do its steps, write down each, finish it.

    claim (epoch + 1) -> journal -> step, step, ... -> finish: lease, reservations and event change together
                                     |-> waits or fails: the claim is given back, due again a little later

A crash leaves the journal behind: whoever claims the event next goes on at the first step that is not done. A worker
that lost its claim finds every write refused (`Fenced`) and stops. Nothing here ever waits: a step that needs time
gives control back.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.core.errors import MoorageError
from moorage.core.ids import Ids
from moorage.db.transactions import in_transaction, read
from moorage.reservation import event_store, host_store, store
from moorage.reservation.event_store import Fenced, StepRow, StepState
from moorage.reservation.events import Unfinished
from moorage.reservation.instance import InstanceSteps, Slots, Step, Waiting, plan_create, plan_end, plan_start
from moorage.reservation.model import (
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

log = logging.getLogger(__name__)

#: A claim lasts that long without a step being done; then its holder counts as dead. One that is merely slow (a client
#: may repeat a request for minutes) is fenced, and its late effect is one that the next worker makes anyway.
CLAIM = timedelta(seconds=60)

#: A step that waits is looked at again after 1, 2, 4 ... s, one that failed after 2, 4, 8 ... s; at most these.
MAX_WAIT_S = 8
MAX_BACKOFF_S = 60


class Outcome(StrEnum):
    FINISHED = "finished"
    WAITING = "waiting"  #: not done, due again later
    FAILED = "failed"  #: given up
    FENCED = "fenced"  #: somebody else's now


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on an event, as long as nobody raises the epoch."""

    event_id: str
    lease_id: str
    type: EventType
    epoch: int


@dataclass(frozen=True, slots=True)
class Result:
    outcome: Outcome
    reason: str = ""


class Operations:
    """Thread-safe; several in one process and any number of processes work on one database."""

    def __init__(
        self, engine: Engine, clock: Clock, ids: Ids, steps: InstanceSteps, *, worker: str, start_deadline_s: int
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._ids = ids
        self._steps = steps
        self._start_deadline = timedelta(seconds=start_deadline_s)
        self.worker = worker

    def claim(self, event: Unfinished) -> Claim | None:
        """The claim on a due event, or None when it is not to be had (any more)."""

        def work(connection: Connection) -> Claim | None:
            now = self._clock.now()
            lease = store.lock(connection, event.lease_id)
            admitted, running = RUNS_IN[event.type]
            if lease is None or lease.status not in admitted:
                return None
            if any(other.claim_until is not None and other.claim_until > now for other in lease.events):
                return None
            epoch = event_store.claim(connection, event.event_id, event.epoch, self.worker, now + CLAIM, now)
            if epoch is None:
                return None
            if running is not None and lease.status is not running:
                store.move(connection, lease, running, now)
            return Claim(event.event_id, lease.id, event.type, epoch)

        return in_transaction(self._engine, work)

    def born_claimed(self, lease_id: str, kind: EventType) -> Event:
        """A new event that this worker holds from the start: for operations that a request carries out itself."""
        now = self._clock.now()
        return Event(
            id=self._ids.uuid(),
            lease_id=lease_id,
            type=kind,
            time=now,
            status=EventStatus.IN_PROGRESS,
            created_at=now,
            updated_at=None,
            epoch=1,
            attempt=1,
            claimed_by=self.worker,
            claim_until=now + CLAIM,
        )

    def carry_out(self, claim: Claim) -> Result:
        """Do what is left of the event. Errors of other services are handled here; a `Result` tells how it went."""
        try:
            with read(self._engine) as connection:
                lease = store.find_lease(connection, claim.lease_id)
            if late := self._too_late(claim, lease):
                self._give_up(claim, late)
                return Result(Outcome.FAILED, late)
            if lease is not None and (unknown := self._tell_apart_for(claim, lease)):
                return unknown
            for row in self._journal(claim):
                if row.state is StepState.UNDONE and (trouble := self._step(claim, row)):
                    return trouble
            self._finish(claim)
        except Fenced as error:
            log.warning("lost the claim on an event", extra={"event_id": claim.event_id, "reason": error.message})
            in_transaction(
                self._engine, lambda connection: event_store.drop_claim(connection, claim.event_id, self.worker)
            )
            return Result(Outcome.FENCED, error.message)
        log.info("lease event done", extra={"lease_id": claim.lease_id, "type": claim.type})
        return Result(Outcome.FINISHED)

    def tell_apart(self, lease: Lease) -> bool:
        """Find out what the lease's reservations of an older system are, once each (A1). True when any was not known.

        Raises a `MoorageError` when Placement does not say.
        """
        unknown = [reservation for reservation in lease.reservations if reservation.generation is None]
        for reservation in unknown:
            generation = self._steps.generation(reservation)

            def work(
                connection: Connection, reservation: Reservation = reservation, generation: Generation = generation
            ) -> None:
                store.tell_apart(connection, reservation.id, generation)

            in_transaction(self._engine, work)
        return bool(unknown)

    def _tell_apart_for(self, claim: Claim, lease: Lease) -> Result | None:
        try:
            self.tell_apart(lease)
        except MoorageError as error:
            reason = f"telling an older reservation's generation: {error.message}"

            def work(connection: Connection) -> None:
                now = self._clock.now()
                retry_at = now + timedelta(seconds=MAX_WAIT_S)
                event_store.release(connection, claim.event_id, claim.epoch, retry_at=retry_at, error=reason, now=now)

            in_transaction(self._engine, work)
            return Result(Outcome.WAITING, reason)
        return None

    def _journal(self, claim: Claim) -> list[StepRow]:
        """The event's steps; planned and written down when it is taken up for the first time."""

        def work(connection: Connection) -> list[StepRow]:
            now = self._clock.now()
            event_store.hold(connection, claim.event_id, claim.epoch, now + CLAIM)
            rows = event_store.steps_of(connection, claim.event_id)
            if not rows:
                steps = _plan(connection, claim)
                event_store.insert_steps(connection, claim.event_id, [(step.kind, step.args()) for step in steps], now)
                rows = event_store.steps_of(connection, claim.event_id)
            return rows

        return in_transaction(self._engine, work)

    def _step(self, claim: Claim, row: StepRow) -> Result | None:
        """None when the step is done, else why the event stops here for now or for good."""
        try:
            waiting = self._steps.run(Step.from_journal(row.kind, row.args))
        except MoorageError as error:
            reason = f"{row.kind}: {error.message}"
            log.warning("a step of a lease failed", extra={"lease_id": claim.lease_id, "reason": reason})
            if claim.type is EventType.CREATE:
                self._give_up(claim, reason)  # somebody waits for the answer: undone at once, see `leases`
                return Result(Outcome.FAILED, error.message)
            return self._again(claim, row, reason, min(MAX_BACKOFF_S, 2 ** min(row.attempt + 1, 10)))
        if isinstance(waiting, Waiting):
            return self._again(claim, row, f"{row.kind}: {waiting.reason}", min(MAX_WAIT_S, 2 ** min(row.attempt, 10)))

        def done(connection: Connection) -> None:
            now = self._clock.now()
            event_store.hold(connection, claim.event_id, claim.epoch, now + CLAIM)
            event_store.step_done(connection, claim.event_id, row.seq, now)

        in_transaction(self._engine, done)
        return None

    def _again(self, claim: Claim, row: StepRow, reason: str, pause_s: int) -> Result:
        """Give the event back until the pause is over, or until its deadline, when it is given up."""

        def work(connection: Connection) -> None:
            now = self._clock.now()
            retry_at = now + timedelta(seconds=pause_s)
            if deadline := self._deadline(claim, store.find_lease(connection, claim.lease_id)):
                retry_at = min(retry_at, max(deadline, now))
            event_store.release(connection, claim.event_id, claim.epoch, retry_at=retry_at, error=reason, now=now)
            event_store.step_not_done(connection, claim.event_id, row.seq, row.attempt + 1, reason, now)

        in_transaction(self._engine, work)
        return Result(Outcome.WAITING, reason)

    def _too_late(self, claim: Claim, lease: Lease | None) -> str | None:
        deadline = self._deadline(claim, lease)
        if lease is None or deadline is None or self._clock.now() < deadline:
            return None
        last = next((event.last_error for event in lease.events if event.id == claim.event_id), None)
        return f"not done by {deadline:%Y-%m-%d %H:%M}" + (f"; {last}" if last else "")

    def _deadline(self, claim: Claim, lease: Lease | None) -> datetime | None:
        """When the event is given up; None: never (what ends or deletes a lease must come to its end)."""
        if lease is None:
            return None
        if claim.type is EventType.START:
            return min(lease.end_date, lease.start_date + self._start_deadline)
        return lease.end_date if claim.type is EventType.UPDATE else None

    def _give_up(self, claim: Claim, reason: str) -> None:
        def work(connection: Connection) -> None:
            now = self._clock.now()
            lease = store.lock(connection, claim.lease_id)
            event_store.finish(connection, claim.event_id, claim.epoch, EventStatus.ERROR, now, reason)
            if lease is None:
                return
            if claim.type is EventType.CREATE:
                self._turn_into_delete(connection, lease, claim)
            elif claim.type is EventType.UPDATE:
                store.move(connection, lease, status_after_update(lease), now)
            else:
                store.move(connection, lease, LeaseStatus.ERROR, now)
                store.move_reservations(connection, lease.id, ReservationStatus.ERROR, now)

        log.error("gave up an event of a lease", extra={"lease_id": claim.lease_id, "reason": reason})
        in_transaction(self._engine, work)

    def _turn_into_delete(self, connection: Connection, lease: Lease, claim: Claim) -> None:
        """What was created so far is undone by deleting the lease (R12)."""
        now = self._clock.now()
        store.move(connection, lease, LeaseStatus.DELETING, now)
        event_store.insert_event(
            connection,
            Event(self._ids.uuid(), lease.id, EventType.DELETE, now, EventStatus.UNDONE, now, None),
        )

    def _finish(self, claim: Claim) -> None:
        def work(connection: Connection) -> None:
            now = self._clock.now()
            lease = store.lock(connection, claim.lease_id)
            event_store.finish(connection, claim.event_id, claim.epoch, EventStatus.DONE, now)
            if lease is not None:
                self._after(connection, claim, lease)

        in_transaction(self._engine, work)

    def _after(self, connection: Connection, claim: Claim, lease: Lease) -> None:
        """What the lease is when the event is done."""
        now = self._clock.now()
        ids = [reservation.id for reservation in lease.reservations]
        match claim.type:
            case EventType.CREATE:
                store.move(connection, lease, LeaseStatus.PENDING, now)
            case EventType.START:
                store.move(connection, lease, LeaseStatus.ACTIVE, now)
                store.move_reservations(connection, lease.id, ReservationStatus.ACTIVE, now)
            case EventType.UPDATE:
                store.move(connection, lease, status_after_update(lease), now)
            case EventType.END:
                store.move(connection, lease, LeaseStatus.TERMINATED, now)
                store.move_reservations(connection, lease.id, ReservationStatus.DELETED, now)
                host_store.delete_allocations_of(connection, ids)
                _close(connection, lease, claim.event_id, now)
            case EventType.DELETE:
                host_store.delete_allocations_of(connection, ids)
                store.delete_lease(connection, lease.id)
            case EventType.BEFORE_END:
                pass  # instance reservations do nothing then; the event is there for those who watch


def slots_of(connection: Connection, lease: Lease) -> Slots:
    """{reservation id: {hypervisor hostname: slots}} as the host allocations say (R20)."""
    names = {host.id: host.hypervisor_hostname for host in host_store.all_hosts(connection)}
    slots: dict[str, dict[str, int]] = {reservation.id: {} for reservation in lease.reservations}
    for each in host_store.allocations_of(connection, list(slots)):
        mine = slots[each.reservation_id]
        mine[names[each.host_id]] = mine.get(names[each.host_id], 0) + 1
    return slots


def services_of(connection: Connection) -> dict[str, str]:
    """{hypervisor hostname: the name of its compute service}"""
    return {host.hypervisor_hostname: host.service_name for host in host_store.all_hosts(connection)}


def _plan(connection: Connection, claim: Claim) -> list[Step]:
    lease = store.find_lease(connection, claim.lease_id)
    if lease is None:
        return []
    match claim.type:
        case EventType.CREATE:
            return plan_create(lease.reservations)
        case EventType.START:
            slots = slots_of(connection, lease)
            return plan_start(lease.reservations, slots, services_of(connection), lease.project_id)
        case EventType.END | EventType.DELETE:
            return plan_end(lease.reservations, slots_of(connection, lease), lease.project_id)
    return []  # an update's steps are written down with the update itself


def _close(connection: Connection, lease: Lease, event_id: str, now: datetime) -> None:
    """No event of an ended lease stays open."""
    for event in lease.events:
        if event.id != event_id and event.type in WIRE_EVENTS and event.status is EventStatus.UNDONE:
            event_store.move_event(connection, event, event.time, now, EventStatus.DONE)
