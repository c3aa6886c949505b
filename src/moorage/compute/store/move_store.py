"""Moves in SQL, and their listing for the API, which includes finished ones.

All functions run in the caller's transaction; lock the server's row before its move changes.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, insert, or_, select, update

from moorage.compute.model.migration_workflow import KINDS_WITH_LEFTOVERS, Move, MoveKind
from moorage.compute.model.servers import Flavor, Placed, VmState
from moorage.compute.store import quota_store
from moorage.compute.store.server_store import placed_from_document
from moorage.compute.store.tables import moves
from moorage.db.types import ResultRow
from moorage.jobs.contract import JobKind

_BY_ID = select(moves).where(moves.c.id == bindparam("of_id"))
_OPEN = select(moves).where(moves.c.server_id == bindparam("of_server"), moves.c.is_open).order_by(moves.c.number)
#: Whether the host ``of_host`` may still have a server that was evacuated from it, or deleted while it was down.
HAS_LEFTOVERS = (
    select(moves.c.id)
    .where(
        moves.c.source_host == bindparam("of_host"),
        moves.c.is_open,
        or_(*(moves.c.kind == kind for kind in sorted(KINDS_WITH_LEFTOVERS))),
    )
    .limit(1)
)
_OF_HOST = select(moves).where(
    or_(moves.c.source_host == bindparam("of_host"), moves.c.dest_host == bindparam("of_host")), moves.c.is_open
)


def insert_move(connection: Connection, move: Move) -> None:
    """`move.number` is assigned by the database."""
    values = asdict(move)
    del values["number"]
    connection.execute(insert(moves), values)
    quota_store.uncount(connection, move.server_id)


def move(connection: Connection, move_id: str) -> Move | None:
    row = connection.execute(_BY_ID, {"of_id": move_id}).one_or_none()
    return None if row is None else _move(row)


def open_moves(connection: Connection, server_id: str) -> list[Move]:
    return [_move(row) for row in connection.execute(_OPEN, {"of_server": server_id})]


def open_moves_of_host(connection: Connection, host: str) -> list[Move]:
    """From the host and to it."""
    return [_move(row) for row in connection.execute(_OF_HOST.order_by(moves.c.number), {"of_host": host})]


def has_leftovers(connection: Connection, host: str) -> bool:
    """See `HAS_LEFTOVERS`."""
    return connection.execute(HAS_LEFTOVERS, {"of_host": host}).first() is not None


def update_move(connection: Connection, move_id: str, now: datetime, **values: object) -> None:
    if isinstance(placed := values.get("new_placed"), Placed):
        values["new_placed"] = asdict(placed)
    if "is_open" in values:
        quota_store.uncount_moved(connection, move_id)
    connection.execute(update(moves).where(moves.c.id == move_id).values(updated_at=now, **values))


def _move(row: ResultRow) -> Move:
    values = dict(row._mapping)
    values |= {
        "kind": MoveKind(values["kind"]),
        "step": None if values["step"] is None else JobKind(values["step"]),
        "old_state": VmState(values["old_state"]),
        "old_flavor": Flavor(**values["old_flavor"]),
        "new_flavor": Flavor(**values["new_flavor"]),
        "old_placed": placed_from_document(values["old_placed"]),
        "new_placed": placed_from_document(values["new_placed"]),
    }
    return Move(**values)


#: The kinds that Nova lists as migrations.
SHOWN_KINDS = frozenset(MoveKind) - {MoveKind.UNSHELVE, MoveKind.DELETION, MoveKind.FAILED_BUILD}

_LIST_MIGRATIONS = select(moves).where(moves.c.kind.in_(sorted(SHOWN_KINDS))).order_by(moves.c.number.desc())
#: {filter of the list: its column}
_MIGRATION_COLUMNS = {
    "instance_uuid": moves.c.server_id,
    "source_compute": moves.c.source_host,
    "status": moves.c.status,
    "migration_type": moves.c.kind,
    "user_id": moves.c.user_id,
    "project_id": moves.c.project_id,
}
MIGRATION_FILTERS = (*_MIGRATION_COLUMNS, "host")


@dataclass(frozen=True)
class Migration:
    number: int
    id: str
    server_id: str
    kind: str
    status: str
    is_open: bool
    source_host: str
    dest_host: str | None
    user_id: str
    project_id: str
    created_at: datetime
    updated_at: datetime


def migrations(connection: Connection, wanted: Mapping[str, str]) -> list[Migration]:
    """Newest first. `wanted`: {name in `MIGRATION_FILTERS`: value}; ``host`` matches either end."""
    conditions = [_MIGRATION_COLUMNS[name] == value for name, value in wanted.items() if name in _MIGRATION_COLUMNS]
    if (host := wanted.get("host")) is not None:
        conditions.append(or_(moves.c.source_host == host, moves.c.dest_host == host))
    return [
        Migration(
            row.number, row.id, row.server_id, row.kind, row.status, row.is_open, row.source_host, row.dest_host,
            row.user_id, row.project_id, row.created_at, row.updated_at,
        )
        for row in connection.execute(_LIST_MIGRATIONS.where(*conditions))
    ]  # fmt: skip
