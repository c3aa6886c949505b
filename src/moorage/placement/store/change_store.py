"""SQL of the change log, from which other processes read each other's writes and clients follow changes: it appends and
reads entries, and deletes the oldest.

Every writing transaction *first* takes the next number and locks its row until the commit. So there is one writer at a
time, the order of numbers is the order of commits, and writers cannot deadlock.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import BindParameter, Connection, bindparam, delete, insert, literal_column, or_, select, update

from moorage.db.types import ResultRow
from moorage.placement.forest.change_entries import (
    EVERYTHING_ID,
    NAMES_ID,
    ChangeDocument,
    ChangeEvent,
    Cursor,
    EntryHeader,
    Filter,
)
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


_COLUMNS = (changes.c.sequence, changes.c.position, changes.c.at, changes.c.kind, changes.c.subject, changes.c.document)
_IN_ORDER = (changes.c.sequence, changes.c.position)
_BACKWARDS = (changes.c.sequence.desc(), changes.c.position.desc())
_OF_KINDS = changes.c.kind.in_(bindparam("kinds", expanding=True))
_OF_SUBJECTS = changes.c.subject.in_(bindparam("subjects", expanding=True))
# After a cursor. The index is searched by the condition on the sequence alone.
_NOT_BEFORE = changes.c.sequence >= bindparam("sequence")
_AFTER = or_(changes.c.sequence > bindparam("sequence"), changes.c.position > bindparam("position"))

_RETENTION = select(retention.c.first, retention.c.since).where(retention.c.id == 1)
_BETWEEN = select(*_COLUMNS).where(_NOT_BEFORE, _AFTER, changes.c.sequence <= bindparam("upto")).order_by(*_IN_ORDER)


@dataclass(frozen=True, slots=True)
class Retention:
    """`first`: all entries from this number on are retained.

    `since`: past states are known from this time on; None: all.
    """

    first: int
    since: datetime | None


def read_retention(connection: Connection) -> Retention:
    return Retention(*connection.execute(_RETENTION).one())


def entries_between(connection: Connection, after: Cursor, upto: int, wanted: Filter, limit: int) -> list[ChangeEvent]:
    """Entries after `after` up to the number `upto`, in order, at most `limit`."""
    statement = _BETWEEN.limit(limit)
    if wanted.kinds:
        statement = statement.where(_OF_KINDS)
    if wanted.subjects:
        statement = statement.where(_OF_SUBJECTS)
    values: dict[str, object] = {"sequence": after.sequence, "position": after.position, "upto": upto}
    values |= {name: list(given) for name, given in (("kinds", wanted.kinds), ("subjects", wanted.subjects)) if given}
    return [_change(row) for row in connection.execute(statement, values)]


# --- one subject --------------------------------------------------------------------------------------------------

_OF_SUBJECT = select(*_COLUMNS).where(
    changes.c.subject == bindparam("wanted"),
    changes.c.kind == bindparam("of_kind"),
    changes.c.sequence < bindparam("before"),
)
_NEWEST = _OF_SUBJECT.where(changes.c.at <= bindparam("moment")).order_by(*_BACKWARDS).limit(1)
_LISTED = _OF_SUBJECT.where(_NOT_BEFORE, _AFTER).order_by(*_IN_ORDER)
_NEXT = (
    select(changes.c.sequence, changes.c.at)
    .where(changes.c.sequence >= bindparam("sequence"))
    .order_by(*_IN_ORDER)
    .limit(1)
)

#: Maximum difference between the clocks of processes that write to one database. The times of entries follow the order
#: of the log with at most this error.
CLOCKS_DIFFER = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """``[since, until)``; None means unbounded."""

    since: datetime | None = None
    until: datetime | None = None


def newest_entry(connection: Connection, subject: str, kind: str, at: datetime) -> ChangeEvent | None:
    """The last entry of one kind about `subject` that was written no later than `at`."""
    before = _number_after(connection, at)
    row = connection.execute(_NEWEST, {"wanted": subject, "of_kind": kind, "before": before, "moment": at}).first()
    return None if row is None else _change(row)


def subject_entries(
    connection: Connection, subject: str, kinds: Collection[str], period: TimeRange, after: Cursor, limit: int
) -> list[ChangeEvent]:
    """Entries about `subject` after `after` that were written in `period`, in order, at most `limit`."""
    statement = _LISTED.limit(limit)
    values: dict[str, object] = {"wanted": subject, "before": last_number(connection) + 1}
    if period.since is not None:
        statement = statement.where(changes.c.at >= period.since)
        after = max(after, Cursor(_number_after(connection, period.since - 2 * CLOCKS_DIFFER) - 1))
    if period.until is not None:
        statement = statement.where(changes.c.at < period.until)
        values["before"] = _number_after(connection, period.until)
    values |= {"sequence": after.sequence, "position": after.position}
    # One statement per kind: each reads one range of the index, while all kinds in order would be many ranges.
    found = [_change(row) for kind in kinds for row in connection.execute(statement, values | {"of_kind": kind})]
    return sorted(found, key=lambda change: change.cursor)[:limit]


def _number_after(connection: Connection, moment: datetime) -> int:
    """A number shortly after the last entry written by `moment`; found by bisection of the log."""
    moment += CLOCKS_DIFFER
    low, high = read_retention(connection).first, last_number(connection) + 1
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(_NEXT, {"sequence": middle}).first()
        if row is None or row.at > moment:
            high = middle
        else:
            low = int(row.sequence) + 1
    return low


def _change(row: ResultRow) -> ChangeEvent:
    return ChangeEvent(Cursor(row.sequence, row.position), row.at, row.kind, row.subject, row.document)


# --- deletion -----------------------------------------------------------------------------------------------------

# A process that finds the row locked does nothing: another one is pruning.
_CLAIM = _RETENTION.with_for_update(skip_locked=True)
_OLDEST = (
    select(*_IN_ORDER, changes.c.at, changes.c.subject)
    .where(_NOT_BEFORE, _AFTER)
    .order_by(*_IN_ORDER)
    .limit(bindparam("most"))
)
_DIFFERENT: BindParameter[str] = bindparam("different", expanding=True)
_UP_TO = or_(
    changes.c.sequence < bindparam("sequence"),
    (changes.c.sequence == bindparam("sequence")) & (changes.c.position <= bindparam("position")),
)
_ABOUT = (
    select(*_IN_ORDER, changes.c.kind, changes.c.subject, changes.c.document.is_(None).label("is_gone"))
    .where(_OF_SUBJECTS, _UP_TO)
    .order_by(changes.c.subject, *_IN_ORDER)
)
_DELETE = {
    0: delete(changes).where(changes.c.sequence == bindparam("same"), changes.c.position.in_(_DIFFERENT)),
    1: delete(changes).where(changes.c.position == bindparam("same"), changes.c.sequence.in_(_DIFFERENT)),
}
_RECORD = update(retention).where(retention.c.id == 1).values(first=bindparam("number"), since=bindparam("moment"))


def claim_retention(connection: Connection) -> Retention | None:
    """Locks the right to delete entries until the end of the transaction. None if another process has it."""
    row = connection.execute(_CLAIM).first()
    return None if row is None else Retention(*row)


@dataclass(frozen=True, slots=True)
class OldEntry:
    cursor: Cursor
    at: datetime
    subject: str | None


def oldest_entries(connection: Connection, after: Cursor, limit: int) -> list[OldEntry]:
    """The entries after `after`, in order, at most `limit`."""
    rows = connection.execute(_OLDEST, {"sequence": after.sequence, "position": after.position, "most": limit})
    return [OldEntry(Cursor(row.sequence, row.position), row.at, row.subject) for row in rows]


def entry_headers(connection: Connection, subjects: Collection[str], upto: Cursor) -> list[EntryHeader]:
    """All entries about `subjects` up to and including `upto`, by subject and in order."""
    values = {"subjects": sorted(subjects), "sequence": upto.sequence, "position": upto.position}
    rows = connection.execute(_ABOUT, values)
    return [EntryHeader(Cursor(row.sequence, row.position), row.kind, row.subject, bool(row.is_gone)) for row in rows]


def delete_entries(connection: Connection, entries: Sequence[Cursor], reaches: Retention) -> None:
    """Deletes these entries, and records the start of the retained log."""
    # One statement per number, or one per position: many small transactions have few positions, and a large one has one
    # number. With pairs, MariaDB would need one statement per entry.
    groups = [_grouped_by(entries, column) for column in (0, 1)]
    column = 0 if len(groups[0]) <= len(groups[1]) else 1
    for same, different in groups[column].items():
        connection.execute(_DELETE[column], {"same": same, "different": different})
    connection.execute(_RECORD, {"number": reaches.first, "moment": reaches.since})


def _grouped_by(entries: Sequence[Cursor], column: int) -> dict[int, list[int]]:
    """{common value: differing values}; `column` 0 is the number, 1 the position."""
    groups: dict[int, list[int]] = {}
    for entry in entries:
        groups.setdefault(entry[column], []).append(entry[1 - column])
    return groups
