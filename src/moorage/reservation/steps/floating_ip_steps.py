"""The steps of floating IP reservations in Neutron. Each may be repeated, and first looks for existing floating
IPs.

A floating IP of a reservation is recognised by its tags, in the peer's format, and by its description. The
description exists from creation on; tags need a second request, and a crash may come before it. The project may
remove both. Once the lease has begun, the address alone identifies the floating IP, because no one else may have
it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import Engine

from moorage.core.errors import Conflict, Unavailable
from moorage.db.transactions import read
from moorage.network.client import FloatingIp as NetworkFloatingIp
from moorage.network.client import NetworkClient
from moorage.reservation.capacity.addresses import RegisteredAddress
from moorage.reservation.model.leases import EventStatus, EventType, Lease
from moorage.reservation.model.steps import Actions, Further, Step, StepKind
from moorage.reservation.store import address_store, lease_store

NO_NETWORK_SERVICE = (
    "this service knows no network service: write the URL of a Neutron into [endpoints] network of its configuration, "
    "and start it again"
)

#: The tag of all reserved floating IPs.
TAG = "blazar"

#: Prefix of each reservation's tag, and of the description.
_MARK = "reservation:"

#: Floating IPs to create before the claim on the event is renewed.
MAX_CREATED_PER_RUN = 20


@dataclass(frozen=True, slots=True)
class _Due:
    """A reservation, the addresses that it must have, and the marks of its floating IPs."""

    lease: Lease
    addresses: tuple[RegisteredAddress, ...]
    mark: str

    @property
    def has_begun(self) -> bool:
        start = self.lease.event(EventType.START)
        return start is None or start.status is not EventStatus.UNDONE or start.attempt > 0

    def is_marked(self, there: NetworkFloatingIp) -> bool:
        return self.mark in there.tags or there.description == self.mark

    def owns(self, there: NetworkFloatingIp) -> bool:
        """True also for a floating IP whose marks the project has removed."""
        if self.is_marked(there):
            return True
        others = any(each.startswith(_MARK) for each in (*there.tags, there.description))
        return self.has_begun and there.project_id == self.lease.project_id and not others


class FloatingIpSteps:
    """`actions` maps each kind of step to its method."""

    def __init__(self, engine: Engine, network: NetworkClient | None) -> None:
        self._engine = engine
        self._service = network
        self.actions: Actions = {
            StepKind.ENSURE_FLOATING_IPS: self._ensure,
            StepKind.DELETE_FLOATING_IPS: self._delete,
        }

    def _ensure(self, step: Step) -> Further | None:
        due = self._due(step)
        if due is None:
            return None
        there = {(each.network_id, each.address): each for each in self._at(due.addresses)}
        made = 0
        for address in due.addresses:
            found = there.get((address.floating_network_id, address.floating_ip_address))
            if found is None:
                if made == MAX_CREATED_PER_RUN:
                    return Further((step,))
                found = self._made(due, address)
                made += 1
            elif not due.owns(found):
                raise Conflict(
                    f"{found.address} is still floating IP {found.id} of project {found.project_id}, which is not of "
                    "this reservation"
                )
            if not {TAG, due.mark} <= found.tags:
                self._network.set_tags(found.id, found.tags | {TAG, due.mark})
        return None

    def _made(self, due: _Due, address: RegisteredAddress) -> NetworkFloatingIp:
        return self._network.create_floating_ip(
            address.floating_network_id,
            address.subnet_id,
            address.floating_ip_address,
            project_id=due.lease.project_id,
            description=due.mark,
        )

    def _delete(self, step: Step) -> None:
        due = self._due(step)
        if due is None or not due.has_begun:  # nothing was created
            return
        there = {each.id: each for each in self._at(due.addresses) if due.owns(each)}
        there |= {each.id: each for each in self._network.floating_ips_tagged(due.mark)}
        for found in there.values():
            if found.port_id is not None:
                self._network.unbind(found.id)
            self._network.delete_floating_ip(found.id)

    def _due(self, step: Step) -> _Due | None:
        """None if the lease is gone."""
        with read(self._engine) as connection:
            lease = lease_store.find_lease_of_reservation(connection, step.reservation_id)
            held = address_store.of_reservations(connection, [step.reservation_id])
        if lease is None:
            return None
        return _Due(lease, tuple(held.get(step.reservation_id, ())), f"{_MARK}{step.reservation_id}")

    def _at(self, addresses: Iterable[RegisteredAddress]) -> Iterator[NetworkFloatingIp]:
        """All floating IPs with one of these addresses."""
        of_network: dict[str, list[str]] = {}
        for each in addresses:
            of_network.setdefault(each.floating_network_id, []).append(each.floating_ip_address)
        for network_id, texts in of_network.items():
            yield from self._network.floating_ips(network_id, texts)

    @property
    def _network(self) -> NetworkClient:
        if self._service is None:
            raise Unavailable(f"floating IPs cannot be reached: {NO_NETWORK_SERVICE}")
        return self._service
