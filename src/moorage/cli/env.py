"""`moorage env`: the six variables that the stock clients need."""

import shlex
from pathlib import Path

import click

from moorage.cli.client import credentials_of, identity_url
from moorage.cli.state import config_option, open_config


@click.command()
@config_option
@click.option("--user", default="admin", show_default=True, help="Whose credentials: a user of the first start.")
def env(config_path: Path | None, user: str) -> None:
    """Print the OS_* variables for the openstack clients: eval "$(moorage env)"."""
    config = open_config(config_path)
    credentials = credentials_of(config, user)
    variables = {
        "OS_AUTH_URL": identity_url(config),
        "OS_USERNAME": credentials.username,
        "OS_PASSWORD": credentials.password,
        "OS_PROJECT_NAME": credentials.project,
        "OS_USER_DOMAIN_ID": "default",
        "OS_PROJECT_DOMAIN_ID": "default",
    }
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")
