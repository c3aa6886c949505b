"""The duty that starts and ends leases in time. Any number of them may run, in any number of processes.

Each tick takes up, one after another, the events whose turn it is, and says when it wants to be called again: when
the next event is due, or the next retry, or when somebody else's claim runs out.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import Engine

from moorage.core.clock import Clock
from moorage.db.transactions import read
from moorage.reservation import event_store
from moorage.reservation.events import Unfinished, runnable, turn
from moorage.reservation.operations import Operations

#: The topic that is woken when leases were created, changed or deleted, and the name of the duty.
TOPIC = "reservation.runner"

#: An event that waits for another one is looked at again after this.
RECHECK = timedelta(seconds=2)

#: Events taken up in one tick; then the duty asks to be called again at once.
MAX_EVENTS = 500


class ReservationRunner:
    """`poll_s`: look at least so often, for events that other processes wrote without waking this one.

    None where all requests are served by this process, which wakes it.
    """

    name = TOPIC

    def __init__(self, engine: Engine, clock: Clock, operations: Operations, *, poll_s: float | None = None) -> None:
        self._engine = engine
        self._clock = clock
        self._operations = operations
        self._poll_s = poll_s

    def tick(self) -> datetime | None:
        lost: set[str] = set()  # somebody else was quicker
        for _ in range(MAX_EVENTS):
            event = self._next(lost)
            if event is None:
                return self._next_look()
            claim = self._operations.claim(event)
            if claim is None:
                lost.add(event.event_id)
            else:
                self._operations.carry_out(claim)
        return self._clock.now()

    def _next(self, lost: Collection[str]) -> Unfinished | None:
        with read(self._engine) as connection:
            unfinished = event_store.unfinished(connection, self._clock.now())
        run = turn(unfinished, self._clock.now()).run
        return next((event for event in run if event.event_id not in lost), None)

    def _next_look(self) -> datetime | None:
        now = self._clock.now()
        with read(self._engine) as connection:
            waiting = [event for event in event_store.unfinished(connection, now) if runnable(event)]
            coming = event_store.coming(connection, now)
        moments = [event.due() if event.due() > now else now + RECHECK for event in waiting]
        moments += [event.time for event in coming[:1]]
        if self._poll_s is not None:
            moments.append(now + timedelta(seconds=self._poll_s))
        return min(moments, default=None)
