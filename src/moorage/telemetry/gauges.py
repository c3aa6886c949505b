"""What a database says at the moment of a scrape, as gauges: one short transaction of each service.

While the database does not answer there are no samples: an old number would be believed. Families are described all
the same, so the page for operators can be held against them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import Connection, Engine

from moorage.core.errors import MoorageError
from moorage.db.transactions import read

#: (name of the family, values of its labels in their order, value)
Sample = tuple[str, tuple[str, ...], float]


@dataclass(frozen=True)
class Family:
    name: str
    text: str
    labels: tuple[str, ...] = ()


class DatabaseGauges(Collector):
    """`families` of one service, filled by `samples`, which runs in a transaction that only reads."""

    def __init__(
        self,
        registry: CollectorRegistry,
        engine: Engine,
        families: Iterable[Family],
        samples: Callable[[Connection], Iterable[Sample]],
    ) -> None:
        self._engine = engine
        self._families = tuple(families)
        self._samples = samples
        registry.register(self)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Without asking the database, which may be away when a process starts."""
        return iter(self._described().values())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        described = self._described()
        try:
            with read(self._engine) as connection:
                found = list(self._samples(connection))
        except MoorageError:
            found = []
        for name, labels, value in found:
            described[name].add_metric(labels, value)
        return iter(described.values())

    def _described(self) -> dict[str, GaugeMetricFamily]:
        return {
            family.name: GaugeMetricFamily(family.name, family.text, labels=family.labels) for family in self._families
        }
