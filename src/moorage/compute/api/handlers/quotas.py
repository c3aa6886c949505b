"""Limits of projects: ``limits``, ``os-quota-sets`` and ``os-quota-class-sets``.

Besides Nova's names, a limit ``class:NAME`` may be set on any resource class of Placement; it is shown if it was set
for the project or for all. Limits of networks and files are stored but not enforced.
"""

from collections.abc import Mapping

from moorage.compute.api.handlers.views import ComputeRequest, check_project_id, parse_amount, parse_flag, require_rule
from moorage.compute.model.quota import OF_FILES, OF_NETWORKS
from moorage.core.errors import Invalid, NotBuilt
from moorage.wire.http import Response

#: The only quota class with limits.
_DEFAULT_CLASS = "default"


def show_limits(request: ComputeRequest) -> Response:
    project_id = check_project_id(request.query.first("tenant_id") or "") or request.caller.project_id
    if project_id != request.caller.project_id:
        require_rule(request, "os_compute_api:limits:other_project")
    limits, used = request.service.quotas.limits(project_id), request.service.quotas.usage(project_id)
    absolute = {
        "maxTotalCores": limits["cores"],
        "maxTotalInstances": limits["instances"],
        "maxTotalKeypairs": limits["key_pairs"],
        "maxServerMeta": limits["metadata_items"],
        "maxTotalRAMSize": limits["ram"],
        "maxServerGroups": limits["server_groups"],
        "maxServerGroupMembers": limits["server_group_members"],
        "totalRAMUsed": used.get("ram", 0),
        "totalCoresUsed": used.get("cores", 0),
        "totalInstancesUsed": used.get("instances", 0),
        "totalServerGroupsUsed": used.get("server_groups", 0),
    }
    if request.version < (2, 36):
        absolute |= {
            "maxSecurityGroups": limits["security_groups"],
            "maxSecurityGroupRules": limits["security_group_rules"],
            "maxTotalFloatingIps": limits["floating_ips"],
            "totalSecurityGroupsUsed": 0,
            "totalFloatingIpsUsed": 0,
        }
    if request.version < (2, 39):
        absolute["maxImageMeta"] = limits["metadata_items"]
    if request.version < (2, 57):
        absolute |= {
            "maxPersonality": limits["injected_files"],
            "maxPersonalitySize": limits["injected_file_content_bytes"],
        }
    return Response(body={"limits": {"rate": [], "absolute": absolute}})


def show(request: ComputeRequest, project_id: str) -> Response:
    _check(request, project_id)
    return _reply(_shown(request, request.service.quotas.limits(project_id)), project_id)


def defaults(request: ComputeRequest, project_id: str) -> Response:
    return _reply(_shown(request, request.service.quotas.defaults()), project_id)


def detail(request: ComputeRequest, project_id: str) -> Response:
    _check(request, project_id)
    limits, used = request.service.quotas.limits(project_id), request.service.quotas.usage(project_id)
    rows = {
        name: {"limit": limit, "in_use": used.get(name, 0), "reserved": 0}
        for name, limit in _shown(request, limits).items()
    }
    return _reply(rows, project_id)


def update(request: ComputeRequest, project_id: str) -> Response:
    _no_users(request)
    check_project_id(project_id)
    wanted = {name: value for name, value in request.json["quota_set"].items() if name != "force"}
    force = parse_flag(request.json["quota_set"].get("force", False))
    limits = request.service.quotas.set_limits(project_id, _numbers(wanted), force=force)
    return Response(body={"quota_set": _shown(request, limits)})


def reset(request: ComputeRequest, project_id: str) -> Response:
    _no_users(request)
    request.service.quotas.reset(project_id)
    return Response(202)


def show_class(request: ComputeRequest, name: str) -> Response:
    """Every class has the limits of the default class."""
    return Response(
        body={"quota_class_set": {"id": name, **_shown_of_class(request, request.service.quotas.defaults())}}
    )


def update_class(request: ComputeRequest, name: str) -> Response:
    if name != _DEFAULT_CLASS:
        raise Invalid(
            f"Quota class {name} does not exist. The only class is {_DEFAULT_CLASS}, which sets the limits of all "
            "projects."
        )
    limits = request.service.quotas.set_defaults(_numbers(request.json["quota_class_set"]))
    return Response(body={"quota_class_set": _shown_of_class(request, limits)})


def _check(request: ComputeRequest, project_id: str) -> None:
    if check_project_id(project_id) != request.caller.project_id:
        require_rule(request, "os_compute_api:os-quota-sets:others")


def _no_users(request: ComputeRequest) -> None:
    if request.query.first("user_id") is not None:
        raise NotBuilt("Limits apply to projects; users of a project have no limits of their own.")


def _numbers(limits: Mapping[str, float | str | None]) -> dict[str, int]:
    return {name: parse_amount(value, name) for name, value in limits.items() if value is not None and value != ""}


def _shown(request: ComputeRequest, limits: Mapping[str, int]) -> dict[str, int]:
    hidden = set(OF_NETWORKS) if request.version >= (2, 36) else set()
    hidden |= set(OF_FILES) if request.version >= (2, 57) else set()
    return {name: limits[name] for name in sorted(limits) if name not in hidden}


def _shown_of_class(request: ComputeRequest, limits: Mapping[str, int]) -> dict[str, int]:
    """Quota classes got server groups and lost networks in later microversions than projects did."""
    if request.version >= (2, 50):
        return _shown(request, limits)
    return {name: limits[name] for name in sorted(limits) if not name.startswith("server_group")}


def _reply(rows: Mapping[str, object], project_id: str) -> Response:
    return Response(body={"quota_set": {"id": project_id, **rows}})
