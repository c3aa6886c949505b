"""Servers that change hosts: the actions. Moves are listed by `migrations`."""

from typing import Any

from moorage.compute.api.handlers.views import ComputeRequest, require
from moorage.compute.moves.move_service import Destination
from moorage.wire.http import Response


def shelve(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    request.service.operations.shelve(request.caller, request.request_id, server_id)
    return Response(202)


def unshelve(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    wanted = argument or {}
    if wanted.get("host") is not None:
        require(request, "os_compute_api:os-shelve:unshelve_to_host")
    to = Destination(wanted.get("host"), wanted.get("availability_zone"))
    request.service.moves.unshelve(request.caller, request.request_id, server_id, to)
    return Response(202)


def resize(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    flavor_id = str(argument["flavorRef"]).rpartition("/")[2]
    request.service.moves.resize(request.caller, request.request_id, server_id, flavor_id)
    return Response(202)


def confirm(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    request.service.moves.confirm(request.caller, request.request_id, server_id)
    return Response(204)


def revert(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    request.service.moves.revert(request.caller, request.request_id, server_id)
    return Response(202)


def migrate(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    request.service.moves.migrate(request.caller, request.request_id, server_id, _destination(argument))
    return Response(202)


def migrate_live(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    request.service.moves.migrate_live(request.caller, request.request_id, server_id, _destination(argument))
    return Response(202)


def evacuate(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    request.service.moves.evacuate(
        request.caller, request.request_id, server_id, _destination(argument), ends_stopped=request.version >= (2, 95)
    )
    if request.version >= (2, 14):
        return Response(200)
    return Response(200, {"adminPass": argument.get("adminPass") or request.service.operations.new_password()})


def _destination(argument: Any) -> Destination:
    return Destination((argument or {}).get("host") or None)
