"""`moorage clock`: the plane's time, and moving a rehearsal's forwards."""

import json
from pathlib import Path

import click

from moorage.cli.client import plane_client
from moorage.cli.output import json_option
from moorage.cli.state import config_option, open_config, seconds
from moorage.wire.client import ServiceClient


@click.group(invoke_without_command=True)
@config_option
@json_option
@click.pass_context
def clock(ctx: click.Context, config_path: Path | None, *, as_json: bool) -> None:
    """Show the plane's clock, or move a rehearsal's forwards."""
    ctx.obj = plane_client(open_config(config_path))
    if ctx.invoked_subcommand is None:
        now = ctx.obj.get("/moorage/v1/clock")
        click.echo(json.dumps(now) if as_json else now["now"])


@clock.command()
@click.argument("period")
@click.pass_obj
def advance(client: ServiceClient, period: str) -> None:
    """Move the clock forwards by PERIOD (90s, 45m, 2h, 1d12h); what is due then happens now.

    It returns when all of the plane has looked at the new time, after 5 seconds at the latest: hosts are up then.
    """
    answer = client.request("POST", "/moorage/v1/clock", json={"advance_s": seconds(period)})
    click.echo(answer["now"])
