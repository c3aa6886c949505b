"""`moorage provider-config`: checks, previews, applies and undoes provider configuration files.

Exit status of every command: 0 success, 1 the files are rejected, 2 the command could not run.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypedDict

import click

from moorage.agent.provider_config.installation import replaced_files
from moorage.agent.provider_config.load import LoadReport, ProviderFiles, check_contents, check_directory, refusal_error
from moorage.agent.provider_config.load import config_schema as formal_schema
from moorage.agent.provider_config.load import sample_file as shipped_sample
from moorage.cli.output import console, printable, table
from moorage.cli.state import config_option, default_config_path, open_config
from moorage.config import Config
from moorage.core.errors import Conflict, MoorageError, NotFound, Unavailable
from moorage.wire.client import ServiceClient, decode_body
from moorage.wire.transports import SocketTransport

_FINE, _REFUSED, _CANNOT = 0, 1, 2

P = ParamSpec("P")

_FAULTS = "agent.provider_config"
#: Long, because Placement may be slow, and the agent first finishes an update in progress.
_AGENT_TIMEOUT_S = 300.0

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_directory = click.argument(
    "directory", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="[DIRECTORY]"
)


class UserDocument(TypedDict):
    consumer: str
    server: str | None
    amount: int


class ClassDocument(TypedDict):
    name: str
    how: str
    before: Mapping[str, float] | None
    after: Mapping[str, float] | None
    used: int | None
    users: Sequence[UserDocument]


class ProviderChangeDocument(TypedDict):
    name: str
    is_created: bool
    is_removed: bool
    classes: Sequence[ClassDocument]
    traits_added: Sequence[str]
    traits_removed: Sequence[str]


class Outcome(TypedDict):
    """OUTCOME of `moorage.agent.control`."""

    host: str
    providers: Sequence[ProviderChangeDocument]
    warnings: Sequence[str]


class FileSetDocument(TypedDict):
    taken_at: str
    files: Mapping[str, str]


class State(TypedDict):
    """STATE of `moorage.agent.control`."""

    host: str
    directory: str
    in_force: FileSetDocument
    before: FileSetDocument | None
    refused: Sequence[str] | None


@click.group(name="provider-config")
def provider_config() -> None:
    """Manage files on this host that add inventories and traits to its resource providers.

    Without a DIRECTORY, the commands use the configured one. Exit status: 0 success, 1 the files are rejected, 2 the
    command could not run.
    """


def _ends(command: Callable[P, int]) -> Callable[P, None]:
    """Makes the command's result the exit status, and prints errors as one line."""

    @wraps(command)
    def run(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            status = command(*arguments, **options)
        except MoorageError as error:
            click.echo(f"moorage: {printable(error.message)}", err=True)
            status = _REFUSED if error.error_code == _FAULTS else _CANNOT
        sys.exit(status)

    return run


@provider_config.command()
@config_option
@_directory
@click.option("--strict", is_flag=True, help="Treat unknown fields as errors, not as warnings.")
@json_option
@_ends
def validate(config_path: Path | None, directory: Path | None, *, strict: bool, as_json: bool) -> int:
    """Print every error in the files with its position and remedy. Needs no agent and, with a DIRECTORY, no plane."""
    files = _files(_config(config_path)) if directory is None else ProviderFiles(directory)
    report = check_directory(files, strict=strict)
    if as_json:
        click.echo(json.dumps(_report(report), indent=2))
        return _REFUSED if report.faults else _FINE
    for warning in report.warnings:
        click.echo(f"warning: {warning}")
    for fault in report.faults:
        click.echo(str(fault))
    if report.faults:
        click.echo(f"{_count(len(report.faults), 'error')} in {files.directory}.", err=True)
        return _REFUSED
    files_text, entries = _count(len(report.texts), "file"), _count(len(report.configs), "entry", "entries")
    click.echo(f"{files.directory}: {files_text}, {entries}, no errors.")
    return _FINE


@provider_config.command()
@config_option
@_directory
@json_option
@_ends
def plan(config_path: Path | None, directory: Path | None, *, as_json: bool) -> int:
    """Show what the files would change in Placement, without changing anything. The agent must run.

    Inventory that is in use is closed to new allocations until it is released; the output shows its users.
    """
    config = _config(config_path)
    found = _checked(config, directory)
    outcome = _Agent(config).plan(found)
    _show(outcome, as_json=as_json, heading="would change", nothing="Nothing would change in Placement.")
    return _FINE


@provider_config.command()
@config_option
@_directory
@json_option
@_ends
def apply(config_path: Path | None, directory: Path | None, *, as_json: bool) -> int:
    """Make the running agent apply the files, without a restart, and print the changes.

    With a DIRECTORY, its files first replace the current ones. If the agent rejects them, the current files are
    restored.
    """
    config = _config(config_path)
    agent = _Agent(config)
    outcome = agent.apply() if directory is None else _put(config, agent, _checked(config, directory))
    _show(outcome, as_json=as_json, heading="changed", nothing="Placement was already up to date.")
    return _FINE


@provider_config.command()
@config_option
@json_option
@_ends
def undo(config_path: Path | None, *, as_json: bool) -> int:
    """Restore the files that the last change replaced, and make the agent apply them. Run again to redo the change."""
    config = _config(config_path)
    agent = _Agent(config)
    before = agent.state()["before"]
    if before is None:
        raise NotFound("nothing to undo: the files on this host have not changed since its first start")
    outcome = _put(config, agent, {name: text.encode() for name, text in before["files"].items()})
    heading = f"changed; the files of {before['taken_at']} are back"
    _show(outcome, as_json=as_json, heading=heading, nothing="Placement was already up to date.")
    return _FINE


@provider_config.command()
def schema() -> None:
    """Print the JSON Schema, for editors that complete and check YAML files with it."""
    click.echo(json.dumps(formal_schema(), indent=2))


@provider_config.command()
def sample() -> None:
    """Print an example file that explains every field."""
    click.echo(shipped_sample(), nl=False)


def _config(path: Path | None) -> Config:
    """The configuration of the plane, or the defaults if there is none and none was named."""
    if path is None and not default_config_path().exists():
        return Config()
    return open_config(path)


def _files(config: Config) -> ProviderFiles:
    return ProviderFiles(
        config.provider_config, allow_writable_by_others=config.compute.provider_config_writable_by_others
    )


def _checked(config: Config, directory: Path | None) -> dict[str, bytes]:
    """The valid files of `directory`. Write permissions of others do not matter here, only where the files are used."""
    files = _files(config) if directory is None else ProviderFiles(directory, allow_writable_by_others=True)
    report = check_directory(files)
    if report.faults:
        raise refusal_error(files.directory, report.faults)
    return {name: text.encode() for name, text in report.texts.items()}


def _put(config: Config, agent: "_Agent", wanted: Mapping[str, bytes]) -> Outcome:
    """Replaces the current files with `wanted`, or keeps everything if the agent rejects them."""
    directory = _files(config).directory
    if faults := check_contents(wanted, directory).faults:
        raise refusal_error(directory, faults)
    with replaced_files(directory, wanted):
        return agent.apply(is_held=True)


class _Agent:
    """A client for the agent of this host, through its socket."""

    def __init__(self, config: Config) -> None:
        self._socket = config.agent_socket
        transport = SocketTransport("http://agent", timeout_s=_AGENT_TIMEOUT_S, unix_socket=str(self._socket))
        self._http = ServiceClient(transport, service_type="agent")

    def state(self) -> State:
        found: State = self._ask("GET", "/v1/provider-config", None)
        return found

    def plan(self, files: Mapping[str, bytes]) -> Outcome:
        body = {"files": {name: text.decode() for name, text in files.items()}}
        found: Outcome = self._ask("POST", "/v1/provider-config/plan", body)
        return found

    def apply(self, *, is_held: bool = False) -> Outcome:
        found: Outcome = self._ask("POST", "/v1/provider-config/apply", {"is_held": is_held})
        return found

    def _ask(self, method: str, path: str, body: object) -> Any:
        if not self._socket.exists():
            raise Unavailable(
                f"no agent runs here: {self._socket} does not exist; start it (`moorage up`), or name its "
                "configuration with --config"
            )
        answer = self._http.request_raw(method, path, json=body, accept=(409,))
        document = decode_body(answer)
        if answer.status == 409:
            raise Conflict(document["error"]["message"], code=document["error"]["code"])
        return document


def _report(report: LoadReport) -> dict[str, object]:
    faults = [
        {
            "file": fault.file,
            "line": fault.place and fault.place.line,
            "column": fault.place and fault.place.column,
            "path": fault.path,
            "problem": fault.problem,
            "remedy": fault.remedy,
        }
        for fault in report.faults
    ]
    return {
        "files": sorted(report.texts),
        "entries": len(report.configs),
        "faults": faults,
        "warnings": list(report.warnings),
    }


def _show(outcome: Outcome, *, as_json: bool, heading: str, nothing: str) -> None:
    if as_json:
        click.echo(json.dumps(outcome, indent=2))
        return
    out = console()
    rows = table("provider", "what", "before", "after", whole=("provider",))
    for provider in outcome["providers"]:
        for what, before, after in _rows(provider):
            rows.add_row(provider["name"], what, before, after)
    if rows.row_count:
        out.print(f"On {outcome['host']}, {heading}:")
        out.print(rows)
    else:
        out.print(nothing)
    for provider in outcome["providers"]:
        for line in _in_use(provider):
            out.print(line)
    for warning in outcome["warnings"]:
        out.print(f"warning: {warning}")


def _rows(provider: ProviderChangeDocument) -> list[tuple[str, str, str]]:
    rows = []
    if provider["is_created"]:
        rows.append(("the provider is created", "", ""))
    if provider["is_removed"]:
        rows.append(("the provider is removed", "", ""))
    rows += [
        (f"{change['how']} {change['name']}", _amounts(change["before"]), _amounts(change["after"]))
        for change in provider["classes"]
    ]
    rows += [(f"add trait {trait}", "", "") for trait in provider["traits_added"]]
    rows += [(f"remove trait {trait}", "", "") for trait in provider["traits_removed"]]
    return rows


#: Default values, which are not shown.
_USUAL = {"reserved": 0, "min_unit": 1, "max_unit": 2**31 - 1, "step_size": 1, "allocation_ratio": 1.0}


def _amounts(inventory: Mapping[str, float] | None) -> str:
    if inventory is None:
        return "-"
    others = [f"{name} {inventory[name]}" for name, usual in _USUAL.items() if inventory[name] != usual]
    return ", ".join([f"total {inventory['total']}", *others])


def _in_use(provider: ProviderChangeDocument) -> list[str]:
    lines = []
    for change in provider["classes"]:
        if not change["users"]:
            continue
        closed = (
            "no new allocations; existing ones stay until released"
            if change["how"] == "close"
            else "existing allocations stay"
        )
        lines.append(f"{change['used']} {change['name']} of {provider['name']} are in use; {closed}:")
        lines += [f"  {user['amount']} by {_who(user)}" for user in change["users"]]
    return lines


def _who(user: UserDocument) -> str:
    return f"server {user['server']} ({user['consumer']})" if user["server"] else f"consumer {user['consumer']}"


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or f'{one}s'}"
