"""All accounts in memory, at most one second old, and the one way to change them.

A request reads no row: `accounts` looks at the revision in the database at most once in `RELOAD_PERIOD`, and reads
everything again if another process has changed it. All changes wait for each other, so a decision sees every earlier
one; a process sees its own changes at once.
"""

import threading
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.db.session import in_transaction, read_one_state
from moorage.identity.model import Accounts, Change
from moorage.identity.store.account_store import next_revision, read_accounts, read_revision, write_change
from moorage.identity.watched_files import RELOAD_PERIOD

T = TypeVar("T")

#: Decides on a change: (result, the records to write). Runs again if the database aborts the transaction.
Decide = Callable[[Accounts], tuple[T, Change]]


class AccountDatabase:
    """Thread-safe."""

    def __init__(self, engine: Engine, clock: Clock, on_check: Callable[[], None] = lambda: None) -> None:
        """Reads everything. `on_check` is called with each look at the revision, never by two threads at once. Raises
        `Unavailable` if the database does not answer.
        """
        self._engine = engine
        self._clock = clock
        self._on_check = on_check
        self._lock = threading.Lock()
        self._next_check = clock.now() + RELOAD_PERIOD
        self._known: tuple[int, Accounts] = _read(engine)

    def accounts(self) -> Accounts:
        """Raises `Unavailable` if the database does not answer: without it nobody knows who was removed."""
        now = self._clock.now()
        # The second condition holds if the clock was set back; the next check would be far away.
        if now >= self._next_check or now < self._next_check - RELOAD_PERIOD:
            with self._lock:
                self._reread_if_due(now)
        return self._known[1]

    @property
    def read_at(self) -> datetime:
        """When this process last looked at the revision."""
        return self._next_check - RELOAD_PERIOD

    def read_now(self) -> None:
        """Looks at the revision now. Raises `Unavailable` if the database does not answer."""
        with self._lock:
            self._reread(self._clock.now())

    def change(self, decide: Decide[T]) -> T:
        """Writes what `decide` returns. Durable, and visible in this process, when this returns."""

        def work(connection: Connection) -> T:
            revision = next_revision(connection)
            known_revision, known = self._known
            # A write of another process, or of another thread whose transaction this one shares, came in between.
            accounts = known if known_revision == revision - 1 else read_accounts(connection)
            result, change = decide(accounts)
            write_change(connection, change)
            return result

        result = in_transaction(self._engine, work)
        self.read_now()
        return result

    def _reread_if_due(self, now: datetime) -> None:
        if self._next_check - RELOAD_PERIOD <= now < self._next_check:  # another thread was quicker
            return
        self._reread(now)
        self._on_check()

    def _reread(self, now: datetime) -> None:
        with read_one_state(self._engine) as connection:
            revision = read_revision(connection)
            if revision != self._known[0]:
                self._known = (revision, read_accounts(connection))
        self._next_check = now + RELOAD_PERIOD


def _read(engine: Engine) -> tuple[int, Accounts]:
    with read_one_state(engine) as connection:
        return read_revision(connection), read_accounts(connection)
