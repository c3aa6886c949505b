"""``POST /servers/{id}/action``, and what is noted of actions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from moorage.compute import lifecycle
from moorage.compute.handlers.server_view import host_id
from moorage.compute.handlers.views import ComputeCall, microseconds, require, word_schema_error
from moorage.compute.lifecycle import Operation
from moorage.compute.model import Action, ActionEvent, VmState
from moorage.compute.schemas.servers import ACTION_ARGUMENTS
from moorage.core.errors import Invalid, NotBuilt
from moorage.wire.call import Reply

#: What Nova does and this service does not, or not yet.
NOT_BUILT = frozenset(
    {
        "addFixedIp", "addFloatingIp", "addSecurityGroup", "changePassword", "confirmResize", "createBackup",
        "createImage", "evacuate", "injectNetworkInfo", "migrate", "os-getSPICEConsole", "os-getVNCConsole",
        "os-migrateLive", "rebuild", "removeFixedIp", "removeFloatingIp", "removeSecurityGroup", "rescue",
        "resetNetwork", "resize", "restore", "resume", "revertResize", "shelve", "shelveOffload", "suspend",
        "trigger_crash_dump", "unrescue", "unshelve",
    }
)  # fmt: skip


@dataclass(frozen=True)
class ActionRow:
    rule: str
    handler: Callable[[ComputeCall, str, Any], Reply]


def act(call: ComputeCall, server_id: str) -> Reply:
    if not isinstance(call.json, dict) or len(call.json) != 1:
        raise Invalid("Malformed request body")
    key, argument = next(iter(call.json.items()))
    row = ACTIONS.get(key)
    if row is None and key in NOT_BUILT:
        raise NotBuilt(f"The action {key} is not offered by this service.")
    if row is None:
        raise Invalid(f"There is no such action: {key}")
    require(call, row.rule)
    if key in ACTION_ARGUMENTS:
        ACTION_ARGUMENTS[key].check(argument, word_schema_error)
    return row.handler(call, server_id, argument)


def _operate(operation: Operation) -> Callable[[ComputeCall, str, Any], Reply]:
    def handler(call: ComputeCall, server_id: str, argument: Any) -> Reply:
        call.service.servers.operate(call.caller, call.request_id, server_id, operation)
        return Reply(202)

    return handler


def _reboot(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    is_hard = argument["type"].upper() == "HARD"
    return _operate(lifecycle.REBOOT_HARD if is_hard else lifecycle.REBOOT)(call, server_id, argument)


def _lock(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    reason = (argument or {}).get("locked_reason")
    if reason is not None and call.version < (2, 73):
        raise Invalid("locked_reason needs microversion 2.73")
    call.service.servers.lock(call.caller, call.request_id, server_id, reason)
    return Reply(202)


def _unlock(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    may_override = call.allowed("os_compute_api:os-lock-server:unlock:unlock_override")
    call.service.servers.unlock(call.caller, call.request_id, server_id, may_override=may_override)
    return Reply(202)


def _console(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    text = call.service.servers.console(call.caller, server_id)
    length = argument.get("length")
    if length is not None and int(length) >= 0:
        lines = text.splitlines(keepends=True)
        text = "".join(lines[len(lines) - int(length) :]) if int(length) < len(lines) else text
    return Reply(body={"output": text})


def _reset_state(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    call.service.servers.reset_state(call.caller, server_id, VmState(argument["state"]))
    return Reply(202)


def _force_delete(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    call.service.servers.delete(call.caller, call.request_id, server_id)
    return Reply(202)


#: By the key in the body.
ACTIONS: Mapping[str, ActionRow] = {
    "os-start": ActionRow("os_compute_api:servers:start", _operate(lifecycle.START)),
    "os-stop": ActionRow("os_compute_api:servers:stop", _operate(lifecycle.STOP)),
    "reboot": ActionRow("os_compute_api:servers:reboot", _reboot),
    "pause": ActionRow("os_compute_api:os-pause-server:pause", _operate(lifecycle.PAUSE)),
    "unpause": ActionRow("os_compute_api:os-pause-server:unpause", _operate(lifecycle.UNPAUSE)),
    "lock": ActionRow("os_compute_api:os-lock-server:lock", _lock),
    "unlock": ActionRow("os_compute_api:os-lock-server:unlock", _unlock),
    "os-getConsoleOutput": ActionRow("os_compute_api:os-console-output", _console),
    "os-resetState": ActionRow("os_compute_api:os-admin-actions:reset_state", _reset_state),
    "forceDelete": ActionRow("os_compute_api:os-deferred-delete:force", _force_delete),
}


def index(call: ComputeCall, server_id: str) -> Reply:
    actions = call.service.servers.actions(call.caller, server_id)
    return Reply(body={"instanceActions": [_view(call, action) for action in actions]})


def show(call: ComputeCall, server_id: str, request_id: str) -> Reply:
    action = call.service.servers.action(call.caller, server_id, request_id)
    view = _view(call, action)
    if call.allowed("os_compute_api:os-instance-actions:events") or call.version >= (2, 51):
        view["events"] = [_event(call, action, event) for event in action.events]
    return Reply(body={"instanceAction": view})


def _view(call: ComputeCall, action: Action) -> dict[str, Any]:
    view: dict[str, Any] = {
        "action": action.name,
        "instance_uuid": action.server_id,
        "request_id": action.request_id,
        "user_id": action.user_id,
        "project_id": action.project_id,
        "start_time": microseconds(action.started_at),
        "message": action.message,
    }
    if call.version >= (2, 58):
        view["updated_at"] = microseconds(action.updated_at)
    return view


def _event(call: ComputeCall, action: Action, event: ActionEvent) -> dict[str, Any]:
    view: dict[str, Any] = {
        "event": event.name,
        "start_time": microseconds(event.started_at),
        "finish_time": microseconds(event.finished_at),
        "result": event.result,
    }
    if call.allowed("os_compute_api:os-instance-actions:events"):
        view["traceback"] = None
    if call.version >= (2, 62):
        view["hostId"] = host_id(action.project_id, event.host)
        if call.allowed("os_compute_api:os-instance-actions:events"):
            view["host"] = event.host
    if call.version >= (2, 84):
        view["details"] = event.details
    return view
