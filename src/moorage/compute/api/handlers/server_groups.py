"""Server groups, in the shape before microversion 2.64 and in the one since."""

from typing import Any

from moorage.compute.api.handlers.views import ComputeCall, amount, flag, page_size, whole
from moorage.compute.model.server_group import ServerGroup
from moorage.scheduler.server_groups import GroupPolicy
from moorage.wire.http import Reply

_WITH_OWNER = (2, 13)
_WITH_RULES = (2, 64)


def index(call: ComputeCall) -> Reply:
    all_projects = flag(call.query.first("all_projects") or False) and call.allowed(
        "os_compute_api:os-server-groups:index:all_projects"
    )
    groups = call.service.groups.find(call.caller, all_projects=all_projects)
    start = _offset(call)
    return Reply(body={"server_groups": [_view(call, group) for group in groups[start : start + page_size(call)]]})


def create(call: ComputeCall) -> Reply:
    body = call.json["server_group"]
    policy = GroupPolicy(body["policy"] if "policy" in body else body["policies"][0])
    rules = {name: amount(value, name) for name, value in body.get("rules", {}).items()}
    group = call.service.groups.create(call.caller, body["name"].strip(), policy, rules)
    return Reply(body={"server_group": _view(call, group)})


def show(call: ComputeCall, group_id: str) -> Reply:
    return Reply(body={"server_group": _view(call, call.service.groups.get(call.caller, group_id))})


def delete(call: ComputeCall, group_id: str) -> Reply:
    call.service.groups.delete(call.caller, group_id)
    return Reply(204)


def _offset(call: ComputeCall) -> int:
    return whole(call.query.first("offset") or "0", "offset must be a whole number, 0 or more")


def _view(call: ComputeCall, group: ServerGroup) -> dict[str, Any]:
    view: dict[str, Any] = {"id": group.id, "name": group.name, "members": list(group.members)}
    if call.version >= _WITH_OWNER:
        view |= {"project_id": group.project_id, "user_id": group.user_id}
    if call.version >= _WITH_RULES:
        return view | {"policy": group.policy.value, "rules": dict(group.rules)}
    return view | {"policies": [group.policy.value], "metadata": {}}
