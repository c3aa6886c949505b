"""The HTTP API of a host's agent for commands on the same machine, and the same operations as jobs of compute.

::

    GET  /v1/provider-config           STATE
    POST /v1/provider-config/plan      {"files": {NAME: TEXT}} -> OUTCOME: the changes that these files would make
    POST /v1/provider-config/apply     {"is_held": false} -> OUTCOME: the changes that the directory's files made

    STATE    {"host", "directory", "in_force": SET, "before": SET or null, "refused"}
    SET      {"taken_at", "files": {NAME: TEXT}}
    OUTCOME  {"host", "providers": [PROVIDER], "warnings": [TEXT]}
    PROVIDER {"uuid", "name", "is_created", "is_removed", "classes": [CLASS], "traits_added", "traits_removed"}
    CLASS    {"name", "how", "before", "after", "used": 4, "users": [{"consumer", "server", "amount"}]}

Faulty files, and files that contradict the driver, are 409. For access and the form of errors see
`moorage.wire.unix_socket_api`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime

from moorage.agent.control.provider_config_reload import ProviderConfigReloader
from moorage.agent.provider_config.current_set import ConfigFileSet
from moorage.agent.tracker.resource_tracker import ResourceTracker, UpdateResult
from moorage.agent.tree.update_description import ClassChange, ProviderChange, describe_changes
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, Forbidden, Gone, Invalid, MoorageError, StartError
from moorage.core.ids import Ids
from moorage.jobs.contract import ProviderConfigJob, ProviderConfigResult
from moorage.telemetry.trail import Trail
from moorage.wire.app import ServiceApi, WsgiApp
from moorage.wire.body import Schema
from moorage.wire.http import Request, Response, Route
from moorage.wire.unix_socket_api import build_unix_socket_app, unix_socket_api

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
