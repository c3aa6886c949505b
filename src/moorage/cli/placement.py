"""`moorage placement import`: an existing OpenStack Placement database, taken over."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.console import Console
from sqlalchemy import URL, Engine

from moorage.cli.output import console, progress, table
from moorage.cli.state import config_option, open_config
from moorage.config import Config
from moorage.core.clock import SystemClock
from moorage.core.errors import StartError
from moorage.core.ids import RandomIds
from moorage.db import migrations
from moorage.db.engine import open_engine
from moorage.db.transactions import read
from moorage.placement.importing import Receipt, import_into, rehearse
from moorage.placement.importing_peer import reading
from moorage.placement.importing_rules import MEANING, Finding, Outcome
from moorage.placement.importing_target import check_empty
from moorage.placement.service import PlacementService

#: Findings of a kind that are shown; the rest is counted.
SHOWN = 10


@click.group()
def placement() -> None:
    """The placement service's database."""


@placement.command("import")
@click.argument("url")
@config_option
@click.option("--dry-run", is_flag=True, help="Read and check everything, write nothing.")
@click.option(
    "--findings",
    "findings_path",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write every finding into this file, one JSON object per line.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the receipt as JSON.")
def import_(url: str, config_path: Path | None, findings_path: Path | None, *, dry_run: bool, as_json: bool) -> None:
    """Take over the OpenStack Placement database at URL into the configured, empty placement database.

    URL is `connection` in the [placement_database] of placement.conf: sqlite:////FILE, postgresql://USER@HOST/DB or
    mysql://USER@HOST/DB. It is only read. All is taken or nothing, with the count per table and everything that was
    left out, mended, or is odd.
    """
    config = open_config(config_path)
    clock = SystemClock()
    with (
        _findings_file(findings_path) as noted,
        reading(url, clock.now()) as peer,
        _target(config) as target,
        progress("reading" if dry_run else "importing") as show,
    ):
        _check_other(config, target.url, peer.url)
        if dry_run:
            _check_target(config, target)
            receipt = rehearse(peer, noted=noted, progress=show)
        else:
            migrations.upgrade(target, "placement")
            PlacementService(target, clock, RandomIds()).start()
            receipt = import_into(target, peer, clock.now(), noted=noted, progress=show)
    if as_json:
        click.echo(json.dumps(_document(receipt, is_dry_run=dry_run), indent=2))
        return
    _print(console(), receipt, findings_path)
    click.echo("\nNothing was written." if dry_run else "\nAll of it is in the placement database now.")


def _check_other(config: Config, target: URL, source: URL) -> None:
    """Raises `StartError` where both are one database."""
    is_file = source.get_backend_name() == "sqlite"
    places = [
        (one.host, one.port, str(Path(one.database or "").resolve()) if is_file else one.database)
        for one in (target, source)
    ]
    if target.get_backend_name() == source.get_backend_name() and places[0] == places[1]:
        raise StartError(
            f"{source.render_as_string(hide_password=True)} is the placement database of {config.source} itself; name "
            "another one there, as [database] placement, for the import to go into"
        )


@contextlib.contextmanager
def _target(config: Config) -> Iterator[Engine]:
    engine = open_engine(config.database_url("placement"))
    try:
        yield engine
    finally:
        engine.dispose()


def _check_target(config: Config, target: Engine) -> None:
    """As the import does. A database that is not there yet, or has no schema yet, is not made."""
    file = target.url.database if target.url.get_backend_name() == "sqlite" else None
    if (file is not None and not Path(file).exists()) or migrations.current(target, "placement") is None:
        return
    with read(target) as connection:
        check_empty(connection)


@contextlib.contextmanager
def _findings_file(path: Path | None) -> Iterator[Callable[[Finding], object]]:
    if path is None:
        yield lambda _: None
        return
    try:
        with path.open("w", encoding="utf-8") as file:
            yield lambda finding: print(json.dumps(_finding(finding)), file=file)
    except OSError as error:
        raise StartError(f"{path} cannot be written: {error.strerror}") from error


def _print(out: Console, receipt: Receipt, findings_path: Path | None) -> None:
    rows = table("table", "in the source", "taken", "left out", right=("in the source", "taken", "left out"))
    for name, count in receipt.counts.items():
        rows.add_row(name, f"{count.source:,}", f"{count.taken:,}", f"{count.source - count.taken:,}")
    out.print(rows)
    for outcome in Outcome:
        kinds = [kind for kind, (its, _) in MEANING.items() if its is outcome and kind in receipt.findings.counts]
        if kinds:
            out.print(f"\n{outcome.capitalize()}", style="bold")
        for kind in kinds:
            found = receipt.findings.counts[kind]
            out.print(f"  {MEANING[kind][1]}: {found:,}")
            for finding in receipt.findings.first[kind][:SHOWN]:
                out.print(f"      {finding.text}", soft_wrap=True)
            if found > SHOWN:
                where = findings_path or "--findings FILE keeps all of them"
                out.print(f"      ... and {found - SHOWN:,} more ({where})")


def _document(receipt: Receipt, *, is_dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": is_dry_run,
        "tables": {
            name: {"source": count.source, "taken": count.taken, "left_out": count.source - count.taken}
            for name, count in receipt.counts.items()
        },
        "findings": {
            kind: {
                "count": count,
                "outcome": MEANING[kind][0],
                "meaning": MEANING[kind][1],
                "first": [_finding(one) for one in receipt.findings.first[kind]],
            }
            for kind, count in receipt.findings.counts.items()
        },
    }


def _finding(finding: Finding) -> dict[str, str]:
    return {"kind": finding.kind, "outcome": finding.outcome, "subject": finding.subject, "text": finding.text}
