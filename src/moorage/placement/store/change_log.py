"""Writes the change log, from which other processes read each other's writes and clients follow changes.

Every writing transaction *first* takes the next number and locks its row until the commit. So there is one writer at a
time, the order of numbers is the order of commits, and writers cannot deadlock.
"""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Connection, bindparam, insert, literal_column, select, update

from moorage.placement.forest.change_documents import EVERYTHING_ID, NAMES_ID, ChangeDocument
from moorage.placement.store.tables import change_retention as retention
from moorage.placement.store.tables import change_sequence as counter
from moorage.placement.store.tables import changes

#: Pseudo providers in the result of `provider_ids_since`.
NAMES = NAMES_ID
EVERYTHING = EVERYTHING_ID

_TAKE_NUMBER = update(counter).where(counter.c.id == 1).values(last=counter.c.last + 1)
#: The last change number, which is queried by every request that reads the forest.
LAST = select(counter.c.last).where(counter.c.id == literal_column("1"))
_FIRST = select(retention.c.first).where(retention.c.id == 1)
_INSERT = insert(changes)
_SINCE = (
    select(changes.c.provider_id)
    .where(changes.c.sequence > bindparam("after"), changes.c.provider_id.is_not(None))
    .distinct()
)


class ChangeLogWriter:
    """Takes the next change number and appends the entries of one transaction.

    Create it before the transaction reads or writes anything else.
    """

    def __init__(self, connection: Connection, now: datetime) -> None:
        connection.execute(_TAKE_NUMBER)
        self.sequence = last_number(connection)
        self._connection = connection
        self._now = now
        self._length = 0

    def add(self, entries: Iterable[ChangeDocument]) -> None:
        rows = [
            {
                "sequence": self.sequence,
                "position": position,
                "provider_id": entry.provider_id,
                "at": self._now,
                "kind": entry.kind,
                "subject": entry.subject,
                "document": entry.document,
            }
            for position, entry in enumerate(entries, self._length)
        ]
        self._length += len(rows)
        if rows:
            self._connection.execute(_INSERT, rows)


def last_number(connection: Connection) -> int:
    return int(connection.execute(LAST).scalar_one())


def provider_ids_since(connection: Connection, sequence: int) -> frozenset[int]:
    """Ids of providers changed after `sequence`; only EVERYTHING if the log no longer has all these changes."""
    if sequence + 1 < int(connection.execute(_FIRST).scalar_one()):
        return frozenset((EVERYTHING,))
    ids = frozenset(connection.execute(_SINCE, {"after": sequence}).scalars())
    return frozenset((EVERYTHING,)) if EVERYTHING in ids else ids
