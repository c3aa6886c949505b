"""The step that gives up unused slots of an active reservation, so that its amount shrinks.

First the inventory shrinks, so that no server can be launched in a slot that others may reserve next; then the slots
are deleted, and the amount and the usage that limits count change with them. If a server took a slot meanwhile, the
inventory is restored, and all stays as it was: the request that waits for the step answers 409.
"""

from dataclasses import replace

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.core.errors import Conflict
from moorage.core.ids import Ids
from moorage.core.names import reservation_provider
from moorage.db.session import in_transaction
from moorage.placement.client.placement_client import PlacementClient
from moorage.reservation.model.leases import Allocation
from moorage.reservation.model.limits import Reserved, counted
from moorage.reservation.model.reservation_requests import AnyRequest, FlavorRequest, InstanceRequest
from moorage.reservation.model.steps import Actions, ReleaseSlots, Waiting
from moorage.reservation.steps.reservation_providers import slot_inventory
from moorage.reservation.store import host_store, lease_store, limit_store, request_store


class SlotReleaseSteps:
    def __init__(self, engine: Engine, clock: Clock, ids: Ids, placement: PlacementClient) -> None:
        self._engine = engine
        self._clock = clock
        self._ids = ids
        self._placement = placement
        self.actions: Actions = {ReleaseSlots: self._release}

    def _release(self, step: ReleaseSlots) -> Waiting | None:
        """May run twice: an inventory that is low already stays, and slots that are gone are not counted again."""
        provider = self._placement.provider_by_name(reservation_provider(step.host))
        outcome = True if provider is None else self._lower(provider.uuid, step)
        if isinstance(outcome, Waiting):
            return outcome
        if outcome:
            in_transaction(self._engine, lambda connection: self._delete(connection, step))
        return None

    def _lower(self, provider_uuid: str, step: ReleaseSlots) -> bool | Waiting:
        """False: servers use more slots than would stay, and the inventory is as before."""
        if step.total == 0:
            try:
                self._placement.delete_inventory(provider_uuid, step.resource_class)
            except Conflict:
                # "In use" and "changed meanwhile" are the same conflict (A5). The usage tells which.
                used = self._placement.usages(provider_uuid).get(step.resource_class, 0)
                return False if used else Waiting(f"the inventory of {step.resource_class} was changed meanwhile")
            return True
        self._placement.put_inventory(provider_uuid, step.resource_class, slot_inventory(step.total))
        used = self._placement.usages(provider_uuid).get(step.resource_class, 0)
        if used > step.total:
            before = slot_inventory(step.total + len(step.slots))
            self._placement.put_inventory(provider_uuid, step.resource_class, before)
        return used <= step.total

    def _delete(self, connection: Connection, step: ReleaseSlots) -> None:
        lease = lease_store.find_lease_of_reservation(connection, step.reservation_id)
        lease = None if lease is None else lease_store.lock(connection, lease.id)
        rows = host_store.allocations_of(connection, [step.reservation_id])
        gone = [row for row in rows if row.id in step.slots]
        if lease is None or not gone:
            return
        now = self._clock.now()
        host_store.delete_allocations(connection, [row.id for row in gone])
        reservation = next(each for each in lease.reservations if each.id == step.reservation_id)
        request = reservation.request
        if isinstance(request, InstanceRequest | FlavorRequest | AnyRequest):
            smaller = replace(request, amount=request.amount - len(gone))
            request_store.change_request(connection, step.reservation_id, smaller, now)
        for used in limit_store.usage_of_lease(connection, lease.id):
            if used.reservation_id == step.reservation_id:
                left = [row for row in rows if row not in gone]
                parts = self._parts(used, left, gone)
                limit_store.write_usage(connection, lease.project_id, lease.user_id, lease.id, parts)

    def _parts(self, used: Reserved, left: list[Allocation], gone: list[Allocation]) -> list[Reserved]:
        """The usage until now still counts for the limits in hours: as a part of its own, which nothing changes."""
        over = Reserved(self._ids.uuid(), used.start, self._clock.now(), counted(row.resources for row in gone))
        return [replace(used, amounts=counted(row.resources for row in left)), over]
