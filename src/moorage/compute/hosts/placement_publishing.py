"""Publishes to Placement: which hosts are in which aggregates, which are disabled, and which were deleted.

With aggregates Placement can select among hosts by itself (`member_of`). Aggregates of other owners on a provider stay.
All functions may be repeated without harm; a lost publication of aggregates is repeated at the next start.
"""

import logging

from sqlalchemy import Connection, Engine

from moorage.compute.model.servers import BUILD_QUEUE, Host
from moorage.compute.store import host_store, server_store
from moorage.core.clock import Clock
from moorage.core.errors import ConcurrentUpdate, Conflict, NotFound, Unavailable
from moorage.core.ids import Ids
from moorage.core.names import DISABLED_HOST_TRAIT
from moorage.db.session import read
from moorage.jobs.contract import JobKind
from moorage.jobs.model import NewJob
from moorage.placement.client.placement_client import PlacementClient, Provider

log = logging.getLogger(__name__)


def enqueue_aggregates(connection: Connection, clock: Clock, ids: Ids, host: str) -> None:
    """Enqueues a job that publishes the aggregates of `host`; call in the transaction that changes an aggregate.

    The caller must wake the builder's queue after the commit.
    """
    job = NewJob(ids.uuid(), BUILD_QUEUE, JobKind.PUBLISH_AGGREGATES, f"host:{host}", {"host": host})
    server_store.BUILD_JOBS.enqueue(connection, job, clock.now())


def publish_aggregates(engine: Engine, placement: PlacementClient, name: str) -> None:
    """Publishes the aggregates of one host. Raises `Unavailable` if they were changed concurrently."""
    with read(engine) as connection:
        host = host_store.host(connection, name)
        ours = host_store.all_aggregates(connection)
    if host is None:
        return
    provider = host.report.provider_uuid
    wanted = {one.uuid for one in ours if name in one.hosts}
    try:
        generation, there = placement.aggregates(provider)
        after = (there - {one.uuid for one in ours}) | wanted
        if after != there:
            placement.set_aggregates(provider, generation, after)
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
