"""The command `moorage agent join`.

Order: compute the files, check the machine and the server, write the files, redeem the token, start the unit. Nothing
is written before all checks have passed; each later step finds what an earlier run of the command has done.
"""

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from moorage.cli.agent import plan, trust, unit
from moorage.cli.doctor import endpoints, software
from moorage.cli.doctor.command import EXITS, show_findings
from moorage.cli.doctor.finding import CheckFinding, Severity
from moorage.cli.doctor.machine import HostMachine, check_machine
from moorage.cli.state import CONFIG_VARIABLE
from moorage.config import Config, parse_config
from moorage.core.clock import SystemClock
from moorage.core.errors import Invalid, NotFound, StartError
from moorage.core.names import check_host_name
from moorage.identity.host_credential import enrol_or_keep
from moorage.wire.transports import SocketTransport

CONFIG = Path("/etc/moorage/agent.conf")


@dataclass(frozen=True)
class Joining:
    """What the operator asked for, checked. `authorities`: PEM to trust beside the machine's own; empty: none."""

    url: str
    host: str
    token: str
    path: Path
    authorities: bytes
    given: plan.Options

    @property
    def ca_file(self) -> Path | None:
        return self.path.with_name("ca.crt") if self.authorities else None

    def options(self, ca_file: Path | None) -> plan.Options:
        address = trust.own_address(self.url)
        return plan.agent_options(self.host, self.url, address=address, ca_file=ca_file, given=self.given)

    def config(self, ca_file: Path | None) -> Config:
        return parse_config(plan.render_options(self.options(ca_file), self.host), self.path)


@click.group()
def agent() -> None:
    """Make this machine a host of a plane."""


@agent.command()
@click.argument("url")
@click.option("--token", default="", help="NAME:TOKEN, as `moorage host enrol` prints it. If empty, standard input.")
@click.option(
    "--ca-file", type=click.Path(path_type=Path), help="PEM file of the authority that issued the certificate."
)
@click.option("--fingerprint", default="", help="SHA-256 fingerprint of the server's certificate, to trust it too.")
@click.option("--plain-http", is_flag=True, help="Allow an address without TLS on another machine.")
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="SECTION.OPTION=VALUE",
    help="Option to write into the configuration; repeatable.",
)
@click.option(
    "--config", "path", type=click.Path(dir_okay=False, path_type=Path), default=CONFIG, envvar=CONFIG_VARIABLE,
    show_default=True, help="Configuration file to write.",
)  # fmt: skip
@click.option("--replace", "replaces", is_flag=True, help="Replace files that differ; the former ones become *.before.")
@click.option("--check", "only_checks", is_flag=True, help="Only check: write nothing, use no token, start nothing.")
def join(
    url: str, token: str, ca_file: Path | None, fingerprint: str, given: tuple[str, ...], path: Path,
    *, plain_http: bool, replaces: bool, only_checks: bool,
) -> None:  # fmt: skip
    """Make this machine a host of the plane at URL, and start its agent.

    Checks the machine and the server, writes the configuration, exchanges the token for a credential, and starts the
    systemd unit. Can be repeated at any time, also after it was killed. Exit status: 0 the machine is a host, or could
    become one; 1 error, or only warnings with --check; 3 something that the agent needs is missing.
    """
    # Files that others may read get their mode explicitly.
    os.umask(0o077)
    address = trust.checked_url(url, allows_plain_http=plain_http)
    name, secret = _host_of_this_machine() if only_checks and not token else _pair(token or _read_token())
    authorities = _authorities(address, ca_file, fingerprint)
    joining = Joining(address, name, secret, path.absolute(), authorities, plan.parse_options(given))
    machine, program = HostMachine(), unit.own_program()
    findings = list(_findings(joining, machine, program))
    worst = max(finding.severity for finding in findings)
    show_findings(findings, shows_all=only_checks)
    if only_checks:
        sys.exit(EXITS[worst])
    if worst is Severity.BROKEN:
        click.echo("Nothing was written, and the token was not used. Repeat this command afterwards.", err=True)
        sys.exit(EXITS[worst])
    with _one_at_a_time(joining.path.parent):
        _join(joining, machine, program, replaces=replaces)


def _host_of_this_machine() -> tuple[str, str]:
    """A name for checks, which need no token."""
    return os.uname().nodename.partition(".")[0], ""


def _read_token() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("Token (NAME:...)", hide_input=True, err=True))
    return sys.stdin.readline()


def _pair(text: str) -> tuple[str, str]:
    """(host, token)."""
    name, colon, token = text.strip().partition(":")
    if not (name and colon and token):
        raise StartError("the token is not NAME:TOKEN, the format that `moorage host enrol NAME` prints")
    try:
        check_host_name(name)
    except Invalid as error:
        raise StartError(f"the token's host: {error.message}") from error
    return name, token


def _authorities(url: str, ca_file: Path | None, fingerprint: str) -> bytes:
    if ca_file is not None and fingerprint:
        raise StartError("--ca-file and --fingerprint exclude each other: give one of them")
    if ca_file is not None:
        return trust.certificates_of_file(ca_file)
    return trust.pinned_certificate(url, fingerprint) if fingerprint else b""


def _findings(joining: Joining, machine: HostMachine, program: Path) -> Iterator[CheckFinding]:
    """Checks as `moorage doctor` does, with the configuration that would be written."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as directory:
        ca_file = Path(directory) / "ca.crt" if joining.authorities else None
        if ca_file:
            ca_file.write_bytes(joining.authorities)
        config = joining.config(ca_file)
        yield from software.check_versions(config)
        yield from check_machine(config, clock, machine)
        if machine.has_systemd:
            yield from unit.check_hidden([program, joining.path, config.state])
        yield from _reachable(endpoints.check_endpoints(config, clock))


def _reachable(findings: Iterator[CheckFinding]) -> list[CheckFinding]:
    """`findings` of the services; only one of them if none answers, because all have the same cause."""
    found = list(findings)
    services = [one for one in found if one.check.startswith("endpoint:")]
    if services and all(one.severity is Severity.BROKEN for one in services):
        return [services[0], *(one for one in found if one.check == "certificate" and one.severity)]
    return found


@contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    """Excludes another join on this machine. The lock ends with the process."""
    try:
        plan.make_directory(directory, 0o755)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StartError(f"{directory} cannot be created or read: {error.strerror}; run this as root") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise StartError(f"another `moorage agent join` works in {directory}: wait for its end") from error
    finally:
        os.close(descriptor)


def _join(joining: Joining, machine: HostMachine, program: Path, *, replaces: bool) -> None:
    config = joining.config(joining.ca_file)
    files = _files(joining, config, machine, program)
    # Tells a repeated run to restart the agent although all files are there: the run that wrote them was killed.
    pending = config.state / "join.pending"
    try:
        is_needed = plan.needs_writing(files, replaces=replaces)
        plan.make_directory(config.state, 0o711)
        if is_needed:
            pending.touch()
        for sentence in plan.write_files(files):
            click.echo(sentence)
        _redeem(joining, config)
        _start(machine, program, joining.path, is_changed=pending.exists())
        pending.unlink(missing_ok=True)
    except OSError as error:
        raise StartError(f"{error.filename or config.state}: {error.strerror}; run this as root") from error


def _files(joining: Joining, config: Config, machine: HostMachine, program: Path) -> Sequence[plan.PlannedFile]:
    options = joining.options(joining.ca_file)
    text = plan.render_options(options, joining.host)
    # Only root reads it: the operator may have put a password into it with --set.
    files = [plan.PlannedFile(joining.path, text.encode(), 0o600, options)]
    if joining.ca_file:
        files.insert(0, plan.PlannedFile(joining.ca_file, joining.authorities, 0o644))
    if machine.has_systemd:
        writes = [config.state, *([Path(config.libvirt.instances_path)] if config.libvirt.instances_path else [])]
        files += unit.unit_files(machine, program, joining.path, writes)
    return files


def _redeem(joining: Joining, config: Config) -> None:
    credential = config.credential_of(joining.host)
    transport = SocketTransport(config.endpoints.identity, ca_file=config.ca_file)
    try:
        is_new = enrol_or_keep(credential, joining.host, joining.token, transport, SystemClock())
    except NotFound as error:
        raise StartError(
            f"{joining.url} enrols no hosts: its [identity] mode is keystone or none; see docs/guides/hosts.md"
        ) from error
    if is_new:
        click.echo(f"The credential of {joining.host} is in {credential}")
    else:
        click.echo(f"{joining.host} has joined before: its credential in {credential} works, and is kept")


def _start(machine: HostMachine, program: Path, path: Path, *, is_changed: bool) -> None:
    if machine.has_systemd:
        click.echo(unit.start_unit(is_changed=is_changed))
    else:
        click.echo("systemd does not run here, so nothing was started. Start the agent with:")
        click.echo(f"{program} up --config {path}")
