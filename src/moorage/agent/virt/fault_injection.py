"""Faults and delays of a simulated hypervisor, set by a test or by a file beside its domains.

The driver reads ``control.json`` in the host's directory at each operation; you may write it at any time::

    {
        "latency_s": {"spawn": 2.5},
        "faults": [{"operation": "spawn", "message": "no room on the disk", "times": 1, "name": "web-1"}],
    }

Operations are the driver's methods (``spawn``, ``destroy``, ``rebuild`` ...) and the power actions (``start``,
``stop``, ``reboot`` ...). Without `times`, or with 0, an operation always fails; with `name`, it fails only for the
server of that name. A new file restarts the counters.
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from moorage.agent.virt.driver import VirtError

CONTROL_FILE = "control.json"


class _FaultFromFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    operation: str
    message: str
    times: int = 0
    name: str | None = None


class _Control(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    latency_s: Mapping[str, float] = {}
    faults: tuple[_FaultFromFile, ...] = ()


@dataclass
class _Fault:
    operation: str
    message: str
    times: int | None  #: failures left; None: always
    name: str | None


class FaultInjection:
    """`latency_s`: {operation: seconds}; `control`: the file with further faults and delays, if it exists."""

    def __init__(self, latency_s: Mapping[str, float] | None = None, control: Path | None = None) -> None:
        self.latency_s = dict(latency_s or {})
        self._faults: list[_Fault] = []
        self._control = control
        self._stamp: tuple[int, int] | None = None
        self._ordered_latency_s: Mapping[str, float] = {}
        self._ordered_faults: list[_Fault] = []
        self._lock = threading.Lock()

    def operation_latency_s(self, operation: str) -> float:
        """Seconds that `operation` takes; the file has precedence."""
        with self._lock:
            self._read()
            return self._ordered_latency_s.get(operation, self.latency_s.get(operation, 0.0))

    def fail(self, operation: str, message: str, *, times: int = 1, name: str | None = None) -> None:
        """Let the next `times` such operations fail; with `name`: only those on the server of that name."""
        with self._lock:
            self._faults.append(_Fault(operation, message, times, name))

    def check(self, operation: str, name: str) -> None:
        """Raises `VirtError` if this operation must fail now."""
        with self._lock:
            self._read()
            for fault in self._all():
                if fault.operation == operation and fault.times != 0 and fault.name in (None, name):
                    if fault.times is not None:
                        fault.times -= 1
                    raise VirtError(fault.message)

    def _all(self) -> Iterator[_Fault]:
        yield from self._faults
        yield from self._ordered_faults

    def _read(self) -> None:
        """Raises `VirtError` for an unreadable file: its author must not take a success for the wanted fault."""
        if self._control is None:
            return
        try:
            status = self._control.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp == self._stamp:
                return
            control = msgspec.json.decode(self._control.read_bytes(), type=_Control)
        except FileNotFoundError:
            self._stamp, self._ordered_latency_s, self._ordered_faults = None, {}, []
            return
        except (OSError, msgspec.DecodeError) as error:
            raise VirtError(f"{self._control}: a simulated host cannot read this file: {error}") from error
        self._stamp, self._ordered_latency_s = stamp, control.latency_s
        self._ordered_faults = [
            _Fault(fault.operation, fault.message, fault.times or None, fault.name) for fault in control.faults
        ]
