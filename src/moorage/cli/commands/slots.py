"""`moorage slots`: finds times at which servers can be reserved."""

import json
from pathlib import Path

import click

from moorage.cli.output import console, table
from moorage.cli.services import endpoints
from moorage.cli.state import config_option
from moorage.core.errors import StartError
from moorage.core.json import JsonObject

_AFFINITY = {"none": None, "together": True, "apart": False}


@click.command("slots", context_settings={"help_option_names": ["-h", "--help"]})
@config_option
@click.option("--hours", type=click.FloatRange(min=1 / 60, max=8784), required=True, help="Duration in hours.")
@click.option("--amount", type=click.IntRange(1, 100_000), default=1, show_default=True, help="Number of servers.")
@click.option("--vcpus", type=click.IntRange(min=0), default=1, show_default=True, help="VCPUs of each server.")
@click.option(
    "--memory-mb", type=click.IntRange(min=0), default=1024, show_default=True, help="Memory of each server, in MiB."
)
@click.option(
    "--disk-gb", type=click.IntRange(min=0), default=0, show_default=True, help="Disk of each server, in GiB."
)
@click.option(
    "--servers",
    type=click.Choice(list(_AFFINITY)),
    default="none",
    show_default=True,
    help="All servers on one host (together), each on its own (apart), or no preference (none).",
)
@click.option("--properties", default="", help='Filter for hosts: \'["=", "$rack", "9"]\'.')
@click.option("--from", "earliest", default="now", show_default=True, help='Earliest start in UTC: "2026-12-01 08:00".')
@click.option("--until", "latest", help="Latest start. [default: 90 days after --from]")
@click.option("--limit", type=click.IntRange(1, 20), default=5, show_default=True, help="Number of results.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def slots(
    config_path: Path | None,
    hours: float,
    amount: int,
    vcpus: int,
    memory_mb: int,
    disk_gb: int,
    servers: str,
    properties: str,
    earliest: str,
    latest: str | None,
    limit: int,
    *,
    as_json: bool,
) -> None:
    """Show the next times at which the servers can be reserved for the given duration. Reserves nothing.

    Uses the reservation service of OS_AUTH_URL, or of the plane that --config names.
    """
    client = endpoints(config_path).reservation
    if client is None:
        raise StartError("there is no reservation service: neither in the catalogue nor in the configuration")
    reservation: JsonObject = {
        "resource_type": "virtual:instance",
        "vcpus": vcpus,
        "memory_mb": memory_mb,
        "disk_gb": disk_gb,
        "amount": amount,
        "affinity": _AFFINITY[servers],
        "resource_properties": properties,
    }
    found = client.offers(
        [reservation], duration_minutes=round(hours * 60), earliest=earliest, latest=latest, limit=limit
    )
    if as_json:
        click.echo(json.dumps({"offers": [list(each) for each in found.periods], "reason": found.reason}, indent=2))
        return
    if found.reason:
        console().print(f"Not possible at the earliest start: {found.reason}.")
    if not found.periods:
        console().print("No time found in this period.")
        return
    rows = table("FROM", "UNTIL")
    for start, end in found.periods:
        rows.add_row(start[:16].replace("T", " "), end[:16].replace("T", " "))
    console().print(rows)
