"""SQL of the accelerator service, statements only: transactions are the service's."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, bindparam, delete, insert, select, update

from moorage.accelerator import tables as t
from moorage.accelerator.records import DeployableRecord, DeviceRecord, ProfileRecord, RequestRecord

R = TypeVar("R", DeviceRecord, DeployableRecord, ProfileRecord, RequestRecord)

_DEVICES = select(t.devices).order_by(t.devices.c.id)
_DEPLOYABLES = select(t.deployables).order_by(t.deployables.c.id)
_PROFILES = select(t.device_profiles).order_by(t.device_profiles.c.id)
_REQUESTS = select(t.accelerator_requests).order_by(t.accelerator_requests.c.id)
_DEPLOYABLES_OF_HOST = (
    select(t.deployables)
    .join(t.devices, t.devices.c.id == t.deployables.c.device_id)
    .where(t.devices.c.hostname == bindparam("host"))
    .order_by(t.deployables.c.id)
)


def devices(connection: Connection, **equal: str | None) -> list[DeviceRecord]:
    """All whose columns have the given values; None does not filter. So do the three below."""
    return _rows(connection, DeviceRecord, _filtered(_DEVICES, t.devices, equal))


def deployables(connection: Connection, **equal: str | None) -> list[DeployableRecord]:
    return _rows(connection, DeployableRecord, _filtered(_DEPLOYABLES, t.deployables, equal))


def deployables_of(connection: Connection, host: str) -> list[DeployableRecord]:
    return _rows(connection, DeployableRecord, _DEPLOYABLES_OF_HOST, {"host": host})


def requests(connection: Connection, **equal: str | None) -> list[RequestRecord]:
    return _rows(connection, RequestRecord, _filtered(_REQUESTS, t.accelerator_requests, equal))


def profiles(connection: Connection, names: Sequence[str] = ()) -> list[ProfileRecord]:
    query = _PROFILES.where(t.device_profiles.c.name.in_(names)) if names else _PROFILES
    return _rows(connection, ProfileRecord, query)


def profile(connection: Connection, **equal: str) -> ProfileRecord | None:
    found = _rows(connection, ProfileRecord, _filtered(_PROFILES, t.device_profiles, equal))
    return found[0] if found else None


def add(connection: Connection, table: Table, values: Mapping[str, Any], now: datetime) -> None:
    connection.execute(insert(table).values(created_at=now, **values))


def change(connection: Connection, table: Table, row_id: int, values: Mapping[str, Any], now: datetime) -> None:
    connection.execute(update(table).where(table.c.id == row_id).values(updated_at=now, **values))


def remove(connection: Connection, table: Table, row_ids: Iterable[int]) -> None:
    wanted = list(row_ids)
    if wanted:
        connection.execute(delete(table).where(table.c.id.in_(wanted)))


def _filtered(query: Any, table: Table, equal: Mapping[str, str | None]) -> Any:
    for name, value in equal.items():
        if value is not None:
            query = query.where(table.c[name] == value)
    return query


def _rows(connection: Connection, kind: type[R], query: Any, values: Mapping[str, Any] | None = None) -> list[R]:
    return [kind(**row) for row in connection.execute(query, dict(values or {})).mappings()]
