"""Metrics about the open jobs of a service, by state and age, read from its table at each scrape."""

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import Connection, Table, func, select

from moorage.jobs.model import OPEN
from moorage.telemetry.metrics import GaugeFamily, GaugeSample

#: Every service that has jobs has these families, each with the service's name in front.
_TEXTS = {
    "jobs_open": "Jobs that are not finished: ready, or claimed by a host or worker.",
    "jobs_oldest_seconds": "Age of the oldest job that is not finished.",
}


def job_gauge_families(service: str) -> tuple[GaugeFamily, ...]:
    return tuple(GaugeFamily(f"moorage_{service}_{name}", text, ("state",)) for name, text in _TEXTS.items())


def job_gauge_samples(service: str, connection: Connection, table: Table, now: datetime) -> Iterator[GaugeSample]:
    """Yields both open states always; the age of a state without jobs is 0 seconds."""
    job = table.c
    asked = select(job.state, func.count(), func.min(job.created_at)).where(job.open_queue.is_not(None))
    found = {state: (count, oldest) for state, count, oldest in connection.execute(asked.group_by(job.state))}
    for state in sorted(OPEN):
        count, oldest = found.get(state, (0, now))
        yield f"moorage_{service}_jobs_open", (state,), count
        yield f"moorage_{service}_jobs_oldest_seconds", (state,), max(0.0, (now - oldest).total_seconds())
