"""The link to libvirtd: opened when it is needed, watched, and reopened after a pause when it broke.

Nothing here waits long. A daemon that is gone is noticed at once, and one that hangs after `KEEP_ALIVE_S` times
`KEEP_ALIVE_COUNT`. Until the pause after a failure is over, callers get the error without another attempt.

Not here: the calls over the link.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillOpening
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import libvirt

from moorage.agent.virt.driver import HypervisorAway, NoSuchDomain, Unsupported, VirtError
from moorage.core.clock import Clock

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 5
KEEP_ALIVE_COUNT = 3
OPEN_TIMEOUT_S = 15.0
#: Pauses between attempts to open; doubled from the first to the last.
FIRST_PAUSE_S, LAST_PAUSE_S = 1.0, 30.0

_UNSUPPORTED = frozenset(
    {
        libvirt.VIR_ERR_AGENT_UNRESPONSIVE,
        libvirt.VIR_ERR_AGENT_UNSYNCED,
        libvirt.VIR_ERR_CONFIG_UNSUPPORTED,
        libvirt.VIR_ERR_NO_SUPPORT,
        libvirt.VIR_ERR_OPERATION_UNSUPPORTED,
        libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED,
    }
)


class LibvirtConnection:
    """Thread-safe; all threads share one link. `uri`: ``qemu:///system``."""

    def __init__(self, uri: str, clock: Clock) -> None:
        self.uri = uri
        self._clock = clock
        self._lock = threading.Lock()
        self._link: Any = None
        self._opening: Future[Any] | None = None
        self._pause_s = FIRST_PAUSE_S
        self._refusal = ""
        self._not_before: datetime | None = None
        _run_events()

    @contextmanager
    def use(self) -> Iterator[Any]:
        """A `libvirt.virConnect`. An error of libvirt inside the context becomes the `VirtError` of its kind."""
        link = self._opened()
        try:
            yield link
        except libvirt.libvirtError as error:
            raise self._told(link, error) from error

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _opened(self) -> Any:
        with self._lock:
            if self._link is not None:
                if _lives(self._link):
                    return self._link
                self._drop()
            now = self._clock.now()
            if self._not_before is not None and now < self._not_before:
                raise HypervisorAway(self._refusal)
            try:
                self._link = self._open()
            except libvirt.libvirtError as error:
                raise self._away(str(error)) from error
            self._not_before, self._pause_s = None, FIRST_PAUSE_S
            log.info("connected to the hypervisor", extra={"uri": self.uri})
            return self._link

    def _open(self) -> Any:
        """Open in a thread, because a stopped daemon accepts the connection and never answers."""
        if self._opening is None:
            self._opening = Future()
            threading.Thread(
                target=_open_into, args=(self._opening, self.uri), name="libvirt-open", daemon=True
            ).start()
        try:
            link = self._opening.result(OPEN_TIMEOUT_S)
        except StillOpening as error:
            raise self._away(f"no answer within {OPEN_TIMEOUT_S:.0f} s") from error
        except libvirt.libvirtError:
            self._opening = None
            raise
        self._opening = None
        return link

    def _away(self, why: str) -> HypervisorAway:
        """Begin a pause, and return the error for callers until it is over. The caller holds the lock."""
        self._not_before = self._clock.now() + timedelta(seconds=self._pause_s)
        self._pause_s = min(self._pause_s * 2, LAST_PAUSE_S)
        self._refusal = f"libvirt at {self.uri} does not answer: {why}; check that its daemon runs on this host"
        log.warning("no connection to the hypervisor", extra={"uri": self.uri, "why": why})
        return HypervisorAway(self._refusal)

    def _told(self, link: Any, error: libvirt.libvirtError) -> VirtError:
        sentence = error.get_error_message() or str(error)
        if not _lives(link):
            with self._lock:
                if self._link is link:
                    self._drop()
            return HypervisorAway(f"libvirt at {self.uri} went away: {sentence}")
        code = error.get_error_code()
        if code == libvirt.VIR_ERR_NO_DOMAIN:
            return NoSuchDomain(sentence)
        return Unsupported(sentence) if code in _UNSUPPORTED else VirtError(sentence)

    def _drop(self) -> None:
        if self._link is not None:
            _quietly(self._link.close)
            self._link = None


def _lives(link: Any) -> bool:
    try:
        return bool(link.isAlive())
    except libvirt.libvirtError:
        return False


def _quietly(close: Callable[[], object]) -> None:
    try:
        close()
    except libvirt.libvirtError:
        log.debug("a broken link could not be closed", exc_info=True)


def _open_into(answer: Future[Any], uri: str) -> None:
    try:
        link = libvirt.open(uri)
        link.setKeepAlive(KEEP_ALIVE_S, KEEP_ALIVE_COUNT)
    except libvirt.libvirtError as error:
        answer.set_exception(error)
    else:
        answer.set_result(link)


_events_lock = threading.Lock()
_events_run: list[threading.Thread] = []


def _run_events() -> None:
    """Start libvirt's event loop, once per process; without it a hanging daemon is not noticed."""
    with _events_lock:
        if _events_run:
            return
        # Without a handler, libvirt also prints every error on standard error.
        libvirt.registerErrorHandler(lambda *_: None, None)
        libvirt.virEventRegisterDefaultImpl()
        thread = threading.Thread(target=_events, name="libvirt-events", daemon=True)
        thread.start()
        _events_run.append(thread)


def _events() -> None:
    # The loop sleeps until something happens. An empty timer keeps it from failing while it watches nothing.
    libvirt.virEventAddTimeout(1000, lambda *_: None, None)
    while True:
        try:
            libvirt.virEventRunDefaultImpl()
        except libvirt.libvirtError:
            # Continue: without this thread a hanging daemon is never noticed again. The timer keeps the loop from spinning.
            log.exception("libvirt's event loop failed; it continues")
