"""The `import` commands: their options, the checks of source and target, and the output."""

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from sqlalchemy import URL, Engine

from moorage.cli.output import console, progress, table
from moorage.cli.state import config_option, open_config
from moorage.config import Config
from moorage.core.clock import SystemClock
from moorage.core.errors import StartError
from moorage.core.import_findings import ImportFinding, ImportFindingKind, ImportOutcome
from moorage.db import migrations
from moorage.db.engine import open_engine
from moorage.db.importing import Importer, ImportListener, ImportReceipt, PeerDatabase
from moorage.db.session import read

#: Maximum number of findings shown per kind.
SHOWN = 10

D = TypeVar("D", bound=PeerDatabase)


@dataclass(frozen=True)
class ImportOptions:
    """The command line of an import."""

    url: str
    config_path: Path | None
    findings_path: Path | None
    dry_run: bool
    as_json: bool


def import_command(command: Callable[[ImportOptions], None]) -> Callable[..., None]:
    """Gives a command the options of an import."""

    @functools.wraps(command)
    @click.argument("url")
    @config_option
    @click.option("--dry-run", is_flag=True, help="Read and check everything without writing.")
    @click.option(
        "--findings",
        "findings_path",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        help="Write every finding to this file, one JSON object per line.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print the receipt as JSON.")
    def with_options(**options: Any) -> None:
        command(ImportOptions(**options))

    return with_options


def run_import(
    options: ImportOptions,
    importer: Importer[D],
    run: Callable[[Config, Engine | None, D, ImportListener], ImportReceipt],
    prepare: Callable[[Engine], object] = lambda _: None,
) -> None:
    """Calls `run` with the configuration, the target (None in a dry run) and the source, and prints the receipt.

    Before, creates the tables of the target and calls `prepare` with it, except in a dry run.
    """
    config, clock, feature = open_config(options.config_path), SystemClock(), importer.feature
    with (
        _findings_file(options.findings_path) as on_finding,
        importer.open_peer(options.url, clock.now()) as peer,
        _open_target(config.database_url(feature)) as target,
        progress("reading" if options.dry_run else "importing") as show,
    ):
        _check_not_same_database(config, feature, target.url, peer.url)
        if options.dry_run:
            _check_target(target, importer)
        else:
            migrations.upgrade(target, feature)
            prepare(target)
        listener = ImportListener(on_finding, show)
        receipt = run(config, None if options.dry_run else target, peer, listener)
    if options.as_json:
        click.echo(json.dumps(_document(receipt, is_dry_run=options.dry_run), indent=2))
        return
    _print(console(), receipt, list(importer.kinds), options.findings_path)
    click.echo(
        "\nNothing was written." if options.dry_run else f"\nThe import into the {feature} database is complete."
    )


def _check_not_same_database(config: Config, feature: str, target: URL, source: URL) -> None:
    """Raises `StartError` if source and target are the same database."""
    is_file = source.get_backend_name() == "sqlite"
    places = [
        (one.host, one.port, str(Path(one.database or "").resolve()) if is_file else one.database)
        for one in (target, source)
    ]
    if target.get_backend_name() == source.get_backend_name() and places[0] == places[1]:
        raise StartError(
            f"{source.render_as_string(hide_password=True)} is the {feature} database of {config.source} itself; set "
            f"[database] {feature} to another database for the import"
        )


@contextlib.contextmanager
def _open_target(url: str) -> Iterator[Engine]:
    engine = open_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()


def _check_target(target: Engine, importer: Importer[D]) -> None:
    """Checks that the target is empty. A missing database or schema counts as empty and is not created."""
    file = target.url.database if target.url.get_backend_name() == "sqlite" else None
    if (file is not None and not Path(file).exists()) or migrations.current_revision(target, importer.feature) is None:
        return
    with read(target) as connection:
        importer.check_empty(connection)


@contextlib.contextmanager
def _findings_file(path: Path | None) -> Iterator[Callable[[ImportFinding], object]]:
    if path is None:
        yield lambda _: None
        return
    try:
        with path.open("w", encoding="utf-8") as file:
            yield lambda finding: print(json.dumps(_finding(finding)), file=file)
    except OSError as error:
        raise StartError(f"{path} cannot be written: {error.strerror}") from error


def _print(
    out: Console, receipt: ImportReceipt, every_kind: list[ImportFindingKind], findings_path: Path | None
) -> None:
    rows = table("table", "in the source", "taken", "left out", right=("in the source", "taken", "left out"))
    for name, count in receipt.counts.items():
        rows.add_row(name, f"{count.source:,}", f"{count.taken:,}", f"{count.source - count.taken:,}")
    out.print(rows)
    for outcome in ImportOutcome:
        kinds = [kind for kind in every_kind if kind.outcome is outcome and kind in receipt.findings.counts]
        if kinds:
            out.print(f"\n{outcome.capitalize()}", style="bold")
        for kind in kinds:
            found = receipt.findings.counts[kind]
            out.print(f"  {kind.meaning}: {found:,}")
            for finding in receipt.findings.first[kind][:SHOWN]:
                out.print(f"      {finding.text}", soft_wrap=True)
            if found > SHOWN:
                where = findings_path or "use --findings FILE to write all of them"
                out.print(f"      ... and {found - SHOWN:,} more ({where})")


def _document(receipt: ImportReceipt, *, is_dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": is_dry_run,
        "tables": {
            name: {"source": count.source, "taken": count.taken, "left_out": count.source - count.taken}
            for name, count in receipt.counts.items()
        },
        "findings": {
            kind: {
                "count": count,
                "outcome": kind.outcome,
                "meaning": kind.meaning,
                "first": [_finding(one) for one in receipt.findings.first[kind]],
            }
            for kind, count in receipt.findings.counts.items()
        },
    }


def _finding(finding: ImportFinding) -> dict[str, str]:
    return {"kind": finding.kind, "outcome": finding.outcome, "subject": finding.subject, "text": finding.text}
