"""`moorage user` and `moorage project`: the accounts of a plane, over the Identity API."""

import json
import sys
from pathlib import Path
from urllib.parse import quote

import click

from moorage.cli.output import console, json_option, table
from moorage.cli.services import accounts_client, dashboard_url
from moorage.cli.state import config_option
from moorage.core.errors import NotFound, StartError
from moorage.core.json import JsonObject
from moorage.identity.model import INVITATION_S, MAX_INVITATION_S
from moorage.wire.client import ServiceClient


@click.group()
def user() -> None:
    """List, add and invite users, set their passwords, disable, enable and unlock them."""


@user.command("add")
@config_option
@click.option("--project", "project_name", metavar="PROJECT", help="Project, by name or id, in which it has the roles.")
@click.option(
    "--role", "role_names", metavar="ROLE", multiple=True, help="Role in the project; repeatable. [default: member]"
)
@click.option("--email", help="Mail address.")
@click.argument("name")
def add_user(
    config_path: Path | None, name: str, project_name: str | None, role_names: tuple[str, ...], email: str | None
) -> None:
    """Create a user with the password on standard input, and give it roles in a project.

    A terminal asks for the password twice. If a role or the project does not exist, nothing is created.
    """
    if role_names and project_name is None:
        raise click.UsageError("--role needs --project: a role is given in a project")
    http = accounts_client(config_path)
    project_id = None if project_name is None else _find(http, "project", project_name)["id"]
    roles = [_find(http, "role", role) for role in role_names or ("member",)] if project_id is not None else []
    given = {"name": name, "password": _password(), "email": email, "default_project_id": project_id}
    record = {key: value for key, value in given.items() if value is not None}
    made = http.request("POST", "/v3/users", json={"user": record})["user"]
    for role in roles:
        _give_role(http, project_id, made, role)
    names = ", ".join(str(role["name"]) for role in roles)
    click.echo(f"{name} is created" + (f", with {names} in {project_name}." if roles else ". It has no project yet."))


@user.command("invite")
@config_option
@click.option("--project", "project_name", metavar="PROJECT", help="Project, by name or id, in which it has the roles.")
@click.option(
    "--role", "role_names", metavar="ROLE", multiple=True, help="Role in the project; repeatable. [default: member]"
)
@click.option(
    "--hours",
    default=INVITATION_S // 3600,
    show_default=True,
    type=click.IntRange(1, MAX_INVITATION_S // 3600),
    help="How long the link is valid.",
)
@click.option("--dashboard", metavar="URL", help="Where browsers find the dashboard. [default: /ui beside identity]")
@json_option
@click.argument("name")
def invite_user(
    config_path: Path | None,
    name: str,
    project_name: str | None,
    role_names: tuple[str, ...],
    hours: int,
    dashboard: str | None,
    *,
    as_json: bool,
) -> None:
    """Print a link with which the user of this name or id chooses a password; create the user if there is none.

    The link works once. An earlier link of the user ends. With --project, the user gets the roles in the project.
    """
    if role_names and project_name is None:
        raise click.UsageError("--role needs --project: a role is given in a project")
    http = accounts_client(config_path)
    page = (dashboard or dashboard_url(config_path)).rstrip("/")
    project_id = None if project_name is None else _find(http, "project", project_name)["id"]
    roles = [_find(http, "role", role) for role in role_names or ("member",)] if project_id is not None else []
    try:
        found = _find(http, "user", name)
    except NotFound:
        given = {"name": name, "default_project_id": project_id}
        record = {key: value for key, value in given.items() if value is not None}
        found = http.request("POST", "/v3/users", json={"user": record})["user"]
    for role in roles:
        _give_role(http, project_id, found, role)
    made = http.request(
        "POST", f"/moorage/v1/users/{_quoted(found['id'])}/invitation", json={"expires_s": hours * 3600}
    )
    link = f"{page}/invitation#{made['token']}"
    if as_json:
        click.echo(json.dumps({"link": link, "expires_at": made["expires_at"]}, indent=2))
    else:
        click.echo(link)
        click.echo(f"Send it to {name} only. It works once, until {made['expires_at'][:16].replace('T', ' ')} UTC.")


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
    found = _find(http, "user", name)
    _update(http, found, {"password": _password()})
    click.echo(f"{name} has a new password.")


@user.command()
@config_option
@click.argument("name")
def disable(config_path: Path | None, name: str) -> None:
    """Keep the user with this name or id from signing in, and end all of its tokens."""
    _set_enabled(config_path, name, enabled=False)


@user.command()
@config_option
@click.argument("name")
def enable(config_path: Path | None, name: str) -> None:
    """Let the user with this name or id sign in again. Its earlier tokens stay invalid."""
    _set_enabled(config_path, name, enabled=True)


@user.command()
@config_option
@click.argument("name")
def unlock(config_path: Path | None, name: str) -> None:
    """Forget the failed sign-ins of the user with this name or id, so that it can sign in at once.

    Each identity process counts failures for itself; all of them forget the user's within a second.
    """
    http = accounts_client(config_path)
    found = _find(http, "user", name)
    http.request("DELETE", f"/moorage/v1/users/{_quoted(found['id'])}/lock")
    click.echo(f"{name} need not wait.")


@click.group()
def project() -> None:
    """List and add projects."""


@project.command("add")
@config_option
@click.option("--description", default="", help="What the project is for.")
@click.argument("name")
def add_project(config_path: Path | None, name: str, description: str) -> None:
    """Create a project, in which `moorage user add` gives roles."""
    record = {"name": name, "description": description}
    accounts_client(config_path).request("POST", "/v3/projects", json={"project": record})
    click.echo(f"{name} is created.")


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


def _find(http: ServiceClient, kind: str, name: str) -> JsonObject:
    """The user, project or role (`kind`) with this id or name.

    Raises `NotFound`, or `StartError` if several match.
    """
    rows: list[JsonObject] = [row for row in http.get(f"/v3/{kind}s")[f"{kind}s"] if name in (row["id"], row["name"])]
    if not rows:
        where = "`openstack role list`" if kind == "role" else f"`moorage {kind} list`"
        raise NotFound(f"there is no {kind} {name}; {where} shows all")
    if len(rows) > 1:
        found = ", ".join(f"{row['id']} (domain {row['domain_id']})" for row in rows)
        raise StartError(f"several {kind}s are called {name}: give the id of one of {found}")
    return rows[0]


def _set_enabled(config_path: Path | None, name: str, *, enabled: bool) -> None:
    http = accounts_client(config_path)
    _update(http, _find(http, "user", name), {"enabled": enabled})
    click.echo(f"{name} is {'enabled' if enabled else 'disabled'}.")


def _give_role(http: ServiceClient, project_id: object, found: JsonObject, role: JsonObject) -> None:
    path = f"/v3/projects/{_quoted(project_id)}/users/{_quoted(found['id'])}/roles/{_quoted(role['id'])}"
    http.request("PUT", path)


def _update(http: ServiceClient, found: JsonObject, change: JsonObject) -> None:
    http.request("PATCH", f"/v3/users/{_quoted(found['id'])}", json={"user": change})


def _quoted(record_id: object) -> str:
    return quote(str(record_id), safe="")


def _password() -> str:
    if sys.stdin.isatty():
        password: str = click.prompt("New password", hide_input=True, confirmation_prompt=True, err=True)
        return password
    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise StartError("there is no password on standard input")
    return password
