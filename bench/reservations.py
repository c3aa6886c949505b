"""Measures reservations at scale: the calendar alone, leases over HTTP beside many others, and many events in a minute.

Runs placement, compute and reservation in one process, as `moorage up` does. The peer is the manager of a real Blazar
with its plugins, in process, with Nova and Placement stubbed out: its own share of the creation of a lease.
"""

import json
import random
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import Connection as Database
from sqlalchemy import Engine, Table, func, insert, select, update

from bench.databases import DatabaseServer, database_server, free_ports
from bench.floors import LEASES, SLOTS
from bench.planes import client, connection, credentials_of, moorage
from bench.processes import cpu_seconds
from bench.servers import Server, running
from bench.table import Figure
from bench.wire import Connection
from moorage.compute.model.servers import Flavor
from moorage.compute.store import tables as compute_tables
from moorage.core.ids import RandomIds
from moorage.core.names import reservation_class, reservation_provider
from moorage.dashboard.cookies import SESSION
from moorage.db import migrations
from moorage.db.engine import open_engine
from moorage.placement.store import tables as placement_tables
from moorage.reservation.capacity.calendar import Calendar, HostCapacity, HostUsage
from moorage.reservation.capacity.host_selection import CapacityRequest
from moorage.reservation.capacity.next_slot import first_fit
from moorage.reservation.model.slot_demand import SlotDemand
from moorage.reservation.store import tables

Say = Callable[[Figure], None]

PEER = Path(__file__).parents[1] / ".venv-blazar" / "bin" / "python"
SERVICES = ("placement", "compute", "accelerator", "reservation")
_METADATA = {"placement": placement_tables.metadata, "compute": compute_tables.metadata, "reservation": tables.metadata}
DAYS = 90
SIZE = {"VCPU": 2, "MEMORY_MB": 4096, "DISK_GB": 20}
HOST = {"VCPU": 64, "MEMORY_MB": 262_144, "DISK_GB": 2000}
LENGTHS_H = (2, 8, 24, 72, 168)
ROWS_AT_ONCE = 5000


def figures(kind: str, say: Say, *, hosts: int, leases: int, seconds: float, patience_s: float) -> None:
    _calendar(say, hosts, leases, seconds)
    with reservation_database(kind) as database:
        fill(database, hosts, leases)
        with reservation_plane(database) as plane:
            register_hosts(plane, hosts)
            database.settle("reservations_reservation")
            _posts(plane, database, say, hosts, leases, seconds)
    _peer(say, patience_s)


def events(kind: str, say: Say, *, number: int, starts: int) -> None:
    """Measures `number` before_end_lease events and then `starts` starts, each spread evenly over one minute; then a
    tenth of the starts at one moment.
    """
    if number:
        with reservation_database(kind) as database:
            fill(database, 100, number, active=True)
            with reservation_plane(database) as plane:
                what = f"{number:,} events without work outside due in a minute"
                _minute(plane, database, say, "before_end_lease", what, number)
                _idle(plane, database, say)
    for leases, sharp in ((starts, False), (starts // 10, True)) if starts else ():
        with reservation_database(kind) as database:
            hosts = _fill_starts(database, leases)
            with reservation_plane(database) as plane:
                register_hosts(plane, hosts)
                database.settle("reservations_reservation")
                when = "at one moment" if sharp else "in a minute"
                what = f"{leases:,} leases with two slots each, on {hosts:,} hosts, that start {when}"
                _minute(plane, database, say, "start_lease", what, leases, sharp=sharp)


def pages(kind: str, say: Say, *, hosts: int, leases: int, seconds: float) -> None:
    """Requests the dashboard's calendar and map like a browser. Pages are rendered and services called in this
    process.
    """
    with reservation_database(kind) as database:
        fill(database, hosts, leases, with_classes=False)
        with reservation_plane(database, "dashboard") as plane:
            database.settle("reservations_reservation")
            register_hosts(plane, hosts)
            _views(plane, database, say, f"beside {hosts:,} hosts with {leases:,} reservations", seconds)


def _views(plane: Server, database: DatabaseServer, say: Say, beside: str, seconds: float) -> None:
    token = credentials_of(plane).headers()["x-auth-token"]
    with httpx.Client(base_url=f"{plane.url}/ui", cookies={SESSION: token}, trust_env=False, timeout=120) as browser:
        first = _timed(lambda: _looked(browser, "/calendar"))
        say(Figure(f"the calendar's first view {beside}, for the first time", f"{first:.0f} ms", "reads all of them"))
        views = {
            "first view, a week": "/calendar",
            "a quarter": "/calendar?days=90",
            "25 hosts over a week": "/calendar?show=hosts",
            "projects over a week": "/calendar?show=projects",
            "the map": "/map",
        }
        for what, path in views.items():
            before = cpu_seconds(plane.pids), cpu_seconds(database.pids)
            took = _sampled(lambda path=path: _timed(lambda: _looked(browser, path)), seconds / 4)
            served, stored = (
                (after - then) / len(took) * 1000
                for after, then in zip((cpu_seconds(plane.pids), cpu_seconds(database.pids)), before, strict=True)
            )
            note = f"p99 {_cut(took, 99):.0f} ms; CPU {served:.0f} ms, and {stored:.0f} ms of the database"
            say(Figure(f"... {what}, p50", f"{_cut(took, 50):.0f} ms", note, "300 ms at most"))


def _looked(browser: httpx.Client, path: str) -> None:
    answer = browser.get(path)
    if answer.status_code != 200:
        raise SystemExit(f"error: GET /ui{path} was answered {answer.status_code}: {answer.text[:2000]}")


# --- the calendar -------------------------------------------------------------------------------------------------


def _calendar(say: Say, hosts: int, leases: int, seconds: float) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    usages = [
        HostUsage(host + 1, now + start, now + end, SIZE)
        for start, end, chosen in _bookings(hosts, leases)
        for host in chosen
    ]
    began = time.perf_counter()
    calendar = Calendar([HostCapacity(host + 1, HOST) for host in range(hosts)], usages)
    there = f"{hosts:,} hosts, {leases:,} reservations, {len(usages):,} slots"
    say(Figure(f"calendar of {there}, built", f"{(time.perf_counter() - began) * 1000:.0f} ms"))
    chance, demand = random.Random(2), SlotDemand(SIZE)

    def slots(calendar: Calendar, length: timedelta) -> float:
        start = now + timedelta(minutes=chance.randrange(DAYS * 1440))
        return _timed(lambda: calendar.slots(demand, start, start + length))

    for name, length in (("1 hour", timedelta(hours=1)), ("1 day", timedelta(days=1)), ("30 days", timedelta(days=30))):
        took = _sampled(lambda length=length: slots(calendar, length), seconds / 4)
        say(
            Figure(
                f"slots on every host over {name}, p99",
                f"{_cut(took, 99):.1f} ms",
                f"p50 {_cut(took, 50):.1f} ms",
                SLOTS.floor,
            )
        )
    changed = calendar.with_usage(usages[:200])
    took = _sampled(lambda: slots(changed, timedelta(days=1)), seconds / 4)
    say(
        Figure(
            "... over 1 day with 200 changes on top, p99",
            f"{_cut(took, 99):.1f} ms",
            f"p50 {_cut(took, 50):.1f} ms",
            SLOTS.floor,
        )
    )
    for name, affinity, amount in (("no policy", None, 40), ("anti-affinity", False, 40), ("affinity", True, 20)):
        ask = CapacityRequest("r", demand, amount, affinity)

        def next_slot(ask: CapacityRequest = ask) -> float:
            earliest = now + timedelta(minutes=chance.randrange(1440))
            return _timed(
                lambda: first_fit(calendar, [ask], earliest, earliest + timedelta(days=DAYS), timedelta(days=1))
            )

        took = _sampled(next_slot, seconds / 4)
        say(
            Figure(
                f"next slot over {DAYS} days, {amount} of them, {name}, p99",
                f"{_cut(took, 99):.1f} ms",
                f"p50 {_cut(took, 50):.1f} ms",
                "100 ms at most",
            )
        )


def _bookings(hosts: int, leases: int) -> Iterator[tuple[timedelta, timedelta, list[int]]]:
    """[(start, end, host of each slot)]: one to four slots, two hours to a week, over three months."""
    chance = random.Random(1)
    for _ in range(leases):
        start = timedelta(minutes=chance.randrange(DAYS * 1440))
        end = start + timedelta(hours=chance.choice(LENGTHS_H))
        yield start, end, chance.choices(range(hosts), k=chance.randint(1, 4))


# --- leases over HTTP ---------------------------------------------------------------------------------------------


def _posts(plane: Server, database: DatabaseServer, say: Say, hosts: int, leases: int, seconds: float) -> None:
    wire = connection(plane, "reservation", "1.0")
    made: list[str] = []
    _ask(wire, "POST", "/v1/leases", _lease(30), made)  # loads the calendar
    before = cpu_seconds(plane.pids), cpu_seconds(database.pids)
    took = _sampled(lambda: _timed(lambda: _ask(wire, "POST", "/v1/leases", _lease(30), made)), seconds)
    served, stored = (
        (after - then) / len(took) * 1000
        for after, then in zip((cpu_seconds(plane.pids), cpu_seconds(database.pids)), before, strict=True)
    )
    note = f"p99 {_cut(took, 99):.0f} ms; CPU {served + stored:.1f} ms, of it the database {stored:.1f} ms"
    there = f"beside {hosts:,} hosts with {leases:,} reservations"
    say(Figure(f"POST /leases {there}, p50", f"{_cut(took, 50):.1f} ms", note, LEASES.floor))

    def in_turn() -> float:
        _ask(wire, "DELETE", f"/v1/leases/{made.pop()}")
        return _timed(lambda: _ask(wire, "POST", "/v1/leases", _lease(30), made))

    took = _sampled(in_turn, seconds)
    say(
        Figure(
            "... each after another was deleted, p50",
            f"{_cut(took, 50):.1f} ms",
            f"p99 {_cut(took, 99):.0f} ms",
            LEASES.floor,
        )
    )


def _lease(days: int, *, start: datetime | None = None) -> dict[str, Any]:
    start = start or datetime.now(UTC) + timedelta(days=days)
    slot = {
        "resource_type": "virtual:instance",
        "vcpus": 2,
        "memory_mb": 4096,
        "disk_gb": 20,
        "amount": 2,
        "affinity": None,
    }
    dates = {"start_date": f"{start:%Y-%m-%d %H:%M}", "end_date": f"{start + timedelta(days=1):%Y-%m-%d %H:%M}"}
    return {"name": "bench", "reservations": [{**slot, "resource_properties": ""}], "events": [], **dates}


def _ask(wire: Connection, method: str, path: str, body: object = None, made: list[str] | None = None) -> None:
    status, content = wire.request(method, path, body)
    if not 200 <= status < 300:
        raise SystemExit(f"error: {method} {path} was answered {status}: {content.decode()}")
    if made is not None:
        made.append(json.loads(content)["lease"]["id"])


def _peer(say: Say, patience_s: float) -> None:
    """One lease beside 1,000 hosts with 10,000 reservations, with indexes that Blazar's migrations do not create."""
    what = "Blazar 18, one lease beside 1,000 hosts with 10,000 reservations"
    if not PEER.exists():
        say(Figure(what, "not installed", "make .venv-blazar/.done"))
        return
    command = [str(PEER), str(Path(__file__).with_name("reservations_peer.py")), "1000", "10000"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience_s, check=False)
    except subprocess.TimeoutExpired:
        say(Figure(what, f"over {patience_s:.0f} s", "not waited for any longer"))
        return
    if done.returncode:
        raise SystemExit(f"error: the peer failed:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    note = f"CPU {found['cpu_s']:.1f} s, {found['statements']:,} statements; in process, on SQLite, without HTTP, Nova, Placement"
    say(Figure(what, f"{found['wall_s'] * 1000:,.0f} ms", note))


# --- events -------------------------------------------------------------------------------------------------------


def _minute(
    plane: Server, database: DatabaseServer, say: Say, kind: str, what: str, number: int, *, sharp: bool = False
) -> None:
    """Makes the events due evenly over the next minute, or all at its start; measures how late each one runs."""
    engine = open_engine(database.url_of("reservations_reservation"))
    its = tables.events
    wanted = its.c.event_type == kind
    begin = datetime.now(UTC) + timedelta(seconds=10 + number / 1000)
    with engine.begin() as link:
        ids = list(link.execute(select(its.c.id).where(wanted, its.c.status == "UNDONE").limit(number)).scalars())
        for position, event_id in enumerate(ids):
            due = begin + timedelta(seconds=0 if sharp else 60 * position / len(ids))
            link.execute(update(its).where(its.c.id == event_id).values(time=due))
        if kind == "start_lease":
            link.execute(update(tables.leases).values(start_date=begin))
    before = cpu_seconds(plane.pids), cpu_seconds(database.pids)
    ours = wanted & (its.c.time >= begin) & (its.c.time <= begin + timedelta(seconds=60)) & (its.c.status == "DONE")
    time.sleep(max(0, (begin - datetime.now(UTC)).total_seconds()) + (0 if sharp else 55))
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        time.sleep(2)
        with engine.begin() as link:
            if link.execute(select(func.count()).where(ours)).scalar_one() == len(ids):
                break
    with engine.begin() as link:
        done = link.execute(select(its.c.time, its.c.updated_at).where(ours)).all()
    late = [(row.updated_at - row.time).total_seconds() * 1000 for row in done]
    served, stored = (
        (after - then) / len(ids) * 1000
        for after, then in zip((cpu_seconds(plane.pids), cpu_seconds(database.pids)), before, strict=True)
    )
    engine.dispose()
    note = f"p50 {_cut(late, 50):,.0f} ms; CPU {served:.1f} ms each, and {stored:.1f} ms of the database"
    if len(done) < len(ids):
        note += f"; {len(ids) - len(done):,} were not done in time"
    goal = "" if sharp else "p99 1,000 ms at most for 10,000"
    say(Figure(f"{what}: done late by, p99", f"{_cut(late, 99):,.0f} ms", note, goal))


def _idle(plane: Server, database: DatabaseServer, say: Say) -> None:
    time.sleep(5)
    before = cpu_seconds(plane.pids) + cpu_seconds(database.pids)
    time.sleep(20)
    used = (cpu_seconds(plane.pids) + cpu_seconds(database.pids) - before) / 20 * 100
    say(Figure("all services and their database at rest, CPU", f"{used:.1f} %", "of one core; nothing is due"))


# --- setup --------------------------------------------------------------------------------------------------------


@contextmanager
def reservation_database(kind: str) -> Iterator[DatabaseServer]:
    """A plane with an empty database for each service."""
    with database_server(kind) as database:
        for name in SERVICES:
            database.create(f"reservations_{name}")
        yield database


@contextmanager
def reservation_plane(database: DatabaseServer, *more: str) -> Iterator[Server]:
    (port,) = free_ports(1)
    databases = {name: database.url_of(f"reservations_{name}") for name in SERVICES}
    plane = {"hints": "", "services": ",".join(("identity,placement,compute,reservation,image", *more))}
    server = moorage(database, "plane", port, plane=plane, database=databases, reservation={"watch_period_s": 0.0})
    with running(server):
        yield server


def _fill_starts(database: DatabaseServer, leases: int) -> int:
    """Writes leases that will start, before the services run. Each has a class, a flavor, and slots on two of the
    hosts. Returns the number of hosts.
    """
    hosts, ids = max(2, leases // 10), RandomIds()
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    rows: dict[Table, list[dict[str, Any]]] = defaultdict(list)
    its = tables.metadata.tables
    for number in range(1, hosts + 1):
        rows[tables.computehosts].append(_host(number, now))
    for number in range(leases):
        chosen = [number % hosts, (number + 1 + number // hosts) % hosts]
        for name, row in _booking(ids, now + timedelta(days=1), now + timedelta(days=2), chosen, now, active=False):
            rows[its[name]].append(row)
            if name == "reservations":
                resource_class = reservation_class(row["id"])
                rows[placement_tables.resource_classes].append(
                    {"name": resource_class, "standard": False, "created_at": now}
                )
                flavor = Flavor(row["id"], f"reservation:{row['id']}", 2, 4096, 20, is_public=False)
                specs = {"extra_specs": {f"resources:{resource_class}": "1"}, "created_at": now}
                rows[compute_tables.flavors].append(asdict(flavor) | specs)
    for feature in ("placement", "compute", "reservation"):
        engine = open_engine(database.url_of(f"reservations_{feature}"))
        migrations.upgrade(engine, feature)
        with engine.begin() as link:
            for table, found in rows.items():
                if table.metadata is _METADATA[feature]:
                    _insert(link, table, found)
        if feature == "reservation":
            _go_on_counting(engine)
        engine.dispose()
    return hosts


def register_hosts(plane: Server, hosts: int) -> None:
    """Writes hosts as compute and a host's registration do."""
    placement = client(plane, "placement")
    for host in range(1, hosts + 1):
        name = f"compute-{host}"
        made = placement.request("POST", "/resource_providers", json={"name": name}, version="1.29")
        offered = {
            "resource_provider_generation": made["generation"],
            "inventories": {each: {"total": amount} for each, amount in HOST.items()},
        }
        placement.request("PUT", f"/resource_providers/{made['uuid']}/inventories", json=offered, version="1.29")
        below = {"name": reservation_provider(name), "parent_provider_uuid": made["uuid"]}
        placement.request("POST", "/resource_providers", json=below, version="1.29")


def fill(database: DatabaseServer, hosts: int, leases: int, *, active: bool = False, with_classes: bool = True) -> None:
    """Before the services run, which read it when they start. `active` leases run now and for three months; the others
    lie in the future.
    """
    engine, ids = open_engine(database.url_of("reservations_reservation")), RandomIds()
    migrations.upgrade(engine, "reservation")
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    with engine.begin() as link:
        rows = [_host(number, now) for number in range(1, hosts + 1)]
        _insert(link, tables.computehosts, rows)
        capacities = [
            {"computehost_id": number, "resource_class": name, "capacity": amount, "max_unit": amount}
            for number in range(1, hosts + 1)
            for name, amount in HOST.items()
        ]
        _insert(link, tables.computehost_resources, capacities)
        found: dict[str, list[dict[str, Any]]] = {
            name: []
            for name in ("leases", "reservations", "instance_reservations", "events", "computehost_allocations")
        }
        for start, end, chosen in _bookings(hosts, leases):
            first, last = (
                (now - timedelta(hours=1), now + timedelta(days=DAYS))
                if active
                else (now + timedelta(days=1) + start, now + timedelta(days=1) + end)
            )
            for name, row in _booking(ids, first, last, [] if active else chosen, now, active=active):
                found[name].append(row)
        for name, its in found.items():
            _insert(link, tables.metadata.tables[name], its)
    _go_on_counting(engine)
    engine.dispose()
    if with_classes:
        _fill_placement(database, leases, now)


def _fill_placement(database: DatabaseServer, leases: int, now: datetime) -> None:
    """Writes a resource class per reservation into Placement's database."""
    engine = open_engine(database.url_of("reservations_placement"))
    migrations.upgrade(engine, "placement")
    ids = RandomIds()
    rows = [{"name": reservation_class(ids.uuid()), "standard": False, "created_at": now} for _ in range(leases)]
    with engine.begin() as link:
        _insert(link, placement_tables.resource_classes, rows)
    engine.dispose()


def _insert(link: Database, table: Table, rows: list[dict[str, Any]]) -> None:
    for first in range(0, len(rows), ROWS_AT_ONCE):
        link.execute(insert(table), rows[first : first + ROWS_AT_ONCE])


def _go_on_counting(engine: Engine) -> None:
    if engine.dialect.name == "postgresql":
        with engine.begin() as link:
            highest = select(func.max(tables.computehosts.c.id)).scalar_subquery()
            link.execute(select(func.setval(func.pg_get_serial_sequence("computehosts", "id"), highest)))


def _host(number: int, now: datetime) -> dict[str, Any]:
    return {
        "id": number, "hypervisor_hostname": f"compute-{number}", "service_name": f"compute-{number}",
        "hypervisor_type": "QEMU", "hypervisor_version": 1, "cpu_info": "{}", "vcpus": 64, "memory_mb": 262_144,
        "local_gb": 2000, "availability_zone": "", "reservable": True, "ready": True, "created_at": now,
    }  # fmt: skip


def _booking(
    ids: RandomIds, start: datetime, end: datetime, hosts: list[int], now: datetime, *, active: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    lease, reservation, resource = ids.uuid(), ids.uuid(), ids.uuid()
    status, begun = ("ACTIVE", "DONE") if active else ("PENDING", "UNDONE")
    yield "leases", {"id": lease, "name": "filled", "user_id": "u", "project_id": "p", "start_date": start, "end_date": end,
                     "status": status, "degraded": False, "created_at": now}  # fmt: skip
    yield "reservations", {"id": reservation, "lease_id": lease, "position": 0, "resource_id": resource,
                           "resource_type": "virtual:instance", "status": status.lower(), "missing_resources": False,
                           "resources_changed": False, "created_at": now}  # fmt: skip
    yield "instance_reservations", {"id": resource, "reservation_id": reservation, "vcpus": 2, "memory_mb": 4096,
                                    "disk_gb": 20, "amount": max(1, len(hosts)), "resource_properties": "",
                                    "flavor_id": reservation, "created_at": now}  # fmt: skip
    for kind, at, state in (
        ("start_lease", start, begun),
        ("before_end_lease", end, "UNDONE"),
        ("end_lease", end, "UNDONE"),
    ):
        yield "events", {"id": ids.uuid(), "lease_id": lease, "event_type": kind, "time": at, "status": state,
                         "attempt": 0, "epoch": 0, "created_at": now}  # fmt: skip
    for host in hosts:
        yield "computehost_allocations", {"id": ids.uuid(), "compute_host_id": host + 1, "reservation_id": reservation,
                                          "start_date": start, "end_date": end, "resources": SIZE, "created_at": now}  # fmt: skip


def _timed(work: Callable[[], object]) -> float:
    """The duration in milliseconds."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def _sampled(work: Callable[[], float], seconds: float) -> list[float]:
    took: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(took) < 20:
        took.append(work())
    return took


def _cut(latencies: list[float], percent: int) -> float:
    return statistics.quantiles(latencies, n=100)[percent - 1]
