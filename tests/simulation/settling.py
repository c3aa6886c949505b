"""Checks after the faults have ended: all operations have ended, and all services agree."""

import json
from collections import defaultdict
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from moorage.accelerator.client import AcceleratorClient
from moorage.accelerator.model.attach_state import AttachStep
from moorage.audit.collector import AuditServices, collect_snapshot
from moorage.audit.healing import Healer
from moorage.audit.journal import RepairJournal
from moorage.audit.model import AuditSnapshot, Finding, FindingKind
from moorage.audit.rules import findings
from moorage.compute.client.compute_client import ComputeClient
from moorage.placement.client.placement_client import PlacementClient
from moorage.reservation.client import ReservationClient
from moorage.wire.client import NoCredentials, ServiceClient
from tests.simulation.invariants import holdings_of
from tests.simulation.network import Line

if TYPE_CHECKING:
    from tests.simulation.users import Users
    from tests.simulation.world import World

#: Longer than any period of the parts, and than the time after which a host without heartbeats counts as down.
REST = timedelta(days=3)
_GRACE = timedelta(minutes=30)
_STABLE = frozenset({"PENDING", "ACTIVE", "TERMINATED", "ERROR"})


def settle(world: "World", users: "Users") -> None:
    """Ends all faults and actions of users, waits for `REST`, and checks."""
    users.stop()
    world.calm()
    users.enable_hosts()
    world.run_for(REST)
    for check in (_parts, _servers, _jobs, _leases, _agreement, _allocations, _devices):
        check(world, users)
    world.counts["settled"] += 1


def _parts(world: "World", _: "Users") -> None:
    if dead := [name for name, part in world.parts.items() if not part.alive]:
        world.wrong(f"{dead} do not come back")


def _servers(world: "World", users: "Users") -> None:
    for server in users.clients.compute.get("/servers/detail")["servers"]:
        if server["OS-EXT-STS:task_state"] is not None or server["status"] == "BUILD":
            state = {key: value for key, value in server.items() if key.startswith("OS-EXT-STS") or key == "status"}
            world.wrong(f"server {server['id']} is stuck: {state}")


def _jobs(world: "World", _: "Users") -> None:
    for name in ("compute", "accelerator"):
        connection = world.invariants.database(name)
        rows = connection.execute("SELECT id, queue, kind, state, attempt, payload FROM jobs").fetchall()
        # A job for the next audit always exists, so it does not count.
        if stuck := [row for row in rows if row[3].lower() in ("ready", "claimed") and row[1] != "audit"]:
            world.wrong(f"jobs of {name} are stuck: {stuck[:3]}")


def _leases(world: "World", users: "Users") -> None:
    for lease in users.clients.reservation.get("/v1/leases")["leases"]:
        if lease["status"] not in _STABLE:
            world.wrong(f"lease {lease['id']} is stuck: {lease['status']}, {lease['events']}")


def _agreement(world: "World", users: "Users") -> None:
    def client(service: str) -> ServiceClient:
        line = Line(world, None, f"http://127.0.0.1:8778/{service}")
        return ServiceClient(line, service_type=service, credentials=NoCredentials(), clock=world.clock)

    services = AuditServices(
        PlacementClient(client("placement")),
        ComputeClient(client("compute")),
        AcceleratorClient(client("accelerator")),
        ReservationClient(client("reservation")),
    )

    def find() -> tuple[AuditSnapshot, list[Finding]]:
        snapshot = collect_snapshot(services, world.clock, lambda *_: None)
        found = findings.all_findings(snapshot, _GRACE)
        return snapshot, [one for one in found if one.kind is not FindingKind.OVER_CAPACITY]

    snapshot, found = find()
    if left := [one for one in found if one.kind is FindingKind.FLAVOR_WITHOUT_LEASE and _came_late(world, one)]:
        with TemporaryDirectory() as directory, closing(RepairJournal(Path(directory) / "receipt.jsonl")) as receipt:
            Healer(services, world.clock, _GRACE, receipt).repair_findings(snapshot, left, ())
        _, found = find()
    if empty := [one for one in found if one.kind is FindingKind.AGGREGATE_WITHOUT_LEASE and _came_late(world, one)]:
        for one in empty:  # as the audit advises
            aggregate = services.compute.aggregate_by_name(one.subject)
            if aggregate is not None and not aggregate.hosts:
                services.compute.delete_aggregate(aggregate.id)
        _, found = find()
    if any(_is_lowered_capacity(users, one) for one in found):  # the audit advises to give the capacity back
        users.restore_capacity()
        world.run_for(REST)
        _, found = find()
    if left := [one for one in found if one.kind is FindingKind.SERVER_WITHOUT_DEVICE and _was_destroyed(users, one)]:
        for one in left:  # as the audit advises
            users.clients.compute.request(
                "POST", f"/servers/{one.subject}/action", json={"rebuild": {"imageRef": users.image}}
            )
        world.run_for(REST)
        _, found = find()
    if found:
        one = found[0]
        world.wrong(f"audit: {len(found)} findings, the first: {one.kind}, {one.where} ({one.subject}): {one.why}")


def _came_late(world: "World", one: Finding) -> bool:
    """Whether a request to create this flavor or aggregate was carried out after its caller had given up.

    The caller repeats the request. But if the lease is deleted before the late request is carried out, only an audit
    finds what the late request created: a request to the compute API cannot be cancelled.
    """
    made_by = {"POST /compute/v2.1/flavors", "POST /compute/v2.1/os-aggregates"}
    return any(what in made_by and one.subject.encode() in body for what, body in world.late)


def _was_destroyed(users: "Users", one: Finding) -> bool:
    """Whether its deletion failed after its guest was gone, and an administrator called it active."""
    actions = users.clients.compute.get(f"/servers/{one.subject}/os-instance-actions")["instanceActions"]
    return any(action["action"] == "delete" and action["message"] for action in actions)


def _is_lowered_capacity(users: "Users", one: Finding) -> bool:
    """Whether this is a lease without resources because an operator lowered the inventory of its class.

    The service must have moved the lease if another host had capacity. So a user asks for one more unit of the same
    class in the same time, and the reservation service must refuse it.
    """
    if one.kind is not FindingKind.LEASE_WITHOUT_RESOURCES:
        return False
    leases = users.clients.reservation.get("/v1/leases")["leases"]
    lease, reservation = next(
        (lease, each) for lease in leases for each in lease["reservations"] if each["id"] == one.subject
    )
    return reservation["resource_type"] == "resource:any" and not users.can_reserve_one_more(lease)


def _allocations(world: "World", users: "Users") -> None:
    """Every server that was built has allocations on its host and nowhere else; all others have none."""
    where = defaultdict(set)
    rows = world.invariants.database("placement").execute(
        "SELECT c.uuid, r.name FROM allocations a JOIN consumers c ON c.id = a.consumer_id "
        "JOIN providers p ON p.id = a.provider_id JOIN providers r ON r.id = p.root_id"
    )
    for consumer, root in rows:
        where[_dashed(consumer)].add(root.removeprefix("blazar_"))
    for server in users.clients.compute.get("/servers/detail")["servers"]:
        host, held = server["OS-EXT-SRV-ATTR:host"], where.pop(server["id"], set())
        if server["status"] == "VERIFY_RESIZE":
            continue
        # One whose build failed has nothing, also if an administrator calls it active.
        needed = set() if host is None or server["OS-SRV-USG:launched_at"] is None else {host}
        if held != needed and (host is None or server["status"] != "ERROR"):
            world.wrong(f"server {server['id']} ({server['status']}) is on {host} and holds something on {held}")


def _devices(world: "World", users: "Users") -> None:
    """A plugged device belongs to an existing server, and a server's domain is on its host only."""
    servers = {server["id"]: server for server in users.clients.compute.get("/servers/detail")["servers"]}
    for host in world.hosts:
        part, state = world.parts[host], world.parts[host].state
        checkpoint = state / "accelerators" / "checkpoint.json"
        # After a write that failed, the file may have a claim that the agent does not know. Its next start undoes it.
        if any(one.step is AttachStep.CLAIMED for one in holdings_of(checkpoint).attachments.values()):
            part.die()
            world.start(part)
            world.run_for(REST)
        for uuid in holdings_of(checkpoint).attachments:
            if uuid not in servers:
                world.wrong(f"{host} has devices plugged for {uuid}, which is no server")
        for path in sorted((state / "host" / "domains").glob("*.xml")):
            server = servers.get(path.stem)
            if server is None:
                world.wrong(f"{host} has domain {path.stem}, which is no server")
            elif server["OS-EXT-SRV-ATTR:host"] != host and server["status"] not in ("VERIFY_RESIZE", "ERROR"):
                world.wrong(f"{host} has domain {path.stem}, whose server ({server['status']}) is elsewhere")


def _dashed(uuid: Any) -> str:
    text = uuid.hex() if isinstance(uuid, bytes) else str(uuid).replace("-", "")
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def state_of(world: "World", users: "Users") -> str:
    """The visible state, for comparing two runs."""
    clients = users.clients
    providers = clients.placement.get("/resource_providers")["resource_providers"]
    seen = [
        sorted((row["name"], row["uuid"], row["generation"]) for row in providers),
        clients.reservation.get("/v1/leases")["leases"],
        clients.compute.get("/servers/detail")["servers"],
    ]
    return json.dumps(seen, sort_keys=True)
