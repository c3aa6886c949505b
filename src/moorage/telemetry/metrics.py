"""The Prometheus registry of a process, the metrics that all services share, and gauges that are read from a database.

`docs/reference/metrics.md` documents names, units and alerts; a test compares that page with this registry.
Not here: the metrics of one service (its `meters` module, such as `moorage.placement.sync.meters`), and those of
requests (`moorage.telemetry.request_meter`).
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_1_0_0
from prometheus_client.registry import Collector
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from moorage.core.errors import MoorageError, RetryableConflict
from moorage.db.engine import pool_limit
from moorage.db.errors import translate_error
from moorage.db.session import read
from moorage.telemetry.request_meter import RequestMeter, RequestMeters

CONTENT_TYPE = CONTENT_TYPE_PLAIN_1_0_0

#: Buckets from a job on a simulated host to the programming of a large FPGA.
_JOB_BUCKETS_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0)


class Metrics:
    """The registry and the shared metrics of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._requests = RequestMeters(self.registry)
        self._engines: dict[str, Engine] = {}
        self._database_errors = Counter(
            "moorage_database_errors",
            "Statements that the database rejected or did not answer.",
            ["service", "kind"],
            registry=self.registry,
        )
        self._succeeded = Gauge(
            "moorage_duty_last_success_timestamp_seconds",
            "When the last run of a background task without an error ended.",
            ["duty"],
            registry=self.registry,
        )
        self._failed = Counter(
            "moorage_duty_failures",
            "Runs of a background task that ended with an error.",
            ["duty"],
            registry=self.registry,
        )
        self._rounds = Counter("moorage_duty_rounds", "Runs of a background task.", ["duty"], registry=self.registry)
        self._busy = Counter(
            "moorage_duty_busy_seconds", "Total duration of its runs.", ["duty"], registry=self.registry
        )
        self._due = Gauge(
            "moorage_duty_due_timestamp_seconds",
            "When the next run of a background task is due, or the present one was; infinity: only when it is woken.",
            ["duty"],
            registry=self.registry,
        )
        self.threads = Gauge(
            "moorage_http_threads", "Requests that can be handled at the same time.", registry=self.registry
        )
        self.hint_losses = Counter(
            "moorage_hints_interruptions",
            "Failed connections for hints; a hint lost meanwhile delays its receiver by at most one poll period.",
            ["role"],
            registry=self.registry,
        )
        for role in ("listener", "sender"):
            self.hint_losses.labels(role)
        self.trail_losses = Counter(
            "moorage_trail_lost_entries",
            "Entries of the audit trail that could not be written to a file or a syslog daemon.",
            ["sink"],
            registry=self.registry,
        )
        for sink in ("file", "syslog"):
            self.trail_losses.labels(sink)
        self.agent_jobs = JobMeter(self.registry)
        self.registry.register(_CollectedAtScrape(self._families))

    def request_meter(self, service: str) -> RequestMeter:
        return self._requests.of_service(service)

    def watch_engine(self, service: str, engine: Engine) -> None:
        """Count the errors of `engine` and export the number of its connections."""
        self._engines[service] = engine
        for kind in ("retryable", "unavailable", "other"):  # a rate needs a zero to begin with
            self._database_errors.labels(service, kind)

        @event.listens_for(engine, "handle_error")
        def count(context: ExceptionContext) -> None:
            error = context.sqlalchemy_exception
            ours = translate_error(error) if isinstance(error, DBAPIError) else None
            kind = "other" if ours is None else "retryable" if isinstance(ours, RetryableConflict) else "unavailable"
            self._database_errors.labels(service, kind).inc()

    def count_task_run(
        self, task: str, now: float, *, succeeded: bool, took_s: float = 0.0, due: float = math.inf
    ) -> None:
        """Count a run that ended at `now` (seconds since 1970). `due`: time of the next run; infinity: when woken."""
        self._rounds.labels(task).inc()
        self._busy.labels(task).inc(took_s)
        self._due.labels(task).set(due)
        if succeeded:
            self._succeeded.labels(task).set(now)
        else:
            self._failed.labels(task).inc()

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def _families(self) -> Iterator[GaugeMetricFamily]:
        used = GaugeMetricFamily(
            "moorage_database_connections_in_use", "Connections that are used by a transaction.", labels=["service"]
        )
        most = GaugeMetricFamily(
            "moorage_database_connections_max",
            "Maximum number of connections; further requests wait.",
            labels=["service"],
        )
        for service, engine in sorted(self._engines.items()):
            if isinstance(engine.pool, QueuePool):
                used.add_metric([service], engine.pool.checkedout())
                most.add_metric([service], pool_limit(engine.pool))
        yield used
        yield most


class JobMeter:
    """Durations of an agent's jobs. `record_job` is passed to its `JobsTask`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "moorage_agent_job_duration_seconds",
            "Jobs of hosts that an agent of this process worked on, by kind and how they ended: done, failed, lost.",
            ["kind", "outcome"],
            registry=registry,
            buckets=_JOB_BUCKETS_S,
        )

    def record_job(self, kind: str, outcome: str, seconds: float) -> None:
        self._seconds.labels(kind, outcome).observe(seconds)


class _CollectedAtScrape(Collector):
    """Metric families that are computed at each scrape."""

    def __init__(self, families: Callable[[], Iterator[GaugeMetricFamily]]) -> None:
        self._families = families

    def collect(self) -> Iterator[GaugeMetricFamily]:
        return self._families()


#: (name of the family, values of its labels in their order, value)
GaugeSample = tuple[str, tuple[str, ...], float]


@dataclass(frozen=True)
class GaugeFamily:
    name: str
    help: str
    labels: tuple[str, ...] = ()


class DatabaseGauges(Collector):
    """Gauges of one service, read from its database at each scrape, in one short read transaction.

    While the database does not answer there are no samples, since an old number would be believed. The families are
    described even then, so that the documentation can be compared with them.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        engine: Engine,
        families: Iterable[GaugeFamily],
        samples: Callable[[Connection], Iterable[GaugeSample]],
    ) -> None:
        self._engine = engine
        self._families = tuple(families)
        self._samples = samples
        registry.register(self)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Does not query the database, which may be down when a process starts."""
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
            family.name: GaugeMetricFamily(family.name, family.help, labels=family.labels) for family in self._families
        }
