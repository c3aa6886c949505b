"""SQL of calendar feeds. A row has the SHA-256 hash of the feed's secret, never the secret."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from moorage.reservation.store.tables import calendar_feeds


@dataclass(frozen=True, slots=True)
class Feed:
    """`user_id` and `project_id` are those of the caller who created it. `read_at`: approximately, None: never."""

    id: str
    name: str
    user_id: str
    project_id: str
    secret_hash: str = field(repr=False)
    created_at: datetime
    read_at: datetime | None


def insert_feed(connection: Connection, feed: Feed) -> None:
    connection.execute(insert(calendar_feeds), {name: getattr(feed, name) for name in Feed.__dataclass_fields__})


def count(connection: Connection, user_id: str) -> int:
    statement = select(func.count()).select_from(calendar_feeds).where(calendar_feeds.c.user_id == user_id)
    return int(connection.execute(statement).scalar_one())


def find(connection: Connection, feed_id: str) -> Feed | None:
    row = connection.execute(select(calendar_feeds).where(calendar_feeds.c.id == feed_id)).one_or_none()
    return None if row is None else _feed(row)


def feeds(connection: Connection, user_id: str | None, limit: int) -> list[Feed]:
    """The newest feeds of the user; None: of all users."""
    statement = select(calendar_feeds).order_by(calendar_feeds.c.created_at.desc(), calendar_feeds.c.id).limit(limit)
    if user_id is not None:
        statement = statement.where(calendar_feeds.c.user_id == user_id)
    return [_feed(row) for row in connection.execute(statement)]


def set_read(connection: Connection, feed_id: str, now: datetime) -> None:
    connection.execute(update(calendar_feeds).where(calendar_feeds.c.id == feed_id).values(read_at=now))


def delete_feed(connection: Connection, feed_id: str) -> None:
    connection.execute(delete(calendar_feeds).where(calendar_feeds.c.id == feed_id))


def _feed(row: Row[Any]) -> Feed:
    return Feed(**row._mapping)
