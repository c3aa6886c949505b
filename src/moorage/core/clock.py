"""Clocks, which are passed as arguments. Code below the wiring never reads the machine's clock itself.

Times are timezone-aware UTC; periods are half-open ``[start, end)``.
"""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from moorage.core.errors import Invalid


class Clock(Protocol):
    """The source of time for all services."""

    def now(self) -> datetime:
        """Aware UTC."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock's time."""
        ...


class SystemClock:
    """The machine's clock, in UTC."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


#: The latest time of an adjustable clock. Later times can still be represented, such as the end of a ten-year lease.
LATEST = datetime(8900, 1, 1, tzinfo=UTC)


class AdjustableClock:
    """The machine's clock plus an offset that can only grow. Rehearsals use it to jump to the end of a lease.

    `save` makes the new offset durable before anybody sees the new time: if the process died after it had begun what is
    due then, and the time went back at its restart, it would not continue until that time comes again. The `on_advance`
    callbacks run after each jump. They wake tasks that wait for a due time.
    """

    def __init__(
        self, offset: timedelta = timedelta(0), save: Callable[[timedelta], object] = lambda _offset: None
    ) -> None:
        self._offset = offset
        self._save = save
        self._lock = threading.Lock()
        self.on_advance: list[Callable[[], None]] = []

    @property
    def offset(self) -> timedelta:
        return self._offset

    def now(self) -> datetime:
        return datetime.now(UTC) + self._offset

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def advance(self, seconds: float) -> None:
        """Raises `Invalid` for a jump beyond `LATEST`."""
        if seconds < 0:
            raise ValueError("a clock can only be moved forwards")
        with self._lock:
            if seconds > (LATEST - self.now()).total_seconds():
                raise Invalid(
                    f"the clock is at {self.now():%Y-%m-%d} and cannot go beyond {LATEST:%Y-%m-%d}; move it by less, "
                    "or rehearse with a new plane"
                )
            offset = self._offset + timedelta(seconds=seconds)
            self._save(offset)
            self._offset = offset
        for callback in self.on_advance:
            callback()


class VirtualClock:
    """A clock that moves only when it is told to. Whole planes run under it, deterministically and fast."""

    def __init__(self, start: datetime) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)

    def advance_to(self, moment: datetime) -> None:
        """Earlier times are ignored: a `sleep` has already gone past them."""
        self._now = max(self._now, moment)


def is_real_time(clock: Clock) -> bool:
    """Whether the time of `clock` passes by itself.

    With any other clock, work runs in one thread and in a fixed order, so that a run can be repeated.
    """
    return isinstance(clock, SystemClock | AdjustableClock)
