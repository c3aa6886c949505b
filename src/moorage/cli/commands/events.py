"""`moorage events`: changes in placement, past and as they happen."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import orjson

from moorage.cli.output import printable
from moorage.cli.services import endpoints
from moorage.cli.state import config_option
from moorage.core.clock import SystemClock
from moorage.core.errors import StartError
from moorage.placement.client.change_log import ChangeDocument, follow_changes
from moorage.placement.forest.change_entries import Filter, SubjectKind
from moorage.wire.client import ServiceClient

#: Entries per request.
PAGE = 500


@click.command()
@config_option
@click.option("--since", metavar="ID", help="Start after this entry: its ID or sequence number.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([kind.value for kind in SubjectKind]),
    help="Only this kind; may be repeated.",
)
@click.option(
    "--subject", "subjects", multiple=True, metavar="UUID", help="Only this provider or consumer; may be repeated."
)
@click.option("--follow", "-f", "follows", is_flag=True, help="Continue until Ctrl-C; without --since, from now on.")
@click.option("--json", "as_json", is_flag=True, help="Print entries as JSON, one per line.")
def events(
    config_path: Path | None,
    since: str | None,
    kinds: tuple[str, ...],
    subjects: tuple[str, ...],
    *,
    follows: bool,
    as_json: bool,
) -> None:
    """Show changes in placement in commit order. Without --since, starts at the oldest entry that is kept.

    Uses the services of OS_AUTH_URL, or of the plane that --config names.
    """
    client = placement_client(config_path)
    wanted = Filter(kinds, subjects)
    entries = follow_changes(client, SystemClock(), since, wanted) if follows else _kept(client, since, wanted)
    with contextlib.suppress(KeyboardInterrupt):
        for entry in entries:
            click.echo(orjson.dumps(entry) if as_json else printable(change_line(entry)))


def placement_client(config_path: Path | None) -> ServiceClient:
    client = endpoints(config_path).client("placement")
    if client is None:
        raise StartError("there is no placement service: neither in the catalogue nor in the configuration")
    return client


def _kept(client: ServiceClient, since: str | None, wanted: Filter) -> Iterator[ChangeDocument]:
    """All entries after `since`, page by page."""
    query = {
        "since": since,
        "limit": PAGE,
        "kind": ",".join(wanted.kinds) or None,
        "subject": ",".join(wanted.subjects) or None,
    }
    while True:
        page = client.get("/moorage/v1/changes", params=query)
        yield from page["changes"]
        if page["is_last"]:
            return
        query["since"] = page["next"]


def change_line(entry: ChangeDocument) -> str:
    """One entry as text."""
    subject = entry["subject"] or "-"
    change = change_text(entry["kind"], entry["document"])
    return f"{entry['at']}  {entry['id']:>8}  {entry['kind']:<10}  {subject}  {change}"


_WITHOUT_DOCUMENT: dict[str, str] = {
    SubjectKind.NAMES: "resource classes or traits were added or removed",
    SubjectKind.EVERYTHING: "anything may have changed: read everything again",
}


def change_text(kind: str, document: dict[str, Any] | None) -> str:
    """A short description of a change."""
    if document is None:
        return _WITHOUT_DOCUMENT.get(kind, "gone")
    match kind, document:
        case ("provider", {"inventories": offered, "usages": used, "name": name, "generation": generation}):
            amounts = [f"{one} {used.get(one, 0)}/{offered[one]['total']}" for one in sorted(offered)]
            return f"{name}, generation {generation}: {', '.join(amounts) or 'offers nothing'}"
        case ("usages", {"usages": used, "generation": generation}):
            return f"generation {generation}: {_amounts(used) or 'nothing is used'}"
        case (_, {"allocations": held, "project_id": project, "consumer_type": consumer_type}):
            parts = [f"{_amounts(amounts)} of {provider}" for provider, amounts in sorted(held.items())]
            return f"{consumer_type or 'unknown'} of {project}: {'; '.join(parts)}"
    return str(document)


def _amounts(amounts: dict[str, int]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in sorted(amounts.items()))
