"""The statements of `moorage.jobs.store`, built once per table: building one takes longer than running it on SQLite.

Also here: metrics of a service's open jobs, by state and age in seconds, read from its table at each scrape.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Dialect,
    Table,
    Text,
    Update,
    and_,
    bindparam,
    delete,
    func,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import Executable
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from moorage.db.engine import ListStatement
from moorage.db.upserts import insert_unless_exists
from moorage.jobs.model import OPEN, JobState
from moorage.telemetry.metrics import GaugeFamily, GaugeSample

#: Path to a text inside a payload, such as ("server", "guest", "user_data").
Path = tuple[str, ...]


class EnqueueStatements:
    """The INSERT, whose form depends on the database."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._inserts: dict[str, Executable] = {}

    def insert_unless_there(self, dialect: Dialect) -> Executable:
        if dialect.name not in self._inserts:
            self._inserts[dialect.name] = insert_unless_exists(self._table, "id", dialect)
        return self._inserts[dialect.name]


class ReadStatements:
    """Reads; without locks, except `locked_by_ids`."""

    def __init__(self, table: Table) -> None:
        job = table.c
        in_queue, first_of_key = _in_queue(table), _first_of_key(table)
        #: Whether the worker ``by`` could claim a job of this queue ``now``.
        self.any_claimable = select(job.position).where(_is_claimable(table)).limit(1)
        self.open_in = select(table).where(in_queue).order_by(job.position)
        self.by_id = select(table).where(job.id == bindparam("of_id"))
        self.locked_by_ids = ListStatement(
            job.id, lambda condition: select(table).where(condition).order_by(job.position).with_for_update()
        )
        self.by_key = select(table).where(job.serial_key == bindparam("of_key")).order_by(job.position)
        self.next_queue = (
            select(job.queue)
            .where(job.serial_key == bindparam("of_key"), job.state == JobState.READY)
            .order_by(job.position)
            .limit(1)
        )
        self.ready_now = (
            select(job.created_at)
            .where(in_queue, job.state == JobState.READY, job.lease_until.is_(None), first_of_key)
            .order_by(job.position)
            .limit(1)
        )
        self.due_later = (
            select(job.lease_until)
            .where(in_queue, job.lease_until.is_not(None), or_(job.state == JobState.CLAIMED, first_of_key))
            .order_by(job.lease_until)
            .limit(1)
        )


class ClaimStatements:
    """Finds jobs that a worker may claim, locks them, and claims them."""

    def __init__(self, table: Table) -> None:
        job = table.c
        self.claimable = (
            select(table)
            .where(_is_claimable(table))
            .order_by(job.position)
            .limit(bindparam("limit"))
            .with_for_update(skip_locked=True)
        )
        #: Has the worker a claimed job? Reads without a lock, so it also sees rows that another transaction has locked.
        self.left_over = (
            select(job.position)
            .where(_in_queue(table), job.state == JobState.CLAIMED, job.worker == bindparam("by"))
            .limit(1)
        )
        self.take = (
            update(table)
            .where(job.position == bindparam("at"))
            .values(
                state=JobState.CLAIMED.value,
                claimed_key=job.serial_key,
                epoch=job.epoch + 1,
                attempt=job.attempt + 1,
                lease_until=bindparam("until", type_=job.lease_until.type),
                worker=bindparam("by"),
            )
        )


class ChangeStatements:
    """`extend`, `release` and `finish` change a job only for its present claimant; the others for any caller.

    Each statement that ends a job also blanks its `secrets`.
    """

    def __init__(self, table: Table, secrets: Iterable[Path] = ()) -> None:
        job = table.c
        mine = and_(job.id == bindparam("of_id"), job.epoch == bindparam("of_epoch"), job.state == JobState.CLAIMED)
        until = bindparam("until", type_=job.lease_until.type)
        what = bindparam("what", type_=job.result.type)
        now = bindparam("now", type_=job.created_at.type)
        ended: dict[str, object] = {"open_queue": None, "claimed_key": None, "lease_until": None, "finished_at": now}
        if secrets := tuple(secrets):
            ended["payload"] = _Blanked(job.payload, secrets)
        self.extend = update(table).where(mine).values(lease_until=until)
        self.release = update(table).where(mine).values(state=JobState.READY.value, claimed_key=None, lease_until=until)
        self.finish = update(table).where(mine).values(state=bindparam("final"), result=what, **ended)
        self.give_up = (
            update(table)
            .where(job.position == bindparam("at"))
            .values(state=JobState.FAILED.value, result=what, **ended)
        )
        self.cancel = (
            update(table)
            .where(job.id == bindparam("of_id"), job.state == JobState.READY)
            .values(state=JobState.CANCELLED.value, **ended)
        )
        self.revoke = (
            update(table)
            .where(job.serial_key == bindparam("of_key"), job.open_queue == bindparam("of_queue"))
            .values(state=JobState.CANCELLED.value, epoch=job.epoch + 1, **ended)
        )
        self.revoke_one = (
            update(table)
            .where(job.id == bindparam("of_id"), job.open_queue.is_not(None))
            .values(state=JobState.CANCELLED.value, epoch=job.epoch + 1, **ended)
        )
        self.old = (
            select(job.position)
            .where(job.finished_at < bindparam("before", type_=job.finished_at.type))
            .order_by(job.finished_at)
            .limit(bindparam("limit"))
        )
        self.last_done = select(func.max(job.position)).where(
            job.serial_key == bindparam("of_key"), job.state == JobState.DONE
        )
        self._table = table
        self.forget = delete(table).where(job.position.in_(bindparam("positions", expanding=True)))

    def end_leases_of(self, beginning: str) -> Update:
        """Ends the leases of all claims by workers whose names have this beginning."""
        job = self._table.c
        is_theirs = func.substr(job.worker, 1, len(beginning)) == beginning
        return (
            update(self._table)
            .where(job.open_queue.is_not(None), job.state == JobState.CLAIMED, is_theirs)
            .values(lease_until=bindparam("now", type_=job.lease_until.type))
        )


class _Blanked(FunctionElement[str]):
    """A JSON document as text, with an empty text in place of the value at each path that there is.

    The document is read and written once for all paths.
    """

    inherit_cache = True
    type = Text()

    def __init__(self, document: ColumnElement[Any], paths: Sequence[Path]) -> None:
        super().__init__(document, *(literal_column(".".join(path)) for path in paths))


@compiles(_Blanked)
def _replaced(element: _Blanked, compiler: SQLCompiler, **options: object) -> str:
    document, *paths = (compiler.process(clause, **options) for clause in element.clauses)
    blanks = ", ".join(f"'$.{path}', ''" for path in paths)
    return f"json_replace({document}, {blanks})"


@compiles(_Blanked, "postgresql")
def _set(element: _Blanked, compiler: SQLCompiler, **options: object) -> str:
    document, *paths = (compiler.process(clause, **options) for clause in element.clauses)
    blanked = f"CAST({document} AS jsonb)"
    for path in paths:
        blanked = f"jsonb_set({blanked}, '{{{path.replace('.', ',')}}}', '\"\"', false)"
    return f"CAST({blanked} AS text)"


def _in_queue(table: Table) -> ColumnElement[bool]:
    return table.c.open_queue == bindparam("of_queue")


def _is_claimable(table: Table) -> ColumnElement[bool]:
    """Whether worker ``by`` may claim the job ``now``: it is ready, its claim has ended, or the claim is ``by``'s."""
    job = table.c
    lease_over = job.lease_until <= bindparam("now", type_=job.lease_until.type)
    return and_(
        _in_queue(table),
        or_(
            and_(job.state == JobState.CLAIMED, or_(lease_over, job.worker == bindparam("by"))),
            and_(job.state == JobState.READY, or_(job.lease_until.is_(None), lease_over), _first_of_key(table)),
        ),
    )


def _first_of_key(table: Table) -> ColumnElement[bool]:
    """No other job of this key is claimed, and no older one is ready."""
    job, other = table.c, table.alias("other")
    same_key = other.c.serial_key == job.serial_key
    claimed = select(other.c.position).where(same_key, other.c.state == JobState.CLAIMED)
    older = select(other.c.position).where(same_key, other.c.state == JobState.READY, other.c.position < job.position)
    return and_(~claimed.exists(), ~older.exists())


#: Every service that has jobs has these families, each with the service's name in front.
_TEXTS = {
    "jobs_open": "Jobs that are not finished: ready, or claimed by a host or worker.",
    "jobs_oldest_seconds": "Age of the oldest job that is not finished.",
}


def job_gauge_families(service: str) -> tuple[GaugeFamily, ...]:
    return tuple(GaugeFamily(f"moorage_{service}_{name}", text, ("state",)) for name, text in _TEXTS.items())


def job_gauge_samples(service: str, connection: Connection, table: Table, now: datetime) -> Iterator[GaugeSample]:
    """Yields both open states always; the age of a state without jobs is 0 seconds."""
    job = table.c
    asked = select(job.state, func.count(), func.min(job.created_at)).where(job.open_queue.is_not(None))
    found = {state: (count, oldest) for state, count, oldest in connection.execute(asked.group_by(job.state))}
    for state in sorted(OPEN):
        count, oldest = found.get(state, (0, now))
        yield f"moorage_{service}_jobs_open", (state,), count
        yield f"moorage_{service}_jobs_oldest_seconds", (state,), max(0.0, (now - oldest).total_seconds())
