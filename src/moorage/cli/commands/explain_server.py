"""`moorage explain server`: what the scheduler would decide for a server, without creating one."""

import json
from collections.abc import Iterable
from pathlib import Path

import click
from rich.console import Console

from moorage.cli.output import console, table
from moorage.cli.services import Endpoints, endpoints
from moorage.cli.state import config_option
from moorage.compute.client.compute_client import ExplainClient
from moorage.compute.client.values import Explanation
from moorage.core.errors import NotFound


@click.command()
@click.argument("server_id", required=False)
@config_option
@click.option("--flavor", metavar="NAME", help="Explain a new server of this flavor instead: name or ID.")
@click.option("--image", metavar="ID", help="With --flavor: the image, whose properties may add requirements.")
@click.option("--zone", metavar="ZONE[:HOST]", help="With --flavor: the availability zone, and optionally the host.")
@click.option("--group", metavar="ID", help="With --flavor: the server group.")
@click.option("--json", "as_json", is_flag=True, help="Print the explanation as JSON.")
def server(
    server_id: str | None,
    config_path: Path | None,
    flavor: str | None,
    image: str | None,
    zone: str | None,
    group: str | None,
    *,
    as_json: bool,
) -> None:
    """Show which hosts suit the server SERVER_ID or a new server of a flavor, and why the others do not.

    Creates no server and reserves nothing. Only administrators see host names.
    """
    if (server_id is None) == (flavor is None):
        raise click.UsageError("give either the ID of a server, or --flavor NAME")
    if server_id is not None and (image or zone or group):
        raise click.UsageError("--image, --zone and --group need --flavor; an existing server has its own")
    services = endpoints(config_path)
    http = services.client("compute")
    if http is None:
        raise NotFound("there is no compute service: neither in the catalogue nor in the configuration")
    client = ExplainClient(http)
    if server_id is not None:
        found = client.explain_server(server_id)
    else:
        wanted = {"flavorRef": _flavor_id(services, flavor or ""), "imageRef": image, "availability_zone": zone}
        hints = {} if group is None else {"group": group}
        found = client.explain_new_server({key: value for key, value in wanted.items() if value is not None}, hints)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        print_explanation(console(), found)


def _flavor_id(services: Endpoints, name: str) -> str:
    flavor = None if services.compute is None else services.compute.flavor(name)
    if flavor is None:
        raise NotFound(f"no flavor {name!r} found; run `openstack flavor list --all` to see all flavors")
    return flavor.id


def print_explanation(out: Console, found: Explanation) -> None:
    out.print(found["text"], style="bold")
    if found.get("fault"):
        out.print(f"Fault at creation: {found['fault']}")
    steps = [(one["constraint"], one["before"], one["after"]) for one in found["constraints"]]
    steps += [(one["filter"].replace("_", " "), one["before"], one["after"]) for one in found["filters"]]
    if steps:
        out.print()
        rows = table("condition", "hosts", "left", right=("hosts", "left"))
        for condition, before, after in steps:
            rows.add_row(condition, f"{before:,}", f"{after:,}")
        out.print(rows)
    if names := found.get("host_names"):
        out.print("\nSuitable hosts, best first", style="bold")
        out.print(f"  {', '.join(names[:20])}{' ...' if len(names) > 20 else ''}")
    _lines(out, "Rejected", [f"{host}: {why}" for host, why in found.get("rejected_hosts", {}).items()])
    _lines(out, "Closest hosts", found.get("closest", ()))
    if change := found.get("change"):
        out.print(f"\nSmallest change: {change}")


def _lines(out: Console, heading: str, lines: Iterable[str]) -> None:
    if lines:
        out.print(f"\n{heading}", style="bold")
        for line in lines:
            out.print(f"  {line}")
