"""`moorage audit`: compares Placement with the other services."""

import json
import sys
from collections.abc import Collection, Sequence
from datetime import timedelta
from pathlib import Path
from textwrap import wrap

import click

from moorage.audit.collector import AuditServices, collect_snapshot
from moorage.audit.healing import Healer, RepairOutcome
from moorage.audit.journal import RepairJournal
from moorage.audit.model import AuditSnapshot, Finding
from moorage.audit.rules import findings
from moorage.cli.output import console, printable, progress, table
from moorage.cli.services import endpoints
from moorage.cli.state import config_option, parse_period
from moorage.core.clock import SystemClock
from moorage.core.errors import Invalid, MoorageError, Unavailable
from moorage.core.ids import is_uuid

_CLEAN, _FOUND, _CANNOT = 0, 1, 2


@click.command()
@config_option
@click.option("--fix", is_flag=True, help="Make the safe repairs, and write a receipt.")
@click.option(
    "--also",
    multiple=True,
    metavar="UUID",
    help="With --fix: also repair the finding about this UUID. Make sure first that nothing uses the object.",
)
@click.option("--grace", default="10m", show_default=True, help="Skip consumers that are younger than this.")
@click.option(
    "--receipt",
    "receipt_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the receipt. [default: moorage-audit-<time>.jsonl in this directory]",
)
@click.option("--freepool", default="freepool", show_default=True, help="Name of the aggregate of unreserved hosts.")
@click.option("--names", is_flag=True, help="Also look for resource classes and traits that are no longer used.")
@click.option("--json", "as_json", is_flag=True, help="Print findings and repairs as JSON.")
def audit(
    config_path: Path | None,
    also: tuple[str, ...],
    grace: str,
    receipt_path: Path | None,
    freepool: str,
    *,
    fix: bool,
    names: bool,
    as_json: bool,
) -> None:
    """Compare Placement with compute, accelerators and reservations, and with itself; and ports with servers.

    Changes nothing without --fix. Exit status: 0 no findings (left), 1 findings, 2 the audit could not run. Uses the
    services of OS_AUTH_URL, or of the plane that --config names.
    """
    try:
        _check_also(also, fix=fix)
        status = _audit(
            config_path,
            frozenset(also),
            timedelta(seconds=parse_period(grace)),
            receipt_path,
            freepool,
            fix,
            names,
            as_json,
        )
    except MoorageError as error:
        click.echo(f"moorage: cannot audit: {printable(error.message)}", err=True)
        sys.exit(_CANNOT)
    sys.exit(status)


def _check_also(also: Collection[str], *, fix: bool) -> None:
    if also and not fix:
        raise Invalid("--also needs --fix")
    if wrong := [text for text in also if not is_uuid(text)]:
        raise Invalid(f"--also {wrong[0]!r} is not a UUID; take it from the column `what and where`")


def _audit(
    config_path: Path | None,
    also: frozenset[str],
    grace: timedelta,
    receipt_path: Path | None,
    freepool: str,
    fix: bool,
    names: bool,
    as_json: bool,
) -> int:
    clock = SystemClock()
    clients = endpoints(config_path)
    services = AuditServices(
        clients.placement, clients.compute, clients.accelerator, clients.reservation, freepool, clients.server_ports
    )
    with progress("reading") as show:
        snapshot = collect_snapshot(services, clock, show, names=names)
    found = findings.all_findings(snapshot, grace)
    outcomes: list[RepairOutcome] = []
    path = receipt_path or Path(f"moorage-audit-{clock.now():%Y%m%dT%H%M%SZ}.jsonl")
    if strangers := also - {finding.subject for finding in found if finding.action is not None}:
        raise Invalid(f"cannot repair {', '.join(sorted(strangers))}: no finding names it")
    if fix and any(one.action is not None and (one.is_safe or one.subject in also) for one in found):
        receipt = RepairJournal(path)
        try:
            outcomes = Healer(services, clock, grace, receipt).repair_findings(snapshot, found, also)
        except MoorageError as error:
            raise Unavailable(f"{error.message}; the repairs made until then are in {path}") from error
        finally:
            receipt.close()
    report = _Report(snapshot, found, outcomes, path, len(findings.too_young_consumers(snapshot, grace)))
    if as_json:
        click.echo(json.dumps(report.document(), indent=2))
    else:
        report.show(is_fix=fix)
    return _FOUND if report.left() else _CLEAN


class _Report:
    def __init__(
        self,
        snapshot: AuditSnapshot,
        found: Sequence[Finding],
        outcomes: Sequence[RepairOutcome],
        receipt: Path,
        young: int,
    ) -> None:
        self._snapshot = snapshot
        self._found = found
        self._outcomes = {id(outcome.finding): outcome for outcome in outcomes}
        self._receipt = receipt
        self._young = young

    def left(self) -> list[Finding]:
        """The findings that are not repaired."""
        done = {key for key, outcome in self._outcomes.items() if outcome.is_done}
        return [finding for finding in self._found if id(finding) not in done]

    def not_judged(self) -> list[str]:
        """What could not be checked, and why."""
        snapshot = self._snapshot
        notes = []
        if snapshot.compute is None:
            notes.append("consumers and owners of providers: there is no compute service")
        if snapshot.accelerators is None:
            notes.append("providers of devices: there is no accelerator service")
        if snapshot.reservations is None:
            notes.append("inventories of reservations: there is no reservation service")
        if snapshot.ports is None:
            notes.append("ports of servers: no network service of Moorage's own answers")
        if self._young:
            notes.append(f"{_count(self._young, 'unknown consumer')} younger than the grace period")
        return notes

    def show(self, *, is_fix: bool) -> None:
        out = console()
        if self._found:
            last = "what was done" if is_fix else "what --fix does"
            rows = table("what and where", "why it is wrong", last, whole=("what and where",))
            for finding in self._found:
                outcome = self._outcomes.get(id(finding))
                places = wrap(finding.where, len(finding.subject), break_on_hyphens=False)
                what = "\n".join((finding.kind, finding.subject, *places))
                rows.add_row(what, finding.why, outcome.text if outcome else finding.advice)
                rows.add_row()
            out.print(rows)
        for note in self.not_judged():
            out.print(f"Not checked: {note}.")
        consumers = {consumer for provider in self._snapshot.providers.values() for consumer in provider.held}
        scope = f"{_count(len(self._snapshot.providers), 'provider')} and {_count(len(consumers), 'consumer')}"
        left = len(self.left())
        out.print(f"{scope}: {_count(left, 'finding')}{' left' if self._outcomes else ''}.")
        if self._outcomes:
            out.print(f"Receipt, with the steps to undo each repair: {self._receipt}")
        elif any(finding.is_safe for finding in self._found):
            out.print("Nothing was changed. Run `moorage audit --fix` to make the safe repairs.")

    def document(self) -> dict[str, object]:
        return {
            "providers": len(self._snapshot.providers),
            "findings": [self._finding(finding) for finding in self._found],
            "left": len(self.left()),
            "not_judged": self.not_judged(),
            "receipt": str(self._receipt) if self._outcomes else None,
        }

    def _finding(self, finding: Finding) -> dict[str, object]:
        outcome = self._outcomes.get(id(finding))
        return {
            "kind": finding.kind,
            "subject": finding.subject,
            "where": finding.where,
            "why": finding.why,
            "resource_class": finding.resource_class,
            "action": finding.action,
            "safe": finding.is_safe,
            "advice": finding.advice,
            "outcome": None if outcome is None else {"done": outcome.is_done, "text": outcome.text},
        }


def _count(number: int, what: str) -> str:
    return f"{f'{number:,}' if number else 'no'} {what}{'' if number == 1 else 's'}"
