"""Server groups, in the shape before microversion 2.64 and in the one since."""

from moorage.compute.api.handlers.views import ComputeRequest, page_size, parse_amount, parse_flag, parse_whole_number
from moorage.compute.model.servers import ServerGroup
from moorage.core.json import Json
from moorage.scheduler.server_groups import GroupPolicy
from moorage.wire.http import Response

_WITH_OWNER = (2, 13)
_WITH_RULES = (2, 64)


def index(request: ComputeRequest) -> Response:
    all_projects = parse_flag(request.query.first("all_projects") or False) and request.allowed(
        "os_compute_api:os-server-groups:index:all_projects"
    )
    groups = request.service.groups.list_groups(request.caller, all_projects=all_projects)
    start = _offset(request)
    return Response(
        body={"server_groups": [_view(request, group) for group in groups[start : start + page_size(request)]]}
    )


def create(request: ComputeRequest) -> Response:
    body = request.json["server_group"]
    policy = GroupPolicy(body["policy"] if "policy" in body else body["policies"][0])
    rules = {name: parse_amount(value, name) for name, value in body.get("rules", {}).items()}
    group = request.service.groups.create_group(request.caller, body["name"].strip(), policy, rules)
    return Response(body={"server_group": _view(request, group)})


def show(request: ComputeRequest, group_id: str) -> Response:
    return Response(body={"server_group": _view(request, request.service.groups.get_group(request.caller, group_id))})


def delete(request: ComputeRequest, group_id: str) -> Response:
    request.service.groups.delete_group(request.caller, group_id)
    return Response(204)


def _offset(request: ComputeRequest) -> int:
    return parse_whole_number(request.query.first("offset") or "0", "offset must be a whole number, 0 or more")


def _view(request: ComputeRequest, group: ServerGroup) -> dict[str, Json]:
    view: dict[str, Json] = {"id": group.id, "name": group.name, "members": list(group.members)}
    if request.version >= _WITH_OWNER:
        view |= {"project_id": group.project_id, "user_id": group.user_id}
    if request.version >= _WITH_RULES:
        return view | {"policy": group.policy.value, "rules": dict(group.rules)}
    return view | {"policies": [group.policy.value], "metadata": {}}
