"""[pure] What a look at a server's domain means: guests shut themselves down, domains vanish, nobody asked for either.

Only a server that nothing is being done to is judged: what an operation leads to, its report says.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from moorage.compute.model.servers import PowerState, Server, VmState

#: What an agent says of a domain -> the number that the Compute API shows.
POWERS: Mapping[str, int] = {
    "running": PowerState.RUNNING,
    "paused": PowerState.PAUSED,
    "shutoff": PowerState.SHUTDOWN,
    "suspended": PowerState.SUSPENDED,
    "gone": PowerState.NONE,
}
GONE = "gone"

#: A server in one of these has a domain on its host.
_HAS_DOMAIN = frozenset(
    {VmState.ACTIVE, VmState.PAUSED, VmState.SUSPENDED, VmState.STOPPED, VmState.RESCUED, VmState.SHELVED}
)
_STOPS = frozenset({VmState.ACTIVE, VmState.PAUSED, VmState.SUSPENDED})
#: (state, what is seen) -> state. A hypervisor stops a guest whose disk is out of room; to unpause it tries again.
_FOLLOWS = {
    **{(state, "shutoff"): VmState.STOPPED for state in _STOPS},
    (VmState.ACTIVE, "paused"): VmState.PAUSED,
    (VmState.PAUSED, "running"): VmState.ACTIVE,
}


@dataclass(frozen=True)
class PowerChange:
    """`error`: why the server is in error now."""

    vm_state: VmState
    power: int
    error: str | None = None


def is_settled(server: Server) -> bool:
    return server.task_state is None and server.vm_state in _HAS_DOMAIN


def power_change(server: Server, seen: str) -> PowerChange | None:
    """None: it is as it should be, or not for a look to say."""
    if not is_settled(server):
        return None
    if seen == GONE:
        reason = f"its domain is not on host {server.host} any more, and nobody asked for that; rebuild or delete it"
        return PowerChange(VmState.ERROR, PowerState.NONE, reason)
    power = POWERS[seen]
    after = _FOLLOWS.get((server.vm_state, seen), server.vm_state)
    return None if (after, power) == (server.vm_state, server.power_state) else PowerChange(after, power)
