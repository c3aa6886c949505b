"""Control of a running agent: the reload of the provider configuration, and the HTTP API for commands on this machine.

::

    changed file | SIGHUP | `moorage provider-config apply` | job of compute
        -> ProviderConfigReloader: read and check -> merge and publish (`agent.tracker`) -> store, with the previous set

The rules of a reload are those of the start: a file that contradicts the driver is refused, because the agent could not
start with it. A refused configuration changes nothing: the last accepted one stays in force. The HTTP API is on a Unix
socket; jobs of compute have the same effect::

    GET  /v1/provider-config           STATE
    POST /v1/provider-config/plan      {"files": {NAME: TEXT}} -> OUTCOME: the changes that these files would make
    POST /v1/provider-config/apply     {"is_held": false} -> OUTCOME: the changes that the directory's files made

    STATE    {"host", "directory", "in_force": SET, "before": SET or null, "refused"}
    SET      {"taken_at", "files": {NAME: TEXT}}
    OUTCOME  {"host", "providers": [PROVIDER], "warnings": [TEXT]}
    PROVIDER {"uuid", "name", "is_created", "is_removed", "classes": [CLASS], "traits_added", "traits_removed"}
    CLASS    {"name", "how", "before", "after", "used": 4, "users": [{"consumer", "server", "amount"}]}

Faulty files, and files that contradict the driver, are 409. For access and the form of errors see
`moorage.wire.unix_socket_api`. Not here: the rules of the files (`agent.provider_config`).
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from moorage.agent.provider_config.installation import ConfigFileSet, CurrentConfigSet, replaced_files, wait_until_free
from moorage.agent.provider_config.load import (
    DirectoryStamp,
    check_contents,
    directory_stamp,
    load_provider_files,
    refusal_error,
)
from moorage.agent.tracker.resource_tracker import ResourceTracker, UpdateResult
from moorage.agent.tree.update_description import ClassChange, ProviderChange, describe_changes
from moorage.core.backoff import Backoff
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, Forbidden, Gone, Invalid, MoorageError, StartError
from moorage.core.ids import Ids
from moorage.jobs.contract import ProviderConfigJob, ProviderConfigResult
from moorage.telemetry.trail import Trail
from moorage.wire.app import ServiceApi, WsgiApp
from moorage.wire.body import Schema
from moorage.wire.http import Request, Response, Route
from moorage.wire.unix_socket_api import build_unix_socket_app, unix_socket_api

log = logging.getLogger(__name__)

#: Between attempts while Placement does not answer.
BACKOFF = Backoff(first_s=2.0, longest_s=60.0)


class ProviderConfigReloader:
    """Call `record_start` once after the agent has started. The other methods are thread-safe."""

    def __init__(self, tracker: ResourceTracker, current: CurrentConfigSet, clock: Clock) -> None:
        self._tracker = tracker
        self._clock = clock
        self._reload_lock = threading.Lock()
        self.current = current
        #: Trackers of the other hosts that this process simulates; they use the first host's configuration.
        self.followers: list[ResourceTracker] = []
        self.files = tracker.files
        #: Stamp of the files that were checked last, accepted or not.
        self.checked_stamp: DirectoryStamp = ()
        #: Why the present files were refused; None: they are in force.
        self.refused: str | None = None

    def record_start(self) -> None:
        """Records the files that `ResourceTracker.start` has read as those in force."""
        self.checked_stamp = self._tracker.stamp
        self.current.put_in_force(self._tracker.texts, self._clock.now())

    def reload(self, *, is_held: bool = False) -> UpdateResult:
        """Reads the files and puts them in force. `is_held`: the caller holds the directory already.

        Raises `StartError` for faults, and the errors of Placement's client; then nothing has changed.
        """
        with self._reload_lock:
            if not is_held:
                wait_until_free(self.files.directory, self._clock)
            stamp = directory_stamp(self.files.directory)
            try:
                report = load_provider_files(self.files)
                done = self._tracker.adopt_configs(report.configs)
            except StartError as error:
                self.checked_stamp, self.refused = stamp, error.message
                raise
            self.checked_stamp, self.refused = stamp, None
            for follower in self.followers:
                follower.follow_configs(report.configs)
            if self.current.put_in_force(report.texts, self._clock.now()):
                log.info(
                    "provider configuration changed",
                    extra={"files": sorted(report.texts), "writes": done.written},
                )
            return done

    def replace(self, contents: Mapping[str, bytes]) -> UpdateResult:
        """Replaces the present files by `contents` and reloads. Raises the errors of `reload`; the files are unchanged
        then.
        """
        report = check_contents(contents, self.files.directory)
        if report.faults:
            raise refusal_error(self.files.directory, report.faults)
        with replaced_files(self.files.directory, contents):
            return self.reload(is_held=True)

    def preview_files(self, contents: Mapping[str, bytes]) -> UpdateResult:
        """Returns the result that `replace` would have, or raises the same errors, and writes nothing."""
        report = check_contents(contents, self.files.directory)
        if report.faults:
            raise refusal_error(self.files.directory, report.faults)
        return self._tracker.preview_configs(report.configs)


class ProviderConfigTask:
    """Reloads changed files every `period_s` (0: only on request), and at once after `request_reload`.

    It reloads changed files when two successive runs have seen the same stamp, so that it does not read incomplete
    files.
    """

    def __init__(self, reloader: ProviderConfigReloader, *, host: str, clock: Clock, period_s: float) -> None:
        self.name = provider_config_topic(host)
        self._reloader = reloader
        self._clock = clock
        self._period_s = period_s
        self._seen: DirectoryStamp = ()
        self._reload_requested = threading.Event()
        self._failures = 0

    def request_reload(self) -> None:
        """Makes the next run reload the files even if they are unchanged. The caller must also wake the task's
        topic.
        """
        self._reload_requested.set()

    def run_once(self) -> datetime | None:
        is_requested = self._reload_requested.is_set()
        self._reload_requested.clear()
        stamp = directory_stamp(self._reloader.files.directory)
        is_new = stamp != self._reloader.checked_stamp
        if is_requested or (is_new and stamp == self._seen and self._period_s):
            return self._reload()
        self._seen = stamp
        return self._next_run(self._period_s)

    def _reload(self) -> datetime | None:
        try:
            self._reloader.reload()
        except StartError as error:
            log.error(
                "the changed provider configuration was refused; the last accepted one stays in force",
                extra={"why": error.message},
            )
        except MoorageError as error:
            self._failures += 1
            log.warning("the provider configuration could not be reloaded; trying again", extra={"why": error.message})
            self._reload_requested.set()
            return self._next_run(BACKOFF.pause_s(self._failures))
        self._failures = 0
        return self._next_run(self._period_s)

    def _next_run(self, pause_s: float) -> datetime | None:
        return self._clock.now() + timedelta(seconds=pause_s) if pause_s else None


def provider_config_topic(host: str) -> str:
    """Wake this topic to run `ProviderConfigTask` at once."""
    return f"provider configuration of {host}"


Document = dict[str, object]

#: Number of users that are listed for one class of a provider.
MAX_USERS = 100


@dataclass(frozen=True)
class HostControl:
    """The objects that the handlers use. `server_name` maps a consumer to the server's name, or None if it is not a
    server; it may raise `MoorageError`.
    """

    host: str
    tracker: ResourceTracker
    reloader: ProviderConfigReloader
    server_name: Callable[[str], str | None]


def show_provider_config(request: Request[HostControl]) -> Response:
    return Response(body=state_document(request.service))


def state_document(control: HostControl) -> Document:
    """STATE: the files in force, the files before them, and the reason if the present files were refused."""
    reloader = control.reloader
    return {
        "host": control.host,
        "directory": str(reloader.files.directory),
        "in_force": _file_set_document(reloader.current.in_force),
        "before": _file_set_document(reloader.current.before),
        "refused": reloader.refused,
    }


def plan_provider_config(request: Request[HostControl]) -> Response:
    contents = {name: text.encode() for name, text in request.json["files"].items()}
    with _start_errors_as_conflicts():
        return Response(body=outcome_document(request.service, request.service.reloader.preview_files(contents)))


def apply_provider_config(request: Request[HostControl]) -> Response:
    with _start_errors_as_conflicts():
        return Response(
            body=outcome_document(
                request.service, request.service.reloader.reload(is_held=request.json.get("is_held", False))
            )
        )


@contextmanager
def _start_errors_as_conflicts() -> Iterator[None]:
    try:
        yield
    except StartError as error:
        raise Conflict(error.message, code=error.error_code) from error


def _file_set_document(files: ConfigFileSet | None) -> Document | None:
    return None if files is None else {"taken_at": files.taken_at.isoformat(), "files": files.files}


def outcome_document(control: HostControl, result: UpdateResult) -> Document:
    """OUTCOME: the changes of an update, or of a preview."""
    rows = [_provider_document(control, row) for row in describe_changes(result.changes, result.seen)]
    return {"host": control.host, "providers": rows, "warnings": list(result.warnings)}


def _provider_document(control: HostControl, row: ProviderChange) -> Document:
    # The users are only listed for a class that loses capacity.
    lists_users = any(change.loses_capacity for change in row.classes) and not row.is_created
    holders = control.tracker.allocations_by_consumer(row.uuid) if lists_users else {}

    def users(change: ClassChange) -> list[Document]:
        held = sorted(
            (consumer, amounts[change.name]) for consumer, amounts in holders.items() if change.name in amounts
        )
        rows: list[Document] = [{"consumer": consumer, "amount": amount} for consumer, amount in held[:MAX_USERS]]
        return [row | {"server": _server_name_or_none(control, str(row["consumer"]))} for row in rows]

    def used(change: ClassChange) -> int:
        return sum(amounts.get(change.name, 0) for amounts in holders.values())

    return {
        "uuid": row.uuid,
        "name": row.name,
        "is_created": row.is_created,
        "is_removed": row.is_removed,
        "classes": [
            {
                "name": change.name,
                "how": change.how.value,
                "before": None if change.before is None else asdict(change.before),
                "after": None if change.after is None else asdict(change.after),
                "used": used(change) if change.loses_capacity else None,
                "users": users(change) if change.loses_capacity else [],
            }
            for change in row.classes
        ],
        "traits_added": row.traits_added,
        "traits_removed": row.traits_removed,
    }


def _server_name_or_none(control: HostControl, consumer: str) -> str | None:
    """The server's name; None if the consumer is not a server, or compute does not answer."""
    try:
        return control.server_name(consumer)
    except MoorageError:
        return None


_FILES = {"type": "object", "additionalProperties": {"type": "string"}}

API: ServiceApi[HostControl] = unix_socket_api(
    "host-agent",
    (
        Route("GET", "/v1/provider-config", show_provider_config, rule=None),
        Route(
            "POST",
            "/v1/provider-config/plan",
            plan_provider_config,
            rule=None,
            schema=Schema({"type": "object", "required": ["files"], "properties": {"files": _FILES}}),
            effect="none",
        ),
        Route(
            "POST",
            "/v1/provider-config/apply",
            apply_provider_config,
            rule=None,
            schema=Schema({"type": "object", "properties": {"is_held": {"type": "boolean"}}}),
        ),
    ),
)


def control_app(control: HostControl, ids: Ids, trail: Trail | None = None) -> WsgiApp:
    return build_unix_socket_app(API, control, ids, trail)


class ProviderConfigJobs:
    def __init__(self, control: HostControl, clock: Clock, *, may_apply: bool) -> None:
        """Runs compute's jobs about the provider configuration; they do the same as the commands on this machine.

        A job may run again, because it then finds the same files in the directory. `may_apply`: whether compute may
        change the files of this host.
        """
        self._control = control
        self._clock = clock
        self._may_apply = may_apply

    def run_job(self, job: ProviderConfigJob, _keep_alive: Callable[[], None]) -> ProviderConfigResult:
        """Raises `MoorageError`, whose message goes into the report; the files are unchanged then."""
        if self._clock.now() > datetime.fromisoformat(job.expires_at):
            raise Gone(
                f"this job waited for host {self._control.host} until {job.expires_at} and has expired; send it again",
                code="agent.expired_job",
            )
        files = {name: text.encode() for name, text in job.files.items()}
        done = self._done(job.do, files)
        return ProviderConfigResult(state=state_document(self._control), outcome=done)

    def _done(self, what: str, files: Mapping[str, bytes]) -> Mapping[str, object] | None:
        reloader = self._control.reloader
        match what:
            case "show":
                return None
            case "plan":
                return outcome_document(self._control, reloader.preview_files(files))
            case "apply":
                if not self._may_apply:
                    raise Forbidden(
                        f"the files of host {self._control.host} can only be changed on that host, because "
                        "[compute] provider_config_remote_apply is false there: run moorage provider-config apply",
                        code="agent.remote_apply_disabled",
                    )
                return outcome_document(self._control, reloader.replace(files))
        raise Invalid(f"this agent does not know the job {what!r}; upgrade it", code="agent.kind")
