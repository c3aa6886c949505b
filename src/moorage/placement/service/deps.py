"""The dependencies of Placement's use cases (database, clock, ids, snapshot, committer), and their settings."""

from dataclasses import dataclass

from sqlalchemy import Engine

from moorage.core.clock import Clock
from moorage.core.ids import Ids
from moorage.placement.search.search_budget import MAX_STEPS
from moorage.placement.store.holding_store import AllocationReads
from moorage.placement.sync.committer import Committer
from moorage.placement.sync.meters import PlacementMeters
from moorage.placement.sync.snapshot import Snapshot


@dataclass(frozen=True)
class PlacementDeps:
    engine: Engine
    clock: Clock
    ids: Ids
    meters: PlacementMeters
    snapshot: Snapshot
    allocations: AllocationReads
    committer: Committer


@dataclass(frozen=True)
class PlacementSettings:
    watchers: int = 2  #: see `EventService`
    memory_s: float = 0.0  #: time for which reads continue from memory while the database does not answer
    max_search_steps: int = MAX_STEPS  #: limit of steps for one search
