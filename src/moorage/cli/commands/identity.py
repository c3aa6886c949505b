"""`moorage identity` and `moorage clock`: operations on a running plane's signing key and clock."""

import json
import secrets
from datetime import timedelta
from pathlib import Path

import click

from moorage.cli.output import json_option
from moorage.cli.services import plane_client
from moorage.cli.state import config_option, open_config, parse_period
from moorage.config import Config
from moorage.core.clock import Clock, SystemClock
from moorage.core.errors import StartError
from moorage.wire.client import ServiceClient


@click.group()
def identity() -> None:
    """Manage the tokens of a plane with [identity] mode = embedded or http_basic."""


@identity.command()
@config_option
@click.option("--at-once", is_flag=True, help="Invalidate all tokens now; use it if the key may have leaked.")
@json_option
def rotate_key(config_path: Path | None, *, at_once: bool, as_json: bool) -> None:
    """Sign new tokens with a new key. The plane may run; its processes learn the key within a second.

    Tokens signed with the previous key stay valid until they expire. The command takes two seconds, so that all
    processes know the new key before the first one signs with it.
    """
    config = _with_own_tokens(open_config(config_path))
    from moorage.identity.tokens.keys import rotate_key

    lifetime = timedelta(seconds=config.identity.token_lifetime_s)
    done = rotate_key(config.state, _clock(config), secrets.token_bytes, lifetime=lifetime, at_once=at_once)
    if as_json:
        until = done.until.isoformat(timespec="seconds") if done.until else None
        click.echo(json.dumps({"previous_key_until": until}, indent=2))
    elif done.until is None:
        click.echo(
            "New tokens are signed with a new key. All other tokens become invalid within a second; users must sign in "
            "again."
        )
    else:
        click.echo(
            "New tokens are signed with a new key. Tokens signed with the previous key stay valid until they expire; "
            f"that key is removed at {done.until:%Y-%m-%d %H:%M:%S} UTC."
        )


def _clock(config: Config) -> Clock:
    """The plane's clock, which may be far ahead in a rehearsal."""
    if config.plane.clock != "adjustable":
        return SystemClock()
    from moorage.rehearsal import open_clock

    return open_clock(config.state)


def _with_own_tokens(config: Config) -> Config:
    if config.identity.mode not in ("embedded", "http_basic"):
        raise StartError(
            f"{config.source}: [identity] mode = {config.identity.mode} has no tokens signed by this plane"
        )
    return config


@click.group(invoke_without_command=True)
@config_option
@json_option
@click.pass_context
def clock(ctx: click.Context, config_path: Path | None, *, as_json: bool) -> None:
    """Show the clock, or move the clock of a rehearsal forward."""
    config = open_config(config_path)
    if config.plane.clock != "adjustable":
        raise StartError(
            f"the plane in {config.state} uses this machine's clock, which cannot be moved: stop the plane, and start "
            "a rehearsal with `moorage up --adjustable-clock` or [plane] clock = adjustable"
        )
    ctx.obj = plane_client(config)
    if ctx.invoked_subcommand is None:
        now = ctx.obj.get("/moorage/v1/clock")
        click.echo(json.dumps(now) if as_json else now["now"])


@clock.command()
@click.argument("period")
@click.pass_obj
def advance(client: ServiceClient, period: str) -> None:
    """Move the clock forward by PERIOD (90s, 45m, 2h, 1d12h), and run everything that becomes due.

    Returns when all background tasks have seen the new time, or after 5 seconds. Hosts are up then.
    """
    answer = client.request("POST", "/moorage/v1/clock", json={"advance_s": parse_period(period)})
    click.echo(answer["now"])
