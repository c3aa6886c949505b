"""`moorage placement import`: imports an existing OpenStack Placement database."""

import click
from sqlalchemy import Engine

from moorage.cli.importing import ImportOptions, import_command, run_import
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.placement.importing.importer import IMPORTER, import_placement
from moorage.placement.service.service import PlacementService


@click.group()
def placement() -> None:
    """The placement service's database."""


@placement.command("import")
@import_command
def import_(options: ImportOptions) -> None:
    """Import the OpenStack Placement database at URL into the configured, empty placement database.

    URL is `connection` in [placement_database] of placement.conf: sqlite:////FILE, postgresql://USER@HOST/DB or
    mysql://USER@HOST/DB. The source is only read. Either everything is imported or nothing. The output shows a count
    per table, and all rows that were left out, repaired, or are unusual.
    """
    clock = SystemClock()

    def add_standard_names(target: Engine) -> None:
        PlacementService(target, clock, RandomIds()).start()

    run_import(
        options,
        IMPORTER,
        lambda _, target, peer, listener: import_placement(target, peer, clock.now(), listener),
        add_standard_names,
    )
