"""The audit trail: a JSON line for each change that was requested over an API, and the sinks that store the lines.

`Trail` adds time and id to an entry, keeps it below `MAX_ENTRY_BYTES`, and writes it to each sink. If a sink fails, the
entry is lost there, counted and logged, but the request goes on. `TrailFile` is a file that several processes append to
and rotate. `SyslogSink` sends datagrams to a syslog daemon, to a Unix socket or over UDP, and never waits for it.

Not here: the content of an entry (`moorage.wire.audit_entries`), and reading (`moorage.telemetry.trail_reading`).
"""

import contextlib
import errno
import fcntl
import itertools
import logging
import os
import socket
import stat
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import orjson

from moorage.core.clock import Clock
from moorage.core.errors import StartError, Unavailable

log = logging.getLogger(__name__)

#: Bound of an entry with its newline. Appending it with one call keeps it from mixing with other processes' entries.
MAX_ENTRY_BYTES = 4096

#: The beginning of every line. By it, a reader finds the next entry after a line that a full disk truncated.
ENTRY_PREFIX = b'{"eventTime":"'

#: The type of events in CADF.
TYPE_URI = "http://schemas.dmtf.org/cloud/audit/1.0/event"

#: Bounds of texts and lists in an entry, tried one after the other until the line is short enough: first in the target,
#: which the caller chose, then in the whole entry.
_LENGTH_LIMITS = (255, 60, 12)

Entry = Mapping[str, object]


class TrailSink(Protocol):
    name: str

    def start(self) -> None:
        """Raises `StartError` if the sink cannot be used."""
        ...

    def write_line(self, line: bytes) -> None:
        """`line` ends with a newline. Raises `OSError` if it cannot be written."""
        ...

    def close(self) -> None: ...


class Trail:
    """The audit trail of one process. Thread-safe, and usable in processes forked from the one that created it.

    `required`: the kernel writes an entry before each change, and rejects the change if that fails. `agents`: regular
    requests of host agents get entries too. `knows_services`: whether roles distinguish services from users; with
    [identity] mode none, every caller has all roles. `lost` is called with the name of the sink for each entry that a
    sink could not write.
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

    def write_entry(self, entry: Entry) -> bool:
        """Write the entry to all sinks; returns whether all of them succeeded."""
        line = self._line(entry)
        is_kept = True
        for sink in self._sinks:
            try:
                sink.write_line(line)
            except OSError as error:
                is_kept = False
                self._failed(sink.name, error)
            else:
                if sink.name in self._failing:
                    self._failing.discard(sink.name)
                    log.info("the audit trail is written again", extra={"sink": sink.name})
        return is_kept

    def write_before_change(self, entry: Entry) -> None:
        """Write the entry before a change, if `required`. If it raises `Unavailable`, the change must not be made."""
        if not self.write_entry(entry):
            raise Unavailable(
                "nothing can be changed while the audit trail cannot be written ([trail] required); see the log of "
                "this service for the reason",
                code="moorage.trail",
            )

    def start(self) -> None:
        """Check all sinks. Raises `StartError` for one that cannot be used, which would later lose entries."""
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
        shorter = _shortened(entry)
        while not 0 < len(line) <= MAX_ENTRY_BYTES and (cut := next(shorter, None)) is not None:
            line = _encoded({**head, **cut})
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
    """Shorter and shorter versions of the entry. Initiator and action are cut last, since a caller can only make the
    target long.
    """
    for most in _LENGTH_LIMITS:
        yield {**entry, **({"target": _cut(entry["target"], most)} if "target" in entry else {})}
    for most in _LENGTH_LIMITS:
        yield _cut(entry, most)


def _encoded(entry: Entry) -> bytes:
    """The line; empty if a text contains half a character, from a path that is not UTF-8."""
    try:
        return orjson.dumps(entry, option=orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:
        return b""


def _cut(value: Any, most: int) -> Any:
    """`value` with texts and lists cut to `most` characters or items, and without invalid characters."""
    match value:
        case str():
            return value[:most].encode("utf-8", "replace").decode()
        case Mapping():
            return {key: _cut(one, most) for key, one in value.items()}
        case list() | tuple():
            return [_cut(one, most) for one in value[:most]]
    return value


class TrailFile:
    """A file that several processes of one machine append to, each entry with one call (`O_APPEND`); mode 0600.

    A file larger than `rotate_bytes` is rotated: ``trail.jsonl`` becomes ``trail.jsonl.1``, and so on, up to `keep`
    files. One process rotates, under a lock on ``trail.jsonl.lock``. The others notice within `CHECK_PERIOD_S` and
    write to ``trail.jsonl.1`` until then, so that file may exceed the limit by these entries.

    Not for network file systems, where appending is not atomic.
    """

    name = "file"
    CHECK_PERIOD_S = 1.0
    #: Bytes that this process writes at most before it checks the file again.
    _CHECK_BYTES = 1 << 20

    def __init__(self, path: Path, *, rotate_bytes: int, keep: int) -> None:
        self.path = path
        self._rotate_bytes = rotate_bytes
        self._keep = keep
        self._check_bytes = min(self._CHECK_BYTES, rotate_bytes // 8)
        self._lock = threading.Lock()
        self._opened: list[int] = []  # the descriptor, or none
        self._identity = (0, 0)
        self._check_at = 0.0
        self._unchecked_bytes = 0
        # Closes the descriptor of a plane that is dropped without `close`, as tests do.
        self._finalizer = weakref.finalize(self, _close, self._opened)

    def start(self) -> None:
        """Creates the directory if necessary."""
        directory = self.path.parent
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StartError(f"[trail] path: {directory} cannot be created: {error.strerror}") from error
        if not os.access(directory, os.W_OK | os.X_OK) or (self.path.exists() and not self.path.is_file()):
            raise StartError(
                f"[trail] path: {self.path} cannot be written: choose another path, or let this user write it"
            )

    def write_line(self, line: bytes) -> None:
        with self._lock:
            try:
                self._unchecked_bytes += len(line)
                if not self._opened or self._unchecked_bytes > self._check_bytes or monotonic() >= self._check_at:
                    self._check_file()
                if os.write(self._opened[0], line) != len(line):
                    raise OSError(errno.ENOSPC, "the disk is full: an entry was truncated", str(self.path))
            except OSError:
                _close(self._opened)
                raise

    def close(self) -> None:
        with self._lock:
            _close(self._opened)

    def _check_file(self) -> None:
        """Rotate the file if it is too large, and reopen it if the path has another file now."""
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
                raise OSError(errno.EINVAL, "is not a regular file", str(self.path))
            self._identity = mine.st_dev, mine.st_ino
        self._check_at = monotonic() + self.CHECK_PERIOD_S
        self._unchecked_bytes = 0

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


#: Facility authpriv (10), severity notice (5).
PRIORITY = 10 * 8 + 5

#: Minimum time between a failure and the next attempt to open a socket.
RETRY_S = 1.0

_TAG = "moorage-trail"


class SyslogSink:
    """`address`: the path of a Unix socket (``/dev/log``), or ``udp://host:port``. Raises `StartError` otherwise.

    Messages to a Unix socket have the old format (RFC 3164), which all daemons accept there; over UDP, that of RFC
    5424.
    """

    name = "syslog"

    def __init__(self, address: str, clock: Clock) -> None:
        self._clock = clock
        self._hostname = socket.gethostname()
        self._socket: socket.socket | None = None
        self._retry_at = 0.0
        self._target: str | tuple[object, ...]
        if address.startswith("/"):
            self._target, self._family = address, socket.AF_UNIX
            return
        scheme, _, place = address.partition("://")
        host, _, port = place.rpartition(":")
        if scheme != "udp" or not host or not port.isdecimal():
            raise StartError(f"[trail] syslog is {address!r}; use /dev/log or udp://host:514")
        try:  # resolve once: no request must wait for DNS
            family, _, _, _, target = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        except OSError as error:
            raise StartError(f"[trail] syslog: {host} cannot be resolved: {error.strerror}") from error
        self._target, self._family = target, family

    def start(self) -> None:
        """Does nothing: the daemon may start later."""

    def write_line(self, line: bytes) -> None:
        """Raises `OSError` if the daemon is down or does not keep up."""
        if self._socket is None:
            if monotonic() < self._retry_at:
                raise OSError(errno.ECONNREFUSED, "the daemon is away", str(self._target))
            self._open()
        opened = self._socket
        if opened is None:
            raise OSError(errno.ECONNREFUSED, "the daemon is away", str(self._target))
        try:
            opened.send(self._message(line.rstrip(b"\n"), self._clock.now()))
        except BlockingIOError:
            raise
        except OSError:
            self.close()
            self._retry_at = monotonic() + RETRY_S
            raise

    def close(self) -> None:
        opened, self._socket = self._socket, None
        if opened is not None:
            opened.close()

    def _open(self) -> None:
        opened = socket.socket(self._family, socket.SOCK_DGRAM)
        try:
            opened.setblocking(False)
            opened.connect(self._target)
        except OSError:
            opened.close()
            self._retry_at = monotonic() + RETRY_S
            raise
        self._socket = opened

    def _message(self, line: bytes, now: datetime) -> bytes:
        if self._family == socket.AF_UNIX:
            local = now.astimezone()
            head = f"<{PRIORITY}>{local:%b} {local.day:2d} {local:%H:%M:%S} {_TAG}[{os.getpid()}]: "
        else:
            moment = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            head = f"<{PRIORITY}>1 {moment} {self._hostname} {_TAG} {os.getpid()} - - "
        return head.encode() + line
