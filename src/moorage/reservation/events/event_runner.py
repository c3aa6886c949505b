"""The background task that starts and ends leases on time. Any number may run, in any number of processes.

Each run takes the events that may run now, in order, and returns when it must run again: when the next event or retry
is due, or when another worker's claim expires. Consecutive starts are batched, and so are `before_end` events.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Engine

from moorage.core.clock import Clock
from moorage.db.session import read
from moorage.reservation.events.event_executor import MAX_BATCH, EventExecutor
from moorage.reservation.model.event_order import UnfinishedEvent, runnable, schedule_events
from moorage.reservation.model.leases import EventType, LeaseStatus
from moorage.reservation.store import event_store

#: The name of the task, and the wakeup topic for created, changed and deleted leases.
TOPIC = "reservation.runner"

#: How soon to check again an event that waits for another one.
RECHECK = timedelta(seconds=2)

#: Events per run; then the task asks to run again at once.
MAX_EVENTS = 500

#: Due events read at first, so that the cost per event does not grow with the backlog. If none of them may run, all are
#: read.
FIRST_READ = 2 * MAX_EVENTS


class ReservationRunner:
    """`poll_s`: the longest time between two runs, to find events that other processes wrote without a wakeup.

    None if this process serves all requests and so wakes the task itself.
    """

    name = TOPIC

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        executor: EventExecutor,
        *,
        poll_s: float | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._executor = executor
        self._poll_s = poll_s

    def run_once(self) -> datetime | None:
        lost: set[str] = set()  # another worker was first
        done = 0
        while done < MAX_EVENTS:
            turns = self._runnable_events(lost)
            if not turns:
                return self._next_due()
            for group in _batches(turns[: MAX_EVENTS - done]):
                gone = self._executor.run_events(group)
                done += len(group) - len(gone)
                lost |= gone
        return self._clock.now()

    def _runnable_events(self, lost: Collection[str]) -> list[UnfinishedEvent]:
        """The events that may run now, in order, without those in `lost`."""
        now, turns = self._clock.now(), list[UnfinishedEvent]()
        for most in (FIRST_READ, None):
            with read(self._engine) as connection:
                unfinished = event_store.unfinished(connection, now, most)
            mine = {event.event_id for event in unfinished[:most]}.difference(lost)
            turns = [event for event in schedule_events(unfinished, now).run if event.event_id in mine]
            if turns or len(unfinished) < FIRST_READ:
                break
        return turns

    def _next_due(self) -> datetime | None:
        now = self._clock.now()
        with read(self._engine) as connection:
            waiting = [event for event in event_store.unfinished(connection, now) if runnable(event)]
            coming = event_store.coming(connection, now)
        moments = [due if (due := event.due(now)) > now else now + RECHECK for event in waiting]
        moments += [event.time for event in coming[:1]]
        if self._poll_s is not None:
            moments.append(now + timedelta(seconds=self._poll_s))
        return min(moments, default=None)


def _batches(turns: Sequence[UnfinishedEvent]) -> Iterator[list[UnfinishedEvent]]:
    """Groups consecutive events of one batch type, up to `MAX_BATCH`; the others come alone. Keeps the order."""
    group: list[UnfinishedEvent] = []
    for event in turns:
        way = _batch_type(event)
        if group and (way is None or way is not _batch_type(group[0]) or len(group) == MAX_BATCH):
            yield group
            group = []
        group.append(event)
    if group:
        yield group


def _batch_type(event: UnfinishedEvent) -> EventType | None:
    """The type under which the event can be batched: new starts and `before_end`. None: it runs alone."""
    if event.type is EventType.BEFORE_END or (
        event.type is EventType.START and event.lease_status is LeaseStatus.PENDING
    ):
        return event.type
    return None
