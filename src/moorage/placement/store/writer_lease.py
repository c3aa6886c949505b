"""The lease under which one process alone writes, so that it knows without asking that no other process has
written.

It is kept in the row that every writer updates first. The holder counts it for less than its length, from before
the request was sent; other processes count its whole length from the moment they saw it. Each uses its own
monotonic clock, so clocks need not agree; their speeds must only not differ by as much as `MARGIN`. See
docs/evidence/decisions/0013.

Not here: when the row is read and renewed (`sync.writer_lease_task`).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy.exc import IntegrityError

from moorage.core.clock import boot_time
from moorage.core.errors import MoorageError, Unavailable
from moorage.db.driver_connections import Rows
from moorage.db.statement_pipelines import Command, PreconditionFailed, Statement, StatementPipeline

#: Fraction of the lease's length that its holder does not rely on.
MARGIN = 0.1
#: Another process counts as present for this long after it was last seen.
SHARED_S = 10.0

_NEVER = float("-inf")


class LeaseRow(NamedTuple):
    """The lease as all processes see it. Each change of `holder` or `visitor`, and each renewal, increases `version`."""

    last: int  #: number of the last change
    holder: str | None  #: whose lease it is, as `WriterLease.name`
    length_s: float
    version: int
    visitor: str | None  #: the process that changed the row last, as the first part of `WriterLease.name`


@dataclass(frozen=True, slots=True)
class LeaseChange:
    """New values for the row, written only if its version still is `version`; the version then increases by one."""

    version: int
    holder: str | None
    length_s: float
    visitor: str | None


class WriterLease:
    """One process's view of the lease. Thread-safe.

    `process` is unique to this process, also across restarts. `length_s`: of the lease, while this process holds it.
    """

    def __init__(self, process: str, *, length_s: float = 1.0, clock: Callable[[], float] = boot_time) -> None:
        self.length_s = length_s
        self.process = process
        self._clock = clock
        self._lock = threading.Lock()
        #: Counts how often the lease was renounced.
        self._incarnation = 0
        self._valid_until = _NEVER
        #: Of the last change that this process knows of.
        self._last = 0
        #: Own transactions whose outcome is not in `_last` yet.
        self._writing = 0
        #: The row as it was seen last, and since when its version was seen.
        self._seen: tuple[LeaseRow, float] | None = None
        self._shared_until = _NEVER
        self._is_wanted = False

    @property
    def name(self) -> str:
        """The holder's name. It changes with each `renounce`, so requests still under way under the old name are refused."""
        return f"{self.process}.{self._incarnation}"

    # --- for readers --------------------------------------------------------------------------------------------

    def last(self) -> int | None:
        """The last change number in the database at some moment of this call; None: ask the database.

        A change that this process is committing may be visible to others and not yet be known here.
        """
        self._is_wanted = True
        if self._writing or self._clock() >= self._valid_until:
            return None
        return self._last

    # --- for writers --------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Enter around everything that may end in a commit, and `wrote`. If the outcome of a commit is unknown, no read may rely
        on the lease until it is taken again.
        """
        with self._lock:
            self._writing += 1
        try:
            yield
        except BaseException as error:
            if not _is_known_to_have_failed(error):
                self.renounce()
            raise
        finally:
            with self._lock:
                self._writing -= 1

    def wrote(self, number: int) -> None:
        """An own change is committed."""
        with self._lock:
            self._last = max(self._last, number)

    def is_in_the_way(self, holder: str | None) -> bool:
        """True if another process holds it."""
        return holder is not None and not self._is_own(holder)

    def left_s(self, row: LeaseRow) -> float:
        """How long another process may still rely on the lease in `row`, which was read before this call."""
        if not self.is_in_the_way(row.holder):
            return 0.0
        with self._lock:
            since = self._see(row)
        return max(0.0, since + row.length_s - self._clock())

    # --- for the renewing task ----------------------------------------------------------------------------------

    def wanted_change(self) -> LeaseChange | None:
        """The change to make to the row; None: only read it."""
        seen = self._seen
        if seen is None:
            return None
        row, _ = seen
        is_free = row.holder is None or self._is_own(row.holder) or self.left_s(row) == 0
        is_alone = row.visitor in (None, self.process) and self._clock() >= self._shared_until
        if is_free and is_alone and self._is_wanted:
            return LeaseChange(row.version, self.name, self.length_s, self.process)
        following = None if is_free else row.holder
        if (following, self.process) == (row.holder, row.visitor):
            return None
        return LeaseChange(row.version, following, row.length_s, self.process)

    def answered(self, wanted_change: LeaseChange | None, row: LeaseRow, sent: float, known: int) -> bool:
        """Record the row as it is after `wanted_change`. True if this process now holds the lease.

        `sent` and `known`: the clock and `known()` before the request was sent.
        """
        with self._lock:
            was_set_back = row.last < known or (self._seen is not None and row.version < self._seen[0].version)
            if was_set_back:
                self._begin_anew()
            now = self._see(row)
            if row.visitor not in (None, self.process):
                self._shared_until = max(self._shared_until, now + SHARED_S)
            is_held = (
                wanted_change is not None
                and wanted_change.holder == self.name
                # Another process that has changed the row since would be its visitor.
                and (row.holder, row.version, row.visitor)
                == (wanted_change.holder, wanted_change.version + 1, self.process)
            )
            if is_held:
                self._last = max(self._last, row.last)
                self._is_wanted = False
            self._valid_until = sent + (1 - MARGIN) * self.length_s if is_held else _NEVER
            return is_held

    def known(self) -> int:
        return self._last

    def now(self) -> float:
        return self._clock()

    def renounce(self) -> None:
        """From now on this process asks the database, until it has taken the lease again."""
        with self._lock:
            self._begin_anew()

    def leave(self) -> LeaseChange | None:
        """`renounce` for good. Returns the change to the row that frees it, so that no process waits for this one."""
        seen = self._seen
        self.renounce()
        if seen is None or seen[0].visitor != self.process:
            return None
        row, _ = seen
        return LeaseChange(row.version, row.holder if self.is_in_the_way(row.holder) else None, row.length_s, None)

    def _begin_anew(self) -> None:
        self._incarnation += 1
        self._valid_until = _NEVER
        self._last = 0
        self._seen = None

    def _see(self, row: LeaseRow) -> float:
        """Returns since when the row is known to have this state."""
        if self._seen is None or self._seen[0].version != row.version or self._seen[0].holder != row.holder:
            self._seen = row, self._clock()
        return self._seen[1]

    def _is_own(self, holder: str) -> bool:
        return holder.partition(".")[0] == self.process


def _is_known_to_have_failed(error: BaseException) -> bool:
    """True if nothing was written, and nothing will be."""
    if isinstance(error, MoorageError):
        return not isinstance(error, Unavailable)
    return isinstance(error, PreconditionFailed | IntegrityError)


_ROW = Statement(
    "SELECT last, lease_holder, lease_ms, lease_version, lease_visitor FROM change_sequence WHERE id = 1",
    returns_rows=True,
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


def select_row() -> Command:
    return _ROW, None


def change_row(wanted_change: LeaseChange) -> Command:
    """Does nothing if the row has another version."""
    length_ms = round(wanted_change.length_s * 1000)
    return _CHANGE, [
        {
            "holder": wanted_change.holder,
            "length_ms": length_ms,
            "version": wanted_change.version,
            "visitor": wanted_change.visitor,
        }
    ]


def row_of(answer: Rows) -> LeaseRow:
    ((last, holder, length_ms, version, visitor),) = answer
    return LeaseRow(last, holder, length_ms / 1000, version, visitor)


def exchange_row(batches: StatementPipeline, wanted_change: LeaseChange | None) -> LeaseRow:
    """Change the row, if there is a change to make, and read it: in one round trip."""
    with batches.transaction() as transaction:
        return row_of(
            transaction.commit(*([change_row(wanted_change)] if wanted_change is not None else []), select_row())[-1]
        )
