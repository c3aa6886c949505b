"""Prometheus metrics of placement: searches, claims, commits, and how current this process's forest is.

The operators' reference is `docs/reference/metrics.md`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_SHORT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_LONG_S = (0.001, 0.01, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64)

#: Labels that are exported from the start, with 0.
_SEARCHES = ("found", "empty", "over_limit")
_CLAIMS = ("conflict", "no_capacity", "not_found", "invalid", "unavailable", "committed", "failed")


class PlacementMeters:
    """The metrics of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"moorage_placement_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"moorage_placement_{name}", text, registry=registry, buckets=buckets)

        self.searches = counter("searches", "Searches for allocation candidates, by outcome.", "outcome")
        self.claims = counter("claims", "Claims and releases of allocations, by outcome.", "outcome")
        self.group_sizes = histogram("group_size", "Writes that shared one transaction.", _SIZES)
        self.commits = histogram(
            "commit_duration_seconds", "Duration of writing transactions, from begin to commit.", _SHORT_S
        )
        self.repeats = counter("transactions_repeated", "Repetitions of transactions that the database had aborted.")
        self.stale_forests = counter(
            "pictures_old", "Writes for which the forest of this process was older than the database."
        )
        self.from_memory = counter("reads_from_memory", "Reads answered from memory while the database did not answer.")
        self.catch_ups = histogram(
            "catch_up_duration_seconds", "Duration of reading the writes of other processes.", _LONG_S
        )
        self.builds = histogram(
            "build_duration_seconds", "Duration of reading the whole database into memory.", _LONG_S
        )
        self.watches = counter(
            "watches", "Answers to watchers: kept open, or complete with a reconnect delay.", "answer"
        )
        for labelled, outcomes in ((self.searches, _SEARCHES), (self.claims, _CLAIMS)):
            for outcome in outcomes:
                labelled.labels(outcome)
        self._registry = registry

    @contextmanager
    def timed(self, histogram: Histogram) -> Iterator[None]:
        """Records the duration of a block, also if it raises."""
        began = perf_counter()
        try:
            yield
        finally:
            histogram.observe(perf_counter() - began)

    def export_gauges(self, gauges: Callable[[], dict[str, tuple[str, float]]]) -> None:
        """Export, at each scrape, {name: (help text, value)}."""
        self._registry.register(_Gauges(gauges))

    def export_capacity(self, capacities: Callable[[], dict[str, tuple[int, int]]]) -> None:
        """Export, at each scrape, {resource class: (capacity, used)}."""
        self._registry.register(_Capacities(capacities))


class _Capacities(Collector):
    def __init__(self, capacities: Callable[[], dict[str, tuple[int, int]]]) -> None:
        self._capacities = capacities

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        capacity = GaugeMetricFamily(
            "moorage_placement_capacity", "Units that may be allocated in total.", labels=["resource_class"]
        )
        used = GaugeMetricFamily("moorage_placement_used", "Units that are allocated.", labels=["resource_class"])
        for name, (units, held) in sorted(self._capacities().items()):
            capacity.add_metric([name], units)
            used.add_metric([name], held)
        yield capacity
        yield used


class _Gauges(Collector):
    def __init__(self, gauges: Callable[[], dict[str, tuple[str, float]]]) -> None:
        self._gauges = gauges

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Returns nothing, because registering must not query a database that may not answer."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, (text, value) in self._gauges().items():
            yield GaugeMetricFamily(f"moorage_placement_{name}", text, value=value)
