"""Builds the periodic audit, for which processes take turns through a table of jobs, and the dashboard's audit."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from moorage.accelerator.client import AcceleratorClient
from moorage.audit.audit_task import GRACE, AuditSchedule, AuditTask, export_metrics
from moorage.audit.collector import AuditServices, collect_snapshot
from moorage.audit.model import Finding
from moorage.audit.rules import findings
from moorage.compute.client.compute_client import ComputeClient
from moorage.core.errors import StartError, Unavailable
from moorage.jobs.store import JobStore
from moorage.network.client.moorage_ports import AuditablePorts
from moorage.placement.client.placement_client import PlacementClient
from moorage.reservation.client import ReservationClient
from moorage.wire.client import ServiceClient
from moorage.wiring.components import Components

#: Minimum, because one audit reads all data.
MIN_PERIOD_S = 60.0

C = TypeVar("C")


def build_audit(parts: Components) -> None:
    """Call it after all services are built. Raises `StartError`."""
    period_s = parts.config.audit.period_s
    jobs = _jobs(parts)
    if not period_s or jobs is None or not parts.has("placement"):
        return
    if period_s < MIN_PERIOD_S:
        raise StartError(
            f"{parts.config.source}: [audit] period_s is {period_s:g}; it must be at least {MIN_PERIOD_S:g}, or 0 to "
            "turn the background audit off"
        )
    service, store = jobs
    engine = parts.plane.engines[service]
    schedule = AuditSchedule(engine, store, parts.clock, parts.worker("audit"), period_s)
    parts.plane.tasks.append(AuditTask(schedule, _find_all_of(parts)))
    export_metrics(parts.plane.metrics.registry, engine, store, period_s)


def _jobs(parts: Components) -> tuple[str, JobStore] | None:
    """(service, its jobs); None in a process without jobs, for example reservations beside a real Nova."""
    if "compute" in parts.plane.engines:
        from moorage.compute.store.tables import jobs

        return "compute", JobStore(jobs)
    if "accelerator" in parts.plane.engines:
        from moorage.accelerator.store.tables import jobs

        return "accelerator", JobStore(jobs)
    return None


def _find_all_of(parts: Components) -> Callable[[], Sequence[Finding]]:
    def client(service: str) -> ServiceClient | None:
        if service == "network":
            return parts.server_networks()
        return parts.client(service) if parts.has(service) else None

    return partial(find_all, parts, client)


def find_all(parts: Components, client_of: Callable[[str], ServiceClient | None]) -> Sequence[Finding]:
    """Audits the services, with the clients that `client_of` returns for their types. Reads all data."""

    def client(service: str, make: Callable[[ServiceClient], C]) -> C | None:
        given = client_of(service)
        return None if given is None else make(given)

    placement = client("placement", PlacementClient)
    if placement is None:
        raise Unavailable("an audit needs Placement, which this cloud does not have")
    services = AuditServices(
        placement,
        client("compute", ComputeClient),
        client("accelerator", AcceleratorClient),
        client("reservation", ReservationClient),
        parts.config.reservation.freepool,
        client("network", AuditablePorts),
    )
    return findings.all_findings(collect_snapshot(services, parts.clock, lambda *_: None, by_tree=True), GRACE)
