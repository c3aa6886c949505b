"""Reservation providers in Placement: ``blazar_<host>`` below the host's own, which has the slots of what runs there.

Spec: docs/evidence/specs/instance-reservation.md (R2, R3, R20-R23)
"""

from collections.abc import Mapping

from moorage.core.errors import Conflict, NotFound
from moorage.core.names import reservation_provider
from moorage.placement.client.placement_client import Inventory, PlacementClient, Provider

#: So many inventories on one host are added one by one; for more, all that is there is read once and written once.
FEW = 2


def ensure_reservation_provider(
    placement: PlacementClient, hypervisor_hostname: str, *, uuid: str | None = None
) -> Provider:
    """The reservation provider of a host, below the host's own provider; made where it is missing (R2, R3).

    `uuid` is what it gets if it is made.
    """
    root = placement.provider_by_name(hypervisor_hostname)
    if root is None:
        raise NotFound(
            f"Placement has no resource provider named {hypervisor_hostname}; is the host's compute service up?"
        )
    name = reservation_provider(hypervisor_hostname)
    found = placement.provider_by_name(name)
    if found is None:
        try:
            return placement.create_provider(name, uuid=uuid, parent_uuid=root.uuid)
        except Conflict:
            found = placement.provider_by_name(name)  # somebody else was quicker (A8)
    if found is None or found.parent_uuid != root.uuid:
        raise Conflict(f"Conflict on creating resource provider {name}: it exists and is not below {root.uuid}")
    return found


def offer_slots(
    placement: PlacementClient, hypervisor_hostname: str, resource_class: str, slots: int, *, uuid: str | None = None
) -> None:
    """So many slots of a reservation on a host: one server takes one. `uuid`: see `ensure_reservation_provider`."""
    # A host that was registered before reservation providers existed gets its own here (R21).
    provider = ensure_reservation_provider(placement, hypervisor_hostname, uuid=uuid)
    placement.put_inventory(provider.uuid, resource_class, _inventory(slots))  # the others stay (R22, R23)


class SlotPublisher:
    """The slots of many reservations that start together: a request for each, or two for all that a host is to have.

    Reservation providers are looked up once and remembered: whoever deletes one makes the next write a 404.
    """

    def __init__(self, placement: PlacementClient) -> None:
        self._placement = placement
        self._providers: dict[str, str] = {}  #: {hypervisor hostname: uuid}

    def offer(self, hypervisor_hostname: str, slots: Mapping[str, int]) -> None:
        """`slots`: {resource class: slots} on this host. After an error some may be there; it may be repeated."""
        wanted = {name: _inventory(total) for name, total in slots.items()}
        try:
            if len(wanted) <= FEW:
                self._add(self._provider(hypervisor_hostname), wanted)
            else:
                self._placement.put_inventories(self._provider(hypervisor_hostname), wanted)
        except NotFound:
            if self._providers.pop(hypervisor_hostname, None) is None:
                raise
            self._placement.put_inventories(self._provider(hypervisor_hostname), wanted)

    def _add(self, provider: str, wanted: Mapping[str, Inventory]) -> None:
        """Nobody but an earlier try has put them there: what is refused for that is read and written as a whole."""
        try:
            for name, inventory in wanted.items():
                self._placement.add_inventory(provider, name, inventory)
        except Conflict:
            self._placement.put_inventories(provider, wanted)

    def _provider(self, hypervisor_hostname: str) -> str:
        if hypervisor_hostname not in self._providers:
            found = ensure_reservation_provider(self._placement, hypervisor_hostname)
            self._providers[hypervisor_hostname] = found.uuid
        return self._providers[hypervisor_hostname]


def _inventory(slots: int) -> Inventory:
    return Inventory(total=slots, min_unit=1, max_unit=1, step_size=1, allocation_ratio=1.0)
