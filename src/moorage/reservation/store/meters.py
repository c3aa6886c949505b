"""Prometheus metrics of reservations: leases by status, and late events.

The page for operators is `docs/reference/metrics.md`.
"""

from collections.abc import Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry
from sqlalchemy import Connection, Engine, func, select

from moorage.core.clock import Clock
from moorage.reservation.model.leases import EventStatus, EventType, LeaseStatus
from moorage.reservation.store.tables import events, leases
from moorage.telemetry.metrics import DatabaseGauges, GaugeFamily, GaugeSample

_LEASES, _DEGRADED = "moorage_reservation_leases", "moorage_reservation_leases_degraded"
_DUE, _LATE = "moorage_reservation_events_due", "moorage_reservation_events_late_seconds"

_FAMILIES = (
    GaugeFamily(_LEASES, "Leases, by status.", ("status",)),
    GaugeFamily(_DEGRADED, "Leases with slots on a failed host, or moved off one that is still down."),
    GaugeFamily(_DUE, "Due events that are not finished.", ("event",)),
    GaugeFamily(_LATE, "Time since the oldest unfinished event was due.", ("event",)),
)

_OPEN = (EventStatus.UNDONE, EventStatus.IN_PROGRESS)


def show_state(registry: CollectorRegistry, engine: Engine, clock: Clock) -> None:
    def samples(connection: Connection) -> Iterator[GaugeSample]:
        yield from _lease_samples(connection)
        yield from _event_samples(connection, clock.now())

    DatabaseGauges(registry, engine, _FAMILIES, samples)


def _lease_samples(connection: Connection) -> Iterator[GaugeSample]:
    found: dict[str, int] = {}
    degraded = 0
    statement = select(leases.c.status, leases.c.degraded, func.count()).group_by(leases.c.status, leases.c.degraded)
    for status, is_degraded, number in connection.execute(statement):
        found[status] = found.get(status, 0) + number
        if is_degraded and status not in (LeaseStatus.TERMINATED, LeaseStatus.ERROR):
            degraded += number
    for status in LeaseStatus:
        yield _LEASES, (status,), found.get(status, 0)
    yield _DEGRADED, (), degraded


def _event_samples(connection: Connection, now: datetime) -> Iterator[GaugeSample]:
    event = events.c
    statement = (
        select(event.event_type, func.count(), func.min(event.time))
        .where(event.status.in_(_OPEN), event.time <= now)
        .group_by(event.event_type)
    )
    found = {kind: (number, oldest) for kind, number, oldest in connection.execute(statement)}
    for kind in EventType:
        number, oldest = found.get(kind, (0, now))
        yield _DUE, (kind,), number
        yield _LATE, (kind,), max(0.0, (now - oldest).total_seconds())
