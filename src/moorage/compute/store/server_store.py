"""Servers, their consoles and jobs in SQL. All functions run in the caller's transaction.

To change the state of a server: `lock_server`, decide, `update_server`. The row lock keeps the decision valid until the
commit, on SQLite as well, where only one transaction writes at a time.

Not here: flavors and key pairs (`flavor_store`, `keypair_store`), hosts and aggregates (`host_store`), actions
(`action_store`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Update,
    and_,
    bindparam,
    false,
    insert,
    or_,
    select,
    update,
)

from moorage.compute.model.servers import (
    MAX_CONSOLE_BYTES,
    Fault,
    Flavor,
    Locker,
    NetworkInterface,
    Placed,
    Server,
    TaskState,
    VmState,
)
from moorage.compute.store.tables import consoles, jobs, servers
from moorage.db.engine import ListStatement, keys_by_value
from moorage.db.types import ResultRow
from moorage.db.upserts import insert_or_update
from moorage.jobs.contract import DEVICE
from moorage.jobs.store import JobStore

#: A job is given up after this many claims, so that a job that kills its host does not do so for ever.
MAX_HOST_ATTEMPTS = 10

#: The administrator's password, the secret of a console, and the owner's user data, which often contain one.
_SECRETS = (("password",), ("secret",), ("server", "guest", "user_data"))

HOST_JOBS = JobStore(jobs, max_attempts=MAX_HOST_ATTEMPTS, secrets=_SECRETS)
#: Jobs of `build_worker` are never given up by the store: an allocation must be released, however long it takes.
BUILD_JOBS = JobStore(jobs)

#: {sort key of the API: column}
SORT_COLUMNS = {
    "created_at": servers.c.created_at,
    "updated_at": servers.c.updated_at,
    "display_name": servers.c.name,
    "name": servers.c.name,
    "host": servers.c.host,
    "vm_state": servers.c.vm_state,
    "task_state": servers.c.task_state,
    "uuid": servers.c.id,
    "project_id": servers.c.project_id,
    "user_id": servers.c.user_id,
    "launched_at": servers.c.launched_at,
    "instance_type_id": servers.c.flavor_id,
}

#: The amounts counted against limits are not part of a `Server`; see `quota_store`.
_SERVER = [column for column in servers.c if column.name not in ("counted", "is_counted")]

_INSERT = insert(servers)
#: The server ``of_id``, for `server_of_values`.
BY_ID = select(*_SERVER).where(servers.c.id == bindparam("of_id"))
_BY_IDS = ListStatement(servers.c.id, select(*_SERVER).where)
_LOCK = BY_ID.with_for_update()
_LOCK_ALL = ListStatement(
    servers.c.id, lambda listed: select(*_SERVER).where(listed).order_by(servers.c.id).with_for_update()
)
_UPDATE = update(servers).where(servers.c.id == bindparam("of_id"))
_ASSIGN = _UPDATE.values(
    host=bindparam("at"),
    task_state=bindparam("task"),
    placed=bindparam("what", type_=servers.c.placed.type),
    updated_at=bindparam("now", type_=servers.c.updated_at.type),
)
_PRESENT = servers.c.vm_state != VmState.DELETED
_HAS_INTERFACES = select(servers.c.id).where(_PRESENT, servers.c.interfaces.is_not(None)).limit(1)
_ATTACHED = select(servers.c.id, servers.c.interfaces).where(
    _PRESENT, servers.c.interfaces.is_not(None), servers.c.host.is_not(None)
)
_ON_HOSTS = select(servers.c.host, servers.c.id, servers.c.name, servers.c.flavor).where(
    _PRESENT, servers.c.host.is_not(None)
)
_HOSTS_OF = select(servers.c.host).where(
    servers.c.id.in_(bindparam("ids", expanding=True)),
    servers.c.project_id == bindparam("of_project"),
    _PRESENT,
    servers.c.host.is_not(None),
)
_RUNNING_IN = select(*_SERVER).where(
    servers.c.launched_at < bindparam("until", type_=servers.c.launched_at.type),
    or_(
        servers.c.deleted_at.is_(None),
        servers.c.deleted_at > bindparam("since", type_=servers.c.deleted_at.type),
    ),
)
_PARKED = select(servers.c.id).where(
    servers.c.vm_state == bindparam("in_state"),
    servers.c.task_state.is_(None),
    servers.c.parked_at <= bindparam("until", type_=servers.c.parked_at.type),
)
_CONSOLE = select(consoles.c.text).where(consoles.c.server_id == bindparam("of_id"))


@dataclass(frozen=True)
class ServerQuery:
    """The conditions of a server list that SQL evaluates; None means any."""

    project_id: str | None = None
    user_id: str | None = None
    host: str | None = None
    flavor_id: str | None = None
    image_id: str | None = None
    uuids: Sequence[str] | None = None
    vm_states: Sequence[VmState] | None = None
    deleted: bool = False
    softly_deleted: bool = False  #: include soft-deleted servers
    changed_since: datetime | None = None
    changed_before: datetime | None = None
    sort: Sequence[tuple[str, bool]] = ()  #: (key of SORT_COLUMNS, descending?)


def insert_servers(
    connection: Connection, new: Sequence[Server], counted: Mapping[str, Mapping[str, int]] = MappingProxyType({})
) -> None:
    """The database assigns `server.number`. `counted`: {server id: its amounts}, for servers that the caller has added
    to their project's usage (`quota_store`).
    """
    connection.execute(_INSERT, [_row(server, counted.get(server.id)) for server in new])


def _row(server: Server, counted: Mapping[str, int] | None) -> dict[str, object]:
    values = dict(vars(server))
    del values["number"]
    values |= {"flavor_id": server.flavor.id, "flavor": vars(server.flavor)}
    values |= {"tags": list(server.tags), "devices": list(server.devices), "fault": None, "placed": None}
    values["interfaces"] = _interface_documents(server.interfaces)
    return values | {"counted": counted, "is_counted": counted is not None}


def server(connection: Connection, server_id: str) -> Server | None:
    row = connection.execute(BY_ID, {"of_id": server_id}).one_or_none()
    return None if row is None else _server(row)


def device_ports(connection: Connection) -> dict[str, list[str]]:
    """{server id: ids of its ports of the kind `DEVICE`}, of servers on hosts."""
    found: dict[str, list[str]] = {}
    for row in connection.execute(_ATTACHED):
        for interface in row.interfaces:
            if interface.get("kind") == DEVICE:
                found.setdefault(row.id, []).append(interface["port_id"])
    return found


def has_interfaces(connection: Connection) -> bool:
    """Whether any server has a network interface. Reads the whole table if none has."""
    return connection.execute(_HAS_INTERFACES).first() is not None


def servers_by_id(connection: Connection, ids: Sequence[str]) -> dict[str, Server]:
    """{id: server} for existing servers."""
    return {row.id: _server(row) for row in connection.execute(_BY_IDS.on(connection), {"ids": list(ids)})}


def hosts_of_servers(connection: Connection, ids: Collection[str], project_id: str) -> set[str]:
    """Hosts of those servers that exist, have a host, and belong to the project."""
    return set(connection.execute(_HOSTS_OF, {"ids": list(ids), "of_project": project_id}).scalars())


def lock_server(connection: Connection, server_id: str) -> Server | None:
    """The server, locked until the transaction ends."""
    row = connection.execute(_LOCK, {"of_id": server_id}).one_or_none()
    return None if row is None else _server(row)


def lock_servers(connection: Connection, ids: Collection[str]) -> dict[str, Server]:
    """Same as `lock_server` for several servers, as {id: server}. Locks them always in the same order."""
    return {row.id: _server(row) for row in connection.execute(_LOCK_ALL.on(connection), {"ids": list(ids)})}


def assign_servers(
    connection: Connection, places: Mapping[str, tuple[str, Placed]], task_state: TaskState | None, now: datetime
) -> None:
    """{server id: (host, claimed candidate)} for servers that the caller has locked."""
    values = [
        {"of_id": server_id, "at": host, "task": task_state, "what": _document(placed), "now": now}
        for server_id, (host, placed) in places.items()
    ]
    connection.execute(_ASSIGN, values)


def update_server(connection: Connection, server_id: str, now: datetime, **values: object) -> None:
    """`values` by column name; a `Fault`, a `Placed` and `interfaces` are stored as documents."""
    update_servers(connection, {server_id: values}, now)


def update_servers(connection: Connection, changes: Mapping[str, dict[str, object]], now: datetime) -> None:
    """`changes`: {server id: values, as in `update_server`}. Servers with equal values share a statement."""
    for values, ids in keys_by_value(changes.items()):
        new = {f"new_{name}": _stored(name, value) for name, value in values.items()}
        statement = _update_of(tuple(values), _counting_after(values))
        connection.execute(statement.on(connection), {"ids": ids, "now": now, **new})


class _Counting(Enum):
    """What a change of a server does to its mark `is_counted`."""

    KEEPS = auto()  #: the change does not affect what the server counts (`quota_service.server_amounts`)
    CLEARS = auto()
    CLEARS_IF_OFFLOADED = auto()


def _counting_after(values: Mapping[str, object]) -> _Counting:
    if "flavor" in values or values.get("vm_state") in (VmState.DELETED, VmState.SHELVED_OFFLOADED):
        return _Counting.CLEARS
    if "vm_state" in values or "task_state" in values:
        return _Counting.CLEARS_IF_OFFLOADED
    return _Counting.KEEPS


@cache
def _update_of(names: tuple[str, ...], counting: _Counting) -> ListStatement[Update]:
    """Sets the columns `names` of the servers ``ids`` to the values ``new_<name>``.

    A statement that is made for each call costs SQLAlchemy several times as much as its execution.
    """
    mark: dict[_Counting, ColumnElement[bool]] = {
        _Counting.CLEARS: false(),
        _Counting.CLEARS_IF_OFFLOADED: and_(servers.c.is_counted, servers.c.vm_state != VmState.SHELVED_OFFLOADED),
    }
    # MariaDB sets columns in order, and the mark depends on the state before the change.
    changed = update(servers).ordered_values(
        *([(servers.c.is_counted, mark[counting])] if counting in mark else []),
        (servers.c.updated_at, bindparam("now", type_=servers.c.updated_at.type)),
        *((servers.c[name], bindparam(f"new_{name}", type_=servers.c[name].type)) for name in names),
    )
    return ListStatement(servers.c.id, changed.where)


def find_servers(connection: Connection, query: ServerQuery) -> Iterator[Server]:
    """Newest first unless `query.sort` says otherwise."""
    conditions = [
        column == value
        for column, value in (
            (servers.c.project_id, query.project_id),
            (servers.c.user_id, query.user_id),
            (servers.c.host, query.host),
            (servers.c.flavor_id, query.flavor_id),
            (servers.c.image_id, query.image_id),
        )
        if value is not None
    ]
    if query.uuids is not None:
        conditions.append(servers.c.id.in_(query.uuids))
    if query.vm_states is not None:
        conditions.append(servers.c.vm_state.in_(query.vm_states))
    if query.changed_since is not None:
        conditions.append(servers.c.updated_at >= query.changed_since)
    if query.changed_before is not None:
        conditions.append(servers.c.updated_at <= query.changed_before)
    if not (query.softly_deleted or query.deleted):
        conditions.append(servers.c.vm_state != VmState.SOFT_DELETED)
    # A query for changes includes deletions.
    if query.deleted:
        conditions.append(servers.c.vm_state == VmState.DELETED)
    elif query.changed_since is None and query.changed_before is None:
        conditions.append(_PRESENT)
    order = [SORT_COLUMNS[key].desc() if down else SORT_COLUMNS[key].asc() for key, down in query.sort]
    order = order or [servers.c.created_at.desc()]
    for row in connection.execute(select(*_SERVER).where(*conditions).order_by(*order, servers.c.number.desc())):
        yield _server(row)


def servers_on_hosts(connection: Connection) -> dict[str, list[tuple[str, str, Flavor]]]:
    """{host: [(server id, name, flavor)]}."""
    found: dict[str, list[tuple[str, str, Flavor]]] = {}
    for row in connection.execute(_ON_HOSTS):
        found.setdefault(row.host, []).append((row.id, row.name, Flavor(**row.flavor)))
    return found


def servers_running_in(connection: Connection, since: datetime, until: datetime) -> Iterator[Server]:
    """Servers that existed at some time in ``[since, until)``, including deleted ones."""
    for row in connection.execute(_RUNNING_IN, {"since": since, "until": until}):
        yield _server(row)


def parked_until(connection: Connection, vm_state: VmState, until: datetime) -> list[str]:
    """Ids of servers in `vm_state` since that moment or longer, without an operation in progress."""
    return [row.id for row in connection.execute(_PARKED, {"in_state": vm_state, "until": until})]


def save_console(connection: Connection, server_id: str, text: str, now: datetime) -> None:
    save_consoles(connection, {server_id: text}, now)


def save_consoles(connection: Connection, texts: Mapping[str, str], now: datetime) -> None:
    """{server id: text}: stores the last `MAX_CONSOLE_BYTES` of each text, replacing the former text."""
    rows = [
        {
            "server_id": server_id,
            "text": text.encode()[-MAX_CONSOLE_BYTES:].decode(errors="ignore"),
            "updated_at": now,
        }
        for server_id, text in texts.items()
    ]
    if rows:
        connection.execute(insert_or_update(consoles, "server_id", ["text", "updated_at"], connection.dialect), rows)


def console(connection: Connection, server_id: str) -> str:
    return str(connection.execute(_CONSOLE, {"of_id": server_id}).scalar() or "")


def _stored(name: str, value: Any) -> object:
    """The value of the column `name`."""
    if isinstance(value, Fault | Placed):
        return _document(value)
    return _interface_documents(value) if name == "interfaces" else value


def _interface_documents(interfaces: Sequence[NetworkInterface]) -> list[Any] | None:
    return msgspec.to_builtins(list(interfaces)) if interfaces else None


def placed_from_document(document: Mapping[str, Any] | None) -> Placed | None:
    if not document:
        return None
    return Placed({suffix: tuple(uuids) for suffix, uuids in document["mappings"].items()}, document["allocations"])


def _document(value: Fault | Placed) -> Mapping[str, object]:
    """The dataclass as a dict. `asdict` would copy recursively."""
    document = dict(vars(value))
    if isinstance(value, Fault):
        document["created_at"] = value.created_at.isoformat()
    return document


def server_of_values(row: Sequence[object]) -> Server:
    """The server in a row of `BY_ID`."""
    return _server_of({column.name: value for column, value in zip(_SERVER, row, strict=True)})


def _server(row: ResultRow) -> Server:
    return _server_of(dict(row._mapping))


def _server_of(values: dict[str, Any]) -> Server:
    """`values`: a row by column name."""
    del values["flavor_id"]
    fault, placed = values["fault"], values["placed"]
    values |= {
        "flavor": Flavor(**values["flavor"]),
        "vm_state": VmState(values["vm_state"]),
        "task_state": values["task_state"] and TaskState(values["task_state"]),
        "locked_by": values["locked_by"] and Locker(values["locked_by"]),
        "tags": tuple(values["tags"]),
        "devices": tuple(values["devices"]),
        "fault": fault and Fault(**fault | {"created_at": datetime.fromisoformat(fault["created_at"])}),
        "placed": placed_from_document(placed),
        "interfaces": msgspec.convert(values["interfaces"] or (), tuple[NetworkInterface, ...]),
    }
    return Server(**values)
