"""Builds the payloads of compute's jobs for hosts from servers; `moorage.jobs.contract` has their structs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypedDict

from moorage.compute.model.lifecycle import Operation, ServerSituation
from moorage.compute.model.servers import Flavor, Placed, Server
from moorage.jobs.contract import (
    AllocationPayload,
    BuildJob,
    FlavorPayload,
    GuestPayload,
    JobKind,
    ServerJob,
    ServerPayload,
    payload_document,
)
from moorage.jobs.model import NewJob
from moorage.scheduler.spec_rules import guest_settings


class JobHeader(TypedDict):
    """The fields that every job about a server has; `ServerJob` explains them."""

    server: ServerPayload
    action_id: str
    request_id: str
    selected_rp: Mapping[str, tuple[str, ...]]
    allocations: Mapping[str, AllocationPayload]
    settings: Mapping[str, str]


def job_header(server: Server, ids: Mapping[str, str]) -> JobHeader:
    """`ids` are ``{"action_id": ..., "request_id": ...}``."""
    placed = server.placed or Placed({}, {})
    return JobHeader(
        server=server_payload(server),
        action_id=ids["action_id"],
        request_id=ids["request_id"],
        selected_rp=placed.mappings,
        allocations={uuid: AllocationPayload(amounts) for uuid, amounts in placed.allocations.items()},
        settings=guest_settings(server.flavor.extra_specs, server.image_properties or {}),
    )


def host_job(job_id: str, host: str, kind: JobKind, payload: ServerJob) -> NewJob:
    """A job for `host`; it runs after all earlier jobs of the same server."""
    return NewJob(job_id, host, kind, payload.server.id, payload_document(kind, payload))


def build_job(server: Server, placed: Placed, host: str, operation: Operation, ids: Mapping[str, str]) -> NewJob:
    """`ids`: as for `job_header`, and the traceparent, if there is one."""
    payload = BuildJob(**job_header(replace(server, placed=placed), ids))
    made = host_job(host_build_id(server.id), host, operation.job_kind, payload)
    return replace(made, payload={**made.payload, **ids})


def scheduling_id(server_id: str) -> str:
    """Id of the job that selects a host: fixed for each server, so that a deletion can find it."""
    return f"schedule:{server_id}"


def host_build_id(server_id: str) -> str:
    """Id of the host's job that builds the server; fixed, too."""
    return f"build:{server_id}"


def server_payload(server: Server) -> ServerPayload:
    return ServerPayload(
        id=server.id,
        name=server.name,
        instance_name=server.instance_name,
        project_id=server.project_id,
        user_id=server.user_id,
        image_id=server.image_id,
        hostname=server.hostname,
        metadata=server.metadata,
        flavor=flavor_payload(server.flavor),
        guest=guest_payload(server) if server.config_drive else None,
    )


def guest_payload(server: Server) -> GuestPayload:
    """The content of the config drive, besides the values in the server's payload."""
    return GuestPayload(
        hostname=server.hostname,
        zone=server.wanted_zone,
        launch_index=server.launch_index,
        reservation_id=server.reservation_id,
        metadata=server.metadata,
        public_keys={server.key_name: server.key_data} if server.key_name and server.key_data else {},
        user_data=server.user_data,
    )


def flavor_payload(flavor: Flavor) -> FlavorPayload:
    return FlavorPayload(
        id=flavor.id,
        name=flavor.name,
        vcpus=flavor.vcpus,
        ram_mb=flavor.ram_mb,
        disk_gb=flavor.disk_gb,
        ephemeral_gb=flavor.ephemeral_gb,
        swap_mb=flavor.swap_mb,
        extra_specs=flavor.extra_specs,
    )


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
