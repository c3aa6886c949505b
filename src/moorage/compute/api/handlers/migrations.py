"""Moves of servers: all of them for administrators (``os-migrations``), and a server's live migrations in progress."""

from moorage.compute.api.handlers.views import (
    ComputeRequest,
    changes_period,
    format_microseconds,
    next_link,
    page_of_rows,
)
from moorage.compute.store.move_store import MIGRATION_FILTERS, Migration
from moorage.core.errors import NotFound
from moorage.core.json import Json
from moorage.wire.http import Response

_LIVE = "live-migration"


def index(request: ComputeRequest) -> Response:
    """Pages and periods from 2.59 on."""
    names = [name for name in MIGRATION_FILTERS if request.version >= (2, 80) or name not in ("user_id", "project_id")]
    wanted = {name: value for name in names if (value := request.query.first(name)) is not None}
    found = request.service.servers.migrations(wanted)
    if request.version < (2, 59):
        return Response(body={"migrations": [_view(request, one) for one in found]})
    since, before = changes_period(request, before_since=(2, 66))
    rows, more = page_of_rows(
        [
            _view(request, one)
            for one in found
            if (since is None or one.updated_at >= since) and (before is None or one.updated_at <= before)
        ],
        request,
        "uuid",
    )
    body: dict[str, Json] = {"migrations": rows}
    if more and rows:
        body["migrations_links"] = next_link(request, rows[-1]["uuid"])
    return Response(body=body)


def index_of_server(request: ComputeRequest, server_id: str) -> Response:
    """Live migrations in progress."""
    request.service.servers.get_server(request.caller, server_id)
    found = request.service.servers.migrations({"instance_uuid": server_id, "migration_type": _LIVE})
    return Response(body={"migrations": [_view_of_server(request, one) for one in found if one.is_open]})


def show_of_server(request: ComputeRequest, server_id: str, migration_id: str) -> Response:
    request.service.servers.get_server(request.caller, server_id)
    for one in request.service.servers.migrations({"instance_uuid": server_id, "migration_type": _LIVE}):
        if one.is_open and str(one.number) == migration_id:
            return Response(body={"migration": _view_of_server(request, one)})
    raise NotFound(f"In-progress live migration {migration_id} is not found for server {server_id}.")


def _common(request: ComputeRequest, one: Migration) -> dict[str, Json]:
    view: dict[str, Json] = {
        "id": one.number,
        "status": one.status,
        "source_compute": one.source_host,
        "source_node": one.source_host,
        "dest_compute": one.dest_host,
        "dest_node": one.dest_host,
        "dest_host": None,
        "created_at": format_microseconds(one.created_at),
        "updated_at": format_microseconds(one.updated_at),
    }
    if request.version >= (2, 59):
        view["uuid"] = one.id
    if request.version >= (2, 80):
        view |= {"user_id": one.user_id, "project_id": one.project_id}
    return view


def _view(request: ComputeRequest, one: Migration) -> dict[str, Json]:
    """Nova's flavor numbers do not exist here, so none is shown."""
    view = _common(request, one) | {
        "instance_uuid": one.server_id,
        "old_instance_type_id": None,
        "new_instance_type_id": None,
    }
    if request.version >= (2, 23):
        view["migration_type"] = one.kind
    return view


def _view_of_server(request: ComputeRequest, one: Migration) -> dict[str, Json]:
    """The progress in bytes is not known."""
    amounts = ("total", "processed", "remaining")
    unknown = {f"{what}_{amount}_bytes": None for what in ("memory", "disk") for amount in amounts}
    return _common(request, one) | unknown | {"server_uuid": one.server_id}
