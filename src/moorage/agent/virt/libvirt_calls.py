"""Time limits for calls to libvirt and for the host's programs, and locks that keep one guest's calls in sequence.

`run_program` runs programs for disks, such as qemu-img; it also limits their memory if they read a tenant's file.

Does not import libvirt's bindings, so that it can be tested where they are not installed.
"""

import shutil
import subprocess
import threading
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillWaiting
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

from moorage.agent.virt.driver import VirtError

T = TypeVar("T")

#: QEMU usually answers within milliseconds, and on a busy host within two seconds.
ANSWER_TIMEOUT_S = 30.0


class GuestHangs(VirtError):
    """QEMU does not answer. A hard reboot or the deletion of the server kills that QEMU."""

    code = "virt.guest_hangs"


def call_with_timeout(call: Callable[..., T], *arguments: object, within_s: float | None = None) -> T:
    """Return or raise the result of `call`. Raises `GuestHangs` after `within_s` seconds (None: `ANSWER_TIMEOUT_S`).

    The thread of an abandoned call ends when QEMU ends, because libvirt then returns from the call.
    """
    limit_s = ANSWER_TIMEOUT_S if within_s is None else within_s
    answer: Future[T] = Future()
    context = copy_context()

    def run_call() -> None:
        try:
            answer.set_result(context.run(call, *arguments))
        except Exception as error:  # noqa: BLE001 - `answer.result` raises it in the caller's thread
            answer.set_exception(error)

    threading.Thread(target=run_call, name="libvirt-call", daemon=True).start()
    try:
        return answer.result(limit_s)
    except StillWaiting as error:
        if answer.done():  # the call's own TimeoutError
            raise
        raise GuestHangs(
            f"the guest's QEMU hangs: it did not answer within {limit_s:.0f} s; reboot the server hard, or delete it"
        ) from error


class SerializedCalls:
    """Lets one caller per name proceed at a time; callers with different names do not wait for each other.

    A name uses memory only while a caller holds it or waits for it.
    """

    def __init__(self) -> None:
        self._held: WeakValueDictionary[str, _WeaklyReferableLock] = WeakValueDictionary()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        with self._lock:
            held = self._held.setdefault(name, _WeaklyReferableLock())
        with held.lock:
            yield


class _WeaklyReferableLock:
    """A lock that weak references can refer to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


TIMEOUT_S = 3600
#: Limits of a program that reads a tenant's file: CPU seconds and bytes of address space.
MAX_CPU_S, MAX_MEMORY_BYTES = 30, 1 << 30

_SYSTEM_PATH = "/usr/sbin:/sbin"


def run_program(command: Sequence[str | Path], *, bounded: bool = False, ok_codes: Container[int] = (0,)) -> str:
    """Returns standard output. Raises `VirtError`, with the program's own message, for an exit code outside `ok_codes`.

    `bounded`: the program reads a tenant's file, so its CPU time and memory are limited.
    """
    program = str(command[0])
    path = shutil.which(program) or shutil.which(program, path=_SYSTEM_PATH)
    if path is None:
        raise VirtError(
            f"this host does not have the program {program}; install it (docs/guides/libvirt.md names its package)"
        )
    arguments = [path, *map(str, command[1:])]
    if bounded and (prlimit := shutil.which("prlimit")):
        arguments = [prlimit, f"--cpu={MAX_CPU_S}", f"--as={MAX_MEMORY_BYTES}", "--", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - no shell; the program is found above
            arguments,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise VirtError(f"{program}: {error}") from error
    if done.returncode not in ok_codes:
        output = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise VirtError(f"{program} failed ({done.returncode}): {output[-1] if output else 'no message'}")
    return done.stdout
