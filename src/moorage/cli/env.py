"""`moorage env`: the six variables that the stock clients need."""

import shlex
from pathlib import Path

import click

from moorage.cli.client import identity_url
from moorage.cli.state import config_option, open_config
from moorage.identity.embedded import credentials


@click.command()
@config_option
@click.option("--user", default="admin", show_default=True, help="Whose credentials: a user of the first start.")
def env(config_path: Path | None, user: str) -> None:
    """Print the OS_* variables for the openstack clients: eval "$(moorage env)"."""
    config = open_config(config_path)
    auth_url = identity_url(config)
    password, project = credentials(config.state, user)
    variables = {
        "OS_AUTH_URL": auth_url,
        "OS_USERNAME": user,
        "OS_PASSWORD": password,
        "OS_PROJECT_NAME": project,
        "OS_USER_DOMAIN_ID": "default",
        "OS_PROJECT_DOMAIN_ID": "default",
    }
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")
