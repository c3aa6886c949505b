"""The log of changes, by which processes learn of each other's writes, and history is told.

Every writing transaction takes the next number *first*, and keeps its row locked until the commit: whoever has it is
the only writer there is, commit order is number order, and no two writers can wait for each other. Where another
process has the lease in that row, its end is waited for: until then that process answers without asking.
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

#: As whom a process knocks that answers no requests.
_NOBODY = "-"

_TAKE = update(counter).where(counter.c.id == 1).values(last=counter.c.last + 1)
#: The number of the last change; what every request asks that reads the forest.
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
    """The entries of one transaction, which is alone from here on: to be made before anything is read or written.

    `writer_lease`: of the process that writes, if it is one that answers requests.
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
    """The number that was taken, when no other process can answer without asking any more."""
    number, holder, length_ms, version, visitor = connection.execute(_ROW).one()
    if lease.is_in_the_way(holder):
        time.sleep(lease.left_s(LeaseRow(number, holder, length_ms / 1000, version, visitor)))
        connection.execute(_KNOCK, {"visitor": lease.process})
    return int(number)


def last_number(connection: Connection) -> int:
    return int(connection.execute(LAST).scalar_one())


def provider_ids_since(connection: Connection, sequence: int) -> frozenset[int]:
    """The ids that changed after `sequence`; just EVERYTHING when the log no longer reaches back that far."""
    if sequence + 1 < int(connection.execute(_FIRST).scalar_one()):
        return frozenset((EVERYTHING,))
    ids = frozenset(connection.execute(_SINCE, {"after": sequence}).scalars())
    return frozenset((EVERYTHING,)) if EVERYTHING in ids else ids
