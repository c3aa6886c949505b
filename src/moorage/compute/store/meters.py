"""Prometheus metrics of compute: hosts, servers, jobs, and outcomes of scheduling.

The page for operators is `docs/guides/metrics.md`.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter
from sqlalchemy import Connection, Engine, case, func, or_, select

from moorage.compute.model.servers import VmState
from moorage.compute.store.tables import hosts, jobs, servers
from moorage.core.clock import Clock
from moorage.jobs import statements
from moorage.scheduler.reasons import Reasons
from moorage.telemetry.metrics import DatabaseGauges, GaugeFamily, GaugeSample

_HOSTS, _SERVERS = "moorage_compute_hosts", "moorage_compute_servers"

_FAMILIES = (
    GaugeFamily(
        _HOSTS, "Hosts by state: up (and enabled), down (no heartbeat, or forced down), or disabled.", ("state",)
    ),
    GaugeFamily(_SERVERS, "Servers that are not deleted, by state.", ("state",)),
    *statements.job_gauge_families("compute"),
)


class Scheduled(StrEnum):
    """Outcomes of the host search for a new server."""

    PLACED = "placed"
    NO_CAPACITY = "no_capacity"  #: Placement has no candidate
    FILTERED = "filtered"  #: Placement has candidates, but the scheduler's filters rejected all of them
    OVERTAKEN = "overtaken"  #: all claims were overtaken by others
    REFUSED = "refused"  #: no host could ever satisfy the flavor or the image
    EXHAUSTED = "exhausted"  #: the build failed on a host, and no other host was found
    GAVE_UP = "gave_up"  #: Placement did not answer, or the builder died, each time


def outcome_of(reasons: Reasons) -> Scheduled:
    """The outcome of a search that found no host: what excluded the last hosts."""
    if reasons.refused_claims:
        return Scheduled.OVERTAKEN
    if reasons.rejected:
        return Scheduled.FILTERED
    return Scheduled.NO_CAPACITY if reasons.counts or not reasons.note else Scheduled.REFUSED


class ComputeMeters:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._scheduled = Counter(
            "moorage_compute_scheduled",
            "Servers for which a search for a host ended, by outcome.",
            ["outcome"],
            registry=registry,
        )
        for outcome in Scheduled:  # a rate needs a zero to begin with
            self._scheduled.labels(outcome)

    def scheduled(self, outcome: Scheduled, servers: int = 1) -> None:
        self._scheduled.labels(outcome).inc(servers)


def show_state(registry: CollectorRegistry, engine: Engine, clock: Clock, *, up_since: Callable[[], datetime]) -> None:
    """`up_since` returns the moment since which a host that is up has sent a heartbeat."""

    def job_gauge_samples(connection: Connection) -> Iterator[GaugeSample]:
        yield from _host_samples(connection, up_since())
        yield from _server_samples(connection)
        yield from statements.job_gauge_samples("compute", connection, jobs, clock.now())

    DatabaseGauges(registry, engine, _FAMILIES, job_gauge_samples)


def _host_samples(connection: Connection, silent_since: datetime) -> Iterator[GaugeSample]:
    is_down = or_(hosts.c.forced_down, hosts.c.heartbeat_at < silent_since)
    state = case((is_down, "down"), (hosts.c.is_enabled, "up"), else_="disabled").label("state")
    found = {
        row.state: row.number for row in connection.execute(select(state, func.count().label("number")).group_by(state))
    }
    for name in ("up", "down", "disabled"):
        yield _HOSTS, (name,), found.get(name, 0)


def _server_samples(connection: Connection) -> Iterator[GaugeSample]:
    of_state = select(servers.c.vm_state, func.count().label("number")).group_by(servers.c.vm_state)
    found = {row.vm_state: row.number for row in connection.execute(of_state)}
    for state in VmState:
        if state is not VmState.DELETED:
            yield _SERVERS, (state,), found.get(state, 0)
