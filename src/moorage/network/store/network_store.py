"""Networks, subnets, ports and addresses in SQL. All functions run in the caller's transaction.

Call `lock_projects` before you insert ports: otherwise two transactions could both pass the check of the quota. Then
call `lock_networks` before you choose addresses of a network, or delete a network or subnet: otherwise two transactions
could choose the same free address, and one of them would fail.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from moorage.db.engine import in_list
from moorage.db.types import ResultRow
from moorage.db.upserts import insert_unless_exists, take_on_all_nodes
from moorage.network.addressing import AddressPool
from moorage.network.model import Network, NetworkKind, Port, PortAddress, Segment, Subnet
from moorage.network.store.tables import addresses, networks, ports, quota_locks, subnets

_LOCK_PROJECT = (
    select(quota_locks.c.project_id).where(quota_locks.c.project_id == bindparam("of_project")).with_for_update()
)


def _names(table: Table) -> list[str]:
    """The columns that a program sets."""
    return [column.name for column in table.c if column.name != "number"]


# --------------------------------------------------------------------------------------------------------- networks


def insert_network(connection: Connection, network: Network) -> None:
    connection.execute(insert(networks).values(_network_row(network)))


def update_network(connection: Connection, network_id: str, now: datetime, **values: object) -> None:
    connection.execute(update(networks).where(networks.c.id == network_id).values(updated_at=now, **values))


def delete_network(connection: Connection, network_id: str) -> None:
    connection.execute(delete(networks).where(networks.c.id == network_id))


def network(connection: Connection, network_id: str) -> Network | None:
    row = connection.execute(select(networks).where(networks.c.id == network_id)).one_or_none()
    return None if row is None else _network(row)


def find_networks(connection: Connection, project_id: str | None, ids: Collection[str] | None = None) -> list[Network]:
    """Networks that the project may use; None: all. `ids` None: any."""
    conditions: list[ColumnElement[bool]] = []
    if project_id is not None:
        conditions.append(or_(networks.c.is_shared, networks.c.project_id == project_id))
    if ids is not None:
        conditions.append(in_list(connection, networks.c.id, ids))
    rows = connection.execute(select(networks).where(*conditions).order_by(networks.c.number))
    return [_network(row) for row in rows]


def lock_networks(connection: Connection, ids: Collection[str]) -> dict[str, Network]:
    """{id: network}, locked until the transaction ends, always in the same order."""
    statement = select(networks).where(in_list(connection, networks.c.id, ids))
    rows = connection.execute(statement.order_by(networks.c.number).with_for_update())
    return {row.id: _network(row) for row in rows}


def _network_row(network: Network) -> dict[str, object]:
    return {
        "id": network.id,
        "name": network.name,
        "project_id": network.project_id,
        "is_shared": network.is_shared,
        "is_configured": network.is_configured,
        "description": network.description,
        "created_at": network.created_at,
        "updated_at": network.updated_at,
        **segment_values(network.segment),
    }


def segment_values(segment: Segment) -> dict[str, object]:
    return {
        "kind": segment.kind,
        "physical_network": segment.physical_network,
        "segmentation_id": segment.segmentation_id or 0,
    }


def _network(row: ResultRow) -> Network:
    segment = Segment(NetworkKind(row.kind), row.physical_network, row.segmentation_id or None)
    return Network(
        row.id, row.name, row.project_id, segment, row.is_shared, row.is_configured,
        row.description, row.created_at, row.updated_at,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- subnets


def insert_subnet(connection: Connection, subnet: Subnet) -> None:
    values = {name: getattr(subnet, name) for name in _names(subnets)}
    connection.execute(insert(subnets).values(values | {"dns": list(subnet.dns), "pools": pools_value(subnet.pools)}))


def pools_value(pools: Iterable[AddressPool]) -> list[list[str]]:
    return [[pool.first, pool.last] for pool in pools]


def update_subnet(connection: Connection, subnet_id: str, now: datetime, **values: object) -> None:
    connection.execute(update(subnets).where(subnets.c.id == subnet_id).values(updated_at=now, **values))


def delete_subnet(connection: Connection, subnet_id: str) -> None:
    connection.execute(delete(subnets).where(subnets.c.id == subnet_id))


def subnets_of(connection: Connection, network_ids: Collection[str]) -> dict[str, list[Subnet]]:
    """{network id: its subnets, oldest first}"""
    found: dict[str, list[Subnet]] = defaultdict(list)
    statement = select(subnets).where(in_list(connection, subnets.c.network_id, network_ids))
    for row in connection.execute(statement.order_by(subnets.c.number)):
        found[row.network_id].append(_subnet(row))
    return found


def subnet(connection: Connection, subnet_id: str) -> Subnet | None:
    row = connection.execute(select(subnets).where(subnets.c.id == subnet_id)).one_or_none()
    return None if row is None else _subnet(row)


def _subnet(row: ResultRow) -> Subnet:
    return Subnet(
        row.id, row.network_id, row.project_id, row.name, row.cidr, row.gateway, tuple(row.dns),
        tuple(AddressPool(*each) for each in row.pools), row.created_at, row.updated_at,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ ports and addresses

#: Columns by which ports are found, under the names that the API has for them.
PORT_COLUMNS = {
    "id": ports.c.id,
    "network_id": ports.c.network_id,
    "project_id": ports.c.project_id,
    "tenant_id": ports.c.project_id,
    "device_id": ports.c.device_id,
    "mac_address": ports.c.mac,
}


def insert_ports(connection: Connection, new: Sequence[Port]) -> None:
    rows = [{name: getattr(port, name) for name in _names(ports)} for port in new]
    connection.execute(insert(ports), rows)
    _insert_addresses(connection, [(port, one) for port in new for one in port.addresses])


def _insert_addresses(connection: Connection, given: Sequence[tuple[Port, PortAddress]]) -> None:
    rows = [
        {
            "network_id": port.network_id,
            "address": one.address,
            "subnet_id": one.subnet_id,
            "port_id": port.id,
            "is_learned": one.is_learned,
        }
        for port, one in given
    ]
    if rows:
        connection.execute(insert(addresses), rows)


def replace_learned_addresses(connection: Connection, port: Port, learned: Sequence[PortAddress]) -> None:
    connection.execute(delete(addresses).where(addresses.c.port_id == port.id, addresses.c.is_learned))
    _insert_addresses(connection, [(port, one) for one in learned])


def update_ports(connection: Connection, ids: Collection[str], now: datetime, **values: object) -> None:
    connection.execute(update(ports).where(in_list(connection, ports.c.id, ids)).values(updated_at=now, **values))


def delete_ports(connection: Connection, ids: Collection[str]) -> None:
    connection.execute(delete(ports).where(in_list(connection, ports.c.id, ids)))


def find_ports(
    connection: Connection, project_id: str | None, filters: Mapping[str, Collection[str]] | None = None
) -> list[Port]:
    """The project's ports, or all with None, oldest first. `filters`: {key of `PORT_COLUMNS`: accepted values}."""
    conditions = [in_list(connection, PORT_COLUMNS[name], [*values]) for name, values in (filters or {}).items()]
    if project_id is not None:
        conditions.append(ports.c.project_id == project_id)
    rows = connection.execute(select(ports).where(*conditions).order_by(ports.c.number)).all()
    given: dict[str, list[PortAddress]] = defaultdict(list)
    for row in connection.execute(
        select(addresses.c.port_id, addresses.c.subnet_id, addresses.c.address, addresses.c.is_learned)
        .join(ports, ports.c.id == addresses.c.port_id)
        .where(*conditions)
        .order_by(addresses.c.number)
    ):
        given[row.port_id].append(PortAddress(row.subnet_id, row.address, row.is_learned))
    return [_port(row, given[row.id]) for row in rows]


def lock_ports(connection: Connection, ids: Collection[str]) -> dict[str, Port]:
    """{id: port}, locked until the transaction ends."""
    listed = in_list(connection, ports.c.id, ids)
    connection.execute(select(ports.c.id).where(listed).order_by(ports.c.number).with_for_update()).all()
    return {port.id: port for port in find_ports(connection, None, {"id": ids})}


def lock_projects(connection: Connection, project_ids: Collection[str]) -> None:
    """Locks the projects until the transaction ends, always in the same order. Lock them before networks and ports."""
    for project_id in sorted(project_ids):
        values = {"of_project": project_id}
        take_on_all_nodes(connection, quota_locks, "project_id", project_id)
        if connection.execute(_LOCK_PROJECT, values).first() is None:
            connection.execute(
                insert_unless_exists(quota_locks, "project_id", connection.dialect), {"project_id": project_id}
            )
            connection.execute(_LOCK_PROJECT, values)


def count_ports(connection: Connection, project_id: str) -> int:
    statement = select(func.count()).select_from(ports).where(ports.c.project_id == project_id)
    return int(connection.execute(statement).scalar_one())


def has_ports(connection: Connection, network_id: str) -> bool:
    return connection.execute(select(ports.c.id).where(ports.c.network_id == network_id).limit(1)).first() is not None


def has_addresses(connection: Connection, subnet_id: str) -> bool:
    statement = select(addresses.c.number).where(addresses.c.subnet_id == subnet_id).limit(1)
    return connection.execute(statement).first() is not None


def used_addresses(connection: Connection, network_id: str) -> set[str]:
    return set(connection.execute(select(addresses.c.address).where(addresses.c.network_id == network_id)).scalars())


def used_macs(connection: Connection, macs: Collection[str]) -> set[str]:
    """The addresses of `macs` that ports already have."""
    return set(connection.execute(select(ports.c.mac).where(in_list(connection, ports.c.mac, macs))).scalars())


def _port(row: ResultRow, given: Sequence[PortAddress]) -> Port:
    return Port(
        row.id, row.network_id, row.project_id, row.name, row.description, row.mac,
        row.device_id, row.host, row.is_for_server, row.created_at, row.updated_at, tuple(given),
    )  # fmt: skip
