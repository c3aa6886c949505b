"""`moorage compute`: manual operations on the compute service."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from moorage.cli.output import console, json_option, progress, table
from moorage.cli.services import endpoints
from moorage.cli.state import config_option
from moorage.core.errors import NotFound


@click.group()
def compute() -> None:
    """Migrate the flavors of older servers."""


@compute.command("migrate-flavors")
@config_option
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@json_option
def migrate_flavors(config_path: Path | None, *, dry_run: bool, as_json: bool) -> None:
    """Set the resource class of the node in the flavor copy of each bare-metal server from before custom classes.

    The server's allocation in Placement is changed, too. Running it again changes nothing. Exit status 1: some nodes
    need manual work first.
    """
    http = endpoints(config_path).client("compute")
    if http is None:
        raise NotFound("there is no compute service: neither in the catalogue nor in the configuration")
    rows: list[dict[str, Any]] = []
    after: str | None = ""
    with progress("bare-metal servers") as tell:
        while after is not None:
            body = {"dry_run": dry_run, "after": after}
            page = http.request("POST", "/moorage/v1/migrate-flavors", json=body, repeatable=True)
            rows, after = [*rows, *page["steps"]], page["after"]
            tell(after or "done", len(rows), len(rows))
    counts = Counter(row["outcome"] for row in rows)
    if as_json:
        click.echo(json.dumps({"dry_run": dry_run, "steps": rows}, indent=2))
    else:
        _show(rows, counts, dry_run=dry_run)
    if counts["node without class"] or counts["refused"]:
        raise SystemExit(1)


def _show(rows: Sequence[dict[str, Any]], counts: Counter[str], *, dry_run: bool) -> None:
    out = console()
    if rows:
        shown = table("node", "server", "class", "outcome", whole=("server",))
        for row in rows:
            shown.add_row(row["node"], row["server"], row["resource_class"], row["note"] or row["outcome"])
        out.print(shown)
    words = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items())) or "no bare-metal server"
    out.print(f"{'Nothing was changed. ' if dry_run else ''}{words}.")
