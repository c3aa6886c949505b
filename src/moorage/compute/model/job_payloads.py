"""The documents in the payloads of host jobs. What each kind of job takes: `moorage.agent.model.job_payloads`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from moorage.compute.model.lifecycle import Operation, ServerSituation
from moorage.compute.model.servers import Flavor, Placed, Server
from moorage.jobs.model import NewJob


def host_job(
    job_id: str,
    kind: str,
    server: Server,
    host: str,
    ids: Mapping[str, str],
    arguments: Mapping[str, Any] = MappingProxyType({}),
) -> NewJob:
    """A job for `host`; it runs after all earlier jobs of the same server.

    The payload is ``{"server": {...}, "action_id": ..., "request_id": ...}`` and `arguments`, and for a placed server
    also `selected_rp` and `allocations` as in `Placed`. `ids` are ``{"action_id": ..., "request_id": ...}``, for the
    report and the logs; hosts ignore them.
    """
    placed = {} if server.placed is None else placed_document(server.placed)
    return NewJob(job_id, host, kind, server.id, {"server": server_document(server), **placed, **ids, **arguments})


def build_job(server: Server, placed: Placed, host: str, operation: Operation, ids: Mapping[str, str]) -> NewJob:
    """`ids`: as for `host_job`."""
    return host_job(host_build_id(server.id), operation.kind, server, host, ids, placed_document(placed))


def placed_document(placed: Placed) -> dict[str, Any]:
    return {
        "selected_rp": {suffix: list(uuids) for suffix, uuids in placed.mappings.items()},
        "allocations": {uuid: {"resources": dict(amounts)} for uuid, amounts in placed.allocations.items()},
    }


def scheduling_id(server_id: str) -> str:
    """Id of the job that selects a host: fixed for each server, so that a deletion can find it."""
    return f"schedule:{server_id}"


def host_build_id(server_id: str) -> str:
    """Id of the host's job that builds the server; fixed, too."""
    return f"build:{server_id}"


def server_document(server: Server) -> dict[str, Any]:
    return {
        "id": server.id,
        "name": server.name,
        "instance_name": server.instance_name,
        "project_id": server.project_id,
        "user_id": server.user_id,
        "image_id": server.image_id,
        "hostname": server.hostname,
        "metadata": dict(server.metadata),
        "flavor": flavor_document(server.flavor),
        "guest": guest_document(server) if server.config_drive else None,
    }


def guest_document(server: Server) -> dict[str, Any]:
    """The content of the config drive, besides the values in the server's document."""
    keys = {server.key_name: server.key_data} if server.key_name and server.key_data else {}
    return {
        "hostname": server.hostname,
        "zone": server.wanted_zone,
        "launch_index": server.launch_index,
        "reservation_id": server.reservation_id,
        "metadata": dict(server.metadata),
        "public_keys": keys,
        "user_data": server.user_data,
    }


def flavor_document(flavor: Flavor) -> dict[str, Any]:
    return {
        "id": flavor.id,
        "name": flavor.name,
        "vcpus": flavor.vcpus,
        "ram_mb": flavor.ram_mb,
        "disk_gb": flavor.disk_gb,
        "ephemeral_gb": flavor.ephemeral_gb,
        "swap_mb": flavor.swap_mb,
        "extra_specs": dict(flavor.extra_specs),
    }


def server_situation(server: Server) -> ServerSituation:
    return ServerSituation(
        server.id,
        server.vm_state,
        server.task_state,
        server.host,
        server.locked_by,
        server.launched_at is not None,
        bool(server.devices),
    )
