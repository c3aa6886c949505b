"""Server groups and their members, in SQL."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    union,
)

from moorage.compute.model.migration_workflow import STATUSES_TOWARDS_DESTINATION
from moorage.compute.model.servers import ServerGroup, VmState
from moorage.compute.store.tables import hosts, moves, server_group_members, server_groups, servers
from moorage.core.ids import is_uuid
from moorage.db.types import ResultRow, RowSelect
from moorage.scheduler.server_groups import GroupPolicy, ServerGroupView

_INSERT = insert(server_groups)
_ALL = select(server_groups).order_by(server_groups.c.number)
_BY_ID = select(server_groups).where(server_groups.c.id == bindparam("of_id"))
_DELETE = delete(server_groups).where(server_groups.c.id == bindparam("of_id"))
#: The group ids of the server ``of_server``.
IDS_OF = select(server_group_members.c.group_id).where(server_group_members.c.server_id == bindparam("of_server"))
_COUNT = select(func.count()).select_from(server_groups).where(server_groups.c.project_id == bindparam("of_project"))
_MEMBER_INSERT = insert(server_group_members)
_OF_SERVER = (
    select(server_groups)
    .join(server_group_members, server_group_members.c.group_id == server_groups.c.id)
    .where(server_group_members.c.server_id == bindparam("of_server"))
)
_PRESENT = servers.c.vm_state != VmState.DELETED
_MEMBERS = (
    select(server_group_members.c.group_id, servers.c.id)
    .join(servers, servers.c.id == server_group_members.c.server_id)
    .where(_PRESENT, server_group_members.c.group_id.in_(bindparam("groups", expanding=True)))
    .order_by(servers.c.number)
)


def _others(host: ColumnElement[Any]) -> RowSelect:
    """(server, host) of the other members, with their open moves."""
    return (
        select(servers.c.id, host.label("host"))
        .select_from(server_group_members)
        .join(servers, servers.c.id == server_group_members.c.server_id)
        .outerjoin(moves, and_(moves.c.server_id == servers.c.id, moves.c.is_open))
        .where(_PRESENT, server_group_members.c.group_id == bindparam("of_group"), servers.c.id != bindparam("but"))
    )


def _by_host(*places: RowSelect) -> RowSelect:
    """(root uuid, number of servers) from the union of `places`; a server counts once per host."""
    at = union(*places).subquery()
    return (
        select(hosts.c.provider_uuid, func.count(at.c.id.distinct()).label("here"))
        .join(at, at.c.host == hosts.c.name)
        .group_by(hosts.c.provider_uuid)
    )


_GOES = and_(moves.c.dest_host.is_not(None), moves.c.status.in_(sorted(STATUSES_TOWARDS_DESTINATION)))
#: Hosts of the other members after their moves succeed.
_WILL_BE = _by_host(_others(case((_GOES, moves.c.dest_host), else_=servers.c.host)))
#: Hosts on which the other members are, to which they move, or to which they may return.
_MAY_BE = _by_host(_others(servers.c.host), _others(moves.c.dest_host), _others(moves.c.source_host))


def insert_group(connection: Connection, group: ServerGroup) -> None:
    connection.execute(
        _INSERT,
        {
            "id": group.id, "name": group.name, "project_id": group.project_id, "user_id": group.user_id,
            "policy": group.policy, "rules": dict(group.rules), "created_at": group.created_at,
        },
    )  # fmt: skip


def group(connection: Connection, group_id: str, *, lock: bool = False) -> ServerGroup | None:
    """The group with its members, or None. `lock`: lock its row until the transaction ends."""
    statement = _BY_ID.with_for_update() if lock else _BY_ID
    row = connection.execute(statement, {"of_id": group_id}).one_or_none()
    return None if row is None else _with_members(connection, [row])[0]


def groups(connection: Connection, project_id: str | None) -> list[ServerGroup]:
    """Oldest first; None: all projects."""
    wanted = _ALL if project_id is None else _ALL.where(server_groups.c.project_id == project_id)
    return _with_members(connection, connection.execute(wanted).all())


def count_groups(connection: Connection, project_id: str) -> int:
    return int(connection.execute(_COUNT, {"of_project": project_id}).scalar() or 0)


def delete_group(connection: Connection, group_id: str) -> bool:
    return connection.execute(_DELETE, {"of_id": group_id}).rowcount > 0


def add_member(connection: Connection, group_id: str, server_id: str) -> None:
    connection.execute(_MEMBER_INSERT, {"group_id": group_id, "server_id": server_id})


def group_view(
    connection: Connection, server_id: str, *, lock: bool = False, hinted: object = None
) -> ServerGroupView | None:
    """The server's group as the scheduler sees it, or None. For a server that does not exist yet: the group in
    `hinted`.
    """
    statement = _OF_SERVER.with_for_update() if lock else _OF_SERVER
    row = connection.execute(statement, {"of_server": server_id}).one_or_none()
    if row is None and isinstance(hinted, str) and is_uuid(hinted):
        row = connection.execute(_BY_ID, {"of_id": hinted}).one_or_none()
    if row is None:
        return None
    policy = GroupPolicy(row.policy)
    statement = _MAY_BE if policy is GroupPolicy.ANTI_AFFINITY else _WILL_BE
    places = connection.execute(statement, {"of_group": row.id, "but": server_id})
    members = {place.provider_uuid: place.here for place in places}
    return ServerGroupView(policy, members, int(row.rules.get("max_server_per_host", 1)))


def _with_members(connection: Connection, rows: Iterable[ResultRow]) -> list[ServerGroup]:
    rows = list(rows)
    members: dict[str, list[str]] = {}
    for member in connection.execute(_MEMBERS, {"groups": [row.id for row in rows]}):
        members.setdefault(member.group_id, []).append(member.id)
    return [
        ServerGroup(
            row.id, row.name, row.project_id, row.user_id, GroupPolicy(row.policy), row.rules, row.created_at,
            tuple(members.get(row.id, ())),
        )
        for row in rows
    ]  # fmt: skip
