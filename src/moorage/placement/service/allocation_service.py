"""Claims, releases and the reshaper.

`allocation_writes` and `inventory_writes` decide them, `committer` writes them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from moorage.core.errors import ConcurrentUpdate, Conflict, Invalid, MoorageError, NotFound, Unavailable
from moorage.placement.forest.model import Allocation, Consumer
from moorage.placement.rules.allocation_writes import AllocationWrite, claim, release
from moorage.placement.rules.inventory_writes import NewInventories, reshape
from moorage.placement.service.deps import PlacementDeps
from moorage.placement.sync.committer import WriteRequest

#: Label of `PlacementMeters.claims` for a write that fails with an error of this type; the first match counts.
_REFUSED: dict[type[MoorageError], str] = {
    ConcurrentUpdate: "conflict",
    Conflict: "no_capacity",
    NotFound: "not_found",
    Invalid: "invalid",
    Unavailable: "unavailable",
}


@dataclass(frozen=True)
class AllocationService:
    deps: PlacementDeps

    # --- reading ------------------------------------------------------------------------------------------------

    def consumer_allocations(self, uuid: str) -> tuple[Consumer | None, list[Allocation]]:
        return self.deps.allocations.consumer_allocations(uuid)

    def provider_allocations(self, uuid: str) -> tuple[int, list[Allocation]]:
        """(generation, allocations) of a provider. Raises `NotFound`."""
        found = self.deps.allocations.provider_allocations(uuid)
        if found is None:
            raise NotFound(f"Resource provider '{uuid}' not found: No resource provider with uuid {uuid} found")
        return found

    def usages(
        self, project_id: str, user_id: str | None
    ) -> tuple[list[tuple[str | None, str, int]], dict[str | None, int]]:
        """([(consumer type, class, units)], {consumer type: number of consumers}) of a project or one of its users."""
        return self.deps.allocations.project_usages(project_id, user_id)

    # --- writing ------------------------------------------------------------------------------------------------

    def claim(self, writes: Collection[AllocationWrite], *, single: bool = False) -> None:
        """All writes or none. `single`: PUT for one consumer, which has slightly different error messages."""
        new = [write.consumer_uuid for write in writes if write.is_of_new_consumer]
        known = [write.consumer_uuid for write in writes if not write.is_of_new_consumer]
        self._submit(
            WriteRequest(lambda write_set: claim(write_set, writes, single=single), [*new, *known], known, new)
        )

    def release(self, consumer_uuid: str) -> None:
        """Release all allocations of a consumer."""
        self._submit(
            WriteRequest(lambda write_set: release(write_set, consumer_uuid), (consumer_uuid,), (consumer_uuid,))
        )

    def reshape(self, inventories: Mapping[str, NewInventories], writes: Collection[AllocationWrite]) -> None:
        """Replace the inventories of these providers and the allocations of these consumers, in one transaction."""
        consumers = [write.consumer_uuid for write in writes]
        about = [*consumers, *inventories]
        self._submit(WriteRequest(lambda write_set: reshape(write_set, inventories, writes), about, consumers))

    def _submit(self, request: WriteRequest[None]) -> None:
        """Write the request, and count the outcome."""
        outcome = "failed"
        try:
            self.deps.committer.submit(request)
            outcome = "committed"
        except MoorageError as error:
            outcome = next((name for kind, name in _REFUSED.items() if isinstance(error, kind)), outcome)
            raise
        finally:
            self.deps.meters.claims.labels(outcome).inc()
