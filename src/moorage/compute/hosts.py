"""Compute hosts as administrators see them: services, hypervisors, availability zones, aggregates.

`HostService` has the use cases: enable, disable, force down or delete a service; manage aggregates.

The other functions publish to Placement which hosts are in which aggregates, which are disabled, and which were
deleted; `scheduling.build_worker` runs them. With aggregates Placement can select among hosts by itself (`member_of`).
Aggregates of other owners on a provider stay. All these functions may be repeated without harm; a lost publication of
aggregates is repeated at the next start.

Not here: heartbeats and reports of host agents (`agents`), and the publication of inventories, which the agents do
themselves.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import NoReturn

from sqlalchemy import Connection, Engine

from moorage.compute.deps import ComputeDeps, ComputeSettings
from moorage.compute.model.migration_workflow import only_awaits_cleanup_on
from moorage.compute.model.servers import (
    BUILD_QUEUE,
    COMPUTE_BINARY,
    DEFAULT_ZONE,
    Aggregate,
    Flavor,
    Host,
)
from moorage.compute.store import host_store, move_store, server_store
from moorage.core.clock import Clock
from moorage.core.errors import ConcurrentUpdate, Conflict, Invalid, NotFound, Unavailable
from moorage.core.ids import Ids
from moorage.core.names import DISABLED_HOST_TRAIT
from moorage.db.session import PreparedRead, SingleReads, in_transaction, read
from moorage.jobs.contract import JobKind
from moorage.jobs.model import NewJob
from moorage.placement.client.placement_client import PlacementClient, Provider

log = logging.getLogger(__name__)


def enqueue_aggregates(connection: Connection, clock: Clock, ids: Ids, host: str, *, left: str = "") -> None:
    """Enqueues a job that publishes the aggregates of `host`; call in the transaction that changes an aggregate.

    `left`: the uuid of the aggregate that the host leaves. The caller must wake the builder's queue after the commit.
    """
    payload = {"host": host, **({"left": left} if left else {})}
    job = NewJob(ids.uuid(), BUILD_QUEUE, JobKind.PUBLISH_AGGREGATES, f"host:{host}", payload)
    server_store.BUILD_JOBS.enqueue(connection, job, clock.now())


def publish_aggregates(engine: Engine, placement: PlacementClient, name: str, gone: str = "") -> None:
    """Publishes the aggregates of one host. Raises `Unavailable` while others keep changing its provider.

    `gone`: the uuid of an aggregate that the host has left and that may be deleted, so that compute does not know it.
    Aggregates that others keep in Placement stay. A server that was created afterwards is placed after this, so a lease
    is active only when its host can be used.
    """
    with read(engine) as connection:
        host = host_store.host(connection, name)
        ours = host_store.all_aggregates(connection)
    if host is None:
        return
    joined = frozenset(one.uuid for one in ours if name in one.hosts)
    left = frozenset([*(one.uuid for one in ours), *([gone] if gone else [])]) - joined
    try:
        placement.change_aggregates(host.report.provider_uuid, joined=joined, left=left)
    except NotFound:
        log.warning("the host has no provider yet", extra={"host": name})
    except ConcurrentUpdate as error:
        raise Unavailable(error.message) from error


def publish_all_aggregates(engine: Engine, placement: PlacementClient) -> None:
    """Publishes what Placement does not know yet, for example because a job was lost."""
    with read(engine) as connection:
        roots = {host.name: host.report.provider_uuid for host in host_store.all_hosts(connection)}
        ours = host_store.all_aggregates(connection)
    differing: set[str] = set()
    for one in ours:
        there = {provider.uuid for provider in placement.providers([("member_of", one.uuid)])}
        differing |= {name for name, root in roots.items() if (name in one.hosts) != (root in there)}
    for name in sorted(differing):
        publish_aggregates(engine, placement, name)


def publish_status(placement: PlacementClient, host: Host) -> None:
    """Sets or removes the trait of a disabled host. Raises `Unavailable` while others keep changing its traits."""
    try:
        placement.put_trait(host.report.provider_uuid, DISABLED_HOST_TRAIT, wanted=not host.is_enabled)
    except NotFound:
        log.warning("the host has no provider yet", extra={"host": host.name})
    except ConcurrentUpdate as error:
        raise Unavailable(error.message) from error  # the job is tried again, with the traits as they are then


def forget_host(placement: PlacementClient, root_uuid: str) -> None:
    """Deletes the host's provider tree, children first. Providers with allocations of others stay, with their
    ancestors.
    """
    for provider in _children_first(placement.tree(root_uuid)):
        try:
            placement.delete_provider(provider.uuid)
        except Conflict as error:
            log.warning(
                "a provider of a deleted host stays", extra={"provider": provider.uuid, "reason": error.message}
            )


def _children_first(tree: list[Provider]) -> list[Provider]:
    parents = {provider.uuid: provider.parent_uuid for provider in tree}

    def depth(provider: Provider) -> int:
        found, above = 0, provider.parent_uuid
        while above is not None:
            found, above = found + 1, parents.get(above)
        return found

    return sorted(tree, key=depth, reverse=True)


ZONE_KEY = "availability_zone"


@dataclass(frozen=True)
class HostStatus:
    """A host, and what the clock and its aggregates say about it."""

    host: Host
    is_up: bool
    zone: str


@dataclass(frozen=True)
class HostDetails(HostStatus):
    """A host with its servers."""

    servers: tuple[tuple[str, str], ...]  #: (id, name)
    flavors: tuple[Flavor, ...]  #: the flavors of those servers

    @property
    def vcpus_used(self) -> int:
        return sum(flavor.vcpus for flavor in self.flavors)

    @property
    def memory_mb_used(self) -> int:
        return sum(flavor.ram_mb for flavor in self.flavors)

    @property
    def local_gb_used(self) -> int:
        return sum(flavor.disk_gb + flavor.ephemeral_gb for flavor in self.flavors)


@dataclass(frozen=True)
class HostService:
    deps: ComputeDeps
    settings: ComputeSettings

    def up_since(self) -> datetime:
        """A host whose last heartbeat is older is down."""
        silence = timedelta(seconds=self.settings.up_window_s)
        return self.deps.outages.heard_since(self.deps.clock.now(), silence)

    @cached_property
    def _reads(self) -> SingleReads:
        return SingleReads(self.deps.engine)

    @cached_property
    def _by_name(self) -> PreparedRead:
        return self._reads.prepare(host_store.BY_NAME)

    @cached_property
    def _metadata_of(self) -> PreparedRead:
        return self._reads.prepare(host_store.METADATA_OF)

    def hosts(self) -> list[HostDetails]:
        with read(self.deps.engine) as connection:
            return self._details(connection)

    def status(self, name: str) -> HostStatus | None:
        """None for a host that does not exist.

        Clients poll servers, so this is two statements without a transaction.
        """
        rows = self._by_name(of_name=name)
        if not rows:
            return None
        host = host_store.host_of_values(rows[0])
        zones = [metadata[ZONE_KEY] for (metadata,) in self._metadata_of(of_name=name) if metadata.get(ZONE_KEY)]
        return HostStatus(host, self.is_up(host), zones[-1] if zones else DEFAULT_ZONE)

    def statuses(self, names: Collection[str]) -> dict[str, HostStatus]:
        """{host: its status}, for those that exist."""
        if not names:
            return {}
        with read(self.deps.engine) as connection:
            zones = host_store.zones_of(connection, names)
            found = host_store.hosts_by_name(connection, names)
        return {one.name: HostStatus(one, self.is_up(one), zones.get(one.name, DEFAULT_ZONE)) for one in found}

    def _details(self, connection: Connection) -> list[HostDetails]:
        zones = host_store.zones(connection)
        on_hosts = server_store.servers_on_hosts(connection)
        return [
            HostDetails(
                host,
                self.is_up(host),
                zones.get(host.name, DEFAULT_ZONE),
                tuple((server_id, name) for server_id, name, _ in on_hosts.get(host.name, ())),
                tuple(flavor for _, _, flavor in on_hosts.get(host.name, ())),
            )
            for host in host_store.all_hosts(connection)
        ]

    def is_up(self, host: Host) -> bool:
        return not host.forced_down and host.heartbeat_at >= self.up_since()

    def down_hosts(self) -> list[str]:
        """Names of the hosts that are down."""
        with read(self.deps.engine) as connection:
            return host_store.down_since(connection, self.up_since())

    def set_service(
        self,
        service_uuid: str,
        *,
        is_enabled: bool | None = None,
        disabled_reason: str | None = None,
        forced_down: bool | None = None,
    ) -> HostDetails:
        """Changes a service; None leaves a value unchanged. Enabling clears the reason."""
        name = next((one.host.name for one in self.hosts() if one.host.service_uuid == service_uuid), None)
        if name is None:
            raise NotFound(f"Service {service_uuid} could not be found.")
        return self.set_service_of(
            name, is_enabled=is_enabled, disabled_reason=disabled_reason, forced_down=forced_down
        )

    def set_service_of(
        self,
        name: str,
        *,
        is_enabled: bool | None = None,
        disabled_reason: str | None = None,
        forced_down: bool | None = None,
    ) -> HostDetails:
        """Same as `set_service`, by host name. Raises `NotFound` for an unknown host.

        Raises `Invalid` if the request ends forced-down while the host has not yet deleted the servers evacuated from
        it.
        """
        changes: dict[str, object] = {}
        if is_enabled is not None:
            changes |= {"is_enabled": is_enabled, "disabled_reason": None if is_enabled else disabled_reason}
        if forced_down is not None:
            changes["forced_down"] = forced_down

        def change_service(connection: Connection) -> HostDetails:
            if host_store.host(connection, name) is None:
                raise NotFound(f"Could not find binary {COMPUTE_BINARY} on host {name}.")
            if forced_down is False and move_store.has_leftovers(connection, name):
                raise Invalid(
                    f"Host {name} stays forced down: servers were evacuated from it, and it has not cleaned up what is "
                    "left of them. Start its agent, which does that, and repeat the request."
                )
            if changes:
                host_store.set_service(connection, name, **changes)
            if is_enabled is not None:
                self._enqueue_status(connection, name)
            return next(one for one in self._details(connection) if one.host.name == name)

        details = in_transaction(self.deps.engine, change_service)
        self.deps.hints.send(BUILD_QUEUE)
        return details

    def delete_service(self, name: str) -> None:
        """Deletes a host without servers; its providers in Placement are deleted by a job. A running agent registers it
        again.

        A host that is down may never return: it can be deleted even if it still has to clean up after moves, together
        with their allocations. If it does return, it cleans up before it is registered again.
        """

        def delete_host(connection: Connection) -> None:
            host = host_store.lock_host(connection, name)
            if host is None:
                raise NotFound(f"Compute host {name} could not be found.")
            if server_store.servers_on_hosts(connection).get(name):
                raise Conflict(
                    "Unable to delete compute service that is hosting instances. Migrate or delete the instances first."
                )
            moves = move_store.open_moves_of_host(connection, name)
            going = [move for move in moves if self.is_up(host) or not only_awaits_cleanup_on(move, name)]
            if going:
                servers = ", ".join(sorted({move.server_id for move in going}))
                raise Conflict(
                    f"Unable to delete compute service of {name}: moves of the servers {servers} from or to this host "
                    "are not over. Wait for the moves, confirm or revert them, or delete the servers first."
                )
            host_store.delete_host(connection, name)
            payload = {"provider": host.report.provider_uuid, "host": name}
            job = NewJob(self.deps.ids.uuid(), BUILD_QUEUE, JobKind.FORGET_HOST, f"host:{name}", payload)
            server_store.BUILD_JOBS.enqueue(connection, job, self.deps.clock.now())

        in_transaction(self.deps.engine, delete_host)
        self.deps.hints.send(BUILD_QUEUE)

    def _enqueue_status(self, connection: Connection, host: str) -> None:
        """Enqueues the publication of the trait that keeps a disabled host out of Placement's candidates.

        The scheduler's own filter rejects the host from the commit on.
        """
        job = NewJob(self.deps.ids.uuid(), BUILD_QUEUE, JobKind.PUBLISH_STATUS, f"host:{host}", {"host": host})
        server_store.BUILD_JOBS.enqueue(connection, job, self.deps.clock.now())

    # ------------------------------------------------------------------------------------ aggregates

    def aggregates(self) -> list[Aggregate]:
        with read(self.deps.engine) as connection:
            return host_store.all_aggregates(connection)

    def aggregate(self, aggregate_id: int) -> Aggregate:
        return next((one for one in self.aggregates() if one.id == aggregate_id), None) or _missing(aggregate_id)

    def create_aggregate(self, name: str, zone: str | None) -> Aggregate:
        metadata = {ZONE_KEY: zone} if zone else {}

        def insert_aggregate(connection: Connection) -> int:
            return host_store.insert_aggregate(connection, self.deps.ids.uuid(), name, metadata, self.deps.clock.now())

        return self.aggregate(in_transaction(self.deps.engine, insert_aggregate))

    def update_aggregate(
        self,
        aggregate_id: int,
        *,
        name: str | None = None,
        metadata: Mapping[str, str | None] | None = None,
    ) -> Aggregate:
        """`metadata` is merged; the value None removes a key."""

        def change_aggregate(connection: Connection) -> None:
            aggregate = host_store.lock_aggregate(connection, aggregate_id) or _missing(aggregate_id)
            merged = {**aggregate.metadata, **(metadata or {})}
            kept = {key: value for key, value in merged.items() if value is not None}
            if kept.get(ZONE_KEY) != aggregate.zone:
                for name_of_host in aggregate.hosts:
                    _check_zone(connection, aggregate_id, name_of_host, kept.get(ZONE_KEY))
            host_store.update_aggregate(connection, aggregate_id, name or aggregate.name, kept, self.deps.clock.now())

        in_transaction(self.deps.engine, change_aggregate)
        return self.aggregate(aggregate_id)

    def delete_aggregate(self, aggregate_id: int) -> None:
        def delete_if_empty(connection: Connection) -> None:
            aggregate = host_store.lock_aggregate(connection, aggregate_id) or _missing(aggregate_id)
            if aggregate.hosts:
                raise Invalid(f"Cannot remove host from aggregate {aggregate_id}. Reason: Host aggregate is not empty.")
            host_store.delete_aggregate(connection, aggregate_id)

        in_transaction(self.deps.engine, delete_if_empty)

    def add_host(self, aggregate_id: int, name: str) -> Aggregate:
        def add_member(connection: Connection) -> None:
            aggregate = host_store.lock_aggregate(connection, aggregate_id) or _missing(aggregate_id)
            if host_store.host(connection, name) is None:
                raise NotFound(f"Compute host {name} could not be found.")
            if name in aggregate.hosts:
                raise Conflict(
                    f"Cannot add host to aggregate {aggregate_id}. Reason: Aggregate {aggregate_id} "
                    f"already has host {name}."
                )
            if aggregate.zone:
                _check_zone(connection, aggregate_id, name, aggregate.zone)
            host_store.add_member(connection, aggregate_id, name)
            enqueue_aggregates(connection, self.deps.clock, self.deps.ids, name)

        in_transaction(self.deps.engine, add_member)
        self.deps.hints.send(BUILD_QUEUE)
        return self.aggregate(aggregate_id)

    def remove_host(self, aggregate_id: int, name: str) -> Aggregate:
        def remove_member(connection: Connection) -> None:
            aggregate = host_store.lock_aggregate(connection, aggregate_id) or _missing(aggregate_id)
            if not host_store.remove_member(connection, aggregate_id, name):
                raise NotFound(f"Aggregate {aggregate_id} has no host {name}.")
            enqueue_aggregates(connection, self.deps.clock, self.deps.ids, name, left=aggregate.uuid)

        in_transaction(self.deps.engine, remove_member)
        self.deps.hints.send(BUILD_QUEUE)
        return self.aggregate(aggregate_id)


def _check_zone(connection: Connection, aggregate_id: int, name: str, zone: str | None) -> None:
    """A host is in one availability zone and does not change it while it has servers."""
    others = [one.zone for one in host_store.all_aggregates(connection) if name in one.hosts and one.id != aggregate_id]
    conflicting = next((other for other in others if other and zone and other != zone), None)
    if conflicting:
        raise Conflict(
            f"Cannot update aggregate {aggregate_id}. Reason: One or more hosts already in availability "
            f"zone(s) ['{conflicting}']."
        )
    before = host_store.zones(connection).get(name, DEFAULT_ZONE)
    after = zone or next((other for other in others if other), DEFAULT_ZONE)
    if before != after and server_store.servers_on_hosts(connection).get(name):
        raise Conflict(
            f"Cannot update aggregate {aggregate_id}. Reason: One or more hosts contain instances in this zone."
        )


def _missing(aggregate_id: int) -> NoReturn:
    raise NotFound(f"Aggregate {aggregate_id} could not be found.")
