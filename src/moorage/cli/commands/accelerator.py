"""`moorage accelerator`: what operators ask of devices beyond the Accelerator API."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import orjson

from moorage.accelerator.client import AcceleratorClient
from moorage.accelerator.model.device_history import DeviceEvent
from moorage.cli.output import printable
from moorage.cli.services import endpoints
from moorage.cli.state import config_option
from moorage.core.errors import StartError

#: Records that are asked for at a time.
PAGE = 500


@click.group()
def accelerator() -> None:
    """Ask about accelerators."""


@accelerator.command()
@click.argument("device", required=False)
@config_option
@click.option("--host", help="Only of this host.")
@click.option("--address", metavar="PCI", help="Only of the card at this address: 0000:3b:00.0.")
@click.option("--handle", metavar="PCI", help="Only of this attach handle: 0000:3b:00.1.")
@click.option("--instance", metavar="UUID", help="Only what was done for this server.")
@click.option("--project", metavar="ID", help="Only what was done for this project.")
@click.option("--event", type=click.Choice([event.value for event in DeviceEvent]), help="Only this.")
@click.option("--since", metavar="TIME", help="From this time on: 2026-03-01T09:30:00Z.")
@click.option("--until", metavar="TIME", help="Before this time.")
@click.option("--json", "as_json", is_flag=True, help="Print each record as JSON, on a line of its own.")
def history(config_path: Path | None, *, as_json: bool, **wanted: str | None) -> None:
    """Show what was done with devices, oldest first: programmed, attached, detached, cleaned, quarantined, released.

    DEVICE is a device's UUID; of one that is gone, --host and --address find what is kept. The services are those of
    OS_AUTH_URL, or of the plane that --config names.
    """
    client = endpoints(config_path).accelerator
    if client is None:
        raise StartError("there is no accelerator service: neither in the catalogue nor in the configuration")
    for record in _records(client, wanted):
        click.echo(orjson.dumps(record) if as_json else _said(record))


def _records(client: AcceleratorClient, wanted: dict[str, str | None]) -> Iterator[dict[str, Any]]:
    after = None
    while True:
        page = client.history(**wanted, after=after, limit=PAGE)
        yield from page["records"]
        after = page["next"]
        if after is None:
            return


def _said(record: dict[str, Any]) -> str:
    """When, what and where; below it for whom, with what, and why not."""
    place = f"{record['hostname']} {record['handle'] or record['deployable']}".strip()
    failed = "" if record["result"] == "done" else " failed"
    lines = [f"{record['at'][:19]}Z  {record['event']}{failed}  {place}"]
    if whom := ", ".join(f"{word} {record[key]}" for word, key in _WHOM if record[key]):
        lines.append(f"    for {whom}")
    if record["sha512"]:
        lines.append(f"    image {record['image_id'] or 'unknown'}, sha512 {record['sha512'][:16]}...")
    elif record["event"] == DeviceEvent.PROGRAM:
        lines.append("    the blank")
    if record["reason"]:
        lines.append(f"    {record['reason']}")
    return "\n".join(map(printable, lines))


_WHOM = (("server", "instance_uuid"), ("project", "project_id"), ("user", "user_id"))
