"""Values that `ComputeClient` returns, and their construction from rows of the Compute API.

Not here: the values that compute itself works with (`moorage.compute.model.servers`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NotRequired, TypedDict

_NODE = "OS-EXT-SRV-ATTR:hypervisor_hostname"


@dataclass(frozen=True)
class ServerGroup:
    id: str
    name: str
    policy: str


@dataclass(frozen=True)
class Hypervisor:
    id: str
    hostname: str
    vcpus: int
    memory_mb: int
    local_gb: int
    type: str
    version: int
    cpu_info: str  #: Nova's object as text
    service_host: str
    state: str  #: up or down
    status: str  #: enabled or disabled
    running_servers: str  #: names of its servers, for messages; empty if there are none


@dataclass(frozen=True, slots=True)
class ComputeNode:
    """A hypervisor; its uuid is also that of its resource provider."""

    uuid: str
    is_up: bool


@dataclass(frozen=True)
class Flavor:
    id: str
    name: str
    vcpus: int
    ram_mb: int
    disk_gb: int
    ephemeral_gb: int
    swap_mb: int
    extra_specs: Mapping[str, str]
    is_public: bool = True


@dataclass(frozen=True)
class Server:
    id: str
    name: str
    project_id: str
    status: str
    host: str | None
    flavor_id: str


@dataclass(frozen=True, slots=True)
class ServerHere:
    """A server as the agent of its host sees it."""

    name: str
    status: str  #: ``ACTIVE`` ...
    unplugged_ports: tuple[str, ...] = ()  #: that a Neutron still has to connect


@dataclass(frozen=True, slots=True)
class ServerState:
    """State, place and flavor of a server. `flavor` is the server's own copy, whose id the API does not show."""

    id: str
    status: str
    task: str | None
    node: str | None  #: hypervisor hostname
    updated_at: datetime
    flavor: Flavor
    has_image: bool  #: False: it may boot from a volume
    macs: frozenset[str] = frozenset()  #: of its interfaces with an address
    is_launched: bool = True  #: its build has succeeded once


@dataclass(frozen=True, slots=True)
class Migration:
    uuid: str
    server_id: str
    type: str
    status: str
    source_node: str | None


@dataclass(frozen=True)
class Aggregate:
    id: int
    name: str
    hosts: tuple[str, ...]
    metadata: Mapping[str, str]

    @property
    def zone(self) -> str | None:
        """Its availability zone."""
        return self.metadata.get("availability_zone")


class FunnelStep(TypedDict):
    constraint: str
    before: int
    after: int


class FilterStep(TypedDict):
    filter: str
    before: int
    after: int


class Explanation(TypedDict):
    """See `moorage.compute.api.handlers.explanations`."""

    text: str
    fault: NotRequired[str | None]
    constraints: Sequence[FunnelStep]
    filters: Sequence[FilterStep]
    host_names: NotRequired[Sequence[str]]
    rejected_hosts: NotRequired[Mapping[str, str]]
    closest: NotRequired[Sequence[str]]
    change: NotRequired[str | None]


class _Named(TypedDict):
    name: str


class _ServiceRow(TypedDict):
    host: str


class _HypervisorRow(TypedDict):
    id: int | str
    hypervisor_hostname: str
    vcpus: int
    memory_mb: int
    local_gb: int
    hypervisor_type: str
    hypervisor_version: int
    cpu_info: NotRequired[object]
    service: _ServiceRow
    state: str
    status: str
    servers: NotRequired[list[_Named]]


class _MigrationRow(TypedDict):
    uuid: str
    instance_uuid: str
    migration_type: str
    status: str
    source_node: NotRequired[str | None]


class _AggregateRow(TypedDict):
    id: int
    name: str
    hosts: list[str]
    metadata: dict[str, str]


def hypervisor_of(row: _HypervisorRow) -> Hypervisor:
    return Hypervisor(
        id=str(row["id"]),
        hostname=row["hypervisor_hostname"],
        vcpus=row["vcpus"],
        memory_mb=row["memory_mb"],
        local_gb=row["local_gb"],
        type=row["hypervisor_type"],
        version=row["hypervisor_version"],
        cpu_info=str(row.get("cpu_info") or ""),
        service_host=row["service"]["host"],
        state=row["state"],
        status=row["status"],
        running_servers=", ".join(server["name"] for server in row.get("servers") or ()),
    )


def flavor_of(row: Mapping[str, Any]) -> Flavor:
    return Flavor(
        id=row["id"],
        name=row["name"],
        vcpus=row["vcpus"],
        ram_mb=row["ram"],
        disk_gb=row["disk"],
        ephemeral_gb=row["OS-FLV-EXT-DATA:ephemeral"],
        swap_mb=int(row["swap"] or 0),
        extra_specs=row["extra_specs"],
        is_public=row["os-flavor-access:is_public"],
    )


def server_of(row: Mapping[str, Any]) -> Server:
    return Server(
        row["id"], row["name"], row["tenant_id"], row["status"], row.get("OS-EXT-SRV-ATTR:host"), row["flavor"]["id"]
    )


def server_state_of(row: Mapping[str, Any]) -> ServerState | None:
    if _NODE not in row or "extra_specs" not in row.get("flavor", {}):
        return None
    # A flavor embedded in its server has no id and does not say whether it is public.
    flavor = {"id": "", "name": row["flavor"]["original_name"], "OS-FLV-EXT-DATA:ephemeral": row["flavor"]["ephemeral"]}
    return ServerState(
        row["id"],
        row["status"],
        row["OS-EXT-STS:task_state"],
        row[_NODE],
        datetime.fromisoformat(row["updated"] or row["created"]),
        flavor_of({"os-flavor-access:is_public": True, **row["flavor"], **flavor}),
        bool(row["image"]),
        frozenset(one["OS-EXT-IPS-MAC:mac_addr"] for each in row["addresses"].values() for one in each),
        row["OS-SRV-USG:launched_at"] is not None,
    )


def migration_of(row: _MigrationRow) -> Migration:
    return Migration(
        str(row["uuid"]), row["instance_uuid"], row["migration_type"], row["status"], row.get("source_node")
    )


def aggregate_of(row: _AggregateRow) -> Aggregate:
    return Aggregate(row["id"], row["name"], tuple(row["hosts"]), row["metadata"])
