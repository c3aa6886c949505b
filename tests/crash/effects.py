"""A process that kills or stops itself, and its group, before or after an effect on the outside.

An effect is a request that changes something (also one to another service in the same process), a call to the
hypervisor, a hint about a new job, an audit, or the deletion of old jobs. Heartbeats, polls and logins do not count:
they come at any time and change nothing.

While the named directory contains a file ``fault``, each effect is appended to ``passed``, one per line. If the line
equals the one in ``fault``, the process dies there. So a test can choose the place long after the process started. In
``stop LINE``, the first word lets the process be suspended there (SIGSTOP) instead, and `STOPPED` appears.
"""

import os
import re
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

#: Calls to a hypervisor that change or claim something.
DRIVER_CALLS = (
    "spawn", "destroy", "rebuild", "power", "rescue", "unrescue", "set_password", "crash_dump", "snapshot", "receive",
    "hand_over", "take_over", "attach_interface", "detach_interface",
)  # fmt: skip
#: The file that appears when the process is suspended.
STOPPED = "stopped"
_LEFT_OUT = re.compile(r"/auth/tokens|/hosts/[^/]+(/jobs|/domains|/epoch|/devices|/attachments|/history)?$")
_VARIES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}(:[a-z0-9]+)?|compute-\d+")


class _Death:
    def __init__(self, directory: Path, last_words: int) -> None:
        self._fault, self._passed = directory / "fault", directory / "passed"
        self._stopped = directory / STOPPED
        self._last_words = last_words

    def around(self, label: str, call: Callable[[], Any]) -> Any:
        self._reached(f"before {label}")
        result = call()
        self._reached(f"after {label}")
        return result

    def _reached(self, label: str) -> None:
        try:
            wanted = self._fault.read_text()
        except FileNotFoundError:
            return
        with self._passed.open("a") as passed:
            passed.write(f"{label}\n")
        if wanted == f"stop {label}":
            self._fault.unlink(missing_ok=True)
            self._stopped.touch()
            os.killpg(os.getpgrp(), signal.SIGSTOP)
        if label == wanted:
            self._fault.unlink(missing_ok=True)
            os.write(self._last_words, label[:100].encode())
            os.killpg(os.getpgrp(), signal.SIGKILL)
            signal.pause()  # the signal is for all threads; this one must not continue


def install(directory: Path, last_words: int) -> None:
    """Watches this process and its forks from now on."""
    from moorage.agent.virt.simulated import SimulatedDriver
    from moorage.jobs.store import JobStore
    from moorage.jobs.wakeups import InProcessHints
    from moorage.wire.transports import InProcessTransport, SocketTransport
    from moorage.wiring import audit

    death = _Death(directory, last_words)
    for call in DRIVER_CALLS:
        _watch(SimulatedDriver, call, death, lambda *_, call=call: call)
    _watch(JobStore, "prune", death, lambda *_, **__: "pruning of jobs")
    _watch(audit, "find_all", death, lambda *_: "audit")
    _watch(InProcessHints, "send", death, lambda queue: f"hint to {_named(queue)}")
    for transport in (SocketTransport, InProcessTransport):
        _watch(transport, "send", death, _request)


def _request(method: str, path: str, *_: object) -> str | None:
    path = path.partition("?")[0]
    return None if method == "GET" or _LEFT_OUT.search(path) else f"{method} {_named(path)}"


def _named(text: str) -> str:
    return _VARIES.sub("*", text)


def _watch(owner: type | ModuleType, name: str, death: _Death, label_of: Callable[..., str | None]) -> None:
    inner = getattr(owner, name)

    def watched(self: object, *arguments: Any, **named: Any) -> Any:
        label = label_of(*arguments)
        call = partial(inner, self, *arguments, **named)
        return call() if label is None else death.around(label, call)

    setattr(owner, name, watched)


def passed(directory: Path) -> Iterator[str]:
    """The effects since the file was last deleted, without repetitions."""
    path = directory / "passed"
    yield from dict.fromkeys(path.read_text().splitlines()) if path.exists() else ()
