"""The connection to libvirtd: opened on first use, checked at each use, and reopened after a pause when it is broken.

No call blocks for long. A stopped daemon is detected at once, a hanging one after `KEEP_ALIVE_S` times
`KEEP_ALIVE_COUNT` seconds. During the pause after a failure, callers get its error without another attempt.

`VirConnect` and `VirDomain` are the objects of libvirt's Python binding, with the methods that this package calls; the
binding has no type stubs. Each of their methods may raise `libvirt.libvirtError`. Results that are a number without a
meaning for this package are `object`.

Not here: the calls over the connection.
"""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillOpening
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Protocol, TypedDict

import libvirt

from moorage.agent.virt.driver import HypervisorUnavailable, NoSuchDomain, Unsupported, VirtError
from moorage.core.backoff import Backoff
from moorage.core.clock import Clock

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 5
KEEP_ALIVE_COUNT = 3
OPEN_TIMEOUT_S = 15.0
#: Between attempts to connect.
BACKOFF = Backoff(first_s=1.0, longest_s=30.0)

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


class AddressFacts(TypedDict):
    addr: str


class InterfaceFacts(TypedDict):
    """An interface in an answer of `interfaceAddresses`, which has the address None for one that has no address."""

    hwaddr: str | None
    addrs: Sequence[AddressFacts] | None


class VirDomain(Protocol):
    """A `libvirt.virDomain`."""

    def UUIDString(self) -> str: ...
    def XMLDesc(self, flags: int = 0) -> str: ...
    def abortJob(self) -> object: ...
    def agentSetResponseTimeout(self, timeout: int, flags: int = 0) -> object: ...
    def attachDeviceFlags(self, xml: str, flags: int = 0) -> object: ...
    def backupBegin(self, backup_xml: str, checkpoint_xml: str | None, flags: int = 0) -> object: ...
    def create(self) -> object: ...
    def createWithFlags(self, flags: int = 0) -> object: ...
    def destroy(self) -> object: ...
    def detachDeviceFlags(self, xml: str, flags: int = 0) -> object: ...
    def hasManagedSaveImage(self, flags: int = 0) -> bool: ...
    def injectNMI(self, flags: int = 0) -> object: ...
    def interfaceAddresses(self, source: int, flags: int = 0) -> Mapping[str, InterfaceFacts] | None: ...
    def isActive(self) -> bool: ...
    def jobInfo(self) -> Sequence[int]: ...
    def jobStats(self, flags: int = 0) -> Mapping[str, int | str]: ...
    def managedSave(self, flags: int = 0) -> object: ...
    def managedSaveRemove(self, flags: int = 0) -> object: ...
    def name(self) -> str: ...
    def openConsole(self, device: str | None, stream: "VirStream", flags: int = 0) -> object: ...
    def resume(self) -> object: ...
    def setUserPassword(self, user: str, password: str, flags: int = 0) -> object: ...
    def shutdown(self) -> object: ...
    def state(self, flags: int = 0) -> Sequence[int]: ...
    def suspend(self) -> object: ...
    def undefineFlags(self, flags: int = 0) -> object: ...


class VirStream(Protocol):
    """A `libvirt.virStream`; its methods wait."""

    def abort(self) -> object: ...
    def recv(self, nbytes: int) -> bytes: ...
    def send(self, data: bytes) -> int: ...


class VirConnect(Protocol):
    """A `libvirt.virConnect`."""

    def baselineHypervisorCPU(
        self, emulator: str | None, arch: str, machine: str | None, virt_type: str, xml_cpus: Sequence[str], flags: int
    ) -> str: ...
    def close(self) -> object: ...
    def defineXMLFlags(self, xml: str, flags: int = 0) -> VirDomain: ...
    def getCapabilities(self) -> str: ...
    def getDomainCapabilities(self, emulator: str | None, arch: str, machine: str, virt_type: str) -> str: ...
    def getVersion(self) -> int: ...
    def isAlive(self) -> bool: ...
    def listAllDomains(self, flags: int = 0) -> Sequence[VirDomain]: ...
    def lookupByUUIDString(self, uuid: str) -> VirDomain: ...
    def newStream(self, flags: int = 0) -> VirStream: ...
    def setKeepAlive(self, interval_s: int, count: int) -> object: ...


class LibvirtConnection:
    """Thread-safe; all threads share one connection, called `link`. `uri`: ``qemu:///system``."""

    def __init__(self, uri: str, clock: Clock) -> None:
        self.uri = uri
        self._clock = clock
        self._lock = threading.Lock()
        self._link: VirConnect | None = None
        self._opening: Future[VirConnect] | None = None
        self._failures = 0
        self._last_error = ""
        self._retry_at: datetime | None = None
        _start_event_loop()

    @contextmanager
    def use(self) -> Iterator[VirConnect]:
        """Yields a `libvirt.virConnect`. Turns an error of libvirt inside the context into a `VirtError`."""
        link = self._open_if_needed()
        try:
            yield link
        except libvirt.libvirtError as error:
            raise self._virt_error(link, error) from error

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _open_if_needed(self) -> VirConnect:
        with self._lock:
            if self._link is not None:
                if _is_alive(self._link):
                    return self._link
                self._drop()
            now = self._clock.now()
            if self._retry_at is not None and now < self._retry_at:
                raise HypervisorUnavailable(self._last_error)
            try:
                self._link = self._open()
            except libvirt.libvirtError as error:
                raise self._unavailable(str(error)) from error
            self._retry_at, self._failures = None, 0
            log.info("connected to the hypervisor", extra={"uri": self.uri})
            return self._link

    def _open(self) -> VirConnect:
        """Connects in a thread, because a suspended daemon accepts the connection and never answers."""
        if self._opening is None:
            self._opening = Future()
            threading.Thread(target=_connect, args=(self._opening, self.uri), name="libvirt-open", daemon=True).start()
        try:
            link = self._opening.result(OPEN_TIMEOUT_S)
        except StillOpening as error:
            raise self._unavailable(f"no answer within {OPEN_TIMEOUT_S:.0f} s") from error
        except libvirt.libvirtError:
            self._opening = None
            raise
        self._opening = None
        return link

    def _unavailable(self, why: str) -> HypervisorUnavailable:
        """Begins a pause, and returns the error that callers get until its end. The caller holds the lock."""
        self._failures += 1
        self._retry_at = self._clock.now() + timedelta(seconds=BACKOFF.pause_s(self._failures))
        self._last_error = f"libvirt at {self.uri} does not answer: {why}; check that its daemon runs on this host"
        log.warning("no connection to the hypervisor", extra={"uri": self.uri, "why": why})
        return HypervisorUnavailable(self._last_error)

    def _virt_error(self, link: VirConnect, error: libvirt.libvirtError) -> VirtError:
        message = error.get_error_message() or str(error)
        if not _is_alive(link):
            with self._lock:
                if self._link is link:
                    self._drop()
            return HypervisorUnavailable(f"libvirt at {self.uri} does not answer any more: {message}")
        code = error.get_error_code()
        if code == libvirt.VIR_ERR_NO_DOMAIN:
            return NoSuchDomain(message)
        return Unsupported(message) if code in _UNSUPPORTED else VirtError(message)

    def _drop(self) -> None:
        if self._link is not None:
            _close_link(self._link)
            self._link = None


def _is_alive(link: VirConnect) -> bool:
    try:
        return bool(link.isAlive())
    except libvirt.libvirtError:
        return False


def _close_link(link: VirConnect) -> None:
    try:
        link.close()
    except libvirt.libvirtError:
        log.debug("a broken connection could not be closed", exc_info=True)


def _connect(answer: Future[VirConnect], uri: str) -> None:
    try:
        link = libvirt.open(uri)
        link.setKeepAlive(KEEP_ALIVE_S, KEEP_ALIVE_COUNT)
    except libvirt.libvirtError as error:
        answer.set_exception(error)
    else:
        answer.set_result(link)


_events_lock = threading.Lock()
_event_threads: list[threading.Thread] = []


def _start_event_loop() -> None:
    """Start libvirt's event loop, once per process; without it a hanging daemon is not detected."""
    with _events_lock:
        if _event_threads:
            return
        # Without a handler, libvirt also prints every error on standard error.
        libvirt.registerErrorHandler(lambda *_: None, None)
        libvirt.virEventRegisterDefaultImpl()
        thread = threading.Thread(target=_run_event_loop, name="libvirt-events", daemon=True)
        thread.start()
        _event_threads.append(thread)


def _run_event_loop() -> None:
    # The loop sleeps until an event. Without this timer it would fail while there is no connection to watch.
    libvirt.virEventAddTimeout(1000, lambda *_: None, None)
    while True:
        try:
            libvirt.virEventRunDefaultImpl()
        except libvirt.libvirtError:
            # Without this thread, a hanging daemon would not be detected any more. The timer bounds the rate of
            # failures.
            log.exception("libvirt's event loop failed; it continues")
