"""`moorage reservation`: manual operations on the database of the reservation service."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from moorage.cli import importing
from moorage.cli.output import console, progress
from moorage.cli.state import config_option, open_config
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.db import migrations
from moorage.db.engine import open_engine
from moorage.db.importing import ImportReceipt
from moorage.reservation.importing.blazar_db import reading
from moorage.reservation.importing.importer import check_empty, import_into, rehearse
from moorage.reservation.importing.rules.leases import ImportFindingKind

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
@click.argument("url")
@config_option
@importing.dry_run_option
@importing.findings_option
@importing.json_option
def import_(url: str, config_path: Path | None, findings_path: Path | None, *, dry_run: bool, as_json: bool) -> None:
    """Import the Blazar database at URL into the configured, empty reservation database.

    URL is `connection` in [database] of blazar.conf: sqlite:////FILE, postgresql://USER@HOST/DB or
    mysql://USER@HOST/DB. The source is only read. Either everything is imported or nothing. The output shows a count
    per table, and all rows that were left out, repaired, or are unusual.
    """
    config = open_config(config_path)
    clock, ids = SystemClock(), RandomIds()
    cleaning_time_s, has_network = config.reservation.cleaning_time_s, bool(config.endpoints.network)
    with (
        importing.findings_file(findings_path) as noted,
        reading(url, clock.now()) as peer,
        importing.open_target(config, "reservation") as target,
        progress("reading" if dry_run else "importing") as show,
    ):
        importing.check_not_same_database(config, "reservation", target.url, peer.url)
        if dry_run:
            importing.check_target(target, "reservation", check_empty)
            run_import: Callable[..., ImportReceipt] = rehearse
        else:
            migrations.upgrade(target, "reservation")
            run_import = partial(import_into, target)
        receipt = run_import(
            peer,
            clock.now(),
            ids,
            cleaning_time_s=cleaning_time_s,
            has_network=has_network,
            noted=noted,
            progress=show,
        )
    importing.print_receipt(receipt, ImportFindingKind, "reservation", findings_path, dry_run=dry_run, as_json=as_json)
