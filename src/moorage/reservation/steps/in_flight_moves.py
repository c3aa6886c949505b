"""Servers that are between two places when a reservation ends: they leave it, so that the end hangs on nobody.

    has left by a resize that nobody has confirmed      what it could go back to is of the reservation: confirmed, so that
                                                        it stays where it is
    has come by one, or back; or has failed to          it holds a slot as any server of the reservation: deleted
    is on its way                                       waited for: it will be one of these

Over the public APIs only. Everything may be repeated; what is begun here is done behind the answer, so callers look again.
"""

import logging

from moorage.compute.client.compute_client import ComputeClient
from moorage.compute.client.values import Migration
from moorage.core.errors import NotFound, RemoteError
from moorage.placement.client.placement_client import PlacementClient

log = logging.getLogger(__name__)

#: What compute's list of migrations is narrowed to: their servers wait to be confirmed or reverted.
_UNCONFIRMED = {"migration_type": "resize", "status": "finished"}


class Departures:
    def __init__(self, placement: PlacementClient, compute: ComputeClient) -> None:
        self._placement = placement
        self._compute = compute

    def of_slots(self, provider_uuid: str, resource_class: str, flavor_id: str) -> list[str]:
        """Of whoever holds a slot of the reservation that has this class and this flavor: what becomes of each, in words.

        The flavor may be deleted by now.
        """
        held = self._placement.provider_allocations(provider_uuid)
        holders = sorted(consumer for consumer, units in held.items() if units.get(resource_class))
        left = {each.uuid: each for each in self._compute.migrations(_UNCONFIRMED)}
        return [
            self._confirm(left[consumer]) if consumer in left else self._delete(consumer, flavor_id)
            for consumer in holders
        ]

    def _confirm(self, migration: Migration) -> str:
        words = f"server {migration.server_id} has left by a resize that nobody confirmed"
        try:
            self._compute.confirm_resize(migration.server_id)
        except (NotFound, RemoteError) as error:
            if isinstance(error, RemoteError) and error.status not in (400, 409):
                raise
            outcome = f"it cannot be confirmed now: {error.message}"
        else:
            outcome = "it is confirmed, for the reservation ends"
        log.info(outcome, extra={"server": migration.server_id, "migration": migration.uuid})
        return f"{words}; {outcome}"

    def _delete(self, consumer: str, flavor_id: str) -> str:
        server = self._compute.server(consumer)
        if server is None:
            return f"{consumer} is no server, and no resize that can be confirmed"
        if server.flavor_id != flavor_id and server.status != "ERROR":
            return f"server {server.id} is {server.status} with another flavor; it is waited for"
        self._compute.delete_server(server.id)
        return f"server {server.id} is being deleted"
