"""Moves of servers: all of them for administrators (``os-migrations``), and those of a server that go on."""

from typing import Any

from moorage.compute.api.handlers.views import ComputeCall, microseconds, next_link, page, period
from moorage.compute.store.migration_store import FILTERS, Migration
from moorage.core.errors import NotFound
from moorage.wire.http import Reply

_LIVE = "live-migration"


def index(call: ComputeCall) -> Reply:
    """In pages, and of a period, from 2.59 on."""
    names = [name for name in FILTERS if call.version >= (2, 80) or name not in ("user_id", "project_id")]
    wanted = {name: value for name in names if (value := call.query.first(name)) is not None}
    found = call.service.servers.migrations(wanted)
    if call.version < (2, 59):
        return Reply(body={"migrations": [_view(call, one) for one in found]})
    since, before = period(call, before_since=(2, 66))
    rows, more = page(
        [
            _view(call, one)
            for one in found
            if (since is None or one.updated_at >= since) and (before is None or one.updated_at <= before)
        ],
        call,
        "uuid",
    )
    body: dict[str, Any] = {"migrations": rows}
    if more and rows:
        body["migrations_links"] = next_link(call, rows[-1]["uuid"])
    return Reply(body=body)


def index_of_server(call: ComputeCall, server_id: str) -> Reply:
    """Live ones that go on."""
    call.service.servers.get(call.caller, server_id)
    found = call.service.servers.migrations({"instance_uuid": server_id, "migration_type": _LIVE})
    return Reply(body={"migrations": [_view_of_server(call, one) for one in found if one.is_open]})


def show_of_server(call: ComputeCall, server_id: str, migration_id: str) -> Reply:
    call.service.servers.get(call.caller, server_id)
    for one in call.service.servers.migrations({"instance_uuid": server_id, "migration_type": _LIVE}):
        if one.is_open and str(one.number) == migration_id:
            return Reply(body={"migration": _view_of_server(call, one)})
    raise NotFound(f"In-progress live migration {migration_id} is not found for server {server_id}.")


def _common(call: ComputeCall, one: Migration) -> dict[str, Any]:
    view: dict[str, Any] = {
        "id": one.number,
        "status": one.status,
        "source_compute": one.source_host,
        "source_node": one.source_host,
        "dest_compute": one.dest_host,
        "dest_node": one.dest_host,
        "dest_host": None,
        "created_at": microseconds(one.created_at),
        "updated_at": microseconds(one.updated_at),
    }
    if call.version >= (2, 59):
        view["uuid"] = one.id
    if call.version >= (2, 80):
        view |= {"user_id": one.user_id, "project_id": one.project_id}
    return view


def _view(call: ComputeCall, one: Migration) -> dict[str, Any]:
    """Flavors are numbers with the peer, and texts here: none is shown."""
    view = _common(call, one) | {
        "instance_uuid": one.server_id,
        "old_instance_type_id": None,
        "new_instance_type_id": None,
    }
    if call.version >= (2, 23):
        view["migration_type"] = one.kind
    return view


def _view_of_server(call: ComputeCall, one: Migration) -> dict[str, Any]:
    """How far it is nobody says."""
    amounts = ("total", "processed", "remaining")
    unknown = {f"{what}_{amount}_bytes": None for what in ("memory", "disk") for amount in amounts}
    return _common(call, one) | unknown | {"server_uuid": one.server_id}
