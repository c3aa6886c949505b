"""`moorage config show`, `env` and `completion`: print options, environment variables and the completion script."""

import dataclasses
import json
import shlex
from pathlib import Path

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from moorage.cli.output import json_option
from moorage.cli.services import identity_url
from moorage.cli.state import config_option, open_config
from moorage.config import DASHBOARD_PATH, Config, render_config, sections
from moorage.identity.first_start.first_credentials import first_credentials


@click.group()
def config() -> None:
    """Show the configuration options."""


@config.command()
@config_option
@click.option("--defaults", is_flag=True, help="Show the built-in defaults; needs no plane.")
@json_option
def show(config_path: Path | None, *, defaults: bool, as_json: bool) -> None:
    """Print every option with its meaning and value, in the format of a configuration file."""
    found = Config() if defaults else open_config(config_path)
    if as_json:
        options = {name: dataclasses.asdict(getattr(found, name)) for name in sections()}
        click.echo(json.dumps(options, indent=2))
    else:
        click.echo(render_config(found), nl=False)


@click.command()
@config_option
@click.option("--user", default="admin", show_default=True, help="One of the users created at the first start.")
@json_option
def env(config_path: Path | None, user: str, *, as_json: bool) -> None:
    """Print the OS_* variables for the openstack clients. Use it as: eval "$(moorage env)"."""
    config = open_config(config_path)
    auth_url = identity_url(config)
    password, project = first_credentials(config.state, user)
    variables = {
        "OS_AUTH_URL": auth_url,
        "OS_USERNAME": user,
        "OS_PASSWORD": password,
        "OS_PROJECT_NAME": project,
        "OS_USER_DOMAIN_ID": "default",
        "OS_PROJECT_DOMAIN_ID": "default",
    }
    if config.ca_file is not None and auth_url.startswith("https:"):
        variables["OS_CACERT"] = str(config.ca_file)
    if as_json:
        click.echo(json.dumps(variables, indent=2))
        return
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")
    if "dashboard" in config.runs:
        click.echo(f"# In a browser: {config.base_url}{DASHBOARD_PATH}, with the user name and password above")


_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL. Add to its start-up file: eval "$(moorage completion bash)"."""
    click.echo(_SHELLS[shell](ctx.find_root().command, {}, "moorage", "_MOORAGE_COMPLETE").source())
