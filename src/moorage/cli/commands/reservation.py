"""`moorage reservation`: manual operations on the database of the reservation service."""

from datetime import timedelta
from pathlib import Path

import click
from sqlalchemy import Engine

from moorage.cli.importing import ImportOptions, import_command, run_import
from moorage.cli.output import console
from moorage.cli.state import config_option, open_config
from moorage.config import Config
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.db import migrations
from moorage.db.engine import open_engine
from moorage.db.importing import ImportListener, ImportReceipt
from moorage.reservation.importing.blazar_db import BlazarDatabase
from moorage.reservation.importing.importer import IMPORTER, ImportSettings, import_blazar

#: The revision that drops the columns for reservations of an older system.
_LAST_REVISION = "0099"


@click.group()
def reservation() -> None:
    """The reservation service's database."""


@reservation.command("finish-upgrade")
@config_option
def finish_upgrade(config_path: Path | None) -> None:
    """Drop the columns that only reservations of an older system need.

    Fails while such a reservation has not ended. Running it again changes nothing. It can be undone only with a backup.
    """
    engine = open_engine(open_config(config_path).database_url("reservation"))
    try:
        migrations.upgrade(engine, "reservation", _LAST_REVISION)
    finally:
        engine.dispose()
    console().print("The reservation database no longer contains data of an older system.")


@reservation.command("import")
@import_command
def import_(options: ImportOptions) -> None:
    """Import the Blazar database at URL into the configured, empty reservation database.

    URL is `connection` in [database] of blazar.conf: sqlite:////FILE, postgresql://USER@HOST/DB or
    mysql://USER@HOST/DB. The source is only read. Either everything is imported or nothing. The output shows a count
    per table, and all rows that were left out, repaired, or are unusual.
    """

    def run(config: Config, target: Engine | None, peer: BlazarDatabase, listener: ImportListener) -> ImportReceipt:
        cleaning_time = timedelta(seconds=config.reservation.cleaning_time_s)
        settings = ImportSettings(cleaning_time, has_network=bool(config.endpoints.network))
        return import_blazar(target, peer, SystemClock().now(), RandomIds(), settings, listener)

    run_import(options, IMPORTER, run)
