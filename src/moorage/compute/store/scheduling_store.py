"""The scheduler's reads from the compute database: the full state of a few hosts, or the exceptions among all hosts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, case, delete, exists, false, func, insert, select, update

from moorage.compute.model.servers import DEFAULT_ZONE, GUEST_SETTINGS, Server
from moorage.compute.store import group_store, host_store, server_store
from moorage.compute.store.tables import aggregate_hosts, aggregates, build_failures, hosts, jobs, servers
from moorage.core.ids import is_uuid
from moorage.db.engine import ListStatement
from moorage.scheduler.filters import BARE_METAL, HostState
from moorage.scheduler.prefilters import ZONE_KEY, AggregateView
from moorage.scheduler.server_groups import ServerGroupView
from moorage.scheduler.weighers import WEIGHERS, multipliers_in

#: Whether a server is on the host. Computed for bare-metal nodes only: other hosts carry many.
_IS_OCCUPIED = case(
    (
        func.lower(hosts.c.hypervisor_type) == BARE_METAL,
        exists().where(servers.c.host == hosts.c.name, servers.c.deleted_at.is_(None)),
    ),
    else_=false(),
)
#: The state that filters need: one row per aggregate of a host, one row for a host in none.
_BY_ROOTS = (
    select(
        hosts.c.provider_uuid,
        hosts.c.name,
        hosts.c.hypervisor_type,
        hosts.c.cpu_info,
        hosts.c.capabilities,
        hosts.c.is_enabled,
        hosts.c.forced_down,
        hosts.c.heartbeat_at,
        _IS_OCCUPIED.label("is_occupied"),
        aggregates.c.metadata.label("of_aggregate"),
    )
    .outerjoin(aggregate_hosts, aggregate_hosts.c.host == hosts.c.name)
    .outerjoin(aggregates, aggregates.c.id == aggregate_hosts.c.aggregate_id)
    .where(hosts.c.provider_uuid.in_(bindparam("roots", expanding=True)))
)
_AGGREGATES = select(aggregates.c.id, aggregates.c.uuid, aggregates.c.name, aggregates.c.metadata).order_by(
    aggregates.c.id
)
_ROOTS_IN = (
    select(hosts.c.provider_uuid, aggregate_hosts.c.aggregate_id)
    .join(hosts, hosts.c.name == aggregate_hosts.c.host)
    .where(aggregate_hosts.c.aggregate_id.in_(bindparam("ids", expanding=True)))
)
_OPEN_JOBS = (
    select(hosts.c.provider_uuid, func.count().label("number"))
    .select_from(jobs)
    .join(hosts, hosts.c.name == jobs.c.open_queue)
    .group_by(hosts.c.provider_uuid)
)
_FAILURES = select(hosts.c.provider_uuid, build_failures.c.count.label("number")).join(
    hosts, hosts.c.name == build_failures.c.host
)
_FAILED_AGAIN = (
    update(build_failures)
    .where(build_failures.c.host == bindparam("of_host"))
    .values(count=build_failures.c.count + 1, failed_at=bindparam("now", type_=build_failures.c.failed_at.type))
)
_FAILED = insert(build_failures)
_SUCCEEDED = ListStatement(build_failures.c.host, delete(build_failures).where)


#: Maximum number of values in one list of a statement. psycopg caches the translation of statements with up to this
#: many parameters; longer ones are parsed each time, which takes longer than the database needs.
AT_ONCE = 50


@dataclass(frozen=True)
class UnusualHosts:
    """Facts that hold for few hosts, by root uuid. A host that is not named has no open job and no failed build."""

    open_jobs: dict[str, int]
    failed_builds: dict[str, int]
    multipliers: dict[str, dict[str, float]]  #: {weigher: number} for hosts in aggregates with such metadata


@dataclass(frozen=True)
class RequestContext:
    """Facts about a server's hints and aggregates that its request depends on.

    `wanted_root`: root of the requested host. `beside`, `apart`: hosts of the servers named by ``same_host`` and
    ``different_host``. `beside_root`: set if `beside` is one host.
    """

    group: ServerGroupView | None = None
    wanted_root: str | None = None
    aggregates: Sequence[AggregateView] = ()
    beside: frozenset[str] | None = None
    beside_root: str | None = None
    apart: frozenset[str] = frozenset()


def request_context(connection: Connection, server: Server) -> RequestContext:
    hints = server.scheduler_hints
    near = _hinted_servers(hints, "same_host")
    beside = _hosts_of(connection, near, server.project_id) if near else None
    return RequestContext(
        group_store.group_view(connection, server.id, hinted=hints["group"]) if hints.get("group") else None,
        None if server.wanted_host is None else _root_of(connection, server.wanted_host),
        [AggregateView(row.uuid, row.metadata, row.name) for row in connection.execute(_AGGREGATES)],
        beside,
        _root_of(connection, min(beside)) if beside and len(beside) == 1 else None,
        _hosts_of(connection, _hinted_servers(hints, "different_host"), server.project_id),
    )


def _hinted_servers(hints: Mapping[str, object], name: str) -> list[str]:
    """The server ids of a hint, ``"<uuid>"`` or ``["<uuid>", ...]``. As in Nova, an unknown id is no host."""
    value = hints.get(name)
    named = value if isinstance(value, list) else [value]
    return [one for one in named if isinstance(one, str) and one]


def _hosts_of(connection: Connection, named: Sequence[str], project_id: str) -> frozenset[str]:
    """Hosts of the project's own servers only: a tenant chose the ids, and must not learn where others' servers are."""
    return frozenset(server_store.hosts_of_servers(connection, [one for one in named if is_uuid(one)], project_id))


def _root_of(connection: Connection, host: str) -> str | None:
    found = host_store.host(connection, host)
    return None if found is None else found.report.provider_uuid


def host_states(connection: Connection, roots: Sequence[str], up_since: datetime) -> dict[str, HostState]:
    """{root uuid: host state}, without roots that are no hosts of this service.

    `up_since`: a host whose last heartbeat is older is down.
    """
    found: dict[str, HostState] = {}
    for start in range(0, len(roots), AT_ONCE):
        for row in connection.execute(_BY_ROOTS, {"roots": roots[start : start + AT_ONCE]}):
            known, metadata = found.get(row.provider_uuid), row.of_aggregate or {}
            if known is None:
                known = found[row.provider_uuid] = host_state(
                    row.name, row.provider_uuid, DEFAULT_ZONE, row.hypervisor_type, row.cpu_info,
                    is_up=not row.forced_down and row.heartbeat_at >= up_since, is_enabled=row.is_enabled,
                    is_occupied=bool(row.is_occupied), applies_settings=GUEST_SETTINGS in (row.capabilities or ()),
                )  # fmt: skip
            if metadata:
                found[row.provider_uuid] = _in_aggregate(known, metadata)
    return found


def _in_aggregate(host: HostState, metadata: Mapping[str, str]) -> HostState:
    """Adds the metadata of one of the host's aggregates; values from several aggregates all count."""
    values = {key: host.metadata.get(key, frozenset()) | {value} for key, value in metadata.items()}
    return replace(host, zone=metadata.get(ZONE_KEY) or host.zone, metadata={**host.metadata, **values})


def host_state(
    name: str,
    root: str,
    zone: str,
    kind: str,
    cpu_info: Mapping[str, Any],
    *,
    is_up: bool,
    is_enabled: bool,
    is_occupied: bool = False,
    applies_settings: bool = True,
) -> HostState:
    """`kind`: the hypervisor type; a simulated hypervisor accepts images for any type."""
    arch = cpu_info.get("arch")
    return HostState(
        name=name,
        root_uuid=root,
        zone=zone,
        is_up=is_up,
        is_enabled=is_enabled,
        hypervisor_type="" if kind == "simulated" else kind,
        architecture=arch if isinstance(arch, str) else None,
        is_occupied=is_occupied,
        applies_settings=applies_settings,
    )


def unusual_hosts(connection: Connection, weighers: Collection[str] = WEIGHERS) -> UnusualHosts:
    """`weighers`: names whose multipliers count. If a host is in several aggregates that have the multiplier of a
    weigher, the smallest number applies, as in Nova.
    """
    open_jobs = {row.provider_uuid: row.number for row in connection.execute(_OPEN_JOBS)}
    failed_builds = {row.provider_uuid: row.number for row in connection.execute(_FAILURES)}
    rows = connection.execute(_AGGREGATES)
    special = {row.id: found for row in rows if (found := multipliers_in(row.metadata, weighers))}
    multipliers: dict[str, dict[str, float]] = {}
    for row in connection.execute(_ROOTS_IN, {"ids": list(special)}) if special else ():
        of_host = multipliers.setdefault(row.provider_uuid, {})
        for name, number in special[row.aggregate_id].items():
            of_host[name] = min(number, of_host.get(name, number))
    return UnusualHosts(open_jobs, failed_builds, multipliers)


def note_failed_build(connection: Connection, host: str, now: datetime) -> None:
    if not connection.execute(_FAILED_AGAIN, {"of_host": host, "now": now}).rowcount:
        connection.execute(_FAILED, {"host": host, "count": 1, "failed_at": now})


def note_successful_builds(connection: Connection, hosts: Collection[str]) -> None:
    """Resets the failure counts of these hosts."""
    if hosts:
        connection.execute(_SUCCEEDED.on(connection), {"ids": sorted(hosts)})
