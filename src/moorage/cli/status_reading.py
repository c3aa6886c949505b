"""Reads the state that `moorage status` shows, from the services and databases of one configuration. Writes nothing.

No function raises for a service or database that does not answer: that is part of the result.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy import Connection, func, make_url, select

from moorage.cli.services import plane_endpoints, urls_of
from moorage.cli.state import is_in_use
from moorage.config import Config
from moorage.core.clock import Clock, SystemClock
from moorage.core.errors import MoorageError
from moorage.db import migrations
from moorage.db.engine import open_engine
from moorage.db.session import read
from moorage.jobs.model import JobState
from moorage.rehearsal import open_clock
from moorage.wire.transports import SocketTransport

TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class ServiceState:
    """`state`: ok, failing or away."""

    name: str
    url: str
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """`state`: "away", or a `SchemaState`. `at`, `head`: schema revisions, of the database and newest."""

    service: str
    url: str
    state: str
    at: str = ""
    head: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobsState:
    """Unfinished jobs of one service. `oldest_s`: age of the oldest one."""

    service: str
    ready: int
    claimed: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class LeaseState:
    """`due`: number of lease events whose time has come; the oldest is `late_s` overdue."""

    due: int
    late_s: float
    failed: int


@dataclass(frozen=True, slots=True)
class BackgroundTaskState:
    """`late_s`: how long its next run is overdue; 0 if it is not due, or runs only when woken."""

    name: str
    ago_s: float | None
    late_s: float
    failures: int


@dataclass(frozen=True, slots=True)
class ListedHost:
    name: str
    is_up: bool


def plane_clock(config: Config) -> Clock:
    """The plane's clock; that of a rehearsal may be ahead of the machine's."""
    return open_clock(config.state) if config.plane.clock == "adjustable" else SystemClock()


def pid(config: Config) -> int | None:
    """Process id of the supervisor, if the plane runs on this machine."""
    if not is_in_use(config.state):
        return None
    return int((config.state / "lock").read_text(encoding="ascii").strip() or 0) or None


def services(config: Config) -> list[ServiceState]:
    wanted = urls_of(config)
    if not config.has_users and not config.endpoints.identity:
        wanted.pop("identity", None)
    return [_service(name, url, config.ca_file) for name, url in wanted.items()]


def _service(name: str, url: str, ca_file: Path | None) -> ServiceState:
    try:
        answer = SocketTransport(url, timeout_s=TIMEOUT_S, ca_file=ca_file).send("GET", "/healthcheck", {})
    except MoorageError as error:
        return ServiceState(name, url, "away", error.message)
    # A service of OpenStack may have no health check and answer 404; it is still up.
    if answer.status < 500:
        return ServiceState(name, url, "ok")
    return ServiceState(name, url, "failing", answer.body[:200].decode(errors="replace"))


def databases(config: Config) -> list[DatabaseState]:
    return [_database(service, url) for service, url in config.database_urls().items()]


def _database(service: str, url: str) -> DatabaseState:
    shown, newest = make_url(url).render_as_string(hide_password=True), migrations.head_revision(service)
    if _is_absent(url):
        return DatabaseState(service, shown, "empty", "", newest)
    try:
        engine = open_engine(url)
    except MoorageError as error:
        return DatabaseState(service, shown, "away", "", newest, error.message)
    try:
        now, state = migrations.current_revision(engine, service), migrations.schema_state(engine, service)
    except MoorageError as error:
        return DatabaseState(service, shown, "away", "", newest, error.message)
    finally:
        engine.dispose()
    return DatabaseState(service, shown, state, now or "", newest)


def _is_absent(url: str) -> bool:
    """Whether a SQLite file is missing. Opening it would create it."""
    return url.startswith("sqlite") and not Path(make_url(url).database or "").exists()


def jobs(config: Config, clock: Clock) -> list[JobsState]:
    """One entry per service whose database is in this configuration and answers."""
    found = []
    for service in ("compute", "accelerator"):
        with _opened(config, service) as connection:
            if connection is not None:
                found.append(_jobs(service, connection, clock.now()))
    return found


def _jobs(service: str, connection: Connection, now: datetime) -> JobsState:
    from moorage.accelerator.store.tables import jobs as accelerator_jobs
    from moorage.compute.store.tables import jobs as compute_jobs

    table = compute_jobs if service == "compute" else accelerator_jobs
    query = (
        select(table.c.state, func.count(), func.min(table.c.created_at))
        .where(table.c.open_queue.is_not(None))
        .group_by(table.c.state)
    )
    rows = {row[0]: (row[1], row[2]) for row in connection.execute(query)}
    oldest = min((at for _, at in rows.values()), default=now)
    counts = [rows.get(state, (0, None))[0] for state in (JobState.READY, JobState.CLAIMED)]
    return JobsState(service, counts[0], counts[1], max(0.0, (now - oldest).total_seconds()))


def leases(config: Config, clock: Clock) -> LeaseState | None:
    with _opened(config, "reservation") as connection:
        return None if connection is None else _leases(connection, clock.now())


def _leases(connection: Connection, now: datetime) -> LeaseState:
    from moorage.reservation.model.leases import EventStatus, LeaseStatus
    from moorage.reservation.store.tables import events
    from moorage.reservation.store.tables import leases as table

    open_ones = events.c.status.in_([EventStatus.UNDONE, EventStatus.IN_PROGRESS])
    due, first = connection.execute(
        select(func.count(), func.min(events.c.time)).where(open_ones, events.c.time <= now)
    ).one()
    failed = connection.execute(
        select(func.count()).select_from(table).where(table.c.status == LeaseStatus.ERROR)
    ).scalar_one()
    return LeaseState(due, 0.0 if first is None else (now - first).total_seconds(), failed)


def hosts(config: Config) -> list[ListedHost] | str:
    """The hosts, or the reason why they are not known."""
    try:
        compute = plane_endpoints(config).compute
        if compute is None:
            return "no compute service"
        return [ListedHost(name, is_up) for name, is_up in sorted(compute.hosts_up().items())]
    except MoorageError as error:
        return error.message


def tasks(config: Config, now: datetime) -> list[BackgroundTaskState] | str:
    """The background tasks of this configuration's process, or the reason why they are not known."""
    if config.server.metrics == "off":
        return "[server] metrics is off"
    try:
        # Other machines may not read them, so they are asked for at an address of this one, which the certificate need
        # not contain.
        transport = SocketTransport(
            config.url, timeout_s=TIMEOUT_S, ca_file=config.ca_file, tls_name=urlsplit(config.base_url).hostname
        )
        answer = transport.send("GET", "/metrics", {})
    except MoorageError as error:
        return error.message
    if answer.status != 200:
        return f"/metrics answers {answer.status}"
    return list(_tasks(answer.body.decode(), now.timestamp()))


def _tasks(text: str, now: float) -> Iterator[BackgroundTaskState]:
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        if family.name.startswith("moorage_duty_"):
            for sample in family.samples:
                if "duty" in sample.labels:
                    found.setdefault(sample.labels["duty"], {})[sample.name] = sample.value
    for name, values in sorted(found.items()):
        succeeded = values.get("moorage_duty_last_success_timestamp_seconds")
        due = values.get("moorage_duty_due_timestamp_seconds", math.inf)
        yield BackgroundTaskState(
            name,
            None if succeeded is None else max(0.0, now - succeeded),
            max(0.0, now - due),
            int(values.get("moorage_duty_failures_total", 0)),
        )


@contextmanager
def _opened(config: Config, service: str) -> Iterator[Connection | None]:
    """A transaction in the service's database; None if it does not answer or has another schema than this program."""
    url = config.database_urls().get(service)
    if url is None or _database(service, url).state != "current":
        yield None
        return
    engine = open_engine(url)
    try:
        with read(engine) as connection:
            yield connection
    finally:
        engine.dispose()
