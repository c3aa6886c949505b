"""The change of a server that follows from its observed power state: guests shut themselves down, and domains vanish.

Only a server without an operation in progress is judged; otherwise the operation's report decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from moorage.compute.model.servers import PowerState, Server, VmState

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
