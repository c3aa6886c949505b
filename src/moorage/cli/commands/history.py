"""`moorage history`: the past state of a provider or consumer, and its changes."""

from pathlib import Path

import click
import orjson

from moorage.cli.commands.events import PAGE, change_line, change_text, placement_client
from moorage.cli.output import printable
from moorage.cli.state import config_option
from moorage.wire.client import ServiceClient


@click.command()
@click.argument("kind", type=click.Choice(["provider", "consumer"]))
@click.argument("uuid")
@config_option
@click.option("--at", metavar="TIME", help="Show the state at this time: 2026-03-01T09:30:00Z. [default: now]")
@click.option("--changes", "lists", is_flag=True, help="List the changes from --since to --until instead.")
@click.option("--since", metavar="TIME", help="With --changes: changes since this time.")
@click.option("--until", metavar="TIME", help="With --changes: changes before this time.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def history(
    kind: str,
    uuid: str,
    config_path: Path | None,
    at: str | None,
    since: str | None,
    until: str | None,
    *,
    lists: bool,
    as_json: bool,
) -> None:
    """Show the state of the provider or consumer UUID at a past time, or list its changes.

    Uses the services of OS_AUTH_URL, or of the plane that --config names.
    """
    if (lists and at) or (not lists and (since or until)):
        raise click.UsageError("use either --at, or --changes with --since and --until")
    client = placement_client(config_path)
    path = f"/moorage/v1/history/{kind}s/{uuid}"
    if lists:
        _list(client, f"{path}/changes", {"since": since, "until": until, "limit": PAGE}, as_json=as_json)
        return
    answer = client.get(path, params={"at": at})
    if as_json:
        click.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2))
    else:
        click.echo(f"as of {answer['at']}, unchanged since {answer['changed_at']} ({answer['id']}):")
        click.echo(printable(f"  {change_text(kind, answer['state'])}"))


def _list(client: ServiceClient, path: str, query: dict[str, object], *, as_json: bool) -> None:
    while True:
        page = client.get(path, params=query)
        for entry in page["changes"]:
            click.echo(orjson.dumps(entry) if as_json else printable(change_line(entry)))
        if page["next"] is None:
            return
        query["after"] = page["next"]
