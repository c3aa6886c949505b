"""Key pairs of users; from 2.10 on, administrators can manage those of other users."""

from moorage.compute.api.handlers.views import (
    ComputeRequest,
    format_microseconds,
    next_link,
    page_of_rows,
    require_rule,
)
from moorage.compute.model.servers import Keypair
from moorage.core.json import Json
from moorage.wire.http import Response


def index(request: ComputeRequest) -> Response:
    pairs = request.service.keypairs.keypairs_of_user(_user(request))
    if request.version < (2, 35):
        return Response(body={"keypairs": [{"keypair": _brief(request, pair)} for pair in pairs]})
    rows, more = page_of_rows([_brief(request, pair) for pair in pairs], request, "name")
    body: dict[str, Json] = {"keypairs": [{"keypair": row} for row in rows]}
    if more and rows:
        body["keypairs_links"] = next_link(request, rows[-1]["name"])
    return Response(body=body)


def show(request: ComputeRequest, name: str) -> Response:
    pair = request.service.keypairs.get_keypair(_user(request), name)
    view = _brief(request, pair) | {
        "user_id": pair.user_id,
        # The API requires a number, which identifies nothing: the time of creation in microseconds.
        "id": int(pair.created_at.timestamp() * 1_000_000),
        "created_at": format_microseconds(pair.created_at),
        "updated_at": None,
        "deleted_at": None,
        "deleted": False,
    }
    return Response(body={"keypair": view})


def create(request: ComputeRequest) -> Response:
    """Without a ``public_key``, which the schema allows below 2.92, the service generates the keys."""
    body = request.json["keypair"]
    user_id = _may_be(request, body.get("user_id"))
    project_id, name, kind = request.caller.project_id, body["name"], body.get("type", "ssh")
    private: dict[str, Json] = {}
    if "public_key" in body:
        pair = request.service.keypairs.add_keypair(project_id, user_id, name, kind, body["public_key"])
    else:
        pair, private["private_key"] = request.service.keypairs.generate_keypair(project_id, user_id, name, kind)
    view = _brief(request, pair) | {"user_id": user_id} | private
    headers = {"cache-control": "no-store"} if private else {}
    return Response(201 if request.version >= (2, 2) else 200, {"keypair": view}, headers)


def delete(request: ComputeRequest, name: str) -> Response:
    request.service.keypairs.delete_keypair(_user(request), name)
    return Response(204 if request.version >= (2, 2) else 202)


def _user(request: ComputeRequest) -> str:
    return _may_be(request, request.query.first("user_id") if request.version >= (2, 10) else None)


def _may_be(request: ComputeRequest, user_id: str | None) -> str:
    if user_id is not None and user_id != request.caller.user_id:
        require_rule(request, "os_compute_api:os-keypairs:others")
    return user_id or request.caller.user_id


def _brief(request: ComputeRequest, pair: Keypair) -> dict[str, Json]:
    view: dict[str, Json] = {"name": pair.name, "public_key": pair.public_key, "fingerprint": pair.fingerprint}
    return view | ({"type": pair.kind} if request.version >= (2, 2) else {})
