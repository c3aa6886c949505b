"""The change of a server that follows from what its host observed: its guest's power state, and failed devices.

Guests shut themselves down, and domains vanish. A server whose accelerator has failed is in ERROR with a fault that its
owner sees, while its guest continues to run, until its accelerators work again. Only a server without an operation in
progress is judged; otherwise the operation's report, or the next report of its devices, decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from moorage.compute.model.servers import Fault, PowerState, Server, VmState

#: {power state of a domain, as the agent reports it: number that the Compute API shows}
POWERS: Mapping[str, int] = {
    "running": PowerState.RUNNING,
    "paused": PowerState.PAUSED,
    "shutoff": PowerState.SHUTDOWN,
    "suspended": PowerState.SUSPENDED,
    "gone": PowerState.NONE,
}
GONE = "gone"

#: In these states a server has a domain on its host.
_HAS_DOMAIN = frozenset(
    {VmState.ACTIVE, VmState.PAUSED, VmState.SUSPENDED, VmState.STOPPED, VmState.RESCUED, VmState.SHELVED}
)
_STOPS = frozenset({VmState.ACTIVE, VmState.PAUSED, VmState.SUSPENDED})
#: (state, observed power state) -> new state. A hypervisor pauses a guest whose disk is full; unpause tries again.
_FOLLOWS = {
    **{(state, "shutoff"): VmState.STOPPED for state in _STOPS},
    (VmState.ACTIVE, "paused"): VmState.PAUSED,
    (VmState.PAUSED, "running"): VmState.ACTIVE,
}


@dataclass(frozen=True)
class PowerChange:
    """New state and power state; `error`: why the server is in ERROR now."""

    vm_state: VmState
    power: int
    error: str | None = None


def is_settled(server: Server) -> bool:
    return server.task_state is None and server.vm_state in _HAS_DOMAIN


def power_change(server: Server, seen: str) -> PowerChange | None:
    """The change that follows from the observation; None: no change, or not for an observation to decide."""
    if not is_settled(server):
        return None
    if seen == GONE:
        reason = f"its domain vanished from host {server.host} without a request; rebuild or delete the server"
        return PowerChange(VmState.ERROR, PowerState.NONE, reason)
    power = POWERS[seen]
    after = _FOLLOWS.get((server.vm_state, seen), server.vm_state)
    return None if (after, power) == (server.vm_state, server.power_state) else PowerChange(after, power)


#: Begins the details of these faults; other faults have other details.
_MARK = "device health"

#: States in which a guest runs with its devices.
_USES_DEVICES = frozenset({VmState.ACTIVE, VmState.PAUSED})

#: {last known power state of the guest: state of the server without the fault}
_WITHOUT_FAULT: Mapping[int, VmState] = {
    PowerState.PAUSED: VmState.PAUSED,
    PowerState.SHUTDOWN: VmState.STOPPED,
    PowerState.SUSPENDED: VmState.SUSPENDED,
}


def has_device_fault(server: Server) -> bool:
    """Whether the server is in ERROR only because of its devices."""
    return server.vm_state is VmState.ERROR and server.fault is not None and server.fault.details.startswith(_MARK)


def device_change(server: Server, failed: Sequence[str], now: datetime) -> dict[str, object] | None:
    """The server's new columns; None: no change. `failed`: descriptions of its failed devices, without host names."""
    if server.task_state is not None:
        return None
    if has_device_fault(server) and not failed:
        return {"vm_state": _WITHOUT_FAULT.get(server.power_state, VmState.ACTIVE), "fault": None}
    if server.vm_state in _USES_DEVICES and failed:
        what = "a device has" if len(failed) == 1 else f"{len(failed)} devices have"
        message = (
            f"{what} failed: {', '.join(sorted(failed))}. The server itself was not changed. Save its data and rebuild "
            "or delete it, or wait until the device works again"
        )
        fault = Fault(500, message, f"{_MARK}, host {server.host}", now)
        return {"vm_state": VmState.ERROR, "fault": fault}
    return None
