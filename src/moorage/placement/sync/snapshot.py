"""The forest of this process, kept exact.

Own writes are applied as they are committed. Writes of other processes are read when the last change number (one cheap
statement) has increased; a process that holds the writer lease (`store.writer_lease`) need not ask for it. So a
reader sees all changes committed before its read. A writer has taken the next number, so it sees the last commit, and no
other process commits before it.

Nearly all writes are claims and releases, and their log entries contain a provider's new usages, so one statement
(`ENTRIES_SINCE`) is enough to follow them. Any other change is read from the tables.
"""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import orjson
from sqlalchemy import Connection, Engine, bindparam, select

from moorage.core.errors import Unavailable
from moorage.db.driver_connections import Rows
from moorage.db.engine import is_in_process
from moorage.db.single_reads import SharedReader, SingleReads
from moorage.db.transactions import read_one_state
from moorage.placement.forest.change_documents import SubjectKind
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import NameTable, Provider
from moorage.placement.rules.write_set import WriteSet
from moorage.placement.store import change_log, name_store, provider_store
from moorage.placement.store.tables import change_retention as retention
from moorage.placement.store.tables import change_sequence as counter
from moorage.placement.store.tables import changes, providers
from moorage.placement.store.writer_lease import WriterLease
from moorage.placement.sync import stale_reads
from moorage.placement.sync.meters import PlacementMeters

#: Number of log entries; beyond it, reading the providers themselves is quicker.
MAX_REFRESH_ENTRIES = 2_000


#: Has at least one row, because of the counter; in the order of the log.
ENTRIES_SINCE = (
    select(
        counter.c.last,
        retention.c.first,
        changes.c.kind,
        changes.c.provider_id,
        changes.c.document,
        providers.c.generation,
        providers.c.revision,
        providers.c.updated_at,
    )
    .select_from(
        counter.join(retention, retention.c.id == counter.c.id)
        .outerjoin(changes, (changes.c.sequence > bindparam("after")) & changes.c.provider_id.is_not(None))
        .outerjoin(providers, providers.c.id == changes.c.provider_id)
    )
    .where(counter.c.id == 1)
    .order_by(changes.c.sequence, changes.c.position)
    .limit(MAX_REFRESH_ENTRIES + 1)
)


class Snapshot:
    """Thread-safe: the forest is immutable and replaced under a lock."""

    def __init__(
        self, engine: Engine, asker: SingleReads, meters: PlacementMeters, lease: WriterLease, *, memory_s: float = 0.0
    ) -> None:
        self._engine = engine
        self._is_near = is_in_process(engine)
        self._meters = meters
        self._lease = lease
        ask = asker.prepare(change_log.LAST).scalar
        #: With an in-process database, a query costs less than threads that wait for each other.
        self._last = ask if is_in_process(engine) else SharedReader(ask)
        self._since = asker.prepare(ENTRIES_SINCE)
        self._lock = threading.Lock()
        self._forest: Forest | None = None
        self._memory_s = memory_s
        self._exact_at = time.monotonic()

    def cached(self) -> Forest:
        """The forest as this process has it; may be behind other processes."""
        return self._forest or self.current()

    def current(self) -> Forest:
        """The forest with all changes that were committed before this call.

        If the database does not answer, returns the last exact forest if it is at most `memory_s` old and the request accepts
        stale data (`sync.stale_reads`); otherwise raises `Unavailable`.
        """
        asked = time.monotonic()
        try:
            forest = self._current()
        except Unavailable:
            age_s = asked - self._exact_at
            if self._forest is None or age_s > self._memory_s or not stale_reads.accepts_stale_read(age_s):
                raise
            self._meters.from_memory.inc()
            return self._forest
        self._exact_at = asked
        return forest

    def current_without_query(self) -> Forest | None:
        """Same as `current` if that takes no round trip; otherwise None."""
        if self._is_near:
            return self._current()
        before, last = self._forest, self._lease.last()
        forest = self._forest
        if last is None or before is None or forest is None or not before.sequence <= last <= forest.sequence:
            return None
        self._meters.reads_under_lease.inc()
        return forest

    def _current(self) -> Forest:
        before = self._forest
        last = self._lease.last()
        if last is None:
            last = self._last()
            self._meters.reads_asked.inc()
        else:
            self._meters.reads_under_lease.inc()
        if before is not None and before.sequence > last:
            return self.catch_up()  # the database was set back to an older state
        forest = self._forest
        return forest if forest is not None and forest.sequence >= last else self.catch_up(last)

    def catch_up(self, number: int | None = None) -> Forest:
        """Reads the changes since the last read (the first time, all tables); returns the new forest.

        Reads nothing if the forest already includes change `number`. None: read in any case.
        """
        with self._lock:
            if self._forest is not None and number is not None and self._forest.sequence >= number:
                return self._forest
            with self._meters.timed(self._meters.catch_ups):
                self._forest = self._with_claims() or self._read()
            return self._forest

    def record_write(self, sequence: int, write_set: WriteSet, after: Forest | None = None) -> None:
        """Applies a committed write of this process; call in the order of change numbers.

        `after`: the forest of `write_set` with the write applied, if the caller has it. Does nothing if the forest does not
        have the change number before `sequence`; the next read then catches up.
        """
        with self._lock:
            before = self._forest
            if before is None or before.sequence != sequence - 1:
                return
            made = after if before is write_set.forest else None
            self._forest = made or before.with_changes(write_set.providers, sequence=sequence)

    def record_names(self, sequence: int, on_names: Callable[[NameTable], NameTable]) -> None:
        """Applies a committed write of this process that changed only names, without reading them.

        `on_names` returns the name table with the change.
        """
        with self._lock:
            before = self._forest
            if before is not None and before.sequence == sequence - 1:
                self._forest = before.with_changes({}, sequence=sequence, names=on_names(before.names))

    def _with_claims(self) -> Forest | None:
        """The current forest if other processes have only claimed and released; otherwise None."""
        if self._forest is None:
            return None
        return forest_after(self._forest, self._since(after=self._forest.sequence))

    def _read(self) -> Forest:
        with read_one_state(self._engine) as connection:
            return self._changed(connection)

    def _changed(self, connection: Connection) -> Forest:
        # The number first: on a database without one state for all statements, reading too much does no harm.
        last = change_log.last_number(connection)
        forest = self._forest
        if forest is None:
            return self._build(connection, last)
        if last < forest.sequence:  # set back: from a backup, or to a standby that had not heard of all
            return self._build(connection, last)
        changed = change_log.provider_ids_since(connection, forest.sequence)
        if change_log.EVERYTHING in changed:
            return self._build(connection, last)
        names = (
            name_store.refreshed_name_table(connection, forest.names) if change_log.NAMES in changed else forest.names
        )
        ids = changed - {change_log.NAMES}
        states: dict[int, Provider | None] = dict.fromkeys(ids)
        states |= {provider.id: provider for provider in provider_store.some_providers(connection, names, ids)}
        return forest.with_changes(states, sequence=last, names=names)

    def _build(self, connection: Connection, last: int) -> Forest:
        with self._meters.timed(self._meters.builds), _uncollected():
            names = name_store.name_table(connection)
            return Forest.build(provider_store.all_providers(connection, names), names, last)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disables garbage collection: it would walk a million new objects dozens of times, and none of them is in a cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def forest_after(forest: Forest, rows: Rows) -> Forest | None:
    """The forest with the changes in `rows`, the result of `ENTRIES_SINCE`; None if `rows` do not contain all of them."""
    last, first = rows[0][:2]
    if last < forest.sequence or forest.sequence + 1 < first or len(rows) > MAX_REFRESH_ENTRIES:
        return None
    states: dict[int, Provider | None] = {}
    for _, _, kind, provider_id, document, generation, revision, updated_at in reversed(rows):
        if kind is None:
            continue  # the counter's row without a change of a provider
        old = forest.by_id(provider_id)
        if kind != SubjectKind.USAGES or old is None or generation is None:
            return None
        if provider_id not in states:
            used = orjson.loads(document)["usages"]
            states[provider_id] = replace(
                old, generation=generation, revision=revision, updated_at=updated_at, used=used
            )
    return forest.with_changes(states, sequence=last)
