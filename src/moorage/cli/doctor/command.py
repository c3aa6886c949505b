"""The command `moorage doctor`: runs all checks and prints their findings."""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from moorage.cli.doctor import databases, devices, endpoints, files, machine, policy, software
from moorage.cli.doctor.finding import CheckFinding, Severity
from moorage.cli.exit_codes import Exit
from moorage.cli.output import console, json_option, progress, table
from moorage.cli.state import config_option, open_config
from moorage.config import Config
from moorage.core.clock import SystemClock

#: {worst finding: exit status}
EXITS = {Severity.FINE: Exit.DONE, Severity.WARNING: Exit.REFUSED, Severity.BROKEN: Exit.BROKEN}


def checks() -> dict[str, Callable[[Config], Iterable[CheckFinding]]]:
    clock = SystemClock()
    return {
        "versions": software.check_versions,
        "files": files.check_files,
        "policy": policy.check_policy,
        "host": lambda config: machine.check_machine(config, clock),
        "devices": devices.check_devices,
        "databases": lambda config: databases.check_databases(config, clock),
        "bus": endpoints.check_bus,
        "endpoints": lambda config: endpoints.check_endpoints(config, clock),
    }


@click.command()
@config_option
@click.option("--all", "shows_all", is_flag=True, help="Also show checks that passed.")
@json_option
def doctor(config_path: Path | None, *, shows_all: bool, as_json: bool) -> None:
    """Find problems of this installation and say how to fix them. Changes nothing.

    Checks versions, file permissions, disk space, access, what a host needs (KVM, IOMMU, libvirt), its accelerators,
    databases and their settings, the message bus, endpoints, certificates and clocks. Exit status: 0 all is well, 1
    warnings, 3 something does not work.
    """
    config = open_config(config_path)
    found: list[CheckFinding] = []
    to_do = checks()
    with progress("checking") as show:
        for done, (name, run) in enumerate(to_do.items()):
            show(name, done, len(to_do))
            found += run(config)
    worst = max(finding.severity for finding in found)
    if as_json:
        click.echo(json.dumps({"worst": worst.name.lower(), "findings": [_document(one) for one in found]}, indent=2))
    else:
        show_findings(found, shows_all=shows_all)
    sys.exit(EXITS[worst])


def _document(finding: CheckFinding) -> dict[str, str]:
    return {
        "severity": finding.severity.name.lower(),
        "check": finding.check,
        "what": finding.what,
        "where": finding.where,
        "remedy": finding.remedy,
    }


def show_findings(found: list[CheckFinding], *, shows_all: bool) -> None:
    """Prints a table, worst first, and a line that counts them."""
    out = console()
    shown = [one for one in sorted(found, key=lambda one: -one.severity) if shows_all or one.severity]
    if shown:
        rows = table("", "check", "problem, place and remedy")
        for one in shown:
            rows.add_row(
                one.severity.name.lower(), one.check, "\n".join(filter(None, (one.what, one.where, one.remedy)))
            )
        out.print(rows)
    counts = {severity: sum(one.severity is severity for one in found) for severity in Severity}
    out.print(
        f"{len(found)} checks: {counts[Severity.BROKEN]} broken, {counts[Severity.WARNING]} warnings, "
        f"{counts[Severity.FINE]} fine."
    )
