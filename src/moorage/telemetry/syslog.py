"""Sends audit entries to a syslog daemon, as datagrams to a Unix socket or over UDP. It never waits for the daemon."""

import errno
import os
import socket
from datetime import datetime
from time import monotonic

from moorage.core.clock import Clock
from moorage.core.errors import StartError

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
