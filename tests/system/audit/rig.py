"""A whole plane under a virtual clock, the audit's clients for it, and ways to inject faults."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import text

from moorage.accelerator.client import AcceleratorClient
from moorage.audit.collector import AuditServices, collect_snapshot
from moorage.audit.healing import Healer, RepairOutcome
from moorage.audit.journal import RepairJournal
from moorage.audit.model import Finding
from moorage.audit.rules import findings
from moorage.compute.client.compute_client import ComputeClient
from moorage.db.engine import open_engine
from moorage.db.session import write
from moorage.network.client.moorage_ports import AuditablePorts
from moorage.placement.client.placement_client import PlacementClient
from moorage.placement.forest import change_entries
from moorage.placement.store import change_store
from moorage.reservation.client import ReservationClient
from moorage.wire.client import ServiceClient
from moorage.wire.transports import ClientResponse, InProcessTransport
from tests.system.planes import VirtualPlane

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
GRACE = timedelta(minutes=10)


class InterceptingTransport:
    """A transport to one service of `plane` that can run a function right before a request, or replace its answer."""

    def __init__(self, plane: "AuditedPlane", service: str) -> None:
        self._plane = plane
        self._service = service
        self._inner = InProcessTransport(plane.plane.app, f"http://127.0.0.1/{service}")

    def send(self, method: str, path: str, headers: Mapping[str, str], body: Any = None) -> ClientResponse:
        for key in [
            key for key in self._plane.before if key[:2] == (method, self._service) and path.startswith(key[2])
        ]:
            self._plane.before.pop(key)()
        for start, status in self._plane.refused.get(self._service, {}).items():
            if path.startswith(start):
                return ClientResponse(status, {}, b"{}")
        answered = self._plane.answers.get(self._service, lambda _path: None)(path)
        return self._inner.send(method, path, headers, body) if answered is None else ClientResponse(200, {}, answered)


class AuditedPlane(VirtualPlane):
    """`before`: functions that run once, right before a request of the audit: {(method, service, start of path):
    function}. `answers`: {service: function that returns the answer to a path, or None to ask the service}. `refused`:
    {service: {start of path: status}}.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "plane", START)
        credentials = self.placement._credentials
        self.before: dict[tuple[str, str, str], Callable[[], object]] = {}
        self.answers: dict[str, Callable[[str], bytes | None]] = {}
        self.refused: dict[str, dict[str, int]] = {}

        def client(service: str) -> ServiceClient:
            return ServiceClient(
                InterceptingTransport(self, service), service_type=service, credentials=credentials, clock=self.clock
            )

        self.services = AuditServices(
            PlacementClient(client("placement")),
            ComputeClient(client("compute")),
            AcceleratorClient(client("accelerator")),
            ReservationClient(client("reservation")),
            ports=AuditablePorts(client("network")),
        )
        self.host = next(
            row["uuid"]
            for row in self.placement.get("/resource_providers")["resource_providers"]
            if row["name"] == "compute-1"
        )

    def audit(self, *, names: bool = False) -> list[Finding]:
        self.snapshot = collect_snapshot(self.services, self.clock, lambda *_: None, names=names)
        return findings.all_findings(self.snapshot, GRACE)

    @property
    def receipt_path(self) -> Path:
        return self.directory.parent / "receipt.jsonl"

    def fix(self, found: Sequence[Finding], *also: str) -> list[RepairOutcome]:
        receipt = RepairJournal(self.receipt_path)
        try:
            return Healer(self.services, self.clock, GRACE, receipt).repair_findings(self.snapshot, found, also)
        finally:
            receipt.close()

    def pass_grace(self) -> None:
        self.clock.sleep(GRACE.total_seconds() + 1)

    # --- requests and faults ----------------------------------------------------------------------------------------

    def provider(self, name: str, uuid: str, parent: str | None = None) -> str:
        self.placement.request(
            "POST", "/resource_providers", json={"name": name, "uuid": uuid, "parent_provider_uuid": parent}
        )
        return uuid

    def offer(self, provider: str, resource_class: str, total: int, **more: float) -> None:
        if resource_class.startswith("CUSTOM_"):
            self.placement.request("PUT", f"/resource_classes/{resource_class}")
        generation = self.placement.get(f"/resource_providers/{provider}")["generation"]
        body = {"resource_provider_generation": generation, "resource_class": resource_class, "total": total, **more}
        self.placement.request("POST", f"/resource_providers/{provider}/inventories", json=body)

    def take(self, consumer: str, provider: str, resources: Mapping[str, int], kind: str | None = "INSTANCE") -> None:
        body = {
            "allocations": {provider: {"resources": dict(resources)}},
            "project_id": "alpha",
            "user_id": "ann",
            "consumer_generation": None,
        }
        path = f"/allocations/{consumer}"
        if kind is None:
            self.placement.request("PUT", path, json=body, version="1.37")
        else:
            self.placement.request("PUT", path, json=body | {"consumer_type": kind})

    def held(self, consumer: str) -> dict[str, Any]:
        return self.placement.get(f"/allocations/{consumer}")["allocations"]

    def new_server(self) -> str:
        flavor = self.create_flavor("small")
        server = self.create_server(flavor=flavor)
        self.settle()
        assert self.server(server)["status"] == "ACTIVE"
        return server

    def running_lease(self, amount: int) -> tuple[str, str]:
        """A lease that has started on compute-1: (its id, the id of its reservation)."""
        self.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
        lease = self.create_lease(start=self.clock.now() + GRACE, end=self.clock.now() + 99 * GRACE, amount=amount)
        self.run_until(self.clock.now() + 2 * GRACE)
        assert self.lease(lease)["status"] == "ACTIVE"
        return lease, self.reservation_id(lease)

    @contextmanager
    def broken(self, *statements: str, service: str = "placement"):
        """Changes rows by SQL, as after a restored backup or a bug, and restores them at the end."""
        engine = open_engine(self.config.database_url(service))
        try:
            with write(engine) as connection:
                log = change_store.ChangeLogWriter(connection, self.clock.now()) if service == "placement" else None
                for statement in statements:
                    connection.execute(text(statement))
                if log is not None:
                    log.add([change_entries.EVERYTHING])
            yield
        finally:
            engine.dispose()


def undo(plane: AuditedPlane, receipt: str) -> None:
    """Sends the undo requests of the receipt, the newest step first, as the guide says."""
    steps = [entry for line in receipt.splitlines() if "undo" in (entry := json.loads(line))]
    for step in reversed(steps):
        for request in step["undo"]:
            to = {"placement": plane.placement, "compute": plane.compute}[request["service"]]
            path = request["path"].removeprefix("/v2.1")
            to.request(request["method"], path, json=request["body"], version=request["microversion"])
