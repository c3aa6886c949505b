"""SQL of the properties of hosts: their names, and the value on each host, which is an extra capability."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, and_, delete, insert, select, update

from moorage.reservation.store.tables import computehost_extra_capabilities, resource_properties

HOST_TYPE = "physical:host"

_EXTRA = select(
    computehost_extra_capabilities.c.computehost_id,
    computehost_extra_capabilities.c.capability_value,
    resource_properties.c.property_name,
).join(resource_properties, resource_properties.c.id == computehost_extra_capabilities.c.property_id)
_PROPERTIES = select(resource_properties).order_by(
    resource_properties.c.created_at, resource_properties.c.property_name
)


def extra_of(connection: Connection, host_ids: Collection[int] | None = None) -> dict[int, dict[str, str]]:
    """{host id: {name: value}} of all hosts, or of these; hosts without values have no entry."""
    statement = _EXTRA
    if host_ids is not None:
        statement = statement.where(computehost_extra_capabilities.c.computehost_id.in_(list(host_ids)))
    found: dict[int, dict[str, str]] = defaultdict(dict)
    for row in connection.execute(
        statement.order_by(resource_properties.c.created_at, resource_properties.c.property_name)
    ):
        found[row.computehost_id][row.property_name] = row.capability_value
    return found


def set_extra(
    connection: Connection, host_id: int, values: Mapping[str, str | None], ids: Iterable[str], now: datetime
) -> None:
    """Sets extra capabilities; None removes one. `ids`: two new ids for each value. Keeps other capabilities."""
    fresh = iter(ids)
    for name, value in values.items():
        property_id = _property_id(connection, name, next(fresh), now)
        mine = and_(
            computehost_extra_capabilities.c.computehost_id == host_id,
            computehost_extra_capabilities.c.property_id == property_id,
        )
        connection.execute(delete(computehost_extra_capabilities).where(mine))
        capability_id = next(fresh)
        if value is not None:
            connection.execute(
                insert(computehost_extra_capabilities),
                {
                    "id": capability_id,
                    "computehost_id": host_id,
                    "property_id": property_id,
                    "capability_value": value,
                    "created_at": now,
                },
            )


def remove_extra(connection: Connection, host_id: int) -> None:
    connection.execute(
        delete(computehost_extra_capabilities).where(computehost_extra_capabilities.c.computehost_id == host_id)
    )


def insert_property(connection: Connection, property_id: str, name: str, private: bool, now: datetime) -> None:
    values = {"id": property_id, "resource_type": HOST_TYPE, "property_name": name, "private": private}
    connection.execute(insert(resource_properties), values | {"created_at": now})


def properties(connection: Connection) -> list[Row[Any]]:
    """Rows of resource_properties, oldest first."""
    return list(connection.execute(_PROPERTIES))


def property_values(connection: Connection) -> dict[str, list[str]]:
    """{property name: its distinct values, in the order of the host ids}"""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for row in connection.execute(_EXTRA.order_by(computehost_extra_capabilities.c.computehost_id)):
        found[row.property_name][row.capability_value] = None
    return {name: list(values) for name, values in found.items()}


def set_private(connection: Connection, name: str, private: bool, now: datetime) -> bool:
    """False if there is no such property."""
    changed = connection.execute(
        update(resource_properties)
        .where(resource_properties.c.property_name == name, resource_properties.c.resource_type == HOST_TYPE)
        .values(private=private, updated_at=now)
    )
    return changed.rowcount == 1


def _property_id(connection: Connection, name: str, fresh_id: str, now: datetime) -> str:
    statement = select(resource_properties.c.id).where(
        resource_properties.c.property_name == name, resource_properties.c.resource_type == HOST_TYPE
    )
    found = connection.execute(statement).scalar_one_or_none()
    if found is not None:
        return str(found)
    insert_property(connection, fresh_id, name, False, now)
    return fresh_id
