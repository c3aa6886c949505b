"""`moorage events` and `moorage history`: changes in placement, past and as they happen, and past states."""

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
_PAGE = 500


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
    client = _placement_client(config_path)
    wanted = Filter(kinds, subjects)
    entries = follow_changes(client, SystemClock(), since, wanted) if follows else _kept(client, since, wanted)
    with contextlib.suppress(KeyboardInterrupt):
        for entry in entries:
            click.echo(orjson.dumps(entry) if as_json else printable(_change_line(entry)))


@click.command()
@click.argument("kind", type=click.Choice(["provider", "consumer"]))
@click.argument("uuid")
@config_option
@click.option("--at", metavar="TIME", help="Show the state at this time: 2026-03-01T09:30:00Z. [default: now]")
@click.option("--changes", "lists", is_flag=True, help="List the changes from --since to --until instead.")
@click.option("--since", metavar="TIME", help="With --changes: changes since this time.")
@click.option("--until", metavar="TIME", help="With --changes: changes before this time.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def history(
    kind: str,
    uuid: str,
    config_path: Path | None,
    at: str | None,
    since: str | None,
    until: str | None,
    *,
    lists: bool,
    as_json: bool,
) -> None:
    """Show the state of the provider or consumer UUID at a past time, or list its changes.

    Uses the services of OS_AUTH_URL, or of the plane that --config names.
    """
    if (lists and at) or (not lists and (since or until)):
        raise click.UsageError("use either --at, or --changes with --since and --until")
    client = _placement_client(config_path)
    path = f"/moorage/v1/history/{kind}s/{uuid}"
    if lists:
        _print_changes(client, f"{path}/changes", {"since": since, "until": until, "limit": _PAGE}, as_json=as_json)
        return
    answer = client.get(path, params={"at": at})
    if as_json:
        click.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2))
    else:
        click.echo(f"as of {answer['at']}, unchanged since {answer['changed_at']} ({answer['id']}):")
        click.echo(printable(f"  {_change_text(kind, answer['state'])}"))


def _print_changes(client: ServiceClient, path: str, query: dict[str, object], *, as_json: bool) -> None:
    while True:
        page = client.get(path, params=query)
        for entry in page["changes"]:
            click.echo(orjson.dumps(entry) if as_json else printable(_change_line(entry)))
        if page["next"] is None:
            return
        query["after"] = page["next"]


def _placement_client(config_path: Path | None) -> ServiceClient:
    client = endpoints(config_path).client("placement")
    if client is None:
        raise StartError("there is no placement service: neither in the catalogue nor in the configuration")
    return client


def _kept(client: ServiceClient, since: str | None, wanted: Filter) -> Iterator[ChangeDocument]:
    """All entries after `since`, page by page."""
    query = {
        "since": since,
        "limit": _PAGE,
        "kind": ",".join(wanted.kinds) or None,
        "subject": ",".join(wanted.subjects) or None,
    }
    while True:
        page = client.get("/moorage/v1/changes", params=query)
        yield from page["changes"]
        if page["is_last"]:
            return
        query["since"] = page["next"]


def _change_line(entry: ChangeDocument) -> str:
    """One entry as text."""
    subject = entry["subject"] or "-"
    change = _change_text(entry["kind"], entry["document"])
    return f"{entry['at']}  {entry['id']:>8}  {entry['kind']:<10}  {subject}  {change}"


_WITHOUT_DOCUMENT: dict[str, str] = {
    SubjectKind.NAMES: "resource classes or traits were added or removed",
    SubjectKind.EVERYTHING: "anything may have changed: read everything again",
}


def _change_text(kind: str, document: dict[str, Any] | None) -> str:
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
