"""Reservation providers in Placement: ``blazar_<host>``, a child of the host's provider, with the inventories of slots.

Spec: docs/evidence/specs/instance-reservation.md (R2, R3, R20-R23)
"""

from collections.abc import Mapping
from contextlib import suppress

from moorage.core.errors import Conflict, NotFound
from moorage.core.names import reservation_provider
from moorage.placement.client.placement_client import Inventory, PlacementClient, Provider

#: Up to this number of inventories are added to a provider one by one; more are written with one request for all.
FEW = 2


class HostNotInPlacement(NotFound):
    """Placement does not have the host's own provider, so it has no resources."""

    code = "reservation.host_not_in_placement"


def ensure_reservation_provider(
    placement: PlacementClient, hypervisor_hostname: str, *, uuid: str | None = None
) -> Provider:
    """Returns the host's reservation provider; creates it if missing, with `uuid` (R2, R3).

    Raises `HostNotInPlacement`.
    """
    root = placement.provider_by_name(hypervisor_hostname)
    if root is None:
        raise HostNotInPlacement(
            f"Placement has no resource provider named {hypervisor_hostname}; is the host's compute service up?"
        )
    name = reservation_provider(hypervisor_hostname)
    found = placement.provider_by_name(name)
    if found is None:
        try:
            return placement.create_provider(name, uuid=uuid, parent_uuid=root.uuid)
        except Conflict:
            found = placement.provider_by_name(name)  # created concurrently (A8)
    if found is None or found.parent_uuid != root.uuid:
        raise Conflict(f"Resource provider {name} exists, but not below {root.uuid}; delete or move it")
    return found


def publish_slots(
    placement: PlacementClient, hypervisor_hostname: str, resource_class: str, slots: int, *, uuid: str | None = None
) -> None:
    """Sets the number of slots of a reservation on a host; a server takes one. `uuid`: for a new provider."""
    # A host that was registered before reservation providers existed gets its own here (R21).
    provider = ensure_reservation_provider(placement, hypervisor_hostname, uuid=uuid)
    placement.put_inventory(provider.uuid, resource_class, slot_inventory(slots))  # the others stay (R22, R23)


class SlotPublisher:
    """Writes the slots of many reservations on a host: one request for each, or two for all.

    Caches the uuids of reservation providers. If one was deleted, the next write answers 404 and it is looked up again.
    """

    def __init__(self, placement: PlacementClient) -> None:
        self._placement = placement
        self._providers: dict[str, str] = {}  #: {hypervisor hostname: uuid}

    def publish(self, hypervisor_hostname: str, slots: Mapping[str, int]) -> None:
        """`slots`: {resource class: slots} on this host. After an error, some may exist; repeat the call."""
        wanted = {name: slot_inventory(total) for name, total in slots.items()}
        known = self._providers.get(hypervisor_hostname)
        uuid = known or ensure_reservation_provider(self._placement, hypervisor_hostname).uuid
        self._providers[hypervisor_hostname] = uuid
        try:
            if len(wanted) <= FEW:
                with suppress(Conflict):  # an earlier attempt has added some
                    for name, inventory in wanted.items():
                        self._placement.add_inventory(uuid, name, inventory)
                    return
            self._placement.put_inventories(uuid, wanted)
        except NotFound:
            if known is None:
                raise
            self._providers.pop(hypervisor_hostname, None)
            self.publish(hypervisor_hostname, slots)


def slot_inventory(slots: int) -> Inventory:
    """The inventory of a reservation with this number of slots on a host."""
    return Inventory(total=slots, min_unit=1, max_unit=1, step_size=1, allocation_ratio=1.0)
