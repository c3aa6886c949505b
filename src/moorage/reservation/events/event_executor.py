"""Runs the events of leases, always as a list: a batch of one runs the same code.

    claim    events, leases and journals of steps: one transaction for all
    publish  the inventories with which the events begin: one request for each, or two requests for all of a host
    record   these steps as done, and extend the claims: one transaction
    steps    the other steps of each event, in order, several events at once
    finish   events, leases and reservations: one transaction

An event in which a step waits or fails is released and due again later; the others of its batch go on. An event that
was begun before, or has slow steps, is a batch of its own, and each of its slow steps is recorded when it is done.

A crash leaves the journal behind. The next process to claim the event continues at the first step that is not recorded
as done. A worker that lost its claim stops, because its writes find no event in the epoch of the claim. Nothing here
waits: a step that needs time returns `Waiting`. See
docs/evidence/decisions/0018-leases-that-start-together-share-their-transactions.md
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import get_args

from sqlalchemy import Connection, Engine

from moorage.core.backoff import Backoff
from moorage.core.clock import Clock
from moorage.core.errors import MoorageError
from moorage.core.ids import Ids
from moorage.db.session import in_transaction, read
from moorage.reservation.events.event_run import (
    EventClaim,
    EventRun,
    GiveUp,
    Retry,
    RunEnd,
    change_finished,
    change_given_up,
    summarise_failures,
)
from moorage.reservation.events.parallel_requests import ParallelRequests
from moorage.reservation.model.event_order import UnfinishedEvent
from moorage.reservation.model.leases import (
    CLAIM,
    DUE_IMMEDIATELY,
    RUNS_IN,
    Event,
    EventStatus,
    EventType,
    Lease,
    LeaseStatus,
    is_claimed,
)
from moorage.reservation.model.steps import (
    Actions,
    ClearHost,
    EnsureAggregate,
    EnsureClass,
    EnsureFlavor,
    EnsureGroup,
    GrantAccess,
    LendHost,
    OpenAggregate,
    PutInventory,
    Step,
    Waiting,
    kind_of,
)
from moorage.reservation.steps.instance_steps import InstanceSteps
from moorage.reservation.steps.plan_builder import PlanBuilder
from moorage.reservation.store import event_store, lease_store
from moorage.reservation.store.event_store import OPEN, Epochs, Release, StepRow, StepState, new_rows

log = logging.getLogger(__name__)

#: Events per batch: enough to make the shared cost negligible, few enough that the first need not wait long.
MAX_BATCH = 100

#: Pauses before a waiting step is run again, and before a failed one is. A step mostly waits for the deletion of
#: servers, which takes our compute service less than the first pause, and Nova seconds.
WAIT_BACKOFF = Backoff(first_s=0.05, longest_s=8.0)
FAILURE_BACKOFF = Backoff(first_s=2.0, longest_s=60.0)

#: Attempts per before_end action, and how long the end of the lease waits for an action in progress.
ACTION_TRIES = 5
ACTION_GRACE = timedelta(seconds=60)

#: Claims are extended, between two steps, after this time.
_RENEWAL = CLAIM / 4

#: Steps that take a few requests and are cheap to repeat. Events without any other share a batch.
_QUICK = (
    EnsureClass,
    EnsureFlavor,
    EnsureGroup,
    EnsureAggregate,
    PutInventory,
    GrantAccess,
    ClearHost,
    LendHost,
    OpenAggregate,
)


@dataclass(frozen=True)
class ExecutorSettings:
    """`start_deadline_s`, `requests_at_once`: see `moorage.reservation.deps.ReservationSettings`."""

    worker: str  #: `moorage.jobs.worker_watch.Worker.id` of this process, so that its claims are freed when it dies
    start_deadline_s: int
    requests_at_once: int


class _EventState(Enum):
    """The state of an event, compared with what the runner read before."""

    CHANGED = "changed"  #: the event or its lease has changed, or an event of the lease is claimed
    NEW = "new"  #: it can be planned now
    UNPLANNED = "unplanned"  #: attempted before, late, or the generation of a reservation is unknown


class EventExecutor:
    """Thread-safe; several in one process and any number of processes work on one database."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        instances: InstanceSteps,
        actions: Actions,
        plan_builder: PlanBuilder,
        settings: ExecutorSettings,
    ) -> None:
        """`instances` publishes many inventories together, and determines the generation of older reservations."""
        if missing := set(get_args(Step)) - actions.keys():
            raise ValueError(f"no action for the steps {', '.join(sorted(map(kind_of, missing)))}")
        self._engine = engine
        self._clock = clock
        self._ids = ids
        self._instances = instances
        self._actions = actions
        self.worker = settings.worker
        self._start_deadline = timedelta(seconds=settings.start_deadline_s)
        self._in_parallel = ParallelRequests(settings.requests_at_once)
        self.plan_builder = plan_builder

    # --- called by the runner and by requests

    def run_events(self, events: Sequence[UnfinishedEvent]) -> frozenset[str]:
        """Claims due events of one type, each of another lease, and runs them. Events with slow steps run last, alone.

        Returns the ids of events that were not claimed, because they or their leases have changed since they were read.
        """
        runs, alone, gone = in_transaction(self._engine, lambda connection: self._claim(connection, events))
        self._run(runs)
        return gone.union(*(self.run_events([event]) for event in alone))

    def run_claimed(self, claims: Sequence[EventClaim]) -> dict[str, MoorageError]:
        """Runs events that this worker has claimed; returns {id of an event that was given up: error of its step}."""
        runs = [EventRun(claim, self._clock.now() + _RENEWAL) for claim in claims]
        self._run(runs)
        given_up = {run.claim.event_id: run.end.error for run in runs if isinstance(run.end, GiveUp)}
        return {event_id: error for event_id, error in given_up.items() if error is not None}

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

    def begin_update(self, connection: Connection, lease: Lease, steps: Sequence[Step]) -> EventClaim:
        """Writes an update of a locked lease with its journal. The caller runs it after the transaction."""
        now, journal = self._clock.now(), new_rows(steps)
        event = self.new_claimed_event(lease.id, EventType.UPDATE)
        lease_store.move(connection, [lease.id], lease.status, LeaseStatus.UPDATING, now)
        event_store.insert_events(connection, [event])
        event_store.insert_steps(connection, {event.id: journal}, now)
        return EventClaim(event.id, lease.id, EventType.UPDATE, event.epoch, lease.end_date, journal)

    def determine_generations(self, lease: Lease) -> bool:
        """Determines and stores the generation of each of the lease's reservations that an older system made, once.

        Returns True if any was unknown. Raises a `MoorageError` if Placement does not answer.
        """
        unknown = [reservation for reservation in lease.reservations if reservation.generation is None]
        for reservation in unknown:
            generation = self._instances.generation(reservation)
            store = partial(lease_store.set_generation, reservation_id=reservation.id, generation=generation)
            in_transaction(self._engine, store)
        return bool(unknown)

    # --- claim

    def _claim(
        self, connection: Connection, events: Sequence[UnfinishedEvent]
    ) -> tuple[list[EventRun], list[UnfinishedEvent], frozenset[str]]:
        """Plans and claims those of `events` that are still as they were read.

        Returns (the claimed events, events that must run alone because they were attempted before or have slow steps,
        ids of events that have changed). A single event is always claimed, and planned later if it cannot be now.
        """
        now, kind = self._clock.now(), events[0].type
        ids = [event.lease_id for event in events]
        lease_store.lock_rows(connection, ids)
        leases = {lease.id: lease for lease in lease_store.find_leases(connection, ids)}
        states = {event.event_id: self._state(event, leases.get(event.lease_id)) for event in events}
        unchanged = [event for event in events if states[event.event_id] is not _EventState.CHANGED]
        new = [leases[event.lease_id] for event in unchanged if states[event.event_id] is _EventState.NEW]
        plans = self.plan_builder.event_steps(connection, kind, new, now) if new else {}
        quick = {lease_id for lease_id, plan in plans.items() if all(isinstance(step, _QUICK) for step in plan)}
        claimed = [event for event in unchanged if len(events) == 1 or event.lease_id in quick]
        runs = self._begin(connection, [(event, leases[event.lease_id]) for event in claimed], plans) if claimed else []
        alone = [event for event in unchanged if len(events) > 1 and event.lease_id not in quick]
        changed = {event.event_id for event in events} - {event.event_id for event in unchanged}
        return runs, alone, frozenset(changed)

    def _state(self, seen: UnfinishedEvent, lease: Lease | None) -> "_EventState":
        """The state of an event, compared with `seen`, which was read before. `lease`: its lease, locked."""
        now = self._clock.now()
        if lease is None or lease.status not in RUNS_IN[seen.type][0]:
            return _EventState.CHANGED
        event = next((event for event in lease.events if event.id == seen.event_id), None)
        if event is None or event.epoch != seen.epoch or event.status not in OPEN:
            return _EventState.CHANGED
        if any(is_claimed(other.claim_until, now) for other in lease.events):
            return _EventState.CHANGED
        deadline = self._deadline(lease, seen.type)
        is_late = deadline is not None and seen.type is not EventType.BEFORE_END and now >= deadline
        if event.attempt or is_late or any(each.generation is None for each in lease.reservations):
            return _EventState.UNPLANNED
        return _EventState.NEW

    def _begin(
        self,
        connection: Connection,
        events: Sequence[tuple[UnfinishedEvent, Lease]],
        plans: Mapping[str, Sequence[Step]],
    ) -> list[EventRun]:
        """Claims events of locked leases and writes their journals. Those without steps are finished at once."""
        now, running = self._clock.now(), RUNS_IN[events[0][0].type][1]
        seen = {event.event_id: event.epoch for event, _ in events}
        epochs = event_store.claim(connection, seen, self.worker, now + CLAIM, now)
        runs = []
        moving: dict[LeaseStatus, list[str]] = defaultdict(list)
        for event, lease in events:
            journal = new_rows(plans[lease.id]) if lease.id in plans else None
            deadline = self._deadline(lease, event.type)
            claim = EventClaim(event.event_id, lease.id, event.type, epochs[event.event_id], deadline, journal)
            runs.append(EventRun(claim, now + _RENEWAL, lease))
            if running not in (None, lease.status):
                moving[lease.status].append(lease.id)
        for status, ids in moving.items():
            lease_store.move(connection, ids, status, running or status, now)
        event_store.insert_steps(connection, {run.claim.event_id: run.claim.journal or () for run in runs}, now)
        if idle := [run for run in runs if run.claim.journal == []]:
            self._finish(connection, idle)
            for run in idle:
                run.end = RunEnd.FINISHED
        return runs

    def _prepare(self, run: EventRun) -> None:
        """Reads the journal of an event, or plans its steps if it has none. An event that is late is given up.

        It has none if the generation of a reservation was unknown when the event was claimed.
        """
        claim = run.claim
        if run.lease is None:
            with read(self._engine) as connection:
                run.lease = lease_store.find_lease(connection, claim.lease_id)
        # before_end actions have a deadline of their own, checked before each action.
        if claim.type is not EventType.BEFORE_END and (late := self._too_late(run)):
            run.end = late
            return
        try:
            if run.lease is not None:
                self.determine_generations(run.lease)
        except MoorageError as error:
            run.end = Retry(
                f"cannot determine the generation of an older reservation: {error.message}", WAIT_BACKOFF.longest_s
            )
            return
        journal = in_transaction(self._engine, lambda connection: self._read_or_plan(connection, claim))
        if journal is None:
            self._stop_lost([run], {})
        else:
            run.read_journal(journal)

    def _read_or_plan(self, connection: Connection, claim: EventClaim) -> list[StepRow] | None:
        """The journal of the event, planned and written if there is none. None: the claim was lost."""
        now = self._clock.now()
        if not event_store.update_held(connection, {claim.event_id: claim.epoch}, claim_until=now + CLAIM):
            return None
        if journal := event_store.steps_of(connection, [claim.event_id]).get(claim.event_id):
            return journal
        leases = lease_store.find_leases(connection, [claim.lease_id])
        journal = new_rows(self.plan_builder.event_steps(connection, claim.type, leases, now)[claim.lease_id])
        event_store.insert_steps(connection, {claim.event_id: journal}, now)
        return journal

    # --- steps

    def _run(self, runs: Sequence[EventRun]) -> None:
        for run in runs:
            if run.claim.journal is None:
                self._prepare(run)
        if self._publish(runs):
            self._record(runs)
        self._run_parts(runs, [partial(self._run_steps, run) for run in runs if run.end is None])
        if finished := [run for run in runs if run.end is None]:

            def finish(connection: Connection) -> Epochs:
                lease_store.lock_rows(connection, [run.claim.lease_id for run in finished])
                return self._finish(connection, finished)

            mine = in_transaction(self._engine, finish)
            for run in finished:
                run.end = RunEnd.FINISHED
            self._stop_lost(finished, mine)
        if released := [(run, run.end) for run in runs if isinstance(run.end, Retry)]:
            self._release(released)
        if given_up := [(run, run.end) for run in runs if isinstance(run.end, GiveUp)]:
            self._give_up(given_up)
        for run in runs:
            if run.end is RunEnd.FINISHED:
                log.info("lease event done", extra={"lease_id": run.claim.lease_id, "type": run.claim.type})

    def _publish(self, runs: Sequence[EventRun]) -> bool:
        """Writes the inventories with which events begin, before any project gets access. False: none."""
        of_host: dict[str, list[PutInventory]] = defaultdict(list)
        for run in runs:
            for row in run.todo:
                if not isinstance(row.step, PutInventory):
                    break
                of_host[row.step.host].append(row.step)
        errors: dict[str, MoorageError] = {}

        def publish(host: str) -> None:
            try:
                self._instances.put_inventories(of_host[host])
            except MoorageError as error:
                errors[host] = error

        self._run_parts(runs, [partial(publish, host) for host in of_host])
        for run in runs:
            while run.end is None and run.todo and isinstance(step := run.todo[0].step, PutInventory):
                if step.host in errors:
                    self._step_failed(run, errors[step.host])
                    break
                run.done = run.todo.popleft().seq
        return bool(of_host)

    def _run_parts(self, runs: Sequence[EventRun], parts: Sequence[Callable[[], None]]) -> None:
        """Runs parts of these events, several at once, and extends the claims meanwhile."""
        for _ in self._in_parallel(parts):
            now = self._clock.now()
            if any(run.end is None and now >= run.renew_at for run in runs):
                self._record(runs)

    def _run_steps(self, run: EventRun) -> None:
        """Runs the steps that are left until one of them waits, fails, or finds further steps."""
        while run.end is None and run.todo:
            row = run.todo[0]
            if run.claim.type is EventType.BEFORE_END and (late := self._too_late(run, ACTION_GRACE)):
                run.end = late
                break
            try:
                found = self._actions[type(row.step)](row.step)
            except MoorageError as error:
                self._step_failed(run, error)
                continue
            if isinstance(found, Waiting):
                run.end = Retry(f"{row.step.kind}: {found.reason}", WAIT_BACKOFF.pause_s(row.attempt + 1), row)
                break
            run.done = run.todo.popleft().seq
            if found is not None and found.steps:
                run.end = Retry(f"{row.step.kind}: {len(found.steps)} further steps", 0, further=found.steps)
            elif run.todo and (not isinstance(row.step, _QUICK) or self._clock.now() >= run.renew_at):
                self._record([run])

    def _step_failed(self, run: EventRun, error: MoorageError) -> None:
        """Decides how an event goes on after the first step that is left has failed."""
        row, kind = run.todo[0], run.claim.type
        reason = f"{row.step.kind}: {error.message}"
        log.warning("a step of a lease event failed", extra={"lease_id": run.claim.lease_id, "reason": reason})
        if kind is EventType.CREATE:
            run.end = GiveUp(reason, error)  # a request waits for the answer: undo at once, see `lease_service`
        elif kind is not EventType.BEFORE_END or not self._abandon_action(run, reason):
            run.end = Retry(reason, FAILURE_BACKOFF.pause_s(row.attempt + 1), row)

    def _abandon_action(self, run: EventRun, reason: str) -> bool:
        """Gives up a before_end action after `ACTION_TRIES` or at the lease's end; the other actions continue."""
        row = run.todo[0]
        with read(self._engine) as connection:
            lease = lease_store.find_lease(connection, run.claim.lease_id)
        if lease is None or (row.attempt + 1 < ACTION_TRIES and self._clock.now() < lease.end_date):
            return False
        run.done = run.todo.popleft().seq
        run.failures.append(reason)
        failed = replace(row, state=StepState.FAILED, attempt=row.attempt + 1, last_error=reason)
        self._record([run], {run.claim.event_id: failed})
        return True

    # --- record

    def _record(self, runs: Sequence[EventRun], failed: Mapping[str, StepRow] = MappingProxyType({})) -> None:
        """Extends the claims, and records the steps that are done. `failed`: {event id: a step that was given up}"""
        going = [run for run in runs if run.end is None]
        epochs = {run.claim.event_id: run.claim.epoch for run in going}
        done = {run.claim.event_id: run.done for run in going if run.done > run.recorded}

        def record(connection: Connection) -> Epochs:
            now = self._clock.now()
            mine = event_store.update_held(connection, epochs, claim_until=now + CLAIM)
            if given_up := {key: row for key, row in failed.items() if key in mine}:
                event_store.steps_not_done(connection, given_up, now)
            event_store.steps_done(connection, {key: number for key, number in done.items() if key in mine}, now)
            return mine

        mine = in_transaction(self._engine, record)
        for run in going:
            run.recorded = done.get(run.claim.event_id, run.recorded)
            run.renew_at = self._clock.now() + _RENEWAL
        self._stop_lost(going, mine)

    def _finish(self, connection: Connection, runs: Sequence[EventRun]) -> Epochs:
        """Ends the events and changes their leases, which are locked; returns those whose claims were still held."""
        now = self._clock.now()
        sound = {run.claim.event_id: run.claim.epoch for run in runs if not run.failures}
        mine = dict(event_store.finish(connection, sound, EventStatus.DONE, now))
        for run in runs:
            if run.failures:
                failed, error = {run.claim.event_id: run.claim.epoch}, summarise_failures(run.failures)
                mine |= event_store.finish(connection, failed, EventStatus.ERROR, now, error)
        ended = [run for run in runs if run.claim.event_id in mine]
        done = {run.claim.event_id: run.done for run in ended if run.done > run.recorded}
        event_store.steps_done(connection, done, now)
        if ended:
            change_finished(connection, [run.claim for run in ended], now)
        return mine

    def _release(self, stopped: Sequence[tuple[EventRun, Retry]]) -> None:
        """Gives the events back until their pauses are over, or until their deadlines, when they are given up."""

        def release(connection: Connection) -> Epochs:
            now = self._clock.now()
            releases = []
            for run, retry in stopped:
                retry_at = now + timedelta(seconds=retry.pause_s)
                if run.claim.deadline is not None:
                    retry_at = min(retry_at, max(run.claim.deadline, now))
                releases.append(Release(run.claim.event_id, run.claim.epoch, retry_at, retry.reason))
            mine = event_store.release(connection, releases, now)
            held = [(run, retry) for run, retry in stopped if run.claim.event_id in mine]
            if failed := {
                run.claim.event_id: replace(retry.row, attempt=retry.row.attempt + 1, last_error=retry.reason)
                for run, retry in held
                if retry.row is not None
            }:
                event_store.steps_not_done(connection, failed, now)
            done = {run.claim.event_id: run.done for run, _ in held if run.done > run.recorded}
            event_store.steps_done(connection, done, now)
            further = {run.claim.event_id: new_rows(retry.further, run.length) for run, retry in held}
            event_store.insert_steps(connection, further, now)
            return mine

        self._stop_lost([run for run, _ in stopped], in_transaction(self._engine, release))

    def _give_up(self, stopped: Sequence[tuple[EventRun, GiveUp]]) -> None:
        """Ends the events with an error, and changes their leases."""

        def give_up(connection: Connection) -> Epochs:
            now, mine = self._clock.now(), dict[str, int]()
            lease_store.lock_rows(connection, [run.claim.lease_id for run, _ in stopped])
            for run, end in stopped:
                claimed = {run.claim.event_id: run.claim.epoch}
                mine |= event_store.finish(connection, claimed, EventStatus.ERROR, now, end.reason)
                lease = lease_store.find_lease(connection, run.claim.lease_id)
                if run.claim.event_id in mine and lease is not None:
                    change_given_up(connection, lease, run.claim.type, now, self._ids)
            return mine

        for run, end in stopped:
            log.error("gave up a lease event", extra={"lease_id": run.claim.lease_id, "reason": end.reason})
        self._stop_lost([run for run, _ in stopped], in_transaction(self._engine, give_up))

    def _stop_lost(self, runs: Sequence[EventRun], mine: Epochs) -> None:
        """Stops the events that another worker has, and drops our claims, so that it need not wait for their end."""
        lost = [run for run in runs if run.claim.event_id not in mine]
        for run in lost:
            run.end = RunEnd.LOST
            log.warning(
                "lost the claim on an event to another worker",
                extra={"event_id": run.claim.event_id, "lease_id": run.claim.lease_id},
            )
        if ids := [run.claim.event_id for run in lost]:
            in_transaction(self._engine, lambda connection: event_store.drop_claims(connection, ids, self.worker))

    # --- deadlines

    def _deadline(self, lease: Lease, kind: EventType) -> datetime | None:
        if kind is EventType.START:
            return min(lease.end_date, lease.start_date + self._start_deadline)
        return lease.end_date if kind in (EventType.UPDATE, EventType.BEFORE_END) else None

    def _too_late(self, run: EventRun, grace: timedelta = timedelta(0)) -> GiveUp | None:
        """The end of an event whose deadline has passed, plus `grace`. None: it may go on."""
        deadline = run.claim.deadline
        if deadline is None or self._clock.now() < deadline + grace:
            return None
        events = run.lease.events if run.lease is not None else ()
        last = next((event.last_error for event in events if event.id == run.claim.event_id), None)
        return GiveUp(f"not finished by the deadline {deadline:%Y-%m-%d %H:%M}" + (f"; {last}" if last else ""))
