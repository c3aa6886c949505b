"""The use cases of placement, one attribute per subject: `providers`, `names`, `allocations`, `candidates`, `events`,
`history`.
"""

import os_resource_classes
import os_traits
from sqlalchemy import Connection, Engine, insert
from sqlalchemy.exc import IntegrityError

from moorage.core.clock import Clock
from moorage.core.errors import RetryableConflict
from moorage.core.ids import Ids
from moorage.db.questions import Asker
from moorage.db.transactions import in_transaction
from moorage.placement import changes, documents, store_names
from moorage.placement.service_allocations import AllocationService
from moorage.placement.service_candidates import CandidateService
from moorage.placement.service_events import EventService
from moorage.placement.service_history import HistoryService
from moorage.placement.service_names import NameService
from moorage.placement.service_providers import ProviderService
from moorage.placement.snapshot import Snapshot
from moorage.placement.tables import change_retention, change_sequence
from moorage.placement.writing import Writer


class PlacementService:
    """`start` brings the standard classes and traits into the database; it is to be called once per process."""

    def __init__(self, engine: Engine, clock: Clock, ids: Ids, *, watchers: int = 2) -> None:
        self._engine = engine
        self.clock = clock
        snapshot = Snapshot(engine, Asker(engine))
        writer = Writer(engine, snapshot, clock)
        self.providers = ProviderService(engine, snapshot, writer, ids)
        self.names = NameService(engine, snapshot, writer, clock)
        self.allocations = AllocationService(engine, snapshot, writer)
        self.candidates = CandidateService(snapshot)
        self.events = EventService(engine, watchers=watchers)
        self.history = HistoryService(engine, clock)

    def start(self) -> None:
        """Make the standard names those of os-traits and os-resource-classes. Harmless to repeat, also at once."""
        in_transaction(self._engine, self._synchronise)

    def _synchronise(self, connection: Connection) -> None:
        _ensure_counter(connection)
        now = self.clock.now()
        added = False
        for table, standard in (
            (store_names.CLASSES, list(os_resource_classes.STANDARDS)),
            (store_names.TRAITS, sorted(os_traits.get_traits())),
        ):
            known = {name.name for name in store_names.every(connection, table)}
            missing = [name for name in standard if name not in known]
            store_names.add(connection, table, missing, now, standard=True)
            added = added or bool(missing)
        if added:
            changes.Log(connection, now).add((documents.NAMES,))


def _ensure_counter(connection: Connection) -> None:
    """The one row of the counter, which then serialises the rest of this transaction among processes; and its log's."""
    statement = change_sequence.select().where(change_sequence.c.id == 1).with_for_update()
    if connection.execute(statement).first() is None:
        try:
            connection.execute(insert(change_sequence).values(id=1, last=0))
            connection.execute(insert(change_retention).values(id=1, first=0))
        except IntegrityError as error:
            raise RetryableConflict("another process starts on this new database at this moment") from error
