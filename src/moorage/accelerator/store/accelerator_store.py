"""SQL statements of the accelerator service. The service begins and ends the transactions."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TypeVar

from sqlalchemy import Connection, Table, bindparam, delete, func, insert, select, update

from moorage.accelerator.model.binding import RequestState
from moorage.accelerator.model.rows import (
    AttributeRecord,
    DeployableRecord,
    DeployableUsage,
    DeviceRecord,
    ProfileRecord,
    RequestRecord,
)
from moorage.accelerator.store import tables as t
from moorage.db.types import RowSelect

R = TypeVar("R", AttributeRecord, DeviceRecord, DeployableRecord, DeployableUsage, ProfileRecord, RequestRecord)

#: SELECT of all columns, oldest row first, by table.
_ALL = {
    table: select(table).order_by(table.c.id)
    for table in (t.devices, t.deployables, t.device_profiles, t.accelerator_requests, t.attributes)
}
#: The oldest profile, locked; see `lock_request_creation`.
_OLDEST_PROFILE = select(t.device_profiles.c.id).order_by(t.device_profiles.c.id).limit(1).with_for_update()
_COUNT_REQUESTS = (
    select(func.count())
    .select_from(t.accelerator_requests)
    .where(
        t.accelerator_requests.c.project_id == bindparam("of_project"),
        t.accelerator_requests.c.device_profile_name.is_not(None),
    )
)
_INSERT = {table: insert(table) for table in _ALL}
_UPDATE = {table: update(table).where(table.c.id == bindparam("of_id")) for table in _ALL}
_DELETE = {table: delete(table).where(table.c.id.in_(bindparam("of_ids", expanding=True))) for table in _ALL}
_DEPLOYABLES_OF_HOST = (
    select(t.deployables)
    .join(t.devices, t.devices.c.id == t.deployables.c.device_id)
    .where(t.devices.c.hostname == bindparam("host"))
    .order_by(t.deployables.c.id)
)
_TAKEN = (
    select(func.count())
    .select_from(t.accelerator_requests)
    .where(
        t.accelerator_requests.c.hostname == t.devices.c.hostname,
        t.accelerator_requests.c.device_rp_uuid == t.deployables.c.rp_uuid,
        t.accelerator_requests.c.state.in_(bindparam("having", expanding=True)),
    )
    .scalar_subquery()
)
_USABLE_DEPLOYABLES = (
    select(
        t.deployables.c.rp_uuid, t.deployables.c.name, t.deployables.c.num_accelerators, t.deployables.c.handles,
        _TAKEN.label("taken"),
        t.devices.c.uuid.label("device_uuid"), t.devices.c.status, t.devices.c.health, t.devices.c.vendor_board_info,
    )
    .join(t.devices, t.devices.c.id == t.deployables.c.device_id)
    .where(
        t.devices.c.hostname == bindparam("host"),
        t.deployables.c.rp_uuid.in_(bindparam("rp_uuids", expanding=True)),
    )
)  # fmt: skip
_SET_HANDLES = update(t.deployables).where(
    t.deployables.c.name == bindparam("of_name"),
    t.deployables.c.device_id.in_(select(t.devices.c.id).where(t.devices.c.hostname == bindparam("of_host"))),
)
_REQUESTS_BY_UUID = _ALL[t.accelerator_requests].where(
    t.accelerator_requests.c.uuid.in_(bindparam("uuids", expanding=True))
)
_VISIBLE_REQUESTS = (
    select(t.accelerator_requests)
    .where(t.accelerator_requests.c.state != RequestState.DELETING)
    .order_by(t.accelerator_requests.c.id.desc())
    .limit(bindparam("at_most"))
)
_PROFILES_BY_NAME = _ALL[t.device_profiles].where(t.device_profiles.c.name.in_(bindparam("names", expanding=True)))
_ONE_REQUEST_OF_PROFILE = (
    select(t.accelerator_requests.c.uuid)
    .where(
        t.accelerator_requests.c.device_profile_name == bindparam("profile"),
        t.accelerator_requests.c.state != RequestState.DELETING,
    )
    .limit(1)
)


def devices(connection: Connection, **equal: str | None) -> list[DeviceRecord]:
    """Rows whose columns have the values in `equal`; None does not filter.

    The other functions with `equal` do the same.
    """
    return _select_equal(connection, DeviceRecord, t.devices, equal)


def deployables(connection: Connection, **equal: str | None) -> list[DeployableRecord]:
    return _select_equal(connection, DeployableRecord, t.deployables, equal)


def deployables_of(connection: Connection, host: str) -> list[DeployableRecord]:
    return _rows(connection, DeployableRecord, _DEPLOYABLES_OF_HOST, {"host": host})


def usable_deployables(
    connection: Connection, host: str, providers: Iterable[str], having: Iterable[str]
) -> list[DeployableUsage]:
    """The deployables of `providers` on `host`. Requests in one of the states `having` count as taken accelerators."""
    values = {"host": host, "rp_uuids": sorted(set(providers)), "having": sorted(having)}
    return _rows(connection, DeployableUsage, _USABLE_DEPLOYABLES, values)


def set_handles(connection: Connection, host: str, name: str, handles: Mapping[str, str], now: datetime) -> None:
    """Set the handle states of the deployable, if the host has it."""
    values = {"of_host": host, "of_name": name, "handles": dict(handles), "updated_at": now}
    connection.execute(_SET_HANDLES, values)


def requests(connection: Connection, **equal: str | None) -> list[RequestRecord]:
    return _select_equal(connection, RequestRecord, t.accelerator_requests, equal)


def page_of_requests(
    connection: Connection, project_id: str | None, before: int | None, limit: int
) -> list[RequestRecord]:
    """Requests with ids below `before`, newest first, of one project or of all; without those being deleted."""
    values = {"of_project": project_id, "of_before": before}
    given = {name: value for name, value in values.items() if value is not None}
    return _rows(connection, RequestRecord, _page_of_requests(tuple(given)), {**given, "at_most": limit})


@cache
def _page_of_requests(names: tuple[str, ...]) -> RowSelect:
    query, columns = _VISIBLE_REQUESTS, t.accelerator_requests.c
    if "of_project" in names:
        query = query.where(columns.project_id == bindparam("of_project"))
    if "of_before" in names:
        query = query.where(columns.id < bindparam("of_before"))
    return query


def requests_by_uuid(connection: Connection, uuids: Sequence[str]) -> list[RequestRecord]:
    """The existing requests, in the order of `uuids`."""
    found = {row.uuid: row for row in _rows(connection, RequestRecord, _REQUESTS_BY_UUID, {"uuids": list(uuids)})}
    return [found[uuid] for uuid in dict.fromkeys(uuids) if uuid in found]


def find_request_of_profile(connection: Connection, profile: str) -> str | None:
    """The uuid of a request created from the profile, if there is one besides those that are being deleted."""
    uuid: str | None = connection.execute(_ONE_REQUEST_OF_PROFILE, {"profile": profile}).scalar()
    return uuid


def attributes(connection: Connection, **equal: str | None) -> list[AttributeRecord]:
    return _select_equal(connection, AttributeRecord, t.attributes, equal)


def profiles(connection: Connection, names: Sequence[str] = ()) -> list[ProfileRecord]:
    if not names:
        return _rows(connection, ProfileRecord, _ALL[t.device_profiles])
    return _rows(connection, ProfileRecord, _PROFILES_BY_NAME, {"names": list(names)})


def profile(connection: Connection, **equal: str) -> ProfileRecord | None:
    found = _select_equal(connection, ProfileRecord, t.device_profiles, equal)
    return found[0] if found else None


def lock_request_creation(connection: Connection) -> None:
    """Serializes the creation of requests until this transaction ends, so that a project's requests can be counted
    first.

    Locks the oldest profile, because no request can be created without a profile. Must be the first statement of the
    transaction; otherwise MariaDB's snapshot is older than the lock.
    """
    connection.execute(_OLDEST_PROFILE)


def count_requests(connection: Connection, project_id: str) -> int:
    """Counts the project's requests, without those reported by hosts."""
    return int(connection.execute(_COUNT_REQUESTS, {"of_project": project_id}).scalar() or 0)


def insert_row(connection: Connection, table: Table, values: Mapping[str, object], now: datetime) -> None:
    connection.execute(_INSERT[table], {"created_at": now, **values})


def update_row(connection: Connection, table: Table, row_id: int, values: Mapping[str, object], now: datetime) -> None:
    connection.execute(_UPDATE[table], {"of_id": row_id, "updated_at": now, **values})


def delete_rows(connection: Connection, table: Table, row_ids: Iterable[int]) -> None:
    wanted = list(row_ids)
    if wanted:
        connection.execute(_DELETE[table], {"of_ids": wanted})


def _select_equal(connection: Connection, kind: type[R], table: Table, equal: Mapping[str, str | None]) -> list[R]:
    values = {name: value for name, value in equal.items() if value is not None}
    return _rows(connection, kind, _where(table, tuple(values)), {f"of_{name}": values[name] for name in values})


@cache
def _where(table: Table, names: tuple[str, ...]) -> RowSelect:
    """Cached: SQLAlchemy takes longer to build a statement than to send it."""
    query = _ALL[table]
    for name in names:
        query = query.where(table.c[name] == bindparam(f"of_{name}"))
    return query


def _rows(
    connection: Connection, kind: type[R], query: RowSelect, values: Mapping[str, object] | None = None
) -> list[R]:
    return [kind(**row) for row in connection.execute(query, dict(values or {})).mappings()]
