"""Servers that change hosts: the actions. Moves are listed by `migrations`."""

from typing import Any

from moorage.compute.api.handlers.views import ComputeCall, require
from moorage.compute.moves.move_service import Destination
from moorage.wire.http import Reply


def shelve(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    call.service.operations.shelve(call.caller, call.request_id, server_id)
    return Reply(202)


def unshelve(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    wanted = argument or {}
    if wanted.get("host") is not None:
        require(call, "os_compute_api:os-shelve:unshelve_to_host")
    to = Destination(wanted.get("host"), wanted.get("availability_zone"))
    call.service.moves.unshelve(call.caller, call.request_id, server_id, to)
    return Reply(202)


def resize(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    flavor_id = str(argument["flavorRef"]).rpartition("/")[2]
    call.service.moves.resize(call.caller, call.request_id, server_id, flavor_id)
    return Reply(202)


def confirm(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    call.service.moves.confirm(call.caller, call.request_id, server_id)
    return Reply(204)


def revert(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    call.service.moves.revert(call.caller, call.request_id, server_id)
    return Reply(202)


def migrate(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    call.service.moves.migrate(call.caller, call.request_id, server_id, _destination(argument))
    return Reply(202)


def migrate_live(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    call.service.moves.migrate_live(call.caller, call.request_id, server_id, _destination(argument))
    return Reply(202)


def evacuate(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    call.service.moves.evacuate(
        call.caller, call.request_id, server_id, _destination(argument), ends_stopped=call.version >= (2, 95)
    )
    if call.version >= (2, 14):
        return Reply(200)
    return Reply(200, {"adminPass": argument.get("adminPass") or call.service.operations.new_password()})


def _destination(argument: Any) -> Destination:
    return Destination((argument or {}).get("host") or None)
