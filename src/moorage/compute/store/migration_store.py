"""Moves of servers as the API lists them: what is kept of each when it is over, too. Reads only."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, or_, select

from moorage.compute.model.migration_workflow import MoveKind
from moorage.compute.store.tables import moves

#: What the peer calls migrations.
SHOWN = frozenset(MoveKind) - {MoveKind.UNSHELVE, MoveKind.DELETION, MoveKind.FAILED_BUILD}

_LIST = select(moves).where(moves.c.kind.in_(sorted(SHOWN))).order_by(moves.c.number.desc())
#: What a list can be narrowed to, and the column behind it.
_COLUMNS = {
    "instance_uuid": moves.c.server_id,
    "source_compute": moves.c.source_host,
    "status": moves.c.status,
    "migration_type": moves.c.kind,
    "user_id": moves.c.user_id,
    "project_id": moves.c.project_id,
}
FILTERS = (*_COLUMNS, "host")


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
    """Newest first. `wanted` by `FILTERS`; ``host`` is either end."""
    conditions = [_COLUMNS[name] == value for name, value in wanted.items() if name in _COLUMNS]
    if (host := wanted.get("host")) is not None:
        conditions.append(or_(moves.c.source_host == host, moves.c.dest_host == host))
    return [
        Migration(
            row.number, row.id, row.server_id, row.kind, row.status, row.is_open, row.source_host, row.dest_host,
            row.user_id, row.project_id, row.created_at, row.updated_at,
        )
        for row in connection.execute(_LIST.where(*conditions))
    ]  # fmt: skip
