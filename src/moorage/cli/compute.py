"""`moorage compute`: what operators do to the compute service by hand."""

from collections import Counter
from pathlib import Path
from typing import Any

import click

from moorage.cli.output import console, progress, table
from moorage.cli.services import endpoints
from moorage.cli.state import config_option
from moorage.core.errors import NotFound


@click.group()
def compute() -> None:
    """Migrate what older servers were made with."""


@compute.command("migrate-flavors")
@config_option
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
def migrate_flavors(config_path: Path | None, *, dry_run: bool) -> None:
    """Give each bare-metal server of before custom classes the class of its node, in its own copy of the flavor.

    What it holds in Placement follows. Doing it again changes nothing. Exit status 1: some nodes need you first.
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
    out = console()
    if rows:
        shown = table("node", "server", "class", "outcome", whole=("server",))
        for row in rows:
            shown.add_row(row["node"], row["server"], row["resource_class"], row["note"] or row["outcome"])
        out.print(shown)
    counts = Counter(row["outcome"] for row in rows)
    words = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items())) or "no bare-metal server"
    out.print(f"{'Nothing was changed. ' if dry_run else ''}{words}.")
    if counts["node without class"] or counts["refused"]:
        raise SystemExit(1)
