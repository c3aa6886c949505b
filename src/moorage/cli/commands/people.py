"""`moorage user` and `moorage project`: the accounts of a plane, over the Identity API."""

import json
import sys
from pathlib import Path
from urllib.parse import quote

import click

from moorage.cli.output import console, json_option, table
from moorage.cli.services import accounts_client
from moorage.cli.state import config_option
from moorage.core.errors import NotFound, StartError
from moorage.core.json import JsonObject
from moorage.wire.client import ServiceClient


@click.group()
def user() -> None:
    """List users, set their passwords, disable and enable them."""


@user.command("list")
@config_option
@json_option
def list_users(config_path: Path | None, *, as_json: bool) -> None:
    """Show all users."""
    _print_records(accounts_client(config_path), "users", as_json=as_json)


@user.command("set-password")
@config_option
@click.argument("name")
def set_password(config_path: Path | None, name: str) -> None:
    """Give the user with this name or id the password on standard input.

    A terminal asks for it twice. All tokens of the user end.
    """
    http = accounts_client(config_path)
    found = _find_user(http, name)
    _update(http, found, {"password": _password()})
    click.echo(f"{name} has a new password.")


@user.command()
@config_option
@click.argument("name")
def disable(config_path: Path | None, name: str) -> None:
    """Let the user with this name or id sign in no more, and end all of its tokens."""
    http = accounts_client(config_path)
    _update(http, _find_user(http, name), {"enabled": False})
    click.echo(f"{name} is disabled.")


@user.command()
@config_option
@click.argument("name")
def enable(config_path: Path | None, name: str) -> None:
    """Let the user with this name or id sign in again. Its earlier tokens stay invalid."""
    http = accounts_client(config_path)
    _update(http, _find_user(http, name), {"enabled": True})
    click.echo(f"{name} is enabled.")


@click.group()
def project() -> None:
    """List projects."""


@project.command("list")
@config_option
@json_option
def list_projects(config_path: Path | None, *, as_json: bool) -> None:
    """Show all projects."""
    _print_records(accounts_client(config_path), "projects", as_json=as_json)


def _print_records(http: ServiceClient, kind: str, *, as_json: bool) -> None:
    rows = http.get(f"/v3/{kind}")[kind]
    if as_json:
        click.echo(json.dumps({kind: rows}, indent=2))
        return
    shown = table("id", "name", "domain", "enabled", whole=("id",))
    for row in rows:
        shown.add_row(row["id"], row["name"], row["domain_id"], "yes" if row["enabled"] else "no")
    console().print(shown)


def _find_user(http: ServiceClient, name: str) -> JsonObject:
    """The user with this id or name. Raises `NotFound`, or `StartError` if several users match."""
    rows: list[JsonObject] = [row for row in http.get("/v3/users")["users"] if name in (row["id"], row["name"])]
    if not rows:
        raise NotFound(f"there is no user {name}; `moorage user list` shows all")
    if len(rows) > 1:
        found = ", ".join(f"{row['id']} (domain {row['domain_id']})" for row in rows)
        raise StartError(f"several users are called {name}: give the id of one of {found}")
    return rows[0]


def _update(http: ServiceClient, found: JsonObject, change: JsonObject) -> None:
    http.request("PATCH", f"/v3/users/{quote(str(found['id']), safe='')}", json={"user": change})


def _password() -> str:
    if sys.stdin.isatty():
        password: str = click.prompt("New password", hide_input=True, confirmation_prompt=True, err=True)
        return password
    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise StartError("there is no password on standard input")
    return password
