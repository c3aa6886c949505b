"""[pure] Payloads of compute's jobs: builds those for hosts from servers, and has those for compute's own workers.

`moorage.jobs.contract` has the structs of hosts' jobs. Processes of different releases read the payloads: a reader
ignores unknown fields, and a new field needs a default.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TypedDict, TypeVar

import msgspec

from moorage.compute.model.lifecycle import Operation, ServerSituation
from moorage.compute.model.servers import BUILD_QUEUE, MOVE_QUEUE, Flavor, NetworkInterface, Placed, Server
from moorage.jobs.contract import (
    DEVICE,
    AddressPayload,
    AllocationPayload,
    AlternatePayload,
    BuildJob,
    FlavorPayload,
    GuestPayload,
    InterfacePayload,
    JobKind,
    ServerJob,
    ServerPayload,
    payload_document,
)
from moorage.jobs.model import Job, NewJob
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
        interfaces=tuple(interface_payload(one) for one in server.interfaces) or msgspec.UNSET,
    )


def interface_payload(interface: NetworkInterface) -> InterfacePayload:
    return InterfacePayload(
        port_id=interface.port_id,
        mac=interface.mac,
        network_id=interface.network_id,
        kind=interface.kind,
        physical_network=interface.physical_network,
        segmentation_id=interface.segmentation_id,
        is_dhcp=interface.is_dhcp,
        addresses=tuple(AddressPayload(one.address, one.cidr, one.gateway, one.dns) for one in interface.addresses),
        mtu=interface.mtu or msgspec.UNSET,
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


def ports_job(job_id: str, server_id: str, request_id: str, *, release: bool) -> NewJob:
    """Runs after all earlier jobs of the server, and before all later ones."""
    payload = PortsUpdate(release, request_id)
    return NewJob(job_id, BUILD_QUEUE, JobKind.PORTS, server_id, msgspec.to_builtins(payload))


def release_port_job(
    job_id: str, server_id: str, port_id: str, *, key: str, not_before: datetime | None = None
) -> NewJob:
    """Releases the port unless the server has it by then. `key`: the server's id; or another one, for a job that is
    cancelled if all goes well, and that must not hold back the server's jobs meanwhile.
    """
    payload = PortRelease(server_id, port_id)
    return NewJob(job_id, BUILD_QUEUE, JobKind.RELEASE_PORT, key, msgspec.to_builtins(payload), not_before)


def forget_image_job(job_id: str, server_id: str, image_id: str, *, key: str) -> NewJob:
    """`key`: the server's id; or the image's, so that an image service that is away does not hold back the server."""
    payload = ForgetImage(image_id, server_id)
    return NewJob(job_id, MOVE_QUEUE, JobKind.FORGET_IMAGE, key, msgspec.to_builtins(payload))


def server_situation(server: Server) -> ServerSituation:
    return ServerSituation(
        server.id,
        server.vm_state,
        server.task_state,
        server.host,
        server.locked_by,
        server.launched_at is not None,
        bool(server.devices),
        any(one.kind == DEVICE for one in server.interfaces),
    )


class ServerAction(msgspec.Struct, frozen=True):
    id: str  #: of the server
    action_id: str


class SelectHosts(msgspec.Struct, frozen=True):
    """BUILD: `servers` get hosts together or not at all; empty: the server is the job's key, with `action_id`."""

    request_id: str = ""
    action_id: str = ""
    servers: tuple[ServerAction, ...] = ()
    image_properties: Mapping[str, str] = {}
    has_interfaces: bool = False  #: the servers have ports, which an earlier attempt may have bound
    alternates: tuple[AlternatePayload, ...] = ()  #: hosts to try first
    tried: Mapping[str, str] = {}  #: {host: reason why the build failed there}


class ReleaseAllocation(msgspec.Struct, frozen=True):
    """RELEASE of the job's key, a server. `final`: it becomes DELETED, and its action ends."""

    final: bool
    action_id: str = ""


class PortsUpdate(msgspec.Struct, frozen=True):
    """PORTS of the job's key, a server: `release` takes its ports away; else they are bound to its present host."""

    release: bool = False
    request_id: str = ""


class PortRelease(msgspec.Struct, frozen=True):
    """RELEASE_PORT."""

    server_id: str
    port_id: str


class HostUpdate(msgspec.Struct, frozen=True):
    """PUBLISH_STATUS, PUBLISH_AGGREGATES and FORGET_HOST; only the last has the uuid of the `provider`.

    `left`: the uuid of the aggregate that the host has left, which may be deleted when the job runs; otherwise empty.
    """

    host: str
    provider: str = ""
    left: str = ""


class MoveStep(msgspec.Struct, frozen=True):
    """A step of a move that compute runs itself."""

    move_id: str = ""


class ForgetImage(msgspec.Struct, frozen=True):
    """FORGET_IMAGE: deletes an image of the server's disk."""

    image_id: str
    server_id: str = ""  #: empty: it is the job's key


T = TypeVar("T", SelectHosts, ReleaseAllocation, PortsUpdate, PortRelease, HostUpdate, MoveStep, ForgetImage)


def read_payload(job: Job, payload_type: type[T]) -> T:
    """Raises `msgspec.ValidationError`; `JobWorker.run_job` then postpones the job and logs it."""
    return msgspec.convert(job.payload, payload_type)
