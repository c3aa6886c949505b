"""Writes the change log, by which processes learn of each other's writes and clients follow changes.

Every writing transaction *first* takes the next number and locks its row until the commit. So there is one writer at a
time, the order of numbers is the order of commits, and writers cannot deadlock. If another process holds the writer
lease in that row, the transaction waits for its end: until then that process answers reads without asking.
"""

import time
from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Connection, bindparam, insert, literal_column, select, update

from moorage.placement.forest.change_documents import EVERYTHING_ID, NAMES_ID, ChangeDocument
from moorage.placement.store.tables import change_retention as retention
from moorage.placement.store.tables import change_sequence as counter
from moorage.placement.store.tables import changes
from moorage.placement.store.writer_lease import LeaseRow, WriterLease

#: Pseudo providers in what `provider_ids_since` answers.
NAMES = NAMES_ID
EVERYTHING = EVERYTHING_ID

#: Lease name of a process that answers no requests.
_NOBODY = "-"

_TAKE = update(counter).where(counter.c.id == 1).values(last=counter.c.last + 1)
#: The last change number, which every request that reads the forest asks for.
LAST = select(counter.c.last).where(counter.c.id == literal_column("1"))
_ROW = select(
    counter.c.last, counter.c.lease_holder, counter.c.lease_ms, counter.c.lease_version, counter.c.lease_visitor
).where(counter.c.id == 1)
_KNOCK = (
    update(counter)
    .where(counter.c.id == 1)
    .values(lease_holder=None, lease_version=counter.c.lease_version + 1, lease_visitor=bindparam("visitor"))
)
_FIRST = select(retention.c.first).where(retention.c.id == 1)
_INSERT = insert(changes)
_SINCE = (
    select(changes.c.provider_id)
    .where(changes.c.sequence > bindparam("after"), changes.c.provider_id.is_not(None))
    .distinct()
)


class ChangeLogWriter:
    """The entries of one transaction. Create it before anything is read or written.

    `lease`: the writer lease of this process, if it answers requests.
    """

    def __init__(self, connection: Connection, now: datetime, lease: WriterLease | None = None) -> None:
        connection.execute(_TAKE)
        self.sequence = _take_turn(connection, lease or WriterLease(_NOBODY))
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


def _take_turn(connection: Connection, lease: WriterLease) -> int:
    """The number taken, once no other process can answer reads without asking."""
    number, holder, length_ms, version, visitor = connection.execute(_ROW).one()
    if lease.is_in_the_way(holder):
        time.sleep(lease.left_s(LeaseRow(number, holder, length_ms / 1000, version, visitor)))
        connection.execute(_KNOCK, {"visitor": lease.process})
    return int(number)


def last_number(connection: Connection) -> int:
    return int(connection.execute(LAST).scalar_one())


def provider_ids_since(connection: Connection, sequence: int) -> frozenset[int]:
    """The ids of providers changed after `sequence`; only EVERYTHING if the log no longer reaches back that far."""
    if sequence + 1 < int(connection.execute(_FIRST).scalar_one()):
        return frozenset((EVERYTHING,))
    ids = frozenset(connection.execute(_SINCE, {"after": sequence}).scalars())
    return frozenset((EVERYTHING,)) if EVERYTHING in ids else ids
