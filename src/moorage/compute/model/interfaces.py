"""[pure] The interfaces of a server while hosts attach and detach them.

    none -> attaching -> attached -> detaching -> none

A failed attachment ends at none, a failed detachment at attached. Code that removes an interface from a server
must also release its port.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from moorage.compute.model.servers import InterfaceState, NetworkInterface

Interfaces = tuple[NetworkInterface, ...]


@dataclass(frozen=True)
class InterfaceChange:
    """`released`: ids of the ports that the server no longer has."""

    interfaces: Interfaces
    released: tuple[str, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether no interface waits for the host."""
        return all(one.state is InterfaceState.ATTACHED for one in self.interfaces)


def after_attachment(interfaces: Interfaces, port_id: str, *, succeeded: bool, is_left: bool) -> InterfaceChange:
    """`is_left`: it failed, and the guest may have the interface; its address must not be given to another server."""
    if succeeded or is_left:
        return InterfaceChange(_with_state(interfaces, port_id, InterfaceState.ATTACHING, InterfaceState.ATTACHED))
    return _without(interfaces, [port_id])


def after_detachment(interfaces: Interfaces, port_id: str, *, succeeded: bool) -> InterfaceChange:
    if not succeeded:
        return InterfaceChange(_with_state(interfaces, port_id, InterfaceState.DETACHING, InterfaceState.ATTACHED))
    return _without(interfaces, [port_id])


def without_host(interfaces: Interfaces) -> InterfaceChange:
    """After the jobs of the host were revoked, because the server is built again elsewhere: with what it shall have."""
    left = _without(interfaces, [one.port_id for one in interfaces if one.state is InterfaceState.DETACHING])
    attached = tuple(replace(one, state=InterfaceState.ATTACHED) for one in left.interfaces)
    return InterfaceChange(attached, left.released)


def _with_state(
    interfaces: Interfaces, port_id: str, before: InterfaceState, after: InterfaceState
) -> tuple[NetworkInterface, ...]:
    return tuple(
        replace(one, state=after) if (one.port_id, one.state) == (port_id, before) else one for one in interfaces
    )


def _without(interfaces: Interfaces, port_ids: Sequence[str]) -> InterfaceChange:
    return InterfaceChange(
        tuple(one for one in interfaces if one.port_id not in port_ids),
        tuple(one.port_id for one in interfaces if one.port_id in port_ids),
    )
