"""`moorage reservation`: what operators do to the reservation service's database by hand."""

from pathlib import Path

import click

from moorage.cli.output import console
from moorage.cli.state import config_option, open_config
from moorage.db import migrations
from moorage.db.engine import open_engine

#: Takes away what only an older system's reservations need.
_LAST_REVISION = "0003"


@click.group()
def reservation() -> None:
    """The reservation service's database."""


@reservation.command("finish-upgrade")
@config_option
def finish_upgrade(config_path: Path | None) -> None:
    """Drop the columns that only reservations of an older system need.

    Refuses while one of those is not over. Doing it again changes nothing; it cannot be undone but by a backup.
    """
    engine = open_engine(open_config(config_path).database_url("reservation"))
    try:
        migrations.upgrade(engine, "reservation", _LAST_REVISION)
    finally:
        engine.dispose()
    console().print("Nothing of an older system is left in the reservation database.")
