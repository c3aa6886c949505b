"""The steps of instance reservations in Placement and Nova, over their public APIs only.

Spec: docs/evidence/specs/instance-reservation.md

Which steps, and in which order: `resource_types.virtual_instance`. Every step may happen twice: names derive from the
reservation's id and the host's name, what is there already is left, what is gone already is fine.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from moorage.compute.client.compute_client import ComputeClient
from moorage.core.errors import Conflict, MoorageError
from moorage.core.names import reservation_flavor, reservation_provider
from moorage.placement.client.placement_client import Inventory, PlacementClient, Provider
from moorage.reservation.model.leases import Generation, Reservation, generation_of
from moorage.reservation.model.steps import Actions, JointActions, Part, Step, StepKind, Waiting
from moorage.reservation.steps.in_flight_moves import Departures
from moorage.reservation.steps.reservation_providers import SlotOffers, offer_slots


class InstanceSteps:
    """`actions` are what it can do, `joint` what it can do for many reservations at once."""

    def __init__(self, placement: PlacementClient, compute: ComputeClient) -> None:
        self._placement = placement
        self._compute = compute
        self._offers = SlotOffers(placement)
        self._departures = Departures(placement, compute)
        self.joint: JointActions = {StepKind.PUT_INVENTORY: self._put_inventories}
        self.actions: Actions = {
            StepKind.ENSURE_CLASS: self._ensure_class,
            StepKind.ENSURE_FLAVOR: self._ensure_flavor,
            StepKind.PUT_INVENTORY: self._put_inventory,
            StepKind.JOIN_AGGREGATE: self._join_aggregate,
            StepKind.GRANT_ACCESS: self._grant_access,
            StepKind.REVOKE_ACCESS: self._revoke_access,
            StepKind.DELETE_SERVERS: self._delete_servers,
            StepKind.DELETE_FLAVOR: self._delete_flavor,
            StepKind.DELETE_AGGREGATE: self._delete_aggregate,
            StepKind.DROP_INVENTORY: self._drop_inventory,
            StepKind.RETIRE_INVENTORY: self._retire_inventory,
            StepKind.RECLAIM_INVENTORY: self._reclaim_inventory,
            StepKind.DELETE_CLASS: self._delete_class,
        }

    def generation(self, reservation: Reservation) -> Generation:
        """What a reservation is that came from an older system; asks Placement (A1)."""
        has_class = self._placement.has_class(reservation.resource_class)
        return generation_of(reservation.aggregate_id, reservation.server_group_id, has_class=has_class)

    def _ensure_class(self, step: Step) -> None:
        self._placement.ensure_class(step.resource_class)

    def _ensure_flavor(self, step: Step) -> None:
        if step.flavor is None:
            raise ValueError(f"{step} has no flavor")
        name, flavor = reservation_flavor(step.reservation_id), step.flavor
        self._compute.create_flavor(
            step.reservation_id,
            name,
            flavor.vcpus,
            flavor.memory_mb,
            flavor.disk_gb,
            ephemeral_gb=flavor.ephemeral_gb,
            swap_mb=flavor.swap_mb,
            public=False,
        )
        specs = {**flavor.extra_specs, f"resources:{step.resource_class}": "1"}
        self._compute.set_extra_specs(step.reservation_id, specs)

    def _put_inventory(self, step: Step) -> None:
        offer_slots(self._placement, step.host, step.resource_class, step.total)

    def _put_inventories(self, steps: Sequence[Step]) -> list[Part]:
        """By host, in the order in which the steps name them."""
        of_host: dict[str, list[int]] = defaultdict(list)
        for position, step in enumerate(steps):
            of_host[step.host].append(position)

        def offer(host: str, positions: Sequence[int]) -> tuple[Sequence[int], MoorageError | None]:
            try:
                self._offers.offer(host, {steps[each].resource_class: steps[each].total for each in positions})
            except MoorageError as error:
                return positions, error
            return positions, None

        return [partial(offer, host, positions) for host, positions in of_host.items()]

    def _join_aggregate(self, step: Step) -> None:
        self._compute.add_host(step.aggregate_id, step.host)

    def _grant_access(self, step: Step) -> None:
        self._compute.add_flavor_access(step.reservation_id, step.project_id)

    def _revoke_access(self, step: Step) -> None:
        self._compute.remove_flavor_access(step.reservation_id, step.project_id)

    def _delete_servers(self, step: Step) -> Waiting | None:
        servers = self._compute.servers_of_flavor(step.reservation_id)
        for server in servers:
            self._compute.delete_server(server.id)
        if not servers:
            return None
        names = ", ".join(sorted(server.name for server in servers)[:3])
        return Waiting(f"{len(servers)} server(s) of the reservation are being deleted: {names}")

    def _delete_flavor(self, step: Step) -> None:
        self._compute.delete_flavor(step.reservation_id)

    def _delete_aggregate(self, step: Step) -> None:
        self._compute.delete_aggregate(step.aggregate_id)

    def _drop_inventory(self, step: Step) -> Waiting | None:
        provider = self._placement.provider_by_name(reservation_provider(step.host))
        return None if provider is None else self._drop_from(provider, step.resource_class)

    def _drop_from(self, provider: Provider, resource_class: str) -> Waiting | None:
        try:
            self._placement.delete_inventory(provider.uuid, resource_class)
        except Conflict:
            # In use and changed-in-between look the same here (A5): the usage tells them apart, neither is skipped.
            used = self._placement.usages(provider.uuid).get(resource_class, 0)
            return Waiting(f"{used} of {resource_class} on {provider.name} are still in use")
        return None

    def _reclaim_inventory(self, step: Step) -> Waiting | None:
        """Its servers are gone by now: who still has a slot was on the way, from it or to it, when they were looked for."""
        provider = self._placement.provider_by_name(reservation_provider(step.host))
        waiting = None if provider is None else self._drop_from(provider, step.resource_class)
        if provider is None or waiting is None:
            return None
        leaving = self._departures.of_slots(provider.uuid, step.resource_class, step.reservation_id)
        return Waiting("; ".join([waiting.reason, *leaving]))

    def _retire_inventory(self, step: Step) -> None:
        """Of a host that failed: nothing more is launched there; what its servers hold stays until they are gone."""
        provider = self._placement.provider_by_name(reservation_provider(step.host))
        if provider is None:
            return
        used = self._placement.usages(provider.uuid).get(step.resource_class, 0)
        if used:
            left = Inventory(total=used, min_unit=1, max_unit=1, step_size=1, allocation_ratio=1.0)
            self._placement.put_inventory(provider.uuid, step.resource_class, left)
        else:
            self._placement.delete_inventory(provider.uuid, step.resource_class)

    def _delete_class(self, step: Step) -> Waiting | None:
        try:
            self._placement.delete_class(step.resource_class)
        except Conflict as error:
            return Waiting(f"{step.resource_class} is still in some inventory: {error.message}")
        return None
