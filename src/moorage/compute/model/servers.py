"""Values that compute's packages share: flavors, servers, hosts, aggregates, actions. States are explained in
`lifecycle`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import msgspec

from moorage.core.json import JsonObject
from moorage.scheduler.server_groups import GroupPolicy

#: Capability of hosts whose virt driver applies the settings of guests (`moorage.agent.virt.driver.Capability`).
GUEST_SETTINGS = "guest-settings"
#: Name of the compute service's binary in Nova, by which clients filter.
COMPUTE_BINARY = "nova-compute"
DEFAULT_ZONE = "nova"
#: Queue of the jobs for `moorage.compute.scheduling.build_worker`; no host may have this name.
BUILD_QUEUE = "compute-build"
#: Queue of the jobs for `moorage.compute.moves.migration_worker`.
MOVE_QUEUE = "compute-moves"
MAX_CONSOLE_BYTES = 64 * 1024


class VmState(StrEnum):
    """The stable state of a server, apart from operations in progress."""

    BUILDING = "building"
    ACTIVE = "active"
    PAUSED = "paused"
    SUSPENDED = "suspended"
    STOPPED = "stopped"
    RESCUED = "rescued"
    RESIZED = "resized"  #: moved; the old host keeps its disk until the move is confirmed
    SHELVED = "shelved"  #: off, with an image of its disk; still on its host
    SHELVED_OFFLOADED = "shelved_offloaded"  #: only an image, on no host
    SOFT_DELETED = "soft-delete"
    ERROR = "error"
    DELETED = "deleted"


class TaskState(StrEnum):
    """The operation in progress on a server."""

    SCHEDULING = "scheduling"
    NETWORKING = "networking"  #: interfaces are attached or detached
    SPAWNING = "spawning"
    POWERING_ON = "powering-on"
    POWERING_OFF = "powering-off"
    PAUSING = "pausing"
    UNPAUSING = "unpausing"
    SUSPENDING = "suspending"
    RESUMING = "resuming"
    REBOOTING = "rebooting"
    REBOOTING_HARD = "rebooting_hard"
    REBUILDING = "rebuilding"
    REBUILD_SPAWNING = "rebuild_spawning"
    RESCUING = "rescuing"
    UNRESCUING = "unrescuing"
    UPDATING_PASSWORD = "updating_password"  # noqa: S105 - a task state of Nova's API, not a password
    IMAGE_SNAPSHOT = "image_snapshot"
    IMAGE_BACKUP = "image_backup"
    SHELVING = "shelving"
    SHELVING_OFFLOADING = "shelving_offloading"
    UNSHELVING = "unshelving"
    RESIZE_PREP = "resize_prep"
    RESIZE_MIGRATING = "resize_migrating"
    RESIZE_FINISH = "resize_finish"
    RESIZE_REVERTING = "resize_reverting"
    MIGRATING = "migrating"
    SOFT_DELETING = "soft-deleting"
    RESTORING = "restoring"
    DELETING = "deleting"


class PowerState:
    """The numbers that the Compute API shows."""

    NONE = 0
    RUNNING = 1
    PAUSED = 3
    SHUTDOWN = 4
    SUSPENDED = 7


class Locker(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"


@dataclass(frozen=True)
class Flavor:
    id: str
    name: str
    vcpus: int
    ram_mb: int
    disk_gb: int
    ephemeral_gb: int = 0
    swap_mb: int = 0
    rxtx_factor: float = 1.0
    is_public: bool = True
    description: str | None = None
    extra_specs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fault:
    """The reason why a server is in ERROR. `details` are for administrators, because they name hosts."""

    code: int
    message: str
    details: str
    created_at: datetime


@dataclass(frozen=True)
class Placed:
    """The allocations of a server: the claimed candidate.

    `mappings`: {group suffix or "": (provider uuid, ...)}; `allocations`: {provider uuid: {class: amount}}.
    """

    mappings: Mapping[str, tuple[str, ...]]
    allocations: Mapping[str, Mapping[str, int]]


class InterfaceAddress(msgspec.Struct, frozen=True):
    """`cidr`: of the subnet ``subnet_id``."""

    address: str
    subnet_id: str
    cidr: str
    gateway: str | None = None
    dns: tuple[str, ...] = ()


#: Maximum number of interfaces of a server; more would not fit into a guest.
MAX_INTERFACES = 32


class InterfaceState(StrEnum):
    """Values are stored."""

    ATTACHED = ""
    ATTACHING = "attaching"  #: the host has a job to attach it
    DETACHING = "detaching"


class NetworkInterface(msgspec.Struct, frozen=True):
    """A network interface of a server: a port of the network service. Stored as its document.

    The fields from `mac` on are known when the port is bound, before the server's host gets its job.
    """

    port_id: str
    network_id: str
    is_made: bool  #: the port is made for the server; otherwise its project made it
    wanted_address: str | None = None
    tag: str | None = None
    mac: str = ""
    network_name: str = ""
    #: What the host attaches the guest to: see `moorage.network.model.NetworkKind`, or `OVS` or `DEVICE` of
    #: `moorage.jobs.contract`.
    kind: str = ""
    physical_network: str = ""
    segmentation_id: int | None = None
    is_dhcp: bool = False
    addresses: tuple[InterfaceAddress, ...] = ()
    state: InterfaceState = InterfaceState.ATTACHED
    mtu: int | None = None  #: None: not known
    is_plugged: bool = True  #: False: a Neutron has not said yet that it has connected what the host attached
    #: Those that a DHCP server gave, as the host reported and the network service accepted them. Only views read them:
    #: the guest and its host need not be told.
    learned: tuple[InterfaceAddress, ...] = ()
    device_profile: str | None = None  #: of the port; it requests the device that is the interface

    @property
    def shown_addresses(self) -> tuple[InterfaceAddress, ...]:
        return self.addresses + self.learned


@dataclass(frozen=True)
class Server:
    id: str
    number: int  #: sequence number; part of the name on the host (``instance-0000002a``)
    name: str
    project_id: str
    user_id: str
    image_id: str | None
    flavor: Flavor  #: a copy from when the server was created or resized
    vm_state: VmState
    task_state: TaskState | None
    power_state: int
    host: str | None
    wanted_zone: str | None
    wanted_host: str | None
    metadata: Mapping[str, str]
    tags: tuple[str, ...]
    description: str | None
    hostname: str
    key_name: str | None
    user_data: str | None
    config_drive: bool
    reservation_id: str
    launch_index: int
    scheduler_hints: Mapping[str, object]
    locked_by: Locker | None
    locked_reason: str | None
    fault: Fault | None
    placed: Placed | None
    devices: tuple[Mapping[str, str], ...]  #: attached by the host, see `os_acc.plug`
    parked_at: datetime | None  #: when it was shelved or soft-deleted
    parked_image_id: str | None  #: the image of its disk, while it is shelved
    created_at: datetime
    updated_at: datetime
    launched_at: datetime | None
    deleted_at: datetime | None
    access_ipv4: str | None = None  #: external address, set by the owner; not used here
    access_ipv6: str | None = None
    disk_config: str | None = None  #: AUTO or MANUAL, set by the owner
    image_properties: Mapping[str, str] | None = None  #: the image's, when the server was created or rebuilt
    key_data: str | None = None  #: public key of `key_name`, when the server was created or rebuilt with it
    interfaces: tuple[NetworkInterface, ...] = ()

    @property
    def instance_name(self) -> str:
        return f"instance-{self.number:08x}"


@dataclass(frozen=True)
class HostReport:
    """An agent's report about its host."""

    name: str
    provider_uuid: str
    hypervisor_type: str
    hypervisor_version: int
    host_ip: str
    vcpus: int
    memory_mb: int
    local_gb: int
    devices: int
    cpu_info: JsonObject = field(default_factory=dict)
    #: Optional features of its hypervisor: `moorage.agent.virt.driver.Capability`.
    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True)
class Host:
    """A compute host and its service. As in Nova, the hypervisor's uuid is that of the root provider."""

    number: int  #: its id before microversion 2.53
    service_uuid: str
    report: HostReport
    is_enabled: bool
    disabled_reason: str | None
    forced_down: bool
    heartbeat_at: datetime

    @property
    def name(self) -> str:
        return self.report.name


@dataclass(frozen=True)
class Aggregate:
    """`metadata` includes the availability zone, under ``availability_zone``."""

    id: int
    uuid: str
    name: str
    metadata: Mapping[str, str]
    hosts: tuple[str, ...]
    created_at: datetime
    updated_at: datetime | None

    @property
    def zone(self) -> str | None:
        return self.metadata.get("availability_zone")


@dataclass(frozen=True)
class ActionEvent:
    """One step of an action. `result`: None while in progress, then Success or Error."""

    name: str
    host: str | None
    started_at: datetime
    finished_at: datetime | None
    result: str | None
    details: str | None


@dataclass(frozen=True)
class Action:
    """An operation that was requested for a server; the API identifies it by `request_id`."""

    id: str
    server_id: str
    request_id: str
    name: str
    user_id: str
    project_id: str
    started_at: datetime
    updated_at: datetime
    message: str | None
    events: tuple[ActionEvent, ...] = ()


@dataclass(frozen=True)
class Keypair:
    user_id: str
    name: str
    kind: str
    public_key: str
    fingerprint: str
    created_at: datetime


@dataclass(frozen=True)
class ServerGroup:
    """`rules`: ``{"max_server_per_host": 2}``, with anti-affinity only. `members`: ids of existing servers."""

    id: str
    name: str
    project_id: str
    user_id: str
    policy: GroupPolicy
    rules: Mapping[str, int]
    created_at: datetime
    members: tuple[str, ...] = ()
