"""What a process must do before granian serves an application in it."""

import ctypes
import gc
import platform
import signal
import socket
import threading
from collections.abc import Callable, MutableMapping

#: What WSGI calls a header, or a user whom the server has identified.
_LIKE_REQUESTS = ("HTTP_", "CONTENT_", "REMOTE_")


def forget_variables_like_headers(environment: MutableMapping[str, str]) -> None:
    """Remove what would look like a part of each request; call it with ``os.environ`` while loading the application.

    Granian 2.8 lays each request over a copy of the environment of its process: ``HTTP_X_AUTH_TOKEN`` there would be
    everybody's token, and ``HTTP_PROXY`` a header (measured; the copy is made after the application is loaded).
    """
    for name in [name for name in environment if name.startswith(_LIKE_REQUESTS)]:
        del environment[name]


def when_asked_to_end(act: Callable[[], None]) -> None:
    """Call `act`, in a thread of its own, when SIGTERM comes; to be called in the main thread.

    Granian 2.8 waits for the answers it is giving, and an open one would keep it for its whole length; it says nothing
    to the application before (measured). Python tells of each signal through a file descriptor, beside the handler that
    granian sets and that its main thread, which is not in Python then, runs later.
    """
    told, tells = socket.socketpair()
    tells.setblocking(False)
    signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)

    def listen() -> None:
        with tells:  # kept open for as long as somebody listens
            while signal.SIGTERM not in told.recv(64):
                continue
        act()

    threading.Thread(target=listen, name="end", daemon=True).start()


#: Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8

#: Answers up to this size are made in memory that the process has already.
LARGE_BYTES = 32 * 1024 * 1024  # as much as glibc allows


def keep_memory() -> None:
    """Let large answers be made in memory that stays with the process; without glibc, nothing.

    By default an answer of a megabyte is mapped, its 250 pages are faulted in one by one and given back, each time.
    Threads share two arenas, so what is kept is not kept eight times.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        for option, value in ((_MMAP_THRESHOLD, LARGE_BYTES), (_TRIM_THRESHOLD, 2 * LARGE_BYTES), (_ARENA_MAX, 2)):
            libc.mallopt(option, value)


def keep_what_is_there() -> None:
    """What has been built so far will stay: the garbage collector need not walk it again and again.

    A collection of the oldest generation walks all providers, while everybody waits.
    """
    gc.collect()
    gc.freeze()
