"""Prepares a process to serve an application: signals, service manager, file limit and memory."""

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
    """Queues SIGTERM and SIGHUP from its creation on. Create it in the main thread."""

    def __init__(self) -> None:
        self._told, self._tells = socket.socketpair()
        self._tells.setblocking(False)
        signal.set_wakeup_fd(self._tells.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGHUP):  # the wake-up descriptor reports only signals with a handler
            signal.signal(number, lambda *_: None)

    def wait_for_sigterm(self, reload: Callable[[], None]) -> None:
        """Wait for SIGTERM and call `reload` at each SIGHUP. Call it in the main thread."""
        while signal.SIGTERM not in (numbers := self._told.recv(64)):
            if signal.SIGHUP in numbers:
                reload()


def notify_service_manager(state: str) -> None:
    """Send ``READY=1`` or ``STOPPING=1`` to systemd, if the unit requests it (``Type=notify``)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    # A name that begins with @ is an abstract socket, not a file.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
        sock.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)


#: The same value as in our systemd units.
MAX_FILES = 65_536


def raise_file_limit() -> None:
    """Raise the limit of open files to the maximum.

    Shells and systemd start with 1024, and each connection needs one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


#: Options from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8

#: Responses up to this size are built in memory that the process already has.
LARGE_BYTES = 32 * 1024 * 1024  # glibc's maximum


def keep_freed_memory() -> None:
    """Keep freed memory in the process for large responses. Does nothing without glibc.

    By default, a response of a megabyte is mapped, its 250 pages are faulted in one by one, and then unmapped, each
    time. Threads share two arenas, so that memory is not kept once per thread.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        for option, value in ((_MMAP_THRESHOLD, LARGE_BYTES), (_TRIM_THRESHOLD, 2 * LARGE_BYTES), (_ARENA_MAX, 2)):
            libc.mallopt(option, value)


def freeze_heap() -> None:
    """Exclude all present objects from garbage collection, and enable the collector.

    Otherwise a collection of the oldest generation walks all providers, while all threads wait.
    """
    gc.freeze()
    gc.enable()
