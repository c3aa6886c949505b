"""`moorage env`: the six variables that the stock clients need."""

import json
import shlex
from pathlib import Path

import click

from moorage.cli.client import identity_url
from moorage.cli.output import json_option
from moorage.cli.state import config_option, open_config
from moorage.config import DASHBOARD_PATH
from moorage.identity.embedded import first_credentials


@click.command()
@config_option
@click.option("--user", default="admin", show_default=True, help="Whose credentials: a user of the first start.")
@json_option
def env(config_path: Path | None, user: str, *, as_json: bool) -> None:
    """Print the OS_* variables for the openstack clients: eval "$(moorage env)"."""
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
    if as_json:
        click.echo(json.dumps(variables, indent=2))
        return
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")
    if "dashboard" in config.runs:
        click.echo(f"# In a browser: {config.base_url}{DASHBOARD_PATH}, with the name and the password above")
