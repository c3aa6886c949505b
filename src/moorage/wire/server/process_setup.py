"""What a process must do before and while `moorage.wire.server.http_server` serves an application in it."""

import contextlib
import ctypes
import gc
import os
import platform
import resource
import signal
import socket
from collections.abc import Callable


class Signals:
    """From here on SIGTERM and SIGHUP are kept for whoever asks. To be made in the main thread."""

    def __init__(self) -> None:
        self._told, self._tells = socket.socketpair()
        self._tells.setblocking(False)
        signal.set_wakeup_fd(self._tells.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGHUP):  # of a signal without a handler nothing is told
            signal.signal(number, lambda *_: None)

    def wait_for_sigterm(self, reload: Callable[[], None]) -> None:
        """Wait for SIGTERM; `reload` at each SIGHUP before it. In the main thread."""
        while signal.SIGTERM not in (numbers := self._told.recv(64)):
            if signal.SIGHUP in numbers:
                reload()


def notify_service_manager(state: str) -> None:
    """``READY=1`` or ``STOPPING=1``, to a systemd that has asked for it (``Type=notify``); nobody else hears it."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    # A name that begins with @ is abstract: no file.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
        sock.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)


#: As the units for systemd have it.
MAX_FILES = 65_536


def raise_file_limit() -> None:
    """Let this process open as many files as it may: shells and systemd begin with 1024, a connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


#: Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8

#: Answers up to this size are made in memory that the process has already.
LARGE_BYTES = 32 * 1024 * 1024  # as much as glibc allows


def keep_freed_memory() -> None:
    """Let large answers be made in memory that stays with the process; without glibc, nothing.

    By default an answer of a megabyte is mapped, its 250 pages are faulted in one by one and given back, each time.
    Threads share two arenas, so what is kept is not kept eight times.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        for option, value in ((_MMAP_THRESHOLD, LARGE_BYTES), (_TRIM_THRESHOLD, 2 * LARGE_BYTES), (_ARENA_MAX, 2)):
            libc.mallopt(option, value)


def freeze_heap() -> None:
    """What has been built so far will stay: the garbage collector need not walk it again and again.

    A collection of the oldest generation walks all providers, while everybody waits. From here on there are collections,
    whether there were any before or not.
    """
    gc.freeze()
    gc.enable()
