"""`moorage trail`: who changed what, from the audit trail files of this plane."""

import contextlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import orjson

from moorage.cli.output import printable
from moorage.cli.state import config_option, open_config, parse_period
from moorage.core.clock import SystemClock
from moorage.core.errors import StartError
from moorage.telemetry.trail_reading import TrailEntry, TrailFilter, TrailReader


@click.command()
@config_option
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Read this file instead, for example a copy.",
)
@click.option("--user", metavar="ID", help="Only changes by this user: ID or name.")
@click.option("--project", metavar="ID", help="Only changes in this project: ID or name.")
@click.option(
    "--resource", metavar="ID", help="Only changes of this resource: its ID, or a type such as compute/servers."
)
@click.option(
    "--action", metavar="TEXT", help="Only actions whose name contains this text; with *, matches the whole name."
)
@click.option("--outcome", type=click.Choice(["success", "failure", "pending"]), help="Only changes with this result.")
@click.option("--request-id", metavar="ID", help="Only changes caused by this request, in all services.")
@click.option("--since", metavar="TIME", help="Changes since this time: 2026-03-01T09:30:00Z, or 2h for 2 hours ago.")
@click.option("--until", metavar="TIME", help="Changes before this time.")
@click.option("--follow", "-f", "follows", is_flag=True, help="Continue until Ctrl-C; without --since, from now on.")
@click.option("--json", "as_json", is_flag=True, help="Print entries as JSON, one per line.")
def trail(
    config_path: Path | None,
    path: Path | None,
    since: str | None,
    until: str | None,
    *,
    follows: bool,
    as_json: bool,
    **filters: str | None,
) -> None:
    """Show who changed what through the APIs of this plane, oldest first, with the result.

    Reads the files of this machine, including rotated ones. Run it as the user of the plane, on each machine that
    serves APIs.
    """
    if path is None:
        config = open_config(config_path)
        if not config.trail.path:
            raise StartError(f"{config.source}: [trail] path is empty: the trail goes to syslog only")
        path = config.state / config.trail.path
    wanted = TrailFilter(since=_moment(since), until=_moment(until), **filters)
    reading = TrailReader(path, wanted)
    found = reading.follow_entries(sleep=time.sleep, from_now=since is None) if follows else reading.read_entries()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            for entry in found:
                click.echo(orjson.dumps(entry) if as_json else entry_line(entry))
    except FileNotFoundError as error:
        raise StartError(f"{path}: no audit trail; nothing has been changed yet, or [trail] is off") from error
    except PermissionError as error:
        raise StartError(
            f"{path}: cannot be read: {error.strerror}; run this command as the user of the plane"
        ) from error
    if reading.damaged:
        click.echo(f"moorage: skipped {reading.damaged} truncated entries", err=True)


def entry_line(entry: TrailEntry) -> str:
    """One entry as text: time, result, user, action, resource, address, request ID."""
    initiator, target, reason = entry.get("initiator", {}), entry.get("target", {}), entry.get("reason", {})
    who = str(initiator.get("name") or initiator.get("id") or "-")
    if project := initiator.get("project_name") or initiator.get("project_id"):
        who += f"@{project}"
    if initiator.get("is_service"):
        who += " (service)"
    ids: Sequence[str | None] = target.get("ids") or [target.get("id"), *str(target.get("part") or "").split("/")]
    what = " ".join([str(target.get("typeURI", "-")), *(str(one) for one in ids if one)])
    address = initiator.get("host", {}).get("address", "-")
    ended = f"{entry.get('outcome', '-')} {reason.get('reasonCode', '')}".rstrip()
    parts = (entry.get("eventTime"), f"{ended:<11}", who, entry.get("action"), what, address, entry.get("request_id"))
    return printable("  ".join(str(part) for part in parts))


def _moment(text: str | None) -> datetime | None:
    """A time, or a period before now. Raises `StartError`."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return SystemClock().now() - timedelta(seconds=parse_period(text))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
