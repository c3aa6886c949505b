"""Migrates bare-metal servers from before custom resource classes: flavor copy and allocation get the node's class.

Spec: docs/evidence/specs/flavor-resources.md

A node of the hypervisor type ``ironic`` offers one unit of a custom class of its own, rarely of several, and carries at
most one server. A server created before such classes holds none of it, so its node would be offered again. For each
such server

    1. its own copy of the flavor gets ``resources:<CLASS>=1`` for each of these classes, unless the key exists; flavors
       themselves are unchanged
    2. its allocation on the node becomes what that copy requests, of the classes that the node has, and one unit of
       each of the node's own classes: the server has the whole node

Each round repeats both, which then changes nothing. Nothing else of the flavor or of the allocation is touched.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.model.servers import Flavor, Host, Server, VmState
from moorage.compute.requests.server_request import flavor_fields
from moorage.compute.store import host_store, server_store
from moorage.core.clock import Clock
from moorage.core.errors import ConcurrentUpdate, Invalid, MoorageError, NotFound
from moorage.core.names import is_custom, is_reservation_class
from moorage.db.session import in_transaction, read
from moorage.jobs.worker_watch import IsFirst
from moorage.placement.client.placement_client import SERVER_TYPE, Consumer, Inventory, PlacementClient
from moorage.scheduler.filters import BARE_METAL
from moorage.scheduler.flavor_resources import request_for

log = logging.getLogger(__name__)

#: Nodes per page of a manual migration.
PAGE = 100


class FlavorMigrationOutcome(StrEnum):
    DONE = "migrated"
    HEALED = "allocation healed"
    ALREADY = "already migrated"
    NO_CLASS = "node without class"
    REFUSED = "refused"


@dataclass(frozen=True)
class FlavorMigrationStep:
    """The change made for the server of one node, or in a dry run the change that would be made."""

    node: str
    server_id: str
    outcome: FlavorMigrationOutcome
    resource_class: str = ""  #: several are separated by commas
    note: str = ""


@dataclass(frozen=True)
class BareMetal:
    deps: ComputeDeps
    placement: PlacementClient

    def migrate_servers(
        self, *, dry_run: bool, after: str = "", limit: int = PAGE
    ) -> tuple[list[FlavorMigrationStep], str | None]:
        """(steps for the servers of the next `limit` nodes, name of the last node; None: no more nodes).

        Nodes without a server are skipped. A failure for one node does not affect the others.
        """
        with read(self.deps.engine) as connection:
            nodes = [host for host in host_store.all_hosts(connection) if _is_node(host) and host.name > after]
            nodes = sorted(nodes, key=lambda host: host.name)[:limit]
            servers = [(host, server) for host in nodes for server in _servers_on(connection, host.name)]
        steps = [self._step(host, server, dry_run=dry_run) for host, server in servers]
        return steps, nodes[-1].name if len(nodes) == limit else None

    def _step(self, host: Host, server: Server, *, dry_run: bool) -> FlavorMigrationStep:
        try:
            return self._migrated(host, server, dry_run=dry_run)
        except (ConcurrentUpdate, Invalid, NotFound) as error:
            log.warning("a bare-metal server was not migrated", extra={"server": server.id, "reason": error.message})
            return FlavorMigrationStep(host.name, server.id, FlavorMigrationOutcome.REFUSED, note=error.message)

    def _migrated(self, host: Host, server: Server, *, dry_run: bool) -> FlavorMigrationStep:
        node = host.report.provider_uuid
        _, inventories = self.placement.inventories(node)
        own = own_classes(inventories)
        if not own:
            log.warning("a node has no resource class", extra={"host": host.name, "server": server.id})
            return FlavorMigrationStep(
                host.name,
                server.id,
                FlavorMigrationOutcome.NO_CLASS,
                note="set the node's resource class, then run the migration again",
            )
        flavor = with_classes(server.flavor, own)
        is_new = flavor is not server.flavor
        if is_new and not dry_run:
            in_transaction(self.deps.engine, lambda connection: self._save(connection, server.id, own))
        wanted = amounts_of(flavor, inventories) | dict.fromkeys(own, 1)
        was_healed = self._heal(server, node, wanted, dry_run=dry_run)
        outcome = (
            FlavorMigrationOutcome.DONE
            if is_new
            else FlavorMigrationOutcome.HEALED
            if was_healed
            else FlavorMigrationOutcome.ALREADY
        )
        return FlavorMigrationStep(host.name, server.id, outcome, ", ".join(own))

    def _save(self, connection: Connection, server_id: str, own: Sequence[str]) -> None:
        server = server_store.lock_server(connection, server_id)
        if server is not None:
            flavor = asdict(with_classes(server.flavor, own))
            server_store.update_server(connection, server_id, self.deps.clock.now(), flavor=flavor)

    def _heal(self, server: Server, node: str, wanted: Mapping[str, int], *, dry_run: bool) -> bool:
        """Whether the allocation on the node differed from `wanted`; corrects it unless `dry_run`."""
        holder = self.placement.holder(server.id)
        if holder is None:
            holder = Consumer(
                server.id, None, server.project_id, server.user_id, SERVER_TYPE, {}, self.deps.clock.now()
            )
        if dict(holder.allocations.get(node, {})) == wanted:
            return False
        if not dry_run:
            self.placement.hold(replace(holder, allocations={**holder.allocations, node: wanted}))
        return True


class BareMetalTask:
    """Runs at the start and then every `period_s`, in a thread of its own so that no start waits for it.

    `is_first`: whether this process does it, of all that run the task.
    """

    name = "compute.baremetal"
    listens_to: tuple[str, ...] = ()

    def __init__(self, bare_metal: BareMetal, clock: Clock, *, period_s: float, is_first: IsFirst) -> None:
        self._bare_metal = bare_metal
        self._is_first = is_first
        self._clock = clock
        self._period = timedelta(seconds=period_s)

    def run_once(self) -> datetime | None:
        after: str | None = ""
        try:
            with read(self._bare_metal.deps.engine) as connection:
                if not self._is_first(connection):
                    return self._clock.now() + self._period
            while after is not None:
                steps, after = self._bare_metal.migrate_servers(dry_run=False, after=after)
                for step in steps:
                    if step.outcome in (FlavorMigrationOutcome.DONE, FlavorMigrationOutcome.HEALED):
                        log.info(
                            "bare-metal server migrated",
                            extra={"server": step.server_id, "outcome": step.outcome.value},
                        )
        except MoorageError as error:
            log.warning("bare-metal migration postponed", extra={"reason": error.message})
        return self._clock.now() + self._period


def own_classes(inventories: Mapping[str, Inventory]) -> list[str]:
    """The node's own classes, sorted: the custom classes of which it has exactly one unit."""
    return sorted(
        name
        for name, inventory in inventories.items()
        if is_custom(name) and not is_reservation_class(name) and (inventory.total, inventory.max_unit) == (1, 1)
    )


def with_classes(flavor: Flavor, own: Sequence[str]) -> Flavor:
    """`flavor` with the classes added; `flavor` itself if it names all of them already, with any amount."""
    added = {key: "1" for name in own if (key := f"resources:{name}") not in flavor.extra_specs}
    return replace(flavor, extra_specs={**flavor.extra_specs, **added}) if added else flavor


def amounts_of(flavor: Flavor, inventories: Iterable[str]) -> dict[str, int]:
    """{class: units} that a server of `flavor` takes from a node with these resource classes."""
    offered = set(inventories)
    total: dict[str, int] = {}
    for group in request_for(flavor_fields(flavor)).groups.values():
        for name, amount in group.resources.items():
            if name in offered:
                total[name] = total.get(name, 0) + amount
    return total


def _is_node(host: Host) -> bool:
    return host.report.hypervisor_type.lower() == BARE_METAL


def _servers_on(connection: Connection, host: str) -> list[Server]:
    """Servers on the host without an operation in progress."""
    found = server_store.find_servers(connection, server_store.ServerQuery(host=host))
    return [server for server in found if server.vm_state is not VmState.BUILDING and server.task_state is None]
