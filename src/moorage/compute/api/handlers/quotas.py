"""Limits of projects: ``limits``, ``os-quota-sets`` and ``os-quota-class-sets``.

Beside the peer's names a limit ``class:NAME`` may be set on any resource class of Placement; it is shown where it was
set for the project or for all. Limits of networks and files are kept and limit nothing.
"""

from collections.abc import Mapping
from typing import Any

from moorage.compute.api.handlers.views import ComputeCall, amount, flag, project, require
from moorage.compute.model.quota import OF_FILES, OF_NETWORKS
from moorage.core.errors import Invalid, NotBuilt
from moorage.wire.http import Reply

#: The only class of projects that is ever looked at.
_DEFAULT_CLASS = "default"


def show_limits(call: ComputeCall) -> Reply:
    project_id = project(call.query.first("tenant_id") or "") or call.caller.project_id
    if project_id != call.caller.project_id:
        require(call, "os_compute_api:limits:other_project")
    limits, used = call.service.quotas.limits(project_id), call.service.quotas.usage(project_id)
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
    if call.version < (2, 36):
        absolute |= {
            "maxSecurityGroups": limits["security_groups"],
            "maxSecurityGroupRules": limits["security_group_rules"],
            "maxTotalFloatingIps": limits["floating_ips"],
            "totalSecurityGroupsUsed": 0,
            "totalFloatingIpsUsed": 0,
        }
    if call.version < (2, 39):
        absolute["maxImageMeta"] = limits["metadata_items"]
    if call.version < (2, 57):
        absolute |= {
            "maxPersonality": limits["injected_files"],
            "maxPersonalitySize": limits["injected_file_content_bytes"],
        }
    return Reply(body={"limits": {"rate": [], "absolute": absolute}})


def show(call: ComputeCall, project_id: str) -> Reply:
    _check(call, project_id)
    return _reply(_shown(call, call.service.quotas.limits(project_id)), project_id)


def defaults(call: ComputeCall, project_id: str) -> Reply:
    return _reply(_shown(call, call.service.quotas.defaults()), project_id)


def detail(call: ComputeCall, project_id: str) -> Reply:
    _check(call, project_id)
    limits, used = call.service.quotas.limits(project_id), call.service.quotas.usage(project_id)
    rows = {
        name: {"limit": limit, "in_use": used.get(name, 0), "reserved": 0}
        for name, limit in _shown(call, limits).items()
    }
    return _reply(rows, project_id)


def update(call: ComputeCall, project_id: str) -> Reply:
    _no_users(call)
    project(project_id)
    wanted = {name: value for name, value in call.json["quota_set"].items() if name != "force"}
    force = flag(call.json["quota_set"].get("force", False))
    limits = call.service.quotas.set_limits(project_id, _numbers(wanted), force=force)
    return Reply(body={"quota_set": _shown(call, limits)})


def reset(call: ComputeCall, project_id: str) -> Reply:
    _no_users(call)
    call.service.quotas.reset(project_id)
    return Reply(202)


def show_class(call: ComputeCall, name: str) -> Reply:
    """Every class has the limits of the only one there is."""
    return Reply(body={"quota_class_set": {"id": name, **_shown_of_class(call, call.service.quotas.defaults())}})


def update_class(call: ComputeCall, name: str) -> Reply:
    if name != _DEFAULT_CLASS:
        raise Invalid(f"No project is of the class {name}: limits for all are those of the class {_DEFAULT_CLASS}.")
    limits = call.service.quotas.set_defaults(_numbers(call.json["quota_class_set"]))
    return Reply(body={"quota_class_set": _shown_of_class(call, limits)})


def _check(call: ComputeCall, project_id: str) -> None:
    if project(project_id) != call.caller.project_id:
        require(call, "os_compute_api:os-quota-sets:others")


def _no_users(call: ComputeCall) -> None:
    if call.query.first("user_id") is not None:
        raise NotBuilt("Limits are of projects; a user of a project has none of its own.")


def _numbers(limits: Mapping[str, Any]) -> dict[str, int]:
    return {name: amount(value, name) for name, value in limits.items() if value is not None and value != ""}


def _shown(call: ComputeCall, limits: Mapping[str, int]) -> dict[str, int]:
    hidden = set(OF_NETWORKS) if call.version >= (2, 36) else set()
    hidden |= set(OF_FILES) if call.version >= (2, 57) else set()
    return {name: limits[name] for name in sorted(limits) if name not in hidden}


def _shown_of_class(call: ComputeCall, limits: Mapping[str, int]) -> dict[str, int]:
    """Classes learned of server groups, and left networks out, later than projects did."""
    if call.version >= (2, 50):
        return _shown(call, limits)
    return {name: limits[name] for name in sorted(limits) if not name.startswith("server_group")}


def _reply(rows: Mapping[str, object], project_id: str) -> Reply:
    return Reply(body={"quota_set": {"id": project_id, **rows}})
