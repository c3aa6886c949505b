"""`moorage identity`: what an operator does to a plane's own users and tokens beside editing the users file."""

import json
import secrets
from datetime import timedelta
from pathlib import Path

import click

from moorage.cli.output import json_option
from moorage.cli.services import plane_client
from moorage.cli.state import config_option, open_config, seconds
from moorage.config import Config
from moorage.core.clock import Clock, SystemClock
from moorage.core.errors import StartError
from moorage.wire.client import ServiceClient


@click.group()
def identity() -> None:
    """Users and tokens of a plane with [identity] mode = embedded or http_basic."""


@identity.command()
@config_option
@click.option("--at-once", is_flag=True, help="End all tokens now: for a key that somebody else may have read.")
@json_option
def rotate_key(config_path: Path | None, *, at_once: bool, as_json: bool) -> None:
    """Sign tokens with a new key from now on. The plane may run: its processes know within a second.

    Tokens of the key before stay good until they are over, so nobody notices. The command takes two seconds, in which
    all processes learn the new key before the first one signs with it.
    """
    config = _with_own_tokens(open_config(config_path))
    from moorage.identity.keys import rotate_key

    lifetime = timedelta(seconds=config.identity.token_lifetime_s)
    done = rotate_key(config.state, _clock(config), secrets.token_bytes, lifetime=lifetime, at_once=at_once)
    if as_json:
        until = done.until.isoformat(timespec="seconds") if done.until else None
        click.echo(json.dumps({"previous_key_until": until}, indent=2))
    elif done.until is None:
        click.echo("Tokens are signed with a new key. All others are over within a second; people sign in again.")
    else:
        click.echo(
            "Tokens are signed with a new key. Those of the key before stay good until they are over; it is dropped at "
            f"{done.until:%Y-%m-%d %H:%M:%S} UTC."
        )


def _clock(config: Config) -> Clock:
    """The plane's own: a rehearsal's may be far ahead."""
    if config.plane.clock != "adjustable":
        return SystemClock()
    from moorage.rehearsal.clock import open_clock

    return open_clock(config.state)


def _with_own_tokens(config: Config) -> Config:
    if config.identity.mode not in ("embedded", "http_basic"):
        raise StartError(
            f"{config.source}: with [identity] mode = {config.identity.mode} there are no tokens of our own"
        )
    return config


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
