"""The steps of floating IP reservations in Neutron. Each may be repeated, and first looks for existing floating IPs.

A floating IP of a reservation is recognised by its tags, in the peer's format, or by its description. The description
exists from creation on; the tags need a second request, and a crash may come before it. The project may remove both.
Once the lease has begun, a floating IP of its project with one of its addresses also counts as the reservation's.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import Engine

from moorage.core.errors import Conflict, Unavailable
from moorage.db.session import read
from moorage.network.client.neutron_client import FloatingIp as NetworkFloatingIp
from moorage.network.client.neutron_client import NetworkClient
from moorage.reservation.capacity.addresses import RegisteredAddress
from moorage.reservation.model.leases import EventStatus, EventType, Lease
from moorage.reservation.model.steps import Actions, DeleteFloatingIps, EnsureFloatingIps, Further
from moorage.reservation.store import address_store, lease_store

NO_NETWORK_SERVICE = (
    "no network service is configured: set [endpoints] network to the URL of Neutron in the configuration file, and "
    "restart this service"
)

#: The tag of all reserved floating IPs.
TAG = "blazar"

#: Prefix of each reservation's tag, and of the description.
_MARK = "reservation:"

#: Floating IPs to create before the claim on the event is renewed.
MAX_CREATED_PER_RUN = 20


@dataclass(frozen=True, slots=True)
class _Due:
    """The lease of a reservation, its addresses, and the mark of its floating IPs: a tag or the description."""

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
        """True if the floating IP belongs to the reservation: it is marked, or the project has removed the marks."""
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
            EnsureFloatingIps: self._ensure,
            DeleteFloatingIps: self._delete,
        }

    def _ensure(self, step: EnsureFloatingIps) -> Further | None:
        due = self._due(step.reservation_id)
        if due is None:
            return None
        there = {(each.network_id, each.address): each for each in self._existing(due.addresses)}
        made = 0
        for address in due.addresses:
            found = there.get((address.floating_network_id, address.floating_ip_address))
            if found is None:
                if made == MAX_CREATED_PER_RUN:
                    return Further((step,))
                found = self._create(due, address)
                made += 1
            elif not due.owns(found):
                raise Conflict(
                    f"{found.address} is still in use: floating IP {found.id} of project {found.project_id} does not "
                    "belong to this reservation"
                )
            if not {TAG, due.mark} <= found.tags:
                self._network.set_tags(found.id, found.tags | {TAG, due.mark})
        return None

    def _create(self, due: _Due, address: RegisteredAddress) -> NetworkFloatingIp:
        return self._network.create_floating_ip(
            address.floating_network_id,
            address.subnet_id,
            address.floating_ip_address,
            project_id=due.lease.project_id,
            description=due.mark,
        )

    def _delete(self, step: DeleteFloatingIps) -> None:
        due = self._due(step.reservation_id)
        if due is None or not due.has_begun:  # nothing was created
            return
        there = {each.id: each for each in self._existing(due.addresses) if due.owns(each)}
        there |= {each.id: each for each in self._network.floating_ips_tagged(due.mark)}
        for found in there.values():
            if found.port_id is not None:
                self._network.dissociate(found.id)
            self._network.delete_floating_ip(found.id)

    def _due(self, reservation_id: str) -> _Due | None:
        """None if the lease is gone."""
        with read(self._engine) as connection:
            lease = lease_store.find_lease_of_reservation(connection, reservation_id)
            held = address_store.of_reservations(connection, [reservation_id])
        if lease is None:
            return None
        return _Due(lease, tuple(held.get(reservation_id, ())), f"{_MARK}{reservation_id}")

    def _existing(self, addresses: Iterable[RegisteredAddress]) -> Iterator[NetworkFloatingIp]:
        """Neutron's floating IPs with one of these addresses."""
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
