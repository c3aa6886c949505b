"""The forest of this process, kept exact.

Own writes are applied when they are committed. Writes of other processes are read when the last change number (one
cheap query) has increased. So a reader sees all changes committed before its read. A writer has taken the next number,
so it sees the last commit, and no other process commits before it.

Nearly all writes are claims and releases. Their log entries contain the new usages of a provider, so one statement
(`_ENTRIES_SINCE`) is enough to follow them. All other changes are read from the tables.

While the database does not answer, requests in a `StaleRead` get the last known state and its age. A write
that was decided on an old state is not committed but decided again (`committer`). See docs/evidence/decisions/0008.
"""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import replace
from types import TracebackType
from typing import Self

import orjson
from sqlalchemy import Connection, Engine

from moorage.core.errors import Unavailable
from moorage.db.engine import is_in_process
from moorage.db.session import SharedRead, SingleReads, read_one_state
from moorage.db.statements import Command, Rows, Statement
from moorage.placement.forest.change_entries import SubjectKind
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import NameTable, Provider
from moorage.placement.rules.write_set import WriteSet
from moorage.placement.store import change_store, name_store, provider_store
from moorage.placement.store.write_set_sql import time_of
from moorage.placement.sync.meters import PlacementMeters

#: Maximum number of log entries to read; with more, reading the providers themselves is faster.
MAX_REFRESH_ENTRIES = 2_000


#: Entries about providers after a number, in the order of the log, one more than `MAX_REFRESH_ENTRIES`. The result has
#: at least one row, that of the counter. The number and the limit are inside the subquery, so that each database reads
#: one range of the primary key.
_ENTRIES_SINCE = Statement(
    "SELECT c.last, r.first, e.sequence, e.at, e.kind, e.provider_id, e.document "
    "FROM change_sequence AS c JOIN change_retention AS r ON r.id = c.id "
    "LEFT JOIN (SELECT sequence, position, at, kind, provider_id, document FROM changes "
    "WHERE provider_id IS NOT NULL AND sequence > (SELECT v.number FROM {rows}) "
    "ORDER BY sequence, position LIMIT 2001) AS e ON 1 = 1 "
    "WHERE c.id = 1 ORDER BY e.sequence, e.position",
    {"number": "int"},
    returns_rows=True,
)


class Snapshot:
    """Thread-safe: the forest is immutable and replaced under a lock."""

    def __init__(self, engine: Engine, reads: SingleReads, meters: PlacementMeters, *, memory_s: float = 0.0) -> None:
        self._engine = engine
        self._meters = meters
        query_last = reads.prepare(change_store.LAST).scalar
        #: With an in-process database, a query is cheaper than a query that several threads share.
        self._query_last = query_last if is_in_process(engine) else SharedRead(query_last)
        self._reads = reads
        self._lock = threading.Lock()
        self._forest: Forest | None = None
        self._memory_s = memory_s
        self._exact_at = time.monotonic()

    def cached(self) -> Forest:
        """The forest in memory; changes of other processes may be missing."""
        forest = self._forest
        return self.current() if forest is None else forest

    def current(self) -> Forest:
        """The forest with all changes that were committed before this call.

        If the database does not answer, returns the last exact forest if it is at most `memory_s` old and the request
        accepts stale data (`StaleRead`); otherwise raises `Unavailable`.
        """
        began = time.monotonic()
        try:
            forest = self._current()
        except Unavailable:
            age_s = began - self._exact_at
            if self._forest is None or age_s > self._memory_s or not accepts_stale_read(age_s):
                raise
            self._meters.from_memory.inc()
            return self._forest
        self._exact_at = began
        return forest

    def _current(self) -> Forest:
        before = self._forest
        last = self._query_last()
        if before is not None and before.sequence > last:
            return self.catch_up()  # the database was restored to an older state
        forest = self._forest
        return forest if forest is not None and forest.sequence >= last else self.catch_up(last)

    def entries_since(self) -> Command:
        """Reads what the forest in memory lacks."""
        return _entries_after(self.cached())

    def catch_up(self, number: int | None = None, entries: Rows = ()) -> Forest:
        """Reads the changes since the last read, the first time all tables; returns the new forest.

        Does not read if the forest includes change `number` already. None: always read. `entries`: the rows of
        `entries_since` up to `number`, if the caller has read them.
        """
        with self._lock:
            if self._forest is not None and number is not None and self._forest.sequence >= number:
                return self._forest
            with self._meters.timed(self._meters.catch_ups):
                forest = self._follow_claims(number, entries)
                self._forest = self._read_changes() if forest is None else forest
            return self._forest

    def record_write(self, write_set: WriteSet, after: Forest | None = None) -> None:
        """Applies a committed write of this process; call it in the order of change numbers.

        `after`: the forest of `write_set` with the write applied, if the caller has it. Does nothing if the forest does
        not include the change before that of `write_set`; the next read then catches up.
        """
        with self._lock:
            before = self._forest
            if before is None or before.sequence != write_set.sequence - 1:
                return
            made = after if before is write_set.forest else None
            self._forest = made or before.with_changes(write_set.providers, sequence=write_set.sequence)

    def record_names(self, sequence: int, on_names: Callable[[NameTable], NameTable]) -> None:
        """Applies a committed write of this process that changed only names. `on_names` returns the new name table."""
        with self._lock:
            before = self._forest
            if before is not None and before.sequence == sequence - 1:
                self._forest = before.with_changes({}, sequence=sequence, names=on_names(before.names))

    def _follow_claims(self, number: int | None, entries: Rows) -> Forest | None:
        """The current forest if all new changes are claims and releases; otherwise None."""
        if self._forest is None:
            return None
        if entries and number is not None:
            return forest_after(self._forest, entries, number)
        entries = self._reads.query(_entries_after(self._forest))
        return forest_after(self._forest, entries, entries[0][0])

    def _read_changes(self) -> Forest:
        with read_one_state(self._engine) as connection:
            return self._changed_forest(connection)

    def _changed_forest(self, connection: Connection) -> Forest:
        # Read the number first: if the statements read different states, changes are read twice, which is harmless.
        last = change_store.last_number(connection)
        forest = self._forest
        if forest is None:
            return self._build(connection, last)
        if last < forest.sequence:  # restored from a backup, or a standby without the last changes
            return self._build(connection, last)
        changed = change_store.provider_ids_since(connection, forest.sequence)
        if change_store.EVERYTHING in changed:
            return self._build(connection, last)
        names = (
            name_store.refreshed_name_table(connection, forest.names) if change_store.NAMES in changed else forest.names
        )
        ids = changed - {change_store.NAMES}
        states: dict[int, Provider | None] = dict.fromkeys(ids)
        states |= {provider.id: provider for provider in provider_store.some_providers(connection, names, ids)}
        return forest.with_changes(states, sequence=last, names=names)

    def _build(self, connection: Connection, last: int) -> Forest:
        with self._meters.timed(self._meters.builds), _without_garbage_collection():
            names = name_store.name_table(connection)
            return Forest.build(provider_store.all_providers(connection, names), names, last)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disables garbage collection, which would visit a million new objects dozens of times.

    None of them is in a cycle.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _entries_after(forest: Forest) -> Command:
    return _ENTRIES_SINCE, [{"number": forest.sequence}]


def forest_after(forest: Forest, rows: Rows, last: int) -> Forest | None:
    """The forest with the changes in `rows`, the result of `Snapshot.entries_since`, of which the last is `last`.

    None if `rows` do not contain all changes.
    """
    first = rows[0][1]
    if last < forest.sequence or forest.sequence + 1 < first or len(rows) > MAX_REFRESH_ENTRIES:
        return None
    states: dict[int, Provider | None] = {}
    for _, _, number, at, kind, provider_id, document in reversed(rows):
        if kind is None:
            continue  # the counter's row without a change of a provider
        old = forest.by_id(provider_id)
        if kind != SubjectKind.USAGES or old is None:
            return None
        if provider_id not in states:
            new = orjson.loads(document)
            states[provider_id] = replace(
                old, generation=new["generation"], revision=number, updated_at=time_of(at), used=new["usages"]
            )
    return forest.with_changes(states, sequence=last)


class StaleRead:
    """A context in which the request accepts stale data.

    `age_s`: seconds since the data of the answer was known to be exact; None: the answer is exact.
    """

    __slots__ = ("_token", "age_s")

    _token: "Token[StaleRead | None]"

    def __init__(self) -> None:
        self.age_s: float | None = None

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._token)


_current: ContextVar[StaleRead | None] = ContextVar("reading", default=None)


def accepts_stale_read(age_s: float) -> bool:
    """True if the current request accepts stale data; then records the greatest `age_s` in its `StaleRead`."""
    stale_read = _current.get()
    if stale_read is None:
        return False
    stale_read.age_s = max(age_s, stale_read.age_s or 0.0)
    return True
