"""`moorage placement import`: imports an existing OpenStack Placement database."""

from pathlib import Path

import click

from moorage.cli import importing
from moorage.cli.output import progress
from moorage.cli.state import config_option, open_config
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.db import migrations
from moorage.placement.importing.importer import import_into, rehearse_import
from moorage.placement.importing.placement_db import open_placement_database
from moorage.placement.importing.rules import ImportFindingKind
from moorage.placement.importing.target import check_empty
from moorage.placement.service.service import PlacementService


@click.group()
def placement() -> None:
    """The placement service's database."""


@placement.command("import")
@click.argument("url")
@config_option
@importing.dry_run_option
@importing.findings_option
@importing.json_option
def import_(url: str, config_path: Path | None, findings_path: Path | None, *, dry_run: bool, as_json: bool) -> None:
    """Import the OpenStack Placement database at URL into the configured, empty placement database.

    URL is `connection` in [placement_database] of placement.conf: sqlite:////FILE, postgresql://USER@HOST/DB or
    mysql://USER@HOST/DB. The source is only read. Either everything is imported or nothing. The output shows a count
    per table, and all rows that were left out, repaired, or are unusual.
    """
    config = open_config(config_path)
    clock = SystemClock()
    with (
        importing.findings_file(findings_path) as noted,
        open_placement_database(url, clock.now()) as peer,
        importing.open_target(config, "placement") as target,
        progress("reading" if dry_run else "importing") as show,
    ):
        importing.check_not_same_database(config, "placement", target.url, peer.url)
        if dry_run:
            importing.check_target(target, "placement", check_empty)
            receipt = rehearse_import(peer, noted=noted, progress=show)
        else:
            migrations.upgrade(target, "placement")
            PlacementService(target, clock, RandomIds()).start()
            receipt = import_into(target, peer, clock.now(), noted=noted, progress=show)
    importing.print_receipt(receipt, ImportFindingKind, "placement", findings_path, dry_run=dry_run, as_json=as_json)
