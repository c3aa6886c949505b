"""The actions on a server: ``POST /servers/{id}/action``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, TypedDict

from moorage.compute.api.handlers.server_view import rebuilt_view
from moorage.compute.api.handlers.views import ComputeRequest, parse_amount, require_rule, word_schema_error
from moorage.compute.api.schemas.actions import ARGUMENTS
from moorage.compute.model import lifecycle
from moorage.compute.model.lifecycle import Operation
from moorage.compute.model.servers import VmState
from moorage.compute.moves.move_service import Destination
from moorage.compute.servers.console_service import SERIAL
from moorage.compute.servers.operate_service import NewImage, Rebuild
from moorage.core.errors import Gone, Invalid, NotBuilt, NotFound
from moorage.jobs.contract import PasswordJob
from moorage.wire.http import Response

#: Actions that Nova has and this service does not.
NOT_BUILT = frozenset(
    {
        "addFixedIp", "addFloatingIp", "addSecurityGroup", "injectNetworkInfo", "os-getSPICEConsole",
        "os-getVNCConsole", "removeFixedIp", "removeFloatingIp", "removeSecurityGroup",
    }
)  # fmt: skip
#: Actions that Nova removed.
GONE = frozenset({"os-getRDPConsole", "resetNetwork"})


class ActionArguments(TypedDict, total=False):
    """The arguments of all actions; the schema of an action tells which ones it has (`schemas.actions`)."""

    type: str
    locked_reason: str | None
    length: int | str | None
    state: str
    host: str | None
    availability_zone: str | None
    flavorRef: str | int
    adminPass: str
    imageRef: str
    rescue_image_ref: str
    name: str
    metadata: dict[str, str]
    backup_type: str
    rotation: int | str


@dataclass(frozen=True)
class ActionRow:
    rule: str
    handler: Callable[[ComputeRequest, str, ActionArguments], Response]
    since: int = 1  #: minor microversion
    until: int | None = None  #: minor microversion


def act(request: ComputeRequest, server_id: str) -> Response:
    if not isinstance(request.json, dict) or len(request.json) != 1:
        raise Invalid("Malformed request body")
    key, argument = next(iter(request.json.items()))
    row = ACTIONS.get(key)
    if row is None and key in NOT_BUILT:
        raise NotBuilt(f"The action {key} is not offered by this service.")
    if row is None and key in GONE:
        raise Gone(f"Nova removed the action {key}; it has no replacement here.")
    if row is None:
        raise Invalid(f"There is no such action: {key}")
    if request.version < (2, row.since):
        raise NotFound(f"The action {key} requires microversion 2.{row.since} or later.")
    require_rule(request, f"os_compute_api:{row.rule}")
    if row.until is not None and request.version > (2, row.until):
        raise NotFound(f"The action {key} exists up to microversion 2.{row.until}.")
    if (schemas := ARGUMENTS.get(key)) and (schema := schemas.for_version(request.version)):
        schema.validate(argument, word_schema_error)
    return row.handler(request, server_id, argument or {})


def _operate(operation: Operation) -> Callable[[ComputeRequest, str, ActionArguments], Response]:
    def handler(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
        request.service.operations.begin_operation(request.caller, request.request_id, server_id, operation)
        return Response(202)

    return handler


def _reboot(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    is_hard = argument["type"].upper() == "HARD"
    return _operate(lifecycle.REBOOT_HARD if is_hard else lifecycle.REBOOT)(request, server_id, argument)


def _lock(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    request.service.servers.lock(request.caller, request.request_id, server_id, argument.get("locked_reason"))
    return Response(202)


def _unlock(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    may_override = request.allowed("os_compute_api:os-lock-server:unlock:unlock_override")
    request.service.servers.unlock(request.caller, request.request_id, server_id, may_override=may_override)
    return Response(202)


def _console(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    text = request.service.servers.console(request.caller, server_id)
    length = argument.get("length")
    if length is not None and (most := parse_amount(length, "length")) >= 0:
        # As Nova counts: the text after the last line break is a line, even if it is empty.
        lines = text.split("\n")
        text = "\n".join(lines[max(0, len(lines) - most) :])
    return Response(body={"output": text})


def create_console(request: ComputeRequest, server_id: str) -> Response:
    """``POST /servers/{server_id}/remote-consoles``, from 2.6."""
    wanted = request.json["remote_console"]
    kind = wanted["type"] if wanted["protocol"] == SERIAL else wanted["protocol"]
    url = request.service.consoles.create_console(request.caller, request.request_id, server_id, kind)
    return Response(body={"remote_console": {"protocol": wanted["protocol"], "type": wanted["type"], "url": url}})


def _serial_console(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    kind = argument["type"]
    url = request.service.consoles.create_console(request.caller, request.request_id, server_id, kind)
    return Response(body={"console": {"type": kind, "url": url}})


def _reset_state(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    request.service.operations.reset_state(request.caller, server_id, VmState(argument["state"]))
    return Response(202)


def _force_delete(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    request.service.deletion.delete_server(request.caller, request.request_id, server_id, at_once=True)
    return Response(202)


def shelve(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    request.service.operations.shelve(request.caller, request.request_id, server_id)
    return Response(202)


def unshelve(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    if argument.get("host") is not None:
        require_rule(request, "os_compute_api:os-shelve:unshelve_to_host")
    to = Destination(argument.get("host"), argument.get("availability_zone"))
    request.service.moves.unshelve(request.caller, request.request_id, server_id, to)
    return Response(202)


def resize(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    flavor_id = str(argument["flavorRef"]).rpartition("/")[2]
    disk_config = argument.get("OS-DCF:diskConfig")
    request.service.moves.resize(
        request.caller,
        request.request_id,
        server_id,
        flavor_id,
        disk_config=None if disk_config is None else str(disk_config),
    )
    return Response(202)


def confirm(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    request.service.moves.confirm(request.caller, request.request_id, server_id)
    return Response(204)


def revert(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    request.service.moves.revert(request.caller, request.request_id, server_id)
    return Response(202)


def migrate(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    request.service.moves.migrate(request.caller, request.request_id, server_id, _destination(argument))
    return Response(202)


def migrate_live(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    request.service.moves.migrate_live(request.caller, request.request_id, server_id, _destination(argument))
    return Response(202)


def evacuate(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    request.service.moves.evacuate(
        request.caller, request.request_id, server_id, _destination(argument), ends_stopped=request.version >= (2, 95)
    )
    if request.version >= (2, 14):
        return Response(200)
    return Response(200, {"adminPass": argument.get("adminPass") or request.service.operations.new_password()})


def _destination(argument: ActionArguments) -> Destination:
    return Destination(argument.get("host") or None)


#: Columns of a server that a rebuild request may set, by the name in the request.
_CHANGES = {name: name for name in ("name", "metadata", "description", "key_name", "user_data", "hostname")} | {
    "OS-DCF:diskConfig": "disk_config",
    "accessIPv4": "access_ipv4",
    "accessIPv6": "access_ipv6",
}


def rebuild(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    given: Mapping[str, Any] = argument
    changes = {column: given[name] for name, column in _CHANGES.items() if name in given}
    if changes.get("access_ipv6"):
        changes["access_ipv6"] = ip_address(changes["access_ipv6"]).compressed
    wanted = Rebuild(_image_id(argument["imageRef"]), changes)
    request.service.operations.rebuild(request.caller, request.request_id, server_id, wanted)
    server = request.service.servers.get_server(request.caller, server_id)
    password = argument.get("adminPass") or request.service.operations.new_password()
    headers = {"location": f"{request.base_url}/v2.1/servers/{server_id}"}
    return Response(202, {"server": {**rebuilt_view(request, server), "adminPass": password}}, headers)


def rescue(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    image = argument.get("rescue_image_ref")
    password = argument.get("adminPass") or request.service.operations.new_password()
    request.service.operations.rescue(
        request.caller, request.request_id, server_id, image and _image_id(image), password
    )
    return Response(200, {"adminPass": password})


def change_password(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    password = argument["adminPass"]
    request.service.operations.begin_operation(
        request.caller,
        request.request_id,
        server_id,
        lifecycle.CHANGE_PASSWORD,
        lambda header, key: PasswordJob(**header, key=key, password=password),
    )
    return Response(202)


def create_image(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    return _make_image(request, server_id, NewImage(argument["name"], argument.get("metadata", {})))


def create_backup(request: ComputeRequest, server_id: str, argument: ActionArguments) -> Response:
    wanted = NewImage(
        argument["name"],
        argument.get("metadata", {}),
        argument["backup_type"],
        parse_amount(argument["rotation"], "rotation"),
    )
    return _make_image(request, server_id, wanted)


def _make_image(request: ComputeRequest, server_id: str, wanted: NewImage) -> Response:
    image_id = request.service.operations.make_image(request.caller, request.request_id, server_id, wanted)
    if request.version >= (2, 45):
        return Response(202, {"image_id": image_id})
    return Response(202, headers={"location": f"{request.base_url}/images/{image_id}"})


def _image_id(reference: str) -> str:
    """An id, or a link that ends in one."""
    return reference.rpartition("/")[2]


#: By the key in the body.
ACTIONS: Mapping[str, ActionRow] = {
    "os-start": ActionRow("servers:start", _operate(lifecycle.START)),
    "os-stop": ActionRow("servers:stop", _operate(lifecycle.STOP)),
    "reboot": ActionRow("servers:reboot", _reboot),
    "pause": ActionRow("os-pause-server:pause", _operate(lifecycle.PAUSE)),
    "unpause": ActionRow("os-pause-server:unpause", _operate(lifecycle.UNPAUSE)),
    "suspend": ActionRow("os-suspend-server:suspend", _operate(lifecycle.SUSPEND)),
    "resume": ActionRow("os-suspend-server:resume", _operate(lifecycle.RESUME)),
    "rebuild": ActionRow("servers:rebuild", rebuild),
    "rescue": ActionRow("os-rescue", rescue),
    "unrescue": ActionRow("os-unrescue", _operate(lifecycle.UNRESCUE)),
    "changePassword": ActionRow("os-admin-password", change_password),
    "trigger_crash_dump": ActionRow("servers:trigger_crash_dump", _operate(lifecycle.CRASH_DUMP), since=17),
    "createImage": ActionRow("servers:create_image", create_image),
    "createBackup": ActionRow("os-create-backup", create_backup),
    "shelve": ActionRow("os-shelve:shelve", shelve),
    "shelveOffload": ActionRow("os-shelve:shelve_offload", _operate(lifecycle.SHELVE_OFFLOAD)),
    "unshelve": ActionRow("os-shelve:unshelve", unshelve),
    "resize": ActionRow("servers:resize", resize),
    "confirmResize": ActionRow("servers:confirm_resize", confirm),
    "revertResize": ActionRow("servers:revert_resize", revert),
    "migrate": ActionRow("os-migrate-server:migrate", migrate),
    "os-migrateLive": ActionRow("os-migrate-server:migrate_live", migrate_live),
    "evacuate": ActionRow("os-evacuate", evacuate),
    "lock": ActionRow("os-lock-server:lock", _lock),
    "unlock": ActionRow("os-lock-server:unlock", _unlock),
    "os-getConsoleOutput": ActionRow("os-console-output", _console),
    "os-getSerialConsole": ActionRow("os-remote-consoles", _serial_console, until=5),
    "os-resetState": ActionRow("os-admin-actions:reset_state", _reset_state),
    "forceDelete": ActionRow("os-deferred-delete:force", _force_delete),
    "restore": ActionRow("os-deferred-delete:restore", _operate(lifecycle.RESTORE)),
}
