"""What belongs to users and projects: keypairs, limits, quotas, usage. No quota is enforced: all limits are -1."""

from datetime import datetime
from typing import Any

from moorage.compute.handlers.views import ComputeCall, microseconds, moment, require
from moorage.compute.model import Flavor, Keypair, Server
from moorage.compute.server_service import MAX_METADATA_ITEMS
from moorage.compute.usage import hours, period_of, usage
from moorage.core.errors import NotBuilt
from moorage.wire.call import Reply

UNLIMITED = -1
MAX_KEYPAIRS = 100

# --------------------------------------------------------------------------------------------- keypairs


def index_keypairs(call: ComputeCall) -> Reply:
    pairs = call.service.flavors.keypairs(_user(call, call.query.first("user_id")))
    return Reply(body={"keypairs": [{"keypair": _keypair(call, pair)} for pair in pairs]})


def show_keypair(call: ComputeCall, name: str) -> Reply:
    pair = call.service.flavors.keypair(_user(call, call.query.first("user_id")), name)
    more = {"user_id": pair.user_id, "created_at": microseconds(pair.created_at), "deleted": False,
            "deleted_at": None, "updated_at": None}  # fmt: skip
    return Reply(body={"keypair": _keypair(call, pair) | more})


def create_keypair(call: ComputeCall) -> Reply:
    body = call.json["keypair"]
    if "public_key" not in body:
        raise NotBuilt("Key pairs are not generated here: make one (ssh-keygen) and send its public_key.")
    user_id = _user(call, body.get("user_id"))
    pair = call.service.flavors.import_keypair(user_id, body["name"], body.get("type", "ssh"), body["public_key"])
    return Reply(201 if call.version >= (2, 2) else 200, {"keypair": _keypair(call, pair) | {"user_id": user_id}})


def delete_keypair(call: ComputeCall, name: str) -> Reply:
    call.service.flavors.delete_keypair(_user(call, call.query.first("user_id")), name)
    return Reply(204 if call.version >= (2, 2) else 202)


def _user(call: ComputeCall, user_id: str | None) -> str:
    if user_id is not None and user_id != call.caller.user_id:
        require(call, "os_compute_api:os-keypairs:others")
    return user_id or call.caller.user_id


def _keypair(call: ComputeCall, pair: Keypair) -> dict[str, Any]:
    view = {"name": pair.name, "public_key": pair.public_key, "fingerprint": pair.fingerprint}
    return view | ({"type": pair.kind} if call.version >= (2, 2) else {})


# ------------------------------------------------------------------------------------- limits and quotas


def show_limits(call: ComputeCall) -> Reply:
    project_id = call.query.first("tenant_id") or call.caller.project_id
    if project_id != call.caller.project_id:
        require(call, "os_compute_api:limits:other_project")
    used = _used(call.service.servers.in_use(project_id))
    absolute = {
        "maxTotalCores": UNLIMITED,
        "maxTotalInstances": UNLIMITED,
        "maxTotalKeypairs": MAX_KEYPAIRS,
        "maxServerMeta": MAX_METADATA_ITEMS,
        "maxTotalRAMSize": UNLIMITED,
        "maxServerGroups": UNLIMITED,
        "maxServerGroupMembers": UNLIMITED,
        "totalRAMUsed": used["ram"],
        "totalCoresUsed": used["cores"],
        "totalInstancesUsed": used["instances"],
        "totalServerGroupsUsed": 0,
    }
    if call.version < (2, 36):
        absolute |= {"maxSecurityGroups": -1, "maxSecurityGroupRules": -1, "maxTotalFloatingIps": -1,
                     "totalSecurityGroupsUsed": 0, "totalFloatingIpsUsed": 0}  # fmt: skip
    if call.version < (2, 39):
        absolute["maxImageMeta"] = MAX_METADATA_ITEMS
    if call.version < (2, 57):
        absolute |= {"maxPersonality": 5, "maxPersonalitySize": 10240}
    return Reply(body={"limits": {"rate": [], "absolute": absolute}})


def show_quota(call: ComputeCall, project_id: str) -> Reply:
    _check_project(call, project_id, "os_compute_api:os-quota-sets:others")
    return Reply(body={"quota_set": {"id": project_id, **_quota(call)}})


def default_quota(call: ComputeCall, project_id: str) -> Reply:
    return Reply(body={"quota_set": {"id": project_id, **_quota(call)}})


def detail_quota(call: ComputeCall, project_id: str) -> Reply:
    _check_project(call, project_id, "os_compute_api:os-quota-sets:others")
    used = _used(call.service.servers.in_use(project_id))
    rows = {name: {"limit": limit, "in_use": used.get(name, 0), "reserved": 0} for name, limit in _quota(call).items()}
    return Reply(body={"quota_set": {"id": project_id, **rows}})


def _check_project(call: ComputeCall, project_id: str, rule: str) -> None:
    if project_id != call.caller.project_id:
        require(call, rule)


def _quota(call: ComputeCall) -> dict[str, int]:
    quota = {
        "cores": UNLIMITED,
        "instances": UNLIMITED,
        "key_pairs": MAX_KEYPAIRS,
        "metadata_items": MAX_METADATA_ITEMS,
        "ram": UNLIMITED,
        "server_group_members": UNLIMITED,
        "server_groups": UNLIMITED,
    }
    if call.version < (2, 36):
        quota |= dict.fromkeys(("fixed_ips", "floating_ips", "security_group_rules", "security_groups"), UNLIMITED)
    if call.version < (2, 57):
        quota |= {"injected_file_content_bytes": 10240, "injected_file_path_bytes": 255, "injected_files": 5}
    return quota


def _used(flavors: list[Flavor]) -> dict[str, int]:
    return {
        "instances": len(flavors),
        "cores": sum(flavor.vcpus for flavor in flavors),
        "ram": sum(flavor.ram_mb for flavor in flavors),
    }


# ------------------------------------------------------------------------------------------------ usage


def index_usage(call: ComputeCall) -> Reply:
    since, until = _period(call)
    by_project: dict[str, list[Server]] = {}
    for server in call.service.servers.running_in(since, until):
        by_project.setdefault(server.project_id, []).append(server)
    usages = [_usage(project, servers, since, until) for project, servers in sorted(by_project.items())]
    return Reply(body={"tenant_usages": usages})


def show_usage(call: ComputeCall, project_id: str) -> Reply:
    _check_project(call, project_id, "os_compute_api:os-simple-tenant-usage:list")
    since, until = _period(call)
    servers = [one for one in call.service.servers.running_in(since, until) if one.project_id == project_id]
    if not servers:
        return Reply(body={"tenant_usage": {}})
    shown = _usage(project_id, servers, since, until)
    shown["server_usages"] = [_server_usage(server, since, until) for server in servers]
    return Reply(body={"tenant_usage": shown})


def _period(call: ComputeCall) -> tuple[datetime, datetime]:
    end, start = call.query.first("end"), call.query.first("start")
    return period_of(
        None if start is None else moment(start, "start"),
        None if end is None else moment(end, "end"),
        call.service.clock.now(),
    )


def _usage(project_id: str, servers: list[Server], since: datetime, until: datetime) -> dict[str, Any]:
    used = usage(servers, since, until)
    return {
        "tenant_id": project_id,
        "total_hours": used.hours,
        "total_vcpus_usage": used.vcpus,
        "total_memory_mb_usage": used.memory_mb,
        "total_local_gb_usage": used.local_gb,
        "start": microseconds(since),
        "stop": microseconds(until),
    }


def _server_usage(server: Server, since: datetime, until: datetime) -> dict[str, Any]:
    begun = server.launched_at or since
    return {
        "instance_id": server.id,
        "name": server.name,
        "tenant_id": server.project_id,
        "flavor": server.flavor.name,
        "vcpus": server.flavor.vcpus,
        "memory_mb": server.flavor.ram_mb,
        "local_gb": server.flavor.disk_gb + server.flavor.ephemeral_gb,
        "hours": hours(server, since, until),
        "started_at": microseconds(begun),
        "ended_at": microseconds(server.deleted_at),
        "state": server.vm_state,
        "uptime": int(((server.deleted_at or until) - begun).total_seconds()),
    }


# --------------------------------------------------------------------------------------- not offered here


def no_server_groups(call: ComputeCall, **_path: str) -> Reply:
    raise NotBuilt("Server groups are not offered by this service.")


def no_quota_update(call: ComputeCall, **_path: str) -> Reply:
    raise NotBuilt("Quotas are not enforced by this service, so none can be set.")
