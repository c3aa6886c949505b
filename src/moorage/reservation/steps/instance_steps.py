"""The steps of instance reservations in Placement and Nova, over their public APIs only.

Spec: docs/evidence/specs/instance-reservation.md

`capacity.resource_types.virtual_instance` defines the steps of one reservation and their order. Every step may run
twice: names derive from the reservation's id and the host's name; existing objects are kept, and missing ones need no
deletion.

Also here: the steps of server groups, and servers that are being moved when a reservation ends.
"""

import logging
from collections.abc import Sequence

from sqlalchemy import Engine

from moorage.compute.client.compute_client import ComputeClient
from moorage.compute.client.values import Migration, ServerGroup
from moorage.core.errors import Conflict, NotFound, RemoteError
from moorage.core.names import reservation_flavor, reservation_provider
from moorage.db.session import in_transaction
from moorage.placement.client.placement_client import PlacementClient, Provider
from moorage.reservation.model.leases import Reservation, ReservationGeneration, generation_of
from moorage.reservation.model.steps import (
    Actions,
    DeleteAggregate,
    DeleteClass,
    DeleteFlavor,
    DeleteGroup,
    DeleteServers,
    DropInventory,
    EnsureClass,
    EnsureFlavor,
    EnsureGroup,
    GrantAccess,
    JoinAggregate,
    PutInventory,
    ReclaimInventory,
    RetireInventory,
    RevokeAccess,
    Waiting,
)
from moorage.reservation.steps.reservation_providers import HostNotInPlacement, SlotPublisher, slot_inventory
from moorage.reservation.store import lease_store


class InstanceSteps:
    """`actions` maps each class of steps to the method that runs one."""

    def __init__(self, placement: PlacementClient, compute: ComputeClient) -> None:
        self._placement = placement
        self._compute = compute
        self._slot_publisher = SlotPublisher(placement)
        self._in_flight_moves = InFlightMoves(placement, compute)
        self.actions: Actions = {
            EnsureClass: self._ensure_class,
            EnsureFlavor: self._ensure_flavor,
            PutInventory: self._put_inventory,
            JoinAggregate: self._join_aggregate,
            GrantAccess: self._grant_access,
            RevokeAccess: self._revoke_access,
            DeleteServers: self._delete_servers,
            DeleteFlavor: self._delete_flavor,
            DeleteAggregate: self._delete_aggregate,
            DropInventory: self._drop_inventory,
            RetireInventory: self._retire_inventory,
            ReclaimInventory: self._reclaim_inventory,
            DeleteClass: self._delete_class,
        }

    def generation(self, reservation: Reservation) -> ReservationGeneration:
        """The generation of a reservation that an older system made; asks Placement (A1)."""
        has_class = self._placement.has_class(reservation.resource_class)
        return generation_of(reservation.aggregate_id, reservation.server_group_id, has_class=has_class)

    def _ensure_class(self, step: EnsureClass) -> None:
        self._placement.ensure_class(step.resource_class)

    def _ensure_flavor(self, step: EnsureFlavor) -> None:
        self._compute.create_flavor(
            step.reservation_id,
            reservation_flavor(step.reservation_id),
            step.vcpus,
            step.memory_mb,
            step.disk_gb,
            ephemeral_gb=step.ephemeral_gb,
            swap_mb=step.swap_mb,
            public=False,
        )
        specs = {**step.extra_specs, f"resources:{step.resource_class}": "1"}
        self._compute.set_extra_specs(step.reservation_id, specs)

    def put_inventories(self, steps: Sequence[PutInventory]) -> None:
        """Runs many steps of one host: see `SlotPublisher.publish`.

        If the host has no provider in Placement, these slots get no inventory; `healing` flags and restores them.
        """
        try:
            self._slot_publisher.publish(steps[0].host, {step.resource_class: step.total for step in steps})
        except HostNotInPlacement as error:
            log.warning("slots have no inventory", extra={"host": steps[0].host, "reason": error.message})

    def _put_inventory(self, step: PutInventory) -> None:
        self.put_inventories([step])

    def _join_aggregate(self, step: JoinAggregate) -> None:
        self._compute.add_host(step.aggregate_id, step.host)

    def _grant_access(self, step: GrantAccess) -> None:
        self._compute.add_flavor_access(step.reservation_id, step.project_id)

    def _revoke_access(self, step: RevokeAccess) -> None:
        self._compute.remove_flavor_access(step.reservation_id, step.project_id)

    def _delete_servers(self, step: DeleteServers) -> Waiting | None:
        servers = self._compute.servers_of_flavor(step.reservation_id)
        for server in servers:
            self._compute.delete_server(server.id)
        if not servers:
            return None
        names = ", ".join(sorted(server.name for server in servers)[:3])
        return Waiting(f"{len(servers)} server(s) of the reservation are being deleted: {names}")

    def _delete_flavor(self, step: DeleteFlavor) -> None:
        self._compute.delete_flavor(step.reservation_id)

    def _delete_aggregate(self, step: DeleteAggregate) -> None:
        self._compute.delete_aggregate(step.aggregate_id)

    def _drop_inventory(self, step: DropInventory) -> Waiting | None:
        provider = self._placement.provider_by_name(reservation_provider(step.host))
        return None if provider is None else self._drop_from(provider, step.resource_class)

    def _drop_from(self, provider: Provider, resource_class: str) -> Waiting | None:
        try:
            self._placement.delete_inventory(provider.uuid, resource_class)
        except Conflict:
            # "In use" and "changed meanwhile" are the same conflict here (A5). The usage tells which; retry both.
            used = self._placement.usages(provider.uuid).get(resource_class, 0)
            return Waiting(f"{used} of {resource_class} on {provider.name} are still in use")
        return None

    def _reclaim_inventory(self, step: ReclaimInventory) -> Waiting | None:
        """Runs after the servers were deleted. Consumers that still use a slot were being moved at that time."""
        provider = self._placement.provider_by_name(reservation_provider(step.host))
        waiting = None if provider is None else self._drop_from(provider, step.resource_class)
        if provider is None or waiting is None:
            return None
        leaving = self._in_flight_moves.resolve_slot_holders(provider.uuid, step.resource_class, step.reservation_id)
        return Waiting("; ".join([waiting.reason, *leaving]))

    def _retire_inventory(self, step: RetireInventory) -> None:
        """On a failed host: shrinks the inventory to its usage, so that no server is launched there any more."""
        provider = self._placement.provider_by_name(reservation_provider(step.host))
        if provider is None:
            return
        used = self._placement.usages(provider.uuid).get(step.resource_class, 0)
        if used:
            self._placement.put_inventory(provider.uuid, step.resource_class, slot_inventory(used))
        else:
            self._placement.delete_inventory(provider.uuid, step.resource_class)

    def _delete_class(self, step: DeleteClass) -> Waiting | None:
        try:
            self._placement.delete_class(step.resource_class)
        except Conflict as error:
            return Waiting(f"{step.resource_class} still has an inventory: {error.message}")
        return None


class ServerGroupSteps:
    """The steps of server groups, which older systems create and some clients name when they launch a server.

    Moorage does not need them, because the inventories express affinity (A2). It creates them if `[reservation]
    compat_server_groups` is set. A group's name derives from the reservation's id, so each step may run twice.
    """

    def __init__(self, engine: Engine, compute: ComputeClient) -> None:
        self._engine = engine
        self._compute = compute
        self.actions: Actions = {EnsureGroup: self._ensure, DeleteGroup: self._delete}

    def _ensure(self, step: EnsureGroup) -> None:
        """Leaves exactly one group, with the step's policy; none if the step has no policy."""
        found = None
        for group in self._named(step.reservation_id):
            if found is None and group.policy == step.policy:
                found = group.id
            else:
                self._compute.delete_server_group(group.id)
        if found is None and step.policy:
            found = self._compute.create_server_group(_name(step.reservation_id), step.policy)
        group_id = found
        if not in_transaction(
            self._engine, lambda connection: lease_store.set_server_group(connection, step.reservation_id, group_id)
        ):
            self._delete(
                DeleteGroup(step.reservation_id)
            )  # the lease was deleted meanwhile, so no later step would delete the group

    def _delete(self, step: DeleteGroup) -> None:
        """Deletes the group of the step, and one whose id was lost in a crash."""
        known = {step.group_id} if step.group_id else set()
        for group_id in sorted(known | {group.id for group in self._named(step.reservation_id)}):
            self._compute.delete_server_group(group_id)

    def _named(self, reservation_id: str) -> list[ServerGroup]:
        return [group for group in self._compute.server_groups() if group.name == _name(reservation_id)]


def _name(reservation_id: str) -> str:
    return f"reservation:{reservation_id}"


log = logging.getLogger(__name__)

#: Filter of compute's migrations: resizes that wait to be confirmed or reverted.
_UNCONFIRMED = {"migration_type": "resize", "status": "finished"}


class InFlightMoves:
    """Resolves servers that are being moved when a reservation ends, so that the end does not wait for a user.

    ================================================  ===============================================================
    left by a resize that is not confirmed yet        confirm: the server stays on its new host and frees the slot
    arrived by a resize, or moved back, or failed     delete: it uses a slot like any server of the reservation
    still moving                                      wait: it will become one of the other two
    ================================================  ===============================================================

    Uses public APIs only and may be repeated. Nova acts after it has answered, so callers check again.
    """

    def __init__(self, placement: PlacementClient, compute: ComputeClient) -> None:
        self._placement = placement
        self._compute = compute

    def resolve_slot_holders(self, provider_uuid: str, resource_class: str, flavor_id: str) -> list[str]:
        """Handles every consumer that still uses a slot of the reservation; returns a sentence about each.

        `resource_class` and `flavor_id` are those of the reservation. The flavor may already be deleted.
        """
        held = self._placement.provider_allocations(provider_uuid)
        holders = sorted(consumer for consumer, units in held.items() if units.get(resource_class))
        left = {each.uuid: each for each in self._compute.migrations(_UNCONFIRMED)}
        return [
            self._confirm(left[consumer]) if consumer in left else self._delete(consumer, flavor_id)
            for consumer in holders
        ]

    def _confirm(self, migration: Migration) -> str:
        subject = f"server {migration.server_id} has left by a resize that is not confirmed"
        try:
            self._compute.confirm_resize(migration.server_id)
        except (NotFound, RemoteError) as error:
            if isinstance(error, RemoteError) and error.status not in (400, 409):
                raise
            outcome = f"the resize cannot be confirmed now: {error.message}"
        else:
            outcome = "the resize was confirmed because the reservation ends"
        log.info(outcome, extra={"server": migration.server_id, "migration": migration.uuid})
        return f"{subject}; {outcome}"

    def _delete(self, consumer: str, flavor_id: str) -> str:
        server = self._compute.server(consumer)
        if server is None:
            return f"consumer {consumer} is neither a server nor an unconfirmed resize"
        if server.flavor_id != flavor_id and server.status != "ERROR":
            return f"server {server.id} is {server.status} with another flavor; waiting for it"
        self._compute.delete_server(server.id)
        return f"server {server.id} is being deleted"
