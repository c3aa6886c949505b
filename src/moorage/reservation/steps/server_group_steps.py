"""Server groups as an older system makes them, for clients that name them when they launch a server.

Nothing here needs them: affinity is in the inventories (A2). Made where `[reservation] compat_server_groups` says so.
A group is found by its name, which derives from the reservation's id, so each step may happen twice.

Spec: docs/evidence/specs/instance-reservation.md
"""

from sqlalchemy import Engine

from moorage.compute.client.compute_client import ComputeClient
from moorage.compute.client.values import ServerGroup
from moorage.db.transactions import in_transaction
from moorage.reservation.model.steps import Actions, Step, StepKind
from moorage.reservation.store import lease_store


class GroupSteps:
    """`actions` are what it can do."""

    def __init__(self, engine: Engine, compute: ComputeClient) -> None:
        self._engine = engine
        self._compute = compute
        self.actions: Actions = {StepKind.ENSURE_GROUP: self._ensure, StepKind.DELETE_GROUP: self._delete}

    def _ensure(self, step: Step) -> None:
        """One of the step's policy and no other; none where it has no policy."""
        found = None
        for group in self._named(step):
            if found is None and group.policy == step.policy:
                found = group.id
            else:
                self._compute.delete_server_group(group.id)
        if found is None and step.policy:
            found = self._compute.create_server_group(_name(step), step.policy)
        group_id = found
        if not in_transaction(
            self._engine, lambda connection: lease_store.set_server_group(connection, step.reservation_id, group_id)
        ):
            self._delete(step)  # the lease was deleted meanwhile, and nobody will look again

    def _delete(self, step: Step) -> None:
        """That of the step, and one that a crash kept from being written down."""
        known = {step.group_id} if step.group_id else set()
        for group_id in sorted(known | {group.id for group in self._named(step)}):
            self._compute.delete_server_group(group_id)

    def _named(self, step: Step) -> list[ServerGroup]:
        return [group for group in self._compute.server_groups() if group.name == _name(step)]


def _name(step: Step) -> str:
    return f"reservation:{step.reservation_id}"
