"""Files that change while processes run: reread soon after a change, but not for each request.

Not here: how a file is written, and which process may write it.
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

#: The files are checked at most once in this period; every process sees a change within it.
RELOAD_PERIOD = timedelta(seconds=1)

T = TypeVar("T")


class WatchedFiles(Generic[T]):
    """The value that `read` returns for `paths`, at most one `RELOAD_PERIOD` old.

    If `read` rejects a change (`StartError`), the error is logged and the previous value stays in use. `what` names the
    files in the log.
    """

    def __init__(self, what: str, paths: Sequence[Path], read: Callable[[], T], clock: Clock) -> None:
        """Raises the `StartError` of the first `read`."""
        self._what = what
        self._paths = tuple(paths)
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._versions = self._file_versions()
        self._value = read()
        self._next_check = clock.now() + RELOAD_PERIOD

    def value(self) -> T:
        now = self._clock.now()
        # The second condition holds if the clock was set back; the next check would be far away.
        if now >= self._next_check or now < self._next_check - RELOAD_PERIOD:
            with self._lock:
                self._reread_if_due(now)
        return self._value

    def reload_now(self) -> None:
        """Check the files now, after this process has written one."""
        with self._lock:
            self._next_check = self._clock.now()
            self._reread_if_due(self._next_check)

    def _reread_if_due(self, now: datetime) -> None:
        if self._next_check - RELOAD_PERIOD <= now < self._next_check:  # another thread was quicker
            return
        self._next_check = now + RELOAD_PERIOD
        marks = self._file_versions()
        if marks == self._versions:
            return
        self._versions = marks
        where = ", ".join(map(str, self._paths))
        try:
            self._value = self._read()
            log.info("%s read again", self._what, extra={"file": where})
        except StartError as error:
            log.error("changed %s ignored", self._what, extra={"file": where, "reason": error.message})

    def _file_versions(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_file_version(path) for path in self._paths)


def _file_version(path: Path) -> tuple[int, int, int] | None:
    """A value that changes with the file; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
