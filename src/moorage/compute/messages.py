"""What compute tells a host: the documents in the payload of its jobs. Pure."""

from collections.abc import Mapping
from typing import Any

from moorage.compute.lifecycle import Operation, Situation
from moorage.compute.model import Flavor, Placed, Server
from moorage.jobs.model import NewJob


def host_job(job_id: str, operation: Operation, server: Server, host: str, action_id: str, request_id: str) -> NewJob:
    """A job for `host`, after all earlier ones of the same server.

    ``{"server": {...}, "task": "pausing", "action_id": ..., "request_id": ...}``, for a build also `selected_rp`
    and `allocations` as in `Placed`. The last three are for the report and the logs; a host passes them by.
    """
    payload: dict[str, Any] = {
        "server": server_document(server),
        "task": operation.task.value,
        "action_id": action_id,
        "request_id": request_id,
    }
    if operation.kind == "reboot":
        payload["type"] = "HARD" if operation.task == "rebooting_hard" else "SOFT"
    return NewJob(job_id, host, operation.kind, server.id, payload)


def build_job(server: Server, placed: Placed, host: str, operation: Operation, ids: Mapping[str, str]) -> NewJob:
    """`ids`: ``{"action_id": ..., "request_id": ...}``."""
    job = host_job(host_build_id(server.id), operation, server, host, ids["action_id"], ids["request_id"])
    chosen = {suffix: list(uuids) for suffix, uuids in placed.mappings.items()}
    taken = {uuid: {"resources": dict(amounts)} for uuid, amounts in placed.allocations.items()}
    return NewJob(job.id, job.queue, job.kind, job.key, job.payload | {"selected_rp": chosen, "allocations": taken})


def scheduling_id(server_id: str) -> str:
    """Id of the job that finds a host: one per server, so that a deletion can find it."""
    return f"schedule:{server_id}"


def host_build_id(server_id: str) -> str:
    """Id of the host's job that builds the server."""
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


def situation(server: Server) -> Situation:
    return Situation(server.id, server.vm_state, server.task_state, server.host, server.locked_by)
