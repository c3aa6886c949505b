"""Results of a run: medians over rounds, spreads, ratios, and whether floors are reached."""

import statistics
from collections import Counter
from dataclasses import dataclass, field

from bench.floors import Floor, Unit
from bench.load import Round

UPSTREAM, OURS = "upstream", "ours"


@dataclass
class Side:
    """One server in one row, with a value per round. Milliseconds; CPU of the server and of its database together."""

    p50_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    #: The database server's part of `cpu_ms`.
    database_cpu_ms: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)
    p99_ms: float | None = None
    requests: int = 0
    statuses: dict[int, int] = field(default_factory=dict)
    #: The error, if there are no values.
    note: str = ""

    def add(self, found: Round, size: int) -> None:
        done = len(found.latencies)
        self.p50_ms.append(statistics.median(found.latencies) * 1e3)
        self.cpu_ms.append((found.server_cpu + found.database_cpu) / done * 1e3)
        self.database_cpu_ms.append(found.database_cpu / done * 1e3)
        self.per_second.append(done * size / found.wall)
        self.requests += done
        self.statuses = dict(Counter(self.statuses) + found.statuses)


@dataclass
class Row:
    name: str
    profile: str  #: of its cloud
    hosts: int
    clients: int
    floor: Floor | None
    upstream: Side = field(default_factory=Side)
    ours: Side = field(default_factory=Side)
    #: Average number of cores used by processes outside of this run.
    strangers: float = 0.0
    #: Only for memory: MiB of upstream and ours, including the database server.
    memory_mib: tuple[float, float] | None = None
    warnings: list[str] = field(default_factory=list)

    def times(self, what: str) -> list[float]:
        """Upstream / ours by ``p50_ms`` or ``cpu_ms``, per round; empty if upstream has no figure."""
        pairs = zip(getattr(self.upstream, what), getattr(self.ours, what), strict=False)
        return [theirs / own for theirs, own in pairs if own > 0]

    def ratio(self, what: str) -> float | None:
        theirs, own = median(getattr(self.upstream, what)), median(getattr(self.ours, what))
        return theirs / own if theirs and own else None

    def verdict(self) -> str:
        """``reached``, ``missed``, or empty without a floor or figure."""
        if self.floor is None:
            return ""
        value = self.ratio("cpu_ms") if self.floor.unit is Unit.TIMES else median(self.ours.p50_ms)
        return "" if value is None else "reached" if self.floor.is_reached(value) else "missed"


def median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def spread(values: list[float]) -> float | None:
    """Half the distance between the extreme rounds, relative to their median."""
    middle = median(values)
    return (max(values) - min(values)) / 2 / middle if middle else None
