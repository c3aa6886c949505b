"""Prometheus gauges of accelerators: devices by health, attach handles and requests by state, jobs for hosts.

Described for operators in `docs/reference/metrics.md`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from sqlalchemy import Connection, Engine, func, select

from moorage.accelerator.model.devices import HandleState, Health
from moorage.accelerator.store.tables import accelerator_requests, deployables, devices, jobs
from moorage.core.clock import Clock
from moorage.jobs import statements
from moorage.telemetry.metrics import DatabaseGauges, GaugeFamily, GaugeSample

_DEVICES, _HANDLES = "moorage_accelerator_devices", "moorage_accelerator_handles"
_REQUESTS = "moorage_accelerator_requests"

_FAMILIES = (
    GaugeFamily(_DEVICES, "Devices, by the health reported by their host.", ("health",)),
    GaugeFamily(_HANDLES, "Attach handles, which servers get one by one, by state.", ("state",)),
    GaugeFamily(_REQUESTS, "Accelerator requests, by state.", ("state",)),
    *statements.job_gauge_families("accelerator"),
)


def register_gauges(registry: CollectorRegistry, engine: Engine, clock: Clock) -> None:
    def job_gauge_samples(connection: Connection) -> Iterator[GaugeSample]:
        of_health = select(devices.c.health, func.count().label("number")).group_by(devices.c.health)
        yield from _samples_with_zeros(
            _DEVICES, Health, {row.health: row.number for row in connection.execute(of_health)}
        )
        handles = Counter(
            state for row in connection.execute(select(deployables.c.handles)) for state in row.handles.values()
        )
        yield from _samples_with_zeros(_HANDLES, HandleState, handles)
        by_state = select(accelerator_requests.c.state, func.count()).group_by(accelerator_requests.c.state)
        for state, number in connection.execute(by_state):
            yield _REQUESTS, (state,), number
        yield from statements.job_gauge_samples("accelerator", connection, jobs, clock.now())

    DatabaseGauges(registry, engine, _FAMILIES, job_gauge_samples)


def _samples_with_zeros(family: str, known: Iterable[str], found: Mapping[str, int]) -> Iterator[GaugeSample]:
    """A sample for each known value, also for 0, because an alert on a series that does not exist never fires."""
    for value in dict.fromkeys([*known, *sorted(found)]):
        yield family, (value,), found.get(value, 0)
