"""The steps that save the servers of a reservation before its end, over compute's public API.

First they are looked for, then each is a step of its own: one that fails is tried again, and no other with it. Each
image carries the occasion that it was made at: where an answer or a worker was lost, what is there is not made again.
"""

from collections.abc import Iterable

from sqlalchemy import Engine

from moorage.compute.client.compute_client import ComputeClient
from moorage.compute.client.values import Server
from moorage.db.transactions import read
from moorage.images.client import ImageLookup
from moorage.images.views import OwnerView
from moorage.reservation.model.steps import Actions, Further, Step, StepKind
from moorage.reservation.store import lease_store

#: What images are called: the server's name and this.
SUFFIX = "-before-end"

_LONGEST_NAME = 255


class SnapshotSteps:
    """`actions` are what it can do."""

    def __init__(self, engine: Engine, compute: ComputeClient, images: ImageLookup | None) -> None:
        """`images`: None where nobody says which there are; then an answer that was lost may mean two."""
        self._engine = engine
        self._compute = compute
        self._images = images
        self.actions: Actions = {
            StepKind.FIND_SERVERS: self._of_flavor,
            StepKind.FIND_SERVERS_OF_HOSTS: self._of_hosts,
            StepKind.SNAPSHOT_SERVER: self._snapshot,
        }

    def _of_flavor(self, step: Step) -> Further:
        return _each(step, self._compute.servers_of_flavor(step.reservation_id))

    def _of_hosts(self, step: Step) -> Further:
        lent = self._compute.aggregate_by_name(step.reservation_id)
        hosts = lent.hosts if lent is not None else ()
        return _each(step, [server for host in hosts for server in self._compute.servers_of_host(host)])

    def _snapshot(self, step: Step) -> None:
        with read(self._engine) as connection:
            lease = lease_store.lease_with(connection, step.reservation_id)
        server = self._compute.server(step.target)
        if server is None or lease is None:
            return  # its owner has deleted it
        made_for = {"reservation_id": step.reservation_id, "before_end": lease.before_end_occasion}
        # Of the server's own project: anybody can give an image of another one these properties.
        view = OwnerView(server.project_id)
        if self._images is not None and self._images.is_there(view, {"instance_uuid": step.target, **made_for}):
            return
        called = server.name[: _LONGEST_NAME - len(SUFFIX)] + SUFFIX
        self._compute.create_image(step.target, called, made_for)


def _each(step: Step, servers: Iterable[Server]) -> Further:
    return Further(
        tuple(
            Step(StepKind.SNAPSHOT_SERVER, step.reservation_id, lease_id=step.lease_id, target=server.id)
            for server in sorted(servers, key=lambda each: each.id)
        )
    )
