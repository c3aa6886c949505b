"""The forest of this process, kept exact.

Own writes are put in as they are committed; those of other processes are read when the last number of the change
log (one cheap statement) says that there are some. A reader therefore sees everything that was committed before
it asked, and a writer's revision check finds out whatever came after.
"""

import threading
from collections.abc import Mapping

from sqlalchemy import Connection, Engine

from moorage.db.questions import Asker, Together
from moorage.db.transactions import read_one_state
from moorage.placement import changes, store
from moorage.placement.forest import Forest
from moorage.placement.model import Provider


class Snapshot:
    """Thread-safe: the forest is immutable and replaced under a lock."""

    def __init__(self, engine: Engine, asker: Asker) -> None:
        self._engine = engine
        self._last = Together(asker.question(changes.LAST).number)
        self._lock = threading.Lock()
        self._forest: Forest | None = None
        #: Numbers of own writes that are in the forest while an earlier number is not.
        self._ahead: set[int] = set()

    def held(self) -> Forest:
        """The forest as this process has it, perhaps behind others: for decisions that are verified when written."""
        return self._forest or self.current()

    def current(self) -> Forest:
        """The forest with everything that was committed before this call."""
        forest = self._forest
        if forest is None or self._last() > forest.sequence:
            return self.catch_up()
        return forest

    def catch_up(self) -> Forest:
        """Read what changed since; everything at the first time."""
        with self._lock:
            with read_one_state(self._engine) as connection:
                forest = self._read(connection)
            self._forest = forest
            self._ahead = {number for number in self._ahead if number > forest.sequence}
            return forest

    def wrote(self, sequence: int, providers: Mapping[int, Provider]) -> None:
        """An own write is committed: `providers` as it left them. Later states are not overwritten."""
        with self._lock:
            if self._forest is None:
                return
            newer: dict[int, Provider | None] = {}
            for provider_id, provider in providers.items():
                present = self._forest.by_id(provider_id)
                if present is not None and present.revision < provider.revision:
                    newer[provider_id] = provider
            self._ahead.add(sequence)
            reached = self._forest.sequence
            while reached + 1 in self._ahead:
                reached += 1
                self._ahead.remove(reached)
            self._forest = self._forest.with_changes(newer, sequence=reached)

    def _read(self, connection: Connection) -> Forest:
        # The number first: on a database without one state for all statements, reading too much does no harm.
        last = changes.last(connection)
        forest = self._forest
        if forest is None:
            return Forest.build(store.all_providers(connection), store.names(connection), last)
        changed = changes.since(connection, forest.sequence)
        if changes.EVERYTHING in changed:
            return Forest.build(store.all_providers(connection), store.names(connection), last)
        names = store.names(connection) if changes.NAMES in changed else None
        ids = changed - {changes.NAMES}
        states: dict[int, Provider | None] = dict.fromkeys(ids)
        states |= {provider.id: provider for provider in store.some_providers(connection, ids)}
        return forest.with_changes(states, sequence=last, names=names)
