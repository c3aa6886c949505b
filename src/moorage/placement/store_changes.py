"""SQL for reading the change log and for taking its oldest entries away. Writing it is in `changes`."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, or_, select, update

from moorage.placement.events import Change, Cursor, Filter
from moorage.placement.history import Kept
from moorage.placement.tables import change_retention as retention
from moorage.placement.tables import changes

_COLUMNS = (changes.c.sequence, changes.c.position, changes.c.at, changes.c.kind, changes.c.subject, changes.c.document)
_IN_ORDER = (changes.c.sequence, changes.c.position)
_BACKWARDS = (changes.c.sequence.desc(), changes.c.position.desc())
_OF_KINDS = changes.c.kind.in_(bindparam("kinds", expanding=True))
_OF_SUBJECTS = changes.c.subject.in_(bindparam("subjects", expanding=True))
# Behind a cursor. The bound on the sequence alone is what an index is searched by.
_NOT_BEFORE = changes.c.sequence >= bindparam("sequence")
_BEHIND = or_(changes.c.sequence > bindparam("sequence"), changes.c.position > bindparam("position"))

_RETENTION = select(retention.c.first, retention.c.since).where(retention.c.id == 1)
_STRETCH = select(*_COLUMNS).where(_NOT_BEFORE, _BEHIND, changes.c.sequence <= bindparam("upto")).order_by(*_IN_ORDER)


@dataclass(frozen=True, slots=True)
class Retention:
    """`first`: every entry from this number on is there. `since`: states are known from then on; None: all are."""

    first: int
    since: datetime | None


def read_retention(connection: Connection) -> Retention:
    return Retention(*connection.execute(_RETENTION).one())


def stretch(connection: Connection, after: Cursor, upto: int, wanted: Filter, limit: int) -> list[Change]:
    """Entries behind `after` up to the number `upto`, in order, at most `limit`."""
    statement = _STRETCH.limit(limit)
    if wanted.kinds:
        statement = statement.where(_OF_KINDS)
    if wanted.subjects:
        statement = statement.where(_OF_SUBJECTS)
    values: dict[str, object] = {"sequence": after.sequence, "position": after.position, "upto": upto}
    values |= {name: list(given) for name, given in (("kinds", wanted.kinds), ("subjects", wanted.subjects)) if given}
    return [_change(row) for row in connection.execute(statement, values)]


# --- one subject --------------------------------------------------------------------------------------------------

_OF_ONE = select(*_COLUMNS).where(changes.c.subject == bindparam("wanted"))
_NEWEST = (
    _OF_ONE.where(changes.c.kind == bindparam("of_kind"), changes.c.at <= bindparam("moment"))
    .order_by(*_BACKWARDS)
    .limit(1)
)
_LISTED = _OF_ONE.where(_OF_KINDS, _NOT_BEFORE, _BEHIND).order_by(*_IN_ORDER)


@dataclass(frozen=True, slots=True)
class Period:
    """At `since` or later, and before `until`; None: without that bound."""

    since: datetime | None = None
    until: datetime | None = None


def newest(connection: Connection, subject: str, kind: str, at: datetime) -> Change | None:
    """The last entry of one kind about `subject` that was written by `at`."""
    row = connection.execute(_NEWEST, {"wanted": subject, "of_kind": kind, "moment": at}).first()
    return None if row is None else _change(row)


def of_subject(
    connection: Connection, subject: str, kinds: Collection[str], period: Period, after: Cursor, limit: int
) -> list[Change]:
    """Entries about `subject` behind `after` that were written in `period`, in order, at most `limit`."""
    statement = _LISTED.limit(limit)
    if period.since is not None:
        statement = statement.where(changes.c.at >= period.since)
    if period.until is not None:
        statement = statement.where(changes.c.at < period.until)
    values = {"wanted": subject, "kinds": list(kinds), "sequence": after.sequence, "position": after.position}
    return [_change(row) for row in connection.execute(statement, values)]


def _change(row: Row[*tuple[Any, ...]]) -> Change:
    return Change(Cursor(row.sequence, row.position), row.at, row.kind, row.subject, row.document)


# --- taking away --------------------------------------------------------------------------------------------------

# Whoever finds the row locked does nothing: another process is at it.
_CLAIM = _RETENTION.with_for_update(skip_locked=True)
_OLDEST = (
    select(*_IN_ORDER, changes.c.at, changes.c.subject)
    .where(_NOT_BEFORE, _BEHIND)
    .order_by(*_IN_ORDER)
    .limit(bindparam("most"))
)
_UP_TO = or_(
    changes.c.sequence < bindparam("sequence"),
    (changes.c.sequence == bindparam("sequence")) & (changes.c.position <= bindparam("position")),
)
_ABOUT = (
    select(*_IN_ORDER, changes.c.kind, changes.c.subject, changes.c.document.is_(None).label("is_gone"))
    .where(_OF_SUBJECTS, _UP_TO)
    .order_by(changes.c.subject, *_IN_ORDER)
)
_DELETE = delete(changes).where(
    changes.c.sequence == bindparam("old_sequence"), changes.c.position == bindparam("old_position")
)
_NOTE = update(retention).where(retention.c.id == 1).values(first=bindparam("number"), since=bindparam("moment"))


def claim_retention(connection: Connection) -> Retention | None:
    """The right to take entries away, until the end of the transaction; None while another process has it."""
    row = connection.execute(_CLAIM).first()
    return None if row is None else Retention(*row)


@dataclass(frozen=True, slots=True)
class Old:
    cursor: Cursor
    at: datetime
    subject: str | None


def oldest(connection: Connection, after: Cursor, limit: int) -> list[Old]:
    """The entries behind `after`, in order, at most `limit`."""
    rows = connection.execute(_OLDEST, {"sequence": after.sequence, "position": after.position, "most": limit})
    return [Old(Cursor(row.sequence, row.position), row.at, row.subject) for row in rows]


def about(connection: Connection, subjects: Collection[str], upto: Cursor) -> list[Kept]:
    """All entries about `subjects` up to and including `upto`, by subject and in order."""
    values = {"subjects": sorted(subjects), "sequence": upto.sequence, "position": upto.position}
    rows = connection.execute(_ABOUT, values)
    return [Kept(Cursor(row.sequence, row.position), row.kind, row.subject, bool(row.is_gone)) for row in rows]


def remove(connection: Connection, entries: Sequence[Cursor], reaches: Retention) -> None:
    """Take these away, and note how far back the log reaches from now on."""
    if entries:
        values = [{"old_sequence": entry.sequence, "old_position": entry.position} for entry in entries]
        connection.execute(_DELETE, values)
    connection.execute(_NOTE, {"number": reaches.first, "moment": reaches.since})
