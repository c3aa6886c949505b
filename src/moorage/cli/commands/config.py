"""`moorage config show`: the whole tree of options with the values in force."""

import dataclasses
import json
from pathlib import Path

import click

from moorage.cli.output import json_option
from moorage.cli.state import config_option, open_config
from moorage.config import Config, render, sections


@click.group()
def config() -> None:
    """The options of a plane."""


@config.command()
@config_option
@click.option("--defaults", is_flag=True, help="Show the built-in defaults; no plane is needed.")
@json_option
def show(config_path: Path | None, *, defaults: bool, as_json: bool) -> None:
    """Print every option with its meaning and its value, as a file that can be used."""
    found = Config() if defaults else open_config(config_path)
    if as_json:
        options = {name: dataclasses.asdict(getattr(found, name)) for name in sections()}
        click.echo(json.dumps(options, indent=2))
    else:
        click.echo(render(found), nl=False)
