"""The change of a server whose accelerator has failed, and of one whose accelerators work again.

Such a server is in ERROR with a fault that its owner sees, while its guest continues to run. A server with an operation
in progress is not changed; the next report decides.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from moorage.compute.model.servers import Fault, PowerState, Server, VmState

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
