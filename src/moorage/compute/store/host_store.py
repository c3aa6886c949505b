"""Compute hosts with their services, and host aggregates, in SQL."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from moorage.compute.model.servers import Aggregate, Host, HostReport
from moorage.compute.store.tables import aggregate_hosts, aggregates, hosts, servers
from moorage.core.errors import Conflict, RetryableConflict
from moorage.db.engine import ListStatement, inserted_id
from moorage.db.types import ResultRow
from moorage.scheduler.filters import BARE_METAL

_ALL = select(hosts).order_by(hosts.c.number)
#: The host ``of_name``, for `host_of_values`.
BY_NAME = select(hosts).where(hosts.c.name == bindparam("of_name"))
_BY_NAMES = select(hosts).where(hosts.c.name.in_(bindparam("names", expanding=True)))
_BY_PROVIDER = select(hosts.c.name).where(hosts.c.provider_uuid == bindparam("of_provider"))
_BY_PROVIDERS = (
    select(hosts.c.provider_uuid, hosts.c.name, hosts.c.hypervisor_type)
    .where(hosts.c.provider_uuid.in_(bindparam("of_providers", expanding=True)))
    .order_by(hosts.c.number)
    # Blocks deletions; on PostgreSQL it does not block heartbeats.
    .with_for_update(read=True, key_share=True)
)
_OTHER_SERVER = (
    select(servers.c.id)
    .where(
        servers.c.host == bindparam("of_host"),
        servers.c.deleted_at.is_(None),
        servers.c.id != bindparam("of_server", type_=servers.c.id.type),
    )
    .limit(1)
)
_INSERT = insert(hosts)
_BEAT = ListStatement(
    hosts.c.name,
    update(hosts).values(heartbeat_at=bindparam("moment", type_=hosts.c.heartbeat_at.type)).where,
)
_DOWN = select(hosts.c.name).where(
    or_(hosts.c.forced_down, hosts.c.heartbeat_at < bindparam("moment", type_=hosts.c.heartbeat_at.type))
)
_UPDATE = update(hosts).where(hosts.c.name == bindparam("of_name"))
_DELETE = delete(hosts).where(hosts.c.name == bindparam("of_name"))

_AGGREGATES = select(aggregates).order_by(aggregates.c.id)
_AGGREGATE = select(aggregates).where(aggregates.c.id == bindparam("of_id"))
_AGGREGATE_INSERT = insert(aggregates)
_AGGREGATE_UPDATE = update(aggregates).where(aggregates.c.id == bindparam("of_id"))
_AGGREGATE_DELETE = delete(aggregates).where(aggregates.c.id == bindparam("of_id"))
_WITH_HOSTS = select(aggregates).where(
    select(aggregate_hosts.c.host).where(aggregate_hosts.c.aggregate_id == aggregates.c.id).exists()
)
_AGGREGATES_OF = (
    select(aggregate_hosts.c.host, aggregates)
    .join(aggregates, aggregates.c.id == aggregate_hosts.c.aggregate_id)
    .where(aggregate_hosts.c.host.in_(bindparam("names", expanding=True)))
    .order_by(aggregates.c.id)
)
#: The metadata of the aggregates of the host ``of_name``.
METADATA_OF = (
    select(aggregates.c.metadata)
    .join(aggregate_hosts, aggregate_hosts.c.aggregate_id == aggregates.c.id)
    .where(aggregate_hosts.c.host == bindparam("of_name"))
    .order_by(aggregates.c.id)
)
_MEMBERS = select(aggregate_hosts).order_by(aggregate_hosts.c.host)
_MEMBER_INSERT = insert(aggregate_hosts)
_MEMBERSHIPS_DELETE = delete(aggregate_hosts).where(aggregate_hosts.c.host == bindparam("of_host"))
_MEMBER_DELETE = delete(aggregate_hosts).where(
    aggregate_hosts.c.aggregate_id == bindparam("of_id"), aggregate_hosts.c.host == bindparam("of_host")
)


def register(connection: Connection, report: HostReport, new_service_uuid: str, now: datetime) -> bool:
    """Inserts or updates the host with a heartbeat; True for a new host.

    Raises `Conflict` for another host's provider.
    """
    other = connection.execute(_BY_PROVIDER, {"of_provider": report.provider_uuid}).scalar()
    if other not in (None, report.name):
        raise Conflict(
            f"provider {report.provider_uuid} belongs to host {other}; "
            f"give {report.name} a provider of its own, or retire {other} first"
        )
    values = asdict(report)
    del values["name"]
    if connection.execute(_UPDATE.values(heartbeat_at=now, **values), {"of_name": report.name}).rowcount:
        return False
    values |= {"name": report.name, "service_uuid": new_service_uuid, "heartbeat_at": now}
    try:
        connection.execute(_INSERT, values | {"is_enabled": True, "forced_down": False})
    except IntegrityError as error:
        raise RetryableConflict(f"host {report.name} is registered by another request at this moment") from error
    return True


def record_heartbeats(connection: Connection, names: Sequence[str], moment: datetime) -> int:
    """Records heartbeats of existing hosts; returns their number."""
    return connection.execute(_BEAT.on(connection), {"ids": names, "moment": moment}).rowcount


def host(connection: Connection, name: str) -> Host | None:
    row = connection.execute(BY_NAME, {"of_name": name}).one_or_none()
    return None if row is None else host_of(row)


def hosts_by_name(connection: Connection, names: Collection[str]) -> list[Host]:
    """Those that exist."""
    return [host_of(row) for row in connection.execute(_BY_NAMES, {"names": list(names)})]


def lock_host(connection: Connection, name: str) -> Host | None:
    """The host, locked until the transaction ends."""
    row = connection.execute(BY_NAME.with_for_update(), {"of_name": name}).one_or_none()
    return None if row is None else host_of(row)


def keep_hosts(connection: Connection, provider_uuids: Collection[str]) -> dict[str, str | None]:
    """{root provider: None, or the host's name if it is a bare-metal node} for those whose hosts exist; these hosts
    cannot be deleted until the transaction ends.
    """
    rows = connection.execute(_BY_PROVIDERS, {"of_providers": sorted(provider_uuids)})
    return {row.provider_uuid: row.name if row.hypervisor_type.lower() == BARE_METAL else None for row in rows}


def lock_node(connection: Connection, name: str, server_id: str) -> bool:
    """Whether the bare-metal node has no server but `server_id`. Until the transaction ends, no other can get it."""
    lock_host(connection, name)
    return connection.execute(_OTHER_SERVER, {"of_host": name, "of_server": server_id}).first() is None


def delete_host(connection: Connection, name: str) -> None:
    """Also removes it from its aggregates."""
    connection.execute(_MEMBERSHIPS_DELETE, {"of_host": name})
    connection.execute(_DELETE, {"of_name": name})


def all_hosts(connection: Connection) -> list[Host]:
    return [host_of(row) for row in connection.execute(_ALL)]


def down_since(connection: Connection, moment: datetime) -> list[str]:
    """Names of hosts without a heartbeat since then, or forced down."""
    return list(connection.execute(_DOWN, {"moment": moment}).scalars())


def set_service(connection: Connection, name: str, **values: object) -> None:
    """`values`: `is_enabled`, `disabled_reason`, `forced_down`."""
    connection.execute(_UPDATE.values(**values), {"of_name": name})


def all_aggregates(connection: Connection) -> list[Aggregate]:
    members: dict[int, list[str]] = {}
    for row in connection.execute(_MEMBERS):
        members.setdefault(row.aggregate_id, []).append(row.host)
    return [_aggregate(row, members.get(row.id, [])) for row in connection.execute(_AGGREGATES)]


def lock_aggregate(connection: Connection, aggregate_id: int) -> Aggregate | None:
    row = connection.execute(_AGGREGATE.with_for_update(), {"of_id": aggregate_id}).one_or_none()
    if row is None:
        return None
    members = connection.execute(_MEMBERS.where(aggregate_hosts.c.aggregate_id == aggregate_id))
    return _aggregate(row, [member.host for member in members])


def insert_aggregate(connection: Connection, uuid: str, name: str, metadata: Mapping[str, str], now: datetime) -> int:
    """Returns the id of the new aggregate. Raises `Conflict` for a name that exists."""
    values = {"uuid": uuid, "name": name, "metadata": dict(metadata), "created_at": now}
    try:
        return inserted_id(connection.execute(_AGGREGATE_INSERT, values))
    except IntegrityError as error:
        raise Conflict(f"Aggregate {name} already exists.") from error


def update_aggregate(
    connection: Connection, aggregate_id: int, name: str, metadata: Mapping[str, str], now: datetime
) -> None:
    values = {"name": name, "metadata": dict(metadata), "updated_at": now}
    try:
        connection.execute(_AGGREGATE_UPDATE.values(**values), {"of_id": aggregate_id})
    except IntegrityError as error:
        raise Conflict(f"Aggregate {name} already exists.") from error


def delete_aggregate(connection: Connection, aggregate_id: int) -> None:
    connection.execute(_AGGREGATE_DELETE, {"of_id": aggregate_id})


def add_member(connection: Connection, aggregate_id: int, name: str) -> None:
    connection.execute(_MEMBER_INSERT, {"aggregate_id": aggregate_id, "host": name})


def remove_member(connection: Connection, aggregate_id: int, name: str) -> bool:
    return connection.execute(_MEMBER_DELETE, {"of_id": aggregate_id, "of_host": name}).rowcount > 0


def zones(connection: Connection) -> dict[str, str]:
    """{host: availability zone}, only for hosts in an aggregate with a zone."""
    return {name: one.zone for one in all_aggregates(connection) if one.zone for name in one.hosts}


def zones_of(connection: Connection, names: Collection[str]) -> dict[str, str]:
    """Same as `zones`, for these hosts."""
    rows = connection.execute(_AGGREGATES_OF, {"names": list(names)})
    return {row.host: zone for row in rows if (zone := _aggregate(row, []).zone)}


def has_zone(connection: Connection, zone: str) -> bool:
    """Whether an aggregate with this zone has a host. Reads aggregates only, however many hosts they have."""
    return any(_aggregate(row, []).zone == zone for row in connection.execute(_WITH_HOSTS))


def host_of_values(row: Sequence[object]) -> Host:
    """The host in a row of `BY_NAME`."""
    return host_of(SimpleNamespace(**{column.name: value for column, value in zip(hosts.c, row, strict=True)}))


def host_of(row: Any) -> Host:
    return Host(
        number=row.number,
        service_uuid=row.service_uuid,
        report=HostReport(
            row.name, row.provider_uuid, row.hypervisor_type, row.hypervisor_version, row.host_ip, row.vcpus,
            row.memory_mb, row.local_gb, row.devices, row.cpu_info, tuple(row.capabilities or ()),
        ),
        is_enabled=row.is_enabled,
        disabled_reason=row.disabled_reason,
        forced_down=row.forced_down,
        heartbeat_at=row.heartbeat_at,
    )  # fmt: skip


def _aggregate(row: ResultRow, members: list[str]) -> Aggregate:
    return Aggregate(row.id, row.uuid, row.name, row.metadata, tuple(members), row.created_at, row.updated_at)
