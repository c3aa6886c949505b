"""Serial consoles that people asked for, in SQL: from the request until the console ends.

A row without `is_open` is a token that nobody has used yet; `expires_at` is the end of its validity. The proxy that has
the open console moves `expires_at` on, so the rows of a proxy that was killed expire too.

All functions run in the caller's transaction.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, func, insert, select, true, update

from moorage.compute.store.tables import console_sessions

_INSERT = insert(console_sessions)
_DELETE_EXPIRED = delete(console_sessions).where(console_sessions.c.expires_at <= bindparam("now"))
_COUNT_OF_SERVER = (
    select(func.count()).select_from(console_sessions).where(console_sessions.c.server_id == bindparam("of_server"))
)
_COUNT_OF_PROJECT = (
    select(func.count()).select_from(console_sessions).where(console_sessions.c.project_id == bindparam("of_project"))
)
_BY_TOKEN = select(console_sessions).where(console_sessions.c.token_hash == bindparam("of_hash"))
_BY_ID = select(console_sessions).where(console_sessions.c.id == bindparam("of_id"))
#: Changes no row if the token was used already; the database runs two of these one after the other.
_OPEN = (
    update(console_sessions)
    .where(
        console_sessions.c.id == bindparam("of_id"),
        console_sessions.c.is_open.is_(False),
        console_sessions.c.expires_at > bindparam("now"),
    )
    .values(is_open=true(), expires_at=bindparam("until", type_=console_sessions.c.expires_at.type))
)
_EXTEND = (
    update(console_sessions)
    .where(console_sessions.c.id == bindparam("of_id"))
    .values(expires_at=bindparam("until", type_=console_sessions.c.expires_at.type))
)
_DELETE = delete(console_sessions).where(console_sessions.c.id == bindparam("of_id"))


@dataclass(frozen=True)
class ConsoleRow:
    """A console of a server, for a user with a token of `project_id`. `host`: where the server was at the request."""

    id: str
    token_hash: str
    server_id: str
    host: str
    user_id: str
    project_id: str
    request_id: str
    is_open: bool
    created_at: datetime
    expires_at: datetime


def insert_console(connection: Connection, row: ConsoleRow) -> None:
    connection.execute(_INSERT, vars(row))


def delete_expired(connection: Connection, now: datetime) -> None:
    connection.execute(_DELETE_EXPIRED, {"now": now})


def count_of_server(connection: Connection, server_id: str) -> int:
    return int(connection.execute(_COUNT_OF_SERVER, {"of_server": server_id}).scalar_one())


def count_of_project(connection: Connection, project_id: str) -> int:
    return int(connection.execute(_COUNT_OF_PROJECT, {"of_project": project_id}).scalar_one())


def console_of_token(connection: Connection, token_hash: str) -> ConsoleRow | None:
    row = connection.execute(_BY_TOKEN, {"of_hash": token_hash}).one_or_none()
    return None if row is None else ConsoleRow(**row._mapping)


def console_row(connection: Connection, console_id: str) -> ConsoleRow | None:
    row = connection.execute(_BY_ID, {"of_id": console_id}).one_or_none()
    return None if row is None else ConsoleRow(**row._mapping)


def use_token(connection: Connection, console_id: str, now: datetime, until: datetime) -> bool:
    """Marks the console as open until `until`. False: the token was used before, or has expired."""
    return connection.execute(_OPEN, {"of_id": console_id, "now": now, "until": until}).rowcount == 1


def extend_console(connection: Connection, console_id: str, until: datetime) -> None:
    connection.execute(_EXTEND, {"of_id": console_id, "until": until})


def delete_console(connection: Connection, console_id: str) -> None:
    connection.execute(_DELETE, {"of_id": console_id})
