"""Keypairs of users; somebody else's are the administrator's, from 2.10 on."""

from typing import Any

from moorage.compute.api.handlers.views import ComputeCall, microseconds, next_link, page, require
from moorage.compute.model.servers import Keypair
from moorage.core.errors import NotBuilt
from moorage.wire.http import Reply


def index(call: ComputeCall) -> Reply:
    pairs = call.service.keypairs.of_user(_user(call))
    if call.version < (2, 35):
        return Reply(body={"keypairs": [{"keypair": _brief(call, pair)} for pair in pairs]})
    rows, more = page([_brief(call, pair) for pair in pairs], call, "name")
    body: dict[str, Any] = {"keypairs": [{"keypair": row} for row in rows]}
    if more and rows:
        body["keypairs_links"] = next_link(call, rows[-1]["name"])
    return Reply(body=body)


def show(call: ComputeCall, name: str) -> Reply:
    pair = call.service.keypairs.get(_user(call), name)
    view = _brief(call, pair) | {
        "user_id": pair.user_id,
        # A number that nothing is looked up by: the microsecond in which it was made.
        "id": int(pair.created_at.timestamp() * 1_000_000),
        "created_at": microseconds(pair.created_at),
        "updated_at": None,
        "deleted_at": None,
        "deleted": False,
    }
    return Reply(body={"keypair": view})


def create(call: ComputeCall) -> Reply:
    body = call.json["keypair"]
    if "public_key" not in body:
        raise NotBuilt("Key pairs are not generated here: make one (ssh-keygen) and send its public_key.")
    user_id = _may_be(call, body.get("user_id"))
    pair = call.service.keypairs.add(
        call.caller.project_id, user_id, body["name"], body.get("type", "ssh"), body["public_key"]
    )
    return Reply(201 if call.version >= (2, 2) else 200, {"keypair": _brief(call, pair) | {"user_id": user_id}})


def delete(call: ComputeCall, name: str) -> Reply:
    call.service.keypairs.delete(_user(call), name)
    return Reply(204 if call.version >= (2, 2) else 202)


def _user(call: ComputeCall) -> str:
    return _may_be(call, call.query.first("user_id") if call.version >= (2, 10) else None)


def _may_be(call: ComputeCall, user_id: str | None) -> str:
    if user_id is not None and user_id != call.caller.user_id:
        require(call, "os_compute_api:os-keypairs:others")
    return user_id or call.caller.user_id


def _brief(call: ComputeCall, pair: Keypair) -> dict[str, Any]:
    view = {"name": pair.name, "public_key": pair.public_key, "fingerprint": pair.fingerprint}
    return view | ({"type": pair.kind} if call.version >= (2, 2) else {})
