"""Creates the services of placement, starts them, and computes the gauges."""

import os_resource_classes
import os_traits
from prometheus_client import CollectorRegistry
from sqlalchemy import Connection, Engine, insert
from sqlalchemy.exc import IntegrityError

from moorage.core.clock import Clock
from moorage.core.errors import MoorageError, RetryableConflict
from moorage.core.ids import Ids
from moorage.core.names import is_reservation_class
from moorage.db.session import SingleReads, in_transaction, read
from moorage.placement.forest import change_entries
from moorage.placement.service.allocation_service import AllocationService
from moorage.placement.service.deps import PlacementDeps, PlacementSettings
from moorage.placement.service.event_service import EventService
from moorage.placement.service.history_service import ChangeHistoryService
from moorage.placement.service.name_service import NameService
from moorage.placement.service.provider_service import ProviderService
from moorage.placement.service.search_service import CandidateService, CloudSummaryService
from moorage.placement.store import change_store, name_store
from moorage.placement.store.holding_store import AllocationReads
from moorage.placement.store.tables import change_retention, change_sequence
from moorage.placement.sync.committer import Committer
from moorage.placement.sync.meters import PlacementMeters
from moorage.placement.sync.snapshot import Snapshot

#: Label of all reservation classes together in the capacity metrics.
ALL_RESERVATIONS = "CUSTOM_RESERVATION_*"


class PlacementService:
    """The use cases, one attribute per subject. Call `start` once per process, before all other methods."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        settings: PlacementSettings | None = None,
        *,
        registry: CollectorRegistry | None = None,
    ) -> None:
        settings = settings or PlacementSettings()
        self._engine = engine
        self.clock = clock
        meters = PlacementMeters(registry or CollectorRegistry())
        reads = SingleReads(engine)
        snapshot = Snapshot(engine, reads, meters, memory_s=settings.memory_s)
        committer = Committer(engine, snapshot, clock, meters)
        deps = PlacementDeps(engine, clock, ids, meters, snapshot, AllocationReads(reads), committer)
        self.providers = ProviderService(deps)
        self.names = NameService(deps)
        self.allocations = AllocationService(deps)
        self.candidates = CandidateService(deps, settings)
        self.events = EventService(engine, meters, watchers=settings.watchers)
        self.history = ChangeHistoryService(deps)
        self.cloud_summary = CloudSummaryService(deps, self.history)

        self._snapshot = snapshot
        meters.export_gauges(self._gauges)
        meters.export_capacity(self._capacities)

    def start(self) -> None:
        """Add missing standard resource classes and traits to the database, and read everything into memory.

        May be repeated, also concurrently.
        """
        in_transaction(self._engine, self._add_standard_names)
        self._snapshot.current()

    def _add_standard_names(self, connection: Connection) -> None:
        _ensure_counter(connection)
        now = self.clock.now()
        added = False
        for table, standard in (
            (name_store.CLASSES, list(os_resource_classes.STANDARDS)),
            (name_store.TRAITS, sorted(os_traits.get_traits())),
        ):
            known = {name.name for name in name_store.all_names(connection, table)}
            missing = [name for name in standard if name not in known]
            name_store.add_names(connection, table, missing, now, standard=True)
            added = added or bool(missing)
        if added:
            log = change_store.ChangeLogWriter(connection, now)
            log.add((change_entries.NAMES,))

    def _gauges(self) -> dict[str, tuple[str, float]]:
        """{name: (help text, value)}; without values from the database while it does not answer."""
        gauges: dict[str, tuple[str, float]] = {
            "watches_open": ("Open watches; each occupies a thread of the server.", self.events.open_watches)
        }
        try:
            with read(self._engine) as connection:
                last = change_store.last_number(connection)
                retention = change_store.read_retention(connection)
            forest = self._snapshot.cached()
        except MoorageError:
            return gauges
        now = self.clock.now()
        history_s = (now - retention.since).total_seconds() if retention.since else 0.0
        return gauges | {
            "sequence": ("Number of the last change in the database.", last),
            "sequence_lag": ("Changes that the forest of this process does not have yet.", last - forest.sequence),
            "changes_kept": ("Number of retained changes.", last - max(0, retention.first - 1)),
            "history_reach_seconds": ("Age of the oldest known state; 0: all states are known.", history_s),
            "providers": ("Resource providers.", len(forest)),
        }

    def _capacities(self) -> dict[str, tuple[int, int]]:
        """{resource class: (capacity, units in use)} of the cached forest; empty before it is loaded.

        The classes of reservations, which exist for days only, are summed up under one name.
        """
        try:
            columns = self._snapshot.cached().columns
        except MoorageError:
            return {}
        summed: dict[str, tuple[int, int]] = {}
        for name, column in columns.items():
            shown = ALL_RESERVATIONS if is_reservation_class(name) else name
            capacity, used = summed.get(shown, (0, 0))
            summed[shown] = (capacity + int(column.capacity.sum()), used + int(column.used.sum()))
        return summed


def _ensure_counter(connection: Connection) -> None:
    """Creates the rows of the counter and of the retention; the first serialises concurrent starts of processes."""
    statement = change_sequence.select().where(change_sequence.c.id == 1).with_for_update()
    if connection.execute(statement).first() is None:
        try:
            connection.execute(insert(change_sequence).values(id=1, last=0))
            connection.execute(insert(change_retention).values(id=1, first=0))
        except IntegrityError as error:
            raise RetryableConflict("another process is starting on this new database; repeat the start") from error
