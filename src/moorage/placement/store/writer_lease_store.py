"""SQL of the lease: its row, and changing it where nobody else has."""

from moorage.db.driver_connections import Rows
from moorage.db.statement_pipelines import Command, Statement, StatementPipeline
from moorage.placement.store.writer_lease import LeaseRow, Row

_ROW = Statement(
    "SELECT last, lease_holder, lease_ms, lease_version, lease_visitor FROM change_sequence WHERE id = 1", answers=True
)
_HERE = (
    "UPDATE change_sequence SET lease_holder = v.holder, lease_ms = v.length_ms, lease_version = v.version + 1, "
    "lease_visitor = v.visitor FROM {rows} WHERE id = 1 AND lease_version = v.version"
)
_CHANGE = Statement(
    {
        "postgresql": _HERE,
        "sqlite": _HERE,
        "mariadb": "UPDATE change_sequence AS s JOIN {rows} ON s.lease_version = v.version SET s.lease_holder = v.holder, "
        "s.lease_ms = v.length_ms, s.lease_version = v.version + 1, s.lease_visitor = v.visitor WHERE s.id = 1",
    },
    {"holder": "text", "length_ms": "int", "version": "int", "visitor": "text"},
)


def look() -> Command:
    return _ROW, None


def change(wish: LeaseRow) -> Command:
    """Does nothing where the row has another version by now."""
    length_ms = round(wish.length_s * 1000)
    return _CHANGE, [{"holder": wish.holder, "length_ms": length_ms, "version": wish.version, "visitor": wish.visitor}]


def row_of(answer: Rows) -> Row:
    ((last, holder, length_ms, version, visitor),) = answer
    return Row(last, holder, length_ms / 1000, version, visitor)


def exchange(batches: StatementPipeline, wish: LeaseRow | None) -> Row:
    """Change the row, if there is something to change, and see what it is now: in one round trip."""
    with batches.transaction() as transaction:
        return row_of(transaction.commit(*([change(wish)] if wish is not None else []), look())[-1])
