"""Faults and delays of a simulated hypervisor, set by a test or by a file in the host's directory.

The driver checks ``control.json`` in the host's directory at each operation; you may write it at any time::

    {
        "latency_s": {"spawn": 2.5},
        "faults": [{"operation": "spawn", "message": "no space left on the disk", "times": 1, "name": "web-1"}],
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


class _ControlFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
        self._control_file = control
        self._file_stamp: tuple[int, int] | None = None
        self._file_latency_s: Mapping[str, float] = {}
        self._file_faults: list[_Fault] = []
        self._lock = threading.Lock()

    def operation_latency_s(self, operation: str) -> float:
        """Seconds that `operation` takes; the file has precedence."""
        with self._lock:
            self._read_file()
            return self._file_latency_s.get(operation, self.latency_s.get(operation, 0.0))

    def fail(self, operation: str, message: str, *, times: int = 1, name: str | None = None) -> None:
        """Let the next `times` such operations fail; with `name`: only those on the server of that name."""
        with self._lock:
            self._faults.append(_Fault(operation, message, times, name))

    def check(self, operation: str, name: str) -> None:
        """Raises `VirtError` if this operation must fail now."""
        with self._lock:
            self._read_file()
            for fault in self._all_faults():
                if fault.operation == operation and fault.times != 0 and fault.name in (None, name):
                    if fault.times is not None:
                        fault.times -= 1
                    raise VirtError(fault.message)

    def _all_faults(self) -> Iterator[_Fault]:
        yield from self._faults
        yield from self._file_faults

    def _read_file(self) -> None:
        """Raises `VirtError` for an unreadable file; otherwise operations would succeed that its author meant to
        fail.
        """
        if self._control_file is None:
            return
        try:
            status = self._control_file.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp == self._file_stamp:
                return
            control = msgspec.json.decode(self._control_file.read_bytes(), type=_ControlFile)
        except FileNotFoundError:
            self._file_stamp, self._file_latency_s, self._file_faults = None, {}, []
            return
        except (OSError, msgspec.DecodeError) as error:
            raise VirtError(f"{self._control_file}: a simulated host cannot read this file: {error}") from error
        self._file_stamp, self._file_latency_s = stamp, control.latency_s
        self._file_faults = [
            _Fault(fault.operation, fault.message, fault.times or None, fault.name) for fault in control.faults
        ]
