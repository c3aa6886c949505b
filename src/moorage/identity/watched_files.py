"""What is in files that others change while we run: read again soon after a change, and never for each request.

Not here: how a file is written, and who may.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Generic, TypeVar

from moorage.core.clock import Clock
from moorage.core.errors import StartError

log = logging.getLogger(__name__)

#: The files are looked at once in this time at most, so that every process knows of a change after so long.
RELOAD_PERIOD = timedelta(seconds=1)

T = TypeVar("T")


class WatchedFiles(Generic[T]):
    """What `read` makes of `paths`, as of one `RELOAD_PERIOD` ago at most.

    A change that `read` refuses (`StartError`) is logged and ignored: what was read last stays in force. `what` names
    the files in the log.
    """

    def __init__(self, what: str, paths: Sequence[Path], read: Callable[[], T], clock: Clock) -> None:
        """Raises the `StartError` of the first reading."""
        self._what = what
        self._paths = tuple(paths)
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._marks = self._look_at_files()
        self._value = read()
        self._next_look = clock.now() + RELOAD_PERIOD

    def value(self) -> T:
        now = self._clock.now()
        # The second: somebody set the clock back, and the next look would be far away.
        if now >= self._next_look or now < self._next_look - RELOAD_PERIOD:
            with self._lock:
                self._look(now)
        return self._value

    def reload_now(self) -> None:
        """For whoever has just written a file."""
        with self._lock:
            self._next_look = self._clock.now()
            self._look(self._next_look)

    def _look(self, now: datetime) -> None:
        if self._next_look - RELOAD_PERIOD <= now < self._next_look:  # another thread was quicker
            return
        self._next_look = now + RELOAD_PERIOD
        marks = self._look_at_files()
        if marks == self._marks:
            return
        self._marks = marks
        where = ", ".join(map(str, self._paths))
        try:
            self._value = self._read()
            log.info("%s read again", self._what, extra={"file": where})
        except StartError as error:
            log.error("changed %s ignored", self._what, extra={"file": where, "reason": error.message})

    def _look_at_files(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_file_version(path) for path in self._paths)


def _file_version(path: Path) -> tuple[int, int, int] | None:
    """What changes when the file does; None while it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
