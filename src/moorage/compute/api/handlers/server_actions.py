"""``POST /servers/{id}/action``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from moorage.compute.api.handlers import moves, operations
from moorage.compute.api.handlers.views import ComputeRequest, amount, require, word_schema_error
from moorage.compute.api.schemas.actions import ARGUMENTS
from moorage.compute.model import lifecycle
from moorage.compute.model.lifecycle import Operation
from moorage.compute.model.servers import VmState
from moorage.core.errors import Gone, Invalid, NotBuilt, NotFound
from moorage.wire.http import Response

#: What Nova does and this service does not.
NOT_BUILT = frozenset(
    {
        "addFixedIp", "addFloatingIp", "addSecurityGroup", "injectNetworkInfo", "os-getSPICEConsole",
        "os-getSerialConsole", "os-getVNCConsole", "removeFixedIp", "removeFloatingIp", "removeSecurityGroup",
    }
)  # fmt: skip
#: What Nova itself took away.
GONE = frozenset({"os-getRDPConsole", "resetNetwork"})


@dataclass(frozen=True)
class ActionRow:
    rule: str
    handler: Callable[[ComputeRequest, str, Any], Response]
    since: int = 1  #: minor microversion


def act(request: ComputeRequest, server_id: str) -> Response:
    if not isinstance(request.json, dict) or len(request.json) != 1:
        raise Invalid("Malformed request body")
    key, argument = next(iter(request.json.items()))
    row = ACTIONS.get(key)
    if row is None and key in NOT_BUILT:
        raise NotBuilt(f"The action {key} is not offered by this service.")
    if row is None and key in GONE:
        raise Gone(f"The peer removed the action {key}; nothing took its place here.")
    if row is None:
        raise Invalid(f"There is no such action: {key}")
    if request.version < (2, row.since):
        raise NotFound(f"The action {key} came with microversion 2.{row.since}.")
    require(request, f"os_compute_api:{row.rule}")
    if (schemas := ARGUMENTS.get(key)) and (schema := schemas.for_version(request.version)):
        schema.check(argument, word_schema_error)
    return row.handler(request, server_id, argument)


def _operate(operation: Operation) -> Callable[[ComputeRequest, str, Any], Response]:
    def handler(request: ComputeRequest, server_id: str, argument: Any) -> Response:
        request.service.operations.operate(request.caller, request.request_id, server_id, operation)
        return Response(202)

    return handler


def _reboot(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    is_hard = argument["type"].upper() == "HARD"
    return _operate(lifecycle.REBOOT_HARD if is_hard else lifecycle.REBOOT)(request, server_id, argument)


def _lock(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    request.service.servers.lock(request.caller, request.request_id, server_id, (argument or {}).get("locked_reason"))
    return Response(202)


def _unlock(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    may_override = request.allowed("os_compute_api:os-lock-server:unlock:unlock_override")
    request.service.servers.unlock(request.caller, request.request_id, server_id, may_override=may_override)
    return Response(202)


def _console(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    text = request.service.servers.console(request.caller, server_id)
    length = argument.get("length")
    if length is not None and (most := amount(length, "length")) >= 0:
        # As the peer counts: what follows the last line break is a line too, though it is empty.
        lines = text.split("\n")
        text = "\n".join(lines[max(0, len(lines) - most) :])
    return Response(body={"output": text})


def _reset_state(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    request.service.operations.reset_state(request.caller, server_id, VmState(argument["state"]))
    return Response(202)


def _force_delete(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    request.service.deletion.delete(request.caller, request.request_id, server_id, at_once=True)
    return Response(202)


#: By the key in the body.
ACTIONS: Mapping[str, ActionRow] = {
    "os-start": ActionRow("servers:start", _operate(lifecycle.START)),
    "os-stop": ActionRow("servers:stop", _operate(lifecycle.STOP)),
    "reboot": ActionRow("servers:reboot", _reboot),
    "pause": ActionRow("os-pause-server:pause", _operate(lifecycle.PAUSE)),
    "unpause": ActionRow("os-pause-server:unpause", _operate(lifecycle.UNPAUSE)),
    "suspend": ActionRow("os-suspend-server:suspend", _operate(lifecycle.SUSPEND)),
    "resume": ActionRow("os-suspend-server:resume", _operate(lifecycle.RESUME)),
    "rebuild": ActionRow("servers:rebuild", operations.rebuild),
    "rescue": ActionRow("os-rescue", operations.rescue),
    "unrescue": ActionRow("os-unrescue", _operate(lifecycle.UNRESCUE)),
    "changePassword": ActionRow("os-admin-password", operations.change_password),
    "trigger_crash_dump": ActionRow("servers:trigger_crash_dump", _operate(lifecycle.CRASH_DUMP), since=17),
    "createImage": ActionRow("servers:create_image", operations.create_image),
    "createBackup": ActionRow("os-create-backup", operations.create_backup),
    "shelve": ActionRow("os-shelve:shelve", moves.shelve),
    "shelveOffload": ActionRow("os-shelve:shelve_offload", _operate(lifecycle.SHELVE_OFFLOAD)),
    "unshelve": ActionRow("os-shelve:unshelve", moves.unshelve),
    "resize": ActionRow("servers:resize", moves.resize),
    "confirmResize": ActionRow("servers:confirm_resize", moves.confirm),
    "revertResize": ActionRow("servers:revert_resize", moves.revert),
    "migrate": ActionRow("os-migrate-server:migrate", moves.migrate),
    "os-migrateLive": ActionRow("os-migrate-server:migrate_live", moves.migrate_live),
    "evacuate": ActionRow("os-evacuate", moves.evacuate),
    "lock": ActionRow("os-lock-server:lock", _lock),
    "unlock": ActionRow("os-lock-server:unlock", _unlock),
    "os-getConsoleOutput": ActionRow("os-console-output", _console),
    "os-resetState": ActionRow("os-admin-actions:reset_state", _reset_state),
    "forceDelete": ActionRow("os-deferred-delete:force", _force_delete),
    "restore": ActionRow("os-deferred-delete:restore", _operate(lifecycle.RESTORE)),
}
