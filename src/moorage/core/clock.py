"""Time as an argument. Nothing below the wiring reads the machine's clock by itself.

Time is aware UTC; periods are half-open ``[start, end)``.
"""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from moorage.core.errors import Invalid


class Clock(Protocol):
    """What the rest of the house knows of time."""

    def now(self) -> datetime:
        """Aware UTC."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let that much of *this clock's* time pass."""
        ...


def boot_time() -> float:
    """Seconds since the machine was started. Nobody can set them, and they pass while the machine is suspended, where
    the system counts that (Linux).
    """
    return time.clock_gettime(_BOOT)


_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's clock, in UTC."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


#: So far at most does an adjustable clock go. What is reckoned from it, the end of a lease of ten years, is still in the calendar.
LATEST = datetime(8900, 1, 1, tzinfo=UTC)


class AdjustableClock:
    """The machine's clock plus an offset that may only grow: rehearsals jump to the end of a lease with it.

    `on_advance` callbacks run after each jump, so that whoever waits for a due time looks again, and whoever keeps
    `offset` over a restart writes it down: a plane whose time went back would wait for what was already due.
    """

    def __init__(self, offset: timedelta = timedelta(0)) -> None:
        self._offset = offset
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
            raise ValueError("a clock is only ever moved forwards")
        with self._lock:
            if seconds > (LATEST - self.now()).total_seconds():
                raise Invalid(
                    f"the clock is at {self.now():%Y-%m-%d} and goes to {LATEST:%Y-%m-%d} at most; move it by less, or "
                    "rehearse with a new plane"
                )
            self._offset += timedelta(seconds=seconds)
        for callback in self.on_advance:
            callback()


class VirtualClock:
    """Time that passes only when told: whole planes run under it, deterministically and fast."""

    def __init__(self, start: datetime) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)

    def advance_to(self, moment: datetime) -> None:
        """Earlier moments are ignored: somebody slept past them."""
        self._now = max(self._now, moment)
