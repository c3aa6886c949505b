"""`moorage calendar-feed`: URLs from which calendar programs read the leases of a project."""

import dataclasses
import json
from pathlib import Path

import click

from moorage.cli.output import console, table
from moorage.cli.services import endpoints
from moorage.cli.state import config_option
from moorage.core.errors import StartError
from moorage.reservation.client import ReservationClient

_as_json = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")


@click.group("calendar-feed", context_settings={"help_option_names": ["-h", "--help"]})
def calendar_feed() -> None:
    """URLs from which calendar programs read the leases of your project. A URL needs no password: keep it secret."""


@calendar_feed.command("create")
@config_option
@click.argument("name")
@_as_json
def create(config_path: Path | None, name: str, *, as_json: bool) -> None:
    """Create a feed, and print its URL, which cannot be shown again."""
    url = _reservation(config_path).create_feed(name)
    click.echo(json.dumps({"url": url}) if as_json else url)


@calendar_feed.command("list")
@config_option
@_as_json
def show(config_path: Path | None, *, as_json: bool) -> None:
    """List your feeds; administrators see those of all users."""
    feeds = _reservation(config_path).feeds()
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(each) for each in feeds], indent=2))
        return
    rows = table("ID", "NAME", "USER", "PROJECT", "CREATED", "READ")
    for each in feeds:
        times = (each.created_at, each.read_at or "never")
        rows.add_row(each.id, each.name, each.user_id, each.project_id, *(text[:16] for text in times))
    console().print(rows)


@calendar_feed.command("revoke")
@config_option
@click.argument("feed_id")
@_as_json
def revoke(config_path: Path | None, feed_id: str, *, as_json: bool) -> None:
    """Revoke a feed: its URL stops working."""
    _reservation(config_path).revoke_feed(feed_id)
    click.echo(json.dumps({"revoked": feed_id}) if as_json else f"Revoked the calendar feed {feed_id}.")


def _reservation(config_path: Path | None) -> ReservationClient:
    client = endpoints(config_path).reservation
    if client is None:
        raise StartError("there is no reservation service: neither in the catalogue nor in the configuration")
    return client
