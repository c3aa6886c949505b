"""What Prometheus asks of a process: a registry, and the metrics that all services share.

Names, units and what to page on are in `docs/guides/metrics.md`; a test holds that page against this registry. The
metrics of one service are beside it (`moorage.placement.meters`).

Requests are counted by `moorage.telemetry.requests`.
"""

from collections.abc import Callable, Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_1_0_0
from prometheus_client.registry import Collector
from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from moorage.core.errors import RetryableConflict
from moorage.db.transactions import translate
from moorage.telemetry.requests import DURATIONS_S, RequestMeter

CONTENT_TYPE = CONTENT_TYPE_PLAIN_1_0_0


class Metrics:
    """One process' registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._requests: dict[str, RequestMeter] = {}
        self._engines: dict[str, Engine] = {}
        self._database_errors = Counter(
            "moorage_database_errors",
            "Statements that the database refused or did not answer.",
            ["service", "kind"],
            registry=self.registry,
        )
        self._succeeded = Gauge(
            "moorage_duty_last_success_timestamp_seconds",
            "When a background duty last did its round without an error.",
            ["duty"],
            registry=self.registry,
        )
        self._failed = Counter(
            "moorage_duty_failures",
            "Rounds of a background duty that ended with an error.",
            ["duty"],
            registry=self.registry,
        )
        self.registry.register(_AtScrape(self._families))

    def requests_of(self, service: str) -> RequestMeter:
        return self._requests.setdefault(service, RequestMeter())

    def watch_engine(self, service: str, engine: Engine) -> None:
        """Count its errors, and show its connections."""
        self._engines[service] = engine

        @event.listens_for(engine, "handle_error")
        def count(context: ExceptionContext) -> None:
            error = context.sqlalchemy_exception
            ours = translate(error) if isinstance(error, DBAPIError) else None
            kind = "other" if ours is None else "retryable" if isinstance(ours, RetryableConflict) else "unavailable"
            self._database_errors.labels(service, kind).inc()

    def ticked(self, duty: str, succeeded_at: float | None) -> None:
        """A duty did its round: when it succeeded (seconds since 1970), None where it failed."""
        if succeeded_at is None:
            self._failed.labels(duty).inc()
        else:
            self._succeeded.labels(duty).set(succeeded_at)

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    def _families(self) -> Iterator[HistogramMetricFamily | GaugeMetricFamily]:
        durations = HistogramMetricFamily(
            "moorage_http_request_duration_seconds",
            "From the first byte of a request to its answer; of a stream, to its beginning.",
            labels=["service", "method", "route", "status"],
        )
        in_flight = GaugeMetricFamily(
            "moorage_http_requests_in_flight", "Requests that are worked on.", labels=["service"]
        )
        for service, meter in sorted(self._requests.items()):
            in_flight.add_metric([service], meter.in_flight)
            for (method, route, status), cell in meter.cells():
                durations.add_metric([service, method, route, str(status)], _cumulated(cell[:-1]), cell[-1])
        yield durations
        yield in_flight
        used = GaugeMetricFamily(
            "moorage_database_connections_in_use", "Connections that a transaction has.", labels=["service"]
        )
        most = GaugeMetricFamily(
            "moorage_database_connections_max", "Connections there may be; beyond, requests wait.", labels=["service"]
        )
        for service, engine in sorted(self._engines.items()):
            if isinstance(engine.pool, QueuePool):
                used.add_metric([service], engine.pool.checkedout())
                most.add_metric([service], engine.pool.size() + engine.pool._max_overflow)  # noqa: SLF001 - no public name
        yield used
        yield most


class _AtScrape(Collector):
    """Families that are made when somebody asks."""

    def __init__(self, families: Callable[[], Iterator[HistogramMetricFamily | GaugeMetricFamily]]) -> None:
        self._families = families

    def collect(self) -> Iterator[HistogramMetricFamily | GaugeMetricFamily]:
        return self._families()


def _cumulated(counts: list[float]) -> list[tuple[str, float]]:
    """[(upper bound, how many took at most so long)], as Prometheus wants it."""
    bounds = [*(str(bound) for bound in DURATIONS_S), "+Inf"]
    total = 0.0
    cumulated = []
    for bound, count in zip(bounds, counts, strict=True):
        total += count
        cumulated.append((bound, total))
    return cumulated
