"""`moorage config show`: the whole tree of options with the values in force."""

from pathlib import Path

import click

from moorage.cli.state import config_option, open_config
from moorage.config import Config, render


@click.group()
def config() -> None:
    """The options of a plane."""


@config.command()
@config_option
@click.option("--defaults", is_flag=True, help="Show the built-in defaults; no plane is needed.")
def show(config_path: Path | None, *, defaults: bool) -> None:
    """Print every option with its meaning and its value, as a file that can be used."""
    click.echo(render(Config() if defaults else open_config(config_path)), nl=False)
