"""What a simulated hypervisor is told to do wrong, and how long it takes."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from moorage.agent.virt.driver import VirtError


@dataclass
class _Fault:
    operation: str
    message: str
    times: int
    name: str | None


class Script:
    """`latency_s` is by operation: spawn, destroy, start, stop, reboot, pause, unpause."""

    def __init__(self, latency_s: Mapping[str, float] | None = None) -> None:
        self.latency_s = dict(latency_s or {})
        self._faults: list[_Fault] = []
        self._lock = threading.Lock()

    def fail(self, operation: str, message: str, *, times: int = 1, name: str | None = None) -> None:
        """The next `times` such operations fail; `name`: only those on the server of that name."""
        with self._lock:
            self._faults.append(_Fault(operation, message, times, name))

    def check(self, operation: str, name: str) -> None:
        """Raises what is due now."""
        with self._lock:
            for fault in self._faults:
                if fault.operation == operation and fault.times > 0 and fault.name in (None, name):
                    fault.times -= 1
                    raise VirtError(fault.message)
