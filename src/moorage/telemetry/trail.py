"""The audit trail: one JSON line per change that somebody asked for over an API, and where those lines go.

`Trail` gives an entry its time and its id, keeps it below `MAX_ENTRY_BYTES`, and writes it to each sink. A sink that fails costs
the entry there, never the request: it is counted and logged. `TrailFile` is a file that several processes append to and
rotate. What an entry says about a request is `moorage.wire.audit_entries`; reading is `moorage.telemetry.trail_reading`; the other
sink is `moorage.telemetry.syslog`.
"""

import contextlib
import errno
import fcntl
import itertools
import logging
import os
import stat
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import orjson

from moorage.core.clock import Clock
from moorage.core.errors import StartError, Unavailable

log = logging.getLogger(__name__)

#: An entry with its newline. What one call appends to a file of a local disk is not mixed with what others append.
MAX_ENTRY_BYTES = 4096

#: Every line begins with it: behind a line that a full disk cut off a reader finds the next entry by it.
ENTRY_PREFIX = b'{"eventTime":"'

#: What CADF calls its events.
TYPE_URI = "http://schemas.dmtf.org/cloud/audit/1.0/event"

#: Longest text, and longest list, in an entry; tried one after the other until the line is short enough: of what it was
#: about, which the caller chose, and only then of all.
_LENGTH_LIMITS = (255, 60, 12)

Entry = Mapping[str, Any]


class TrailSink(Protocol):
    name: str

    def start(self) -> None:
        """Raises `StartError` for a place that cannot be used."""
        ...

    def write(self, line: bytes) -> None:
        """`line` ends with a newline. Raises `OSError` where it could not be written."""
        ...

    def close(self) -> None: ...


class Trail:
    """Entries of one process. Thread-safe, and usable in a process that was forked from the one that made it.

    `required`: the kernel writes an entry before each change, and refuses the change where that is impossible.
    `agents`: what the agents of hosts do all the time has entries too. `knows_services`: whether the roles of callers tell
    services from users; with [identity] mode none everybody has all of them. `lost` is called with the name of the sink for
    each entry that a sink did not take.
    """

    def __init__(
        self,
        sinks: Sequence[TrailSink],
        clock: Clock,
        *,
        observer: str,
        required: bool = False,
        agents: bool = False,
        knows_services: bool = True,
        lost: Callable[[str], None] = lambda _sink: None,
    ) -> None:
        self.observer = observer
        self.required = required
        self.agents = agents
        self.knows_services = knows_services
        self._sinks = sinks
        self._clock = clock
        self._lost = lost
        self._process = 0
        self._prefix = ""
        self._numbers = itertools.count(1)
        self._failing: set[str] = set()

    def write(self, entry: Entry) -> bool:
        """Whether every sink took it."""
        line = self._line(entry)
        is_kept = True
        for sink in self._sinks:
            try:
                sink.write(line)
            except OSError as error:
                is_kept = False
                self._failed(sink.name, error)
            else:
                if sink.name in self._failing:
                    self._failing.discard(sink.name)
                    log.info("the audit trail is written again", extra={"sink": sink.name})
        return is_kept

    def write_before_change(self, entry: Entry) -> None:
        """Before a change, where `required`. Raises `Unavailable`: then the change must not be made."""
        if not self.write(entry):
            raise Unavailable(
                "nothing can be changed while the audit trail cannot be written ([trail] required); the log of this "
                "service says why",
                code="moorage.trail",
            )

    def start(self) -> None:
        """Raises `StartError` for a place that cannot be used: later it would cost entries."""
        for sink in self._sinks:
            sink.start()

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()

    def _line(self, entry: Entry) -> bytes:
        if self._process != os.getpid():  # also after a fork
            self._process = os.getpid()
            self._prefix = f"{self._process:x}-{int(self._clock.now().timestamp() * 1e6):x}-"
            self._numbers = itertools.count(1)
        head = {
            "eventTime": self._clock.now(),
            "typeURI": TYPE_URI,
            "eventType": "activity",
            "id": f"{self._prefix}{next(self._numbers)}",
        }
        line = _encoded({**head, **entry})
        for shorter in _shortened(entry):
            if 0 < len(line) <= MAX_ENTRY_BYTES:
                break
            line = _encoded({**head, **shorter})
        return line

    def _failed(self, sink: str, error: OSError) -> None:
        self._lost(sink)
        if sink not in self._failing:
            self._failing.add(sink)
            log.error(
                "entries of the audit trail are lost",
                extra={"sink": sink, "reason": error.strerror or str(error), "file": error.filename},
            )


def _shortened(entry: Entry) -> Iterator[Entry]:
    """Who did what stays whole for as long as it can, whatever the caller writes into a path or a query."""
    for most in _LENGTH_LIMITS:
        yield {**entry, **({"target": _cut(entry["target"], most)} if "target" in entry else {})}
    for most in _LENGTH_LIMITS:
        yield _cut(entry, most)


def _encoded(entry: Entry) -> bytes:
    """Empty where it has half a character: of a path that is no UTF-8."""
    try:
        return orjson.dumps(entry, option=orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:
        return b""


def _cut(value: Any, most: int) -> Any:
    """`value` with each text at most so long, and without what is no character."""
    match value:
        case str():
            return value[:most].encode("utf-8", "replace").decode()
        case Mapping():
            return {key: _cut(one, most) for key, one in value.items()}
        case list() | tuple():
            return [_cut(one, most) for one in value[:most]]
    return value


class TrailFile:
    """A file that processes of one machine append to, each entry by one call (`O_APPEND`), mode 0600.

    It is rotated when it is larger than `rotate_bytes`: ``trail.jsonl`` becomes ``trail.jsonl.1``, and so on up to `keep`
    of them. One process does it, under a lock on ``trail.jsonl.lock``; the others see it within `LOOK_S`, and what they
    write until then is in ``trail.jsonl.1``. So the file may become larger by what is written in that time.

    Not on a network file system: appending is not one step there.
    """

    name = "file"
    LOOK_S = 1.0
    #: So much this process writes at most before it looks again.
    _LOOK_BYTES = 1 << 20

    def __init__(self, path: Path, *, rotate_bytes: int, keep: int) -> None:
        self.path = path
        self._rotate_bytes = rotate_bytes
        self._keep = keep
        self._look_bytes = min(self._LOOK_BYTES, rotate_bytes // 8)
        self._lock = threading.Lock()
        self._opened: list[int] = []  # the descriptor, or none
        self._identity = (0, 0)
        self._look_at = 0.0
        self._unseen_bytes = 0
        # A plane that is dropped without its end, as tests do it, leaves no descriptor behind.
        self._finalizer = weakref.finalize(self, _close, self._opened)

    def start(self) -> None:
        """The directory is made where there is none."""
        directory = self.path.parent
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StartError(f"[trail] path: {directory} cannot be made: {error.strerror}") from error
        if not os.access(directory, os.W_OK | os.X_OK) or (self.path.exists() and not self.path.is_file()):
            raise StartError(
                f"[trail] path: {self.path} cannot be written: choose another one, or give this user the right"
            )

    def write(self, line: bytes) -> None:
        with self._lock:
            try:
                self._unseen_bytes += len(line)
                if not self._opened or self._unseen_bytes > self._look_bytes or monotonic() >= self._look_at:
                    self._look()
                if os.write(self._opened[0], line) != len(line):
                    raise OSError(errno.ENOSPC, "the disk is full: an entry was cut off", str(self.path))
            except OSError:
                _close(self._opened)
                raise

    def close(self) -> None:
        with self._lock:
            _close(self._opened)

    def _look(self) -> None:
        """Whether the file at the path is still the open one, and whether it is too large."""
        found = self._stat()
        if found is not None and found.st_size >= self._rotate_bytes:
            self._rotate()
            found = self._stat()
        if not self._opened or found is None or (found.st_dev, found.st_ino) != self._identity:
            _close(self._opened)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._opened.append(os.open(self.path, flags, 0o600))
            mine = os.fstat(self._opened[0])
            if not stat.S_ISREG(mine.st_mode):
                raise OSError(errno.EINVAL, "is no file", str(self.path))
            self._identity = mine.st_dev, mine.st_ino
        self._look_at = monotonic() + self.LOOK_S
        self._unseen_bytes = 0

    def _rotate(self) -> None:
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = self._stat()
            if found is None or found.st_size < self._rotate_bytes:
                return  # another process did it
            for number in range(self._keep - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{self.path}.{number}").replace(f"{self.path}.{number + 1}")
            self.path.replace(f"{self.path}.1")
        finally:
            os.close(lock)

    def _stat(self) -> os.stat_result | None:
        try:
            return self.path.stat()
        except FileNotFoundError:
            return None


def _close(opened: list[int]) -> None:
    while opened:
        os.close(opened.pop())
