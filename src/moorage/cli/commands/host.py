"""`moorage host`: enrol hosts, list them and revoke them; and on a host, join."""

import json
import sys
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

import click

from moorage.cli.output import console, json_option, table
from moorage.cli.services import endpoints
from moorage.cli.state import config_option, default_config_path, parse_period
from moorage.config import load_config
from moorage.core.clock import SystemClock
from moorage.core.errors import NotFound, StartError
from moorage.identity.host_credential import enrol_host as exchange
from moorage.wire.client import ServiceClient
from moorage.wire.transports import SocketTransport

_HOSTS = "/moorage/v1/hosts"


@click.group()
def host() -> None:
    """Enrol the agents of hosts, list them, and revoke their credentials."""


@host.command()
@config_option
@click.argument("names", nargs=-1, required=True)
@click.option("--expires", default="1h", show_default=True, help="How long the token is valid: 90s, 45m, 2h, 1d12h.")
def enrol(config_path: Path | None, names: tuple[str, ...], expires: str) -> None:
    """Print a one-time token for each host, as input for `moorage host join` on that host.

    A host that already has a credential keeps it until the token is used.
    """
    http, expires_s = _identity(config_path), parse_period(expires)
    for name in names:
        body = {"expires_s": expires_s}
        made = http.request("POST", f"{_HOSTS}/{quote(name, safe='')}/enrolment", json=body)
        click.echo(f"{name}:{made['token']}")
    click.echo(
        f"Valid once, for {expires}. On the host, run: moorage host join --config FILE, with this line as input.",
        err=True,
    )


@host.command("list")
@config_option
@json_option
def list_hosts(config_path: Path | None, *, as_json: bool) -> None:
    """Show the hosts that are enrolled, invited or revoked."""
    rows = _identity(config_path).get(_HOSTS)["hosts"]
    if as_json:
        click.echo(json.dumps({"hosts": rows}, indent=2))
        return
    shown = table("host", "state", "enrolled", "rotated", "revoked", "invited until")
    for row in rows:
        moments = (row["enrolled_at"], row["rotated_at"], row["revoked_at"], row["invited_until"])
        shown.add_row(row["name"], row["state"], *(_minute(moment) for moment in moments))
    console().print(shown)


@host.command()
@config_option
@click.argument("names", nargs=-1, required=True)
def revoke(config_path: Path | None, names: tuple[str, ...]) -> None:
    """Revoke the credential of a host and all of its tokens, immediately."""
    http = _identity(config_path)
    for name in names:
        http.request("DELETE", f"{_HOSTS}/{quote(name, safe='')}")
        click.echo(f"{name} is revoked.")


@host.command()
@config_option
def join(config_path: Path | None) -> None:
    """On a host: exchange the one-time tokens on standard input for the credential of its agent.

    Run it as the user that runs the agent.
    """
    path = config_path or default_config_path()
    config = load_config(path)
    given = dict(_pair(line) for line in _lines())
    if unknown := sorted(given.keys() - set(config.hosts)):
        raise StartError(
            f"{path}: this configuration is for the agent of {config.hosts[0]}, but the token is for {unknown[0]}: "
            "set [agent] host to that name, or enrol the other host"
        )
    transport = SocketTransport(config.endpoints.identity or f"{config.base_url}/identity", ca_file=config.ca_file)
    for name, token in given.items():
        credential = config.credential_of(name)
        exchange(credential, name, token, transport, SystemClock())
        click.echo(f"The credential of {name} is in {credential}")


def _identity(config_path: Path | None) -> ServiceClient:
    http = endpoints(config_path).client("identity")
    if http is None:
        raise NotFound("there is no identity service: neither in the catalogue nor in the configuration")
    return http


def _lines() -> list[str]:
    if sys.stdin.isatty():
        return [click.prompt("Token (NAME:...)", hide_input=True, err=True)]
    return [line for line in sys.stdin.read().splitlines() if line.strip()]


def _pair(line: str) -> tuple[str, str]:
    name, colon, token = line.strip().partition(":")
    if not (name and colon and token):
        raise StartError("a line of the input is not NAME:TOKEN, the format that `moorage host enrol NAME` prints")
    return name, token


def _minute(moment: str | None) -> str:
    return "-" if moment is None else f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M}"
