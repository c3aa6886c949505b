"""`moorage status`: one screen with everything that runs, is late or is down."""

import dataclasses
import json
import sys
from importlib.metadata import version
from pathlib import Path

import click
from rich.console import Console

from moorage.cli import status_reading as reading
from moorage.cli.exit_codes import Exit
from moorage.cli.output import console, json_option, table
from moorage.cli.state import config_option, open_config
from moorage.config import Config

#: A task that is overdue for this long hangs, or its machine is overloaded.
LATE_S = 60.0
#: Maximum number of names of down hosts, and of tasks.
SHOWN = 8


@dataclasses.dataclass(frozen=True)
class Status:
    """A string in place of a list is the reason why it is not known."""

    config: Config
    pid: int | None
    clock: str
    services: list[reading.ServiceState]
    databases: list[reading.DatabaseState]
    hosts: list[reading.ListedHost] | str
    jobs: list[reading.JobsState]
    leases: reading.LeaseState | None
    tasks: list[reading.BackgroundTaskState] | str


@click.command()
@config_option
@json_option
def status(config_path: Path | None, *, as_json: bool) -> None:
    """Show services, databases, hosts, open jobs, due lease events and late tasks on one screen.

    Shows the plane that --config names. Exit status: 0 all is well; 1 a host is down, a task is late or a schema is
    behind; 3 a service or database does not answer.
    """
    config = open_config(config_path)
    found = read_status(config)
    if as_json:
        click.echo(json.dumps(status_document(found), indent=2))
    else:
        print_status(console(), found)
    sys.exit(exit_code(found))


def read_status(config: Config) -> Status:
    clock = reading.plane_clock(config)
    databases = reading.databases(config)
    return Status(
        config,
        reading.pid(config),
        clock.now().isoformat(timespec="seconds"),
        reading.services(config),
        databases,
        reading.hosts(config),
        reading.jobs(config, clock),
        reading.leases(config, clock),
        reading.tasks(config, clock.now()),
    )


def exit_code(found: Status) -> Exit:
    if any(service.state != "ok" for service in found.services) or any(
        database.state in ("away", "older", "newer") for database in found.databases
    ):
        return Exit.BROKEN
    hosts = [] if isinstance(found.hosts, str) else found.hosts
    lags = (
        any(not host.is_up for host in hosts)
        or bool(late_tasks(found))
        or any(database.state == "behind" for database in found.databases)
        or (found.leases is not None and found.leases.late_s > LATE_S)
    )
    return Exit.REFUSED if lags else Exit.DONE


def late_tasks(found: Status) -> list[reading.BackgroundTaskState]:
    return [] if isinstance(found.tasks, str) else [task for task in found.tasks if task.late_s > LATE_S]


def status_document(found: Status) -> dict[str, object]:
    """The status as JSON. ``hosts`` and ``duties`` (the tasks) are null if they are not known."""

    def rows(several: object) -> object:
        return [dataclasses.asdict(one) for one in several] if isinstance(several, list) else None

    return {
        "version": version("moorage"),
        "config": str(found.config.source),
        "state_path": str(found.config.state),
        "pid": found.pid,
        "clock": found.clock,
        "runs": sorted(found.config.runs),
        "services": rows(found.services),
        "databases": rows(found.databases),
        "hosts": rows(found.hosts),
        "jobs": rows(found.jobs),
        "leases": None if found.leases is None else dataclasses.asdict(found.leases),
        "duties": rows(found.tasks),
    }


def print_status(out: Console, found: Status) -> None:
    runs = f"pid {found.pid}" if found.pid else "not running here"
    out.print(f"Moorage {version('moorage')}, {runs}, state {found.config.state}, clock {found.clock}", soft_wrap=True)
    _show_services(out, found)
    _show_databases(out, found)
    _show_hosts(out, found)
    _show_work(out, found)
    _show_tasks(out, found)


def _show_services(out: Console, found: Status) -> None:
    rows = table("service", "state", "where")
    for service in found.services:
        said = service.reason if service.reason.startswith(service.url) else f"{service.url} {service.reason}"
        rows.add_row(service.name, service.state, said.rstrip())
    if found.services:
        out.print()
        out.print(rows)


def _show_databases(out: Console, found: Status) -> None:
    rows = table("database", "schema", "state", "where")
    for one in found.databases:
        schema = one.at if one.at == one.head else f"{one.at or '-'} of {one.head}"
        rows.add_row(one.service, schema, one.state, "\n".join(filter(None, (one.url, one.reason))))
    if found.databases:
        out.print()
        out.print(rows)


def _show_hosts(out: Console, found: Status) -> None:
    out.print()
    if isinstance(found.hosts, str):
        out.print(f"hosts    unknown: {found.hosts}")
        return
    down = [host.name for host in found.hosts if not host.is_up]
    more = f" and {len(down) - SHOWN:,} more" if len(down) > SHOWN else ""
    said = f": {', '.join(down[:SHOWN])}{more}" if down else ""
    out.print(f"hosts    {len(found.hosts) - len(down):,} up, {len(down):,} down{said}")


def _show_work(out: Console, found: Status) -> None:
    for jobs in found.jobs:
        oldest = f", oldest {jobs.oldest_s:,.0f} s" if jobs.ready + jobs.claimed else ""
        out.print(f"jobs     {jobs.service}: {jobs.ready:,} waiting, {jobs.claimed:,} in progress{oldest}")
    if found.leases is not None:
        late = f", oldest {found.leases.late_s:,.0f} s overdue" if found.leases.due else ""
        out.print(f"leases   {found.leases.due:,} events due{late}; {found.leases.failed:,} leases in ERROR")


def _show_tasks(out: Console, found: Status) -> None:
    if isinstance(found.tasks, str):
        out.print(f"tasks    unknown: {found.tasks}")
        return
    late = late_tasks(found)
    out.print(f"tasks    {len(found.tasks):,} running, {len(late):,} late")
    for task in [*late, *(one for one in found.tasks if one.failures and one not in late)][:SHOWN]:
        done = "has not run yet" if task.ago_s is None else f"last run {task.ago_s:,.0f} s ago"
        out.print(f"         {task.name}: {task.late_s:,.0f} s late, {done}, {task.failures:,} failed runs")
