"""The input of an audit, `AuditSnapshot`, and its result, `Finding`.

Every value is as one service knows it; a snapshot contains those of all services that were asked.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from moorage.core.inventories import Inventory

#: Placement's project and user of allocations that were written without any (before microversion 1.8).
INCOMPLETE = "00000000-0000-0000-0000-000000000000"

#: Consumer types of servers and of migrations. Nova itself gives no type, which Placement shows as "unknown".
SERVER_TYPE, MIGRATION_TYPE, UNKNOWN_TYPE = "INSTANCE", "MIGRATION", "unknown"

#: {class: units}
Resources = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AuditedProvider:
    """One resource provider; its inventories and allocations are of one generation."""

    uuid: str
    name: str
    parent_uuid: str | None
    root_uuid: str
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    held: Mapping[str, Resources] = field(default_factory=dict)  #: {consumer uuid: its allocation here}
    is_device: bool = False  #: it has the trait of the accelerator service's providers
    is_sharing: bool = False
    aggregates: frozenset[str] = frozenset()  #: filled only for roots and sharing providers

    @property
    def used(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for resources in self.held.values():
            for name, units in resources.items():
                total[name] = total.get(name, 0) + units
        return total


@dataclass(frozen=True, slots=True)
class AuditedConsumer:
    """A consumer as Placement has it. `written_at`: when its newest allocation was written."""

    uuid: str
    generation: int | None
    project_id: str
    user_id: str
    type: str
    allocations: Mapping[str, Resources]  #: {provider uuid: its allocation there}
    written_at: datetime

    @property
    def is_incomplete(self) -> bool:
        return INCOMPLETE in (self.project_id, self.user_id)


@dataclass(frozen=True, slots=True)
class Owner:
    project_id: str
    user_id: str


@dataclass(frozen=True, slots=True)
class AuditedServer:
    """A server with no operation in progress that could change its allocations.

    `wanted`: {class: units} of its flavor, without those of its device profile and those that its host adds; None: the
    flavor cannot be read. `is_plain`: `wanted` is complete, and each class comes from a single provider.
    """

    node: str | None  #: hypervisor hostname
    updated_at: datetime
    wanted: Resources | None
    is_plain: bool
    runs: bool = False  #: a running server has the devices of its allocations
    macs: frozenset[str] = frozenset()  #: of its interfaces with an address


@dataclass(frozen=True, slots=True)
class BusyServer:
    """A server with an operation in progress (`task`), since `since` or longer."""

    node: str | None  #: hypervisor hostname
    task: str
    since: datetime


@dataclass(frozen=True, slots=True)
class AuditedAggregate:
    """An aggregate of compute. `hosts`: names of compute services. `is_lent`: it is named after a host reservation."""

    name: str
    hosts: frozenset[str]
    is_lent: bool


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute's data, read after Placement: so it contains everything that existed when Placement was read."""

    servers: frozenset[str]
    migrations: frozenset[str]
    hypervisors: frozenset[str]  #: uuids, which are those of their providers
    #: {server: its owner}, for servers whose owner was asked for
    owners: Mapping[str, Owner] = field(default_factory=dict)
    #: {server: its state}, for servers that can be judged
    states: Mapping[str, AuditedServer] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)  # {hypervisor hostname: uuid}
    down: frozenset[str] = frozenset()  #: hostnames of hypervisors whose compute service is down
    busy: Mapping[str, BusyServer] = field(default_factory=dict)  #: {server: its operation in progress}
    reservation_flavors: frozenset[str] = frozenset()  #: ids of the flavors that the reservation service made
    aggregates: tuple[AuditedAggregate, ...] = ()
    #: {server: hypervisor hostnames that it was evacuated from}. Nova deletes its allocations there when they are up.
    evacuated: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditedDeployable:
    """A deployable. `attached`: addresses of its attached handles without an accelerator request."""

    uuid: str
    name: str
    provider_uuid: str | None
    changed_at: datetime
    attached: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditedRequest:
    """A bound accelerator request, or one being bound.

    `is_made_here`: the accelerator service made it; it was not plugged with its server.
    """

    uuid: str
    server: str
    provider_uuid: str
    host: str
    changed_at: datetime
    is_made_here: bool
    is_waiting: bool = False  #: its host has not reported yet whether it is bound


@dataclass(frozen=True, slots=True)
class AuditedAccelerators:
    deployables: frozenset[str]  #: uuids of the deployables' providers
    instances: frozenset[str]  #: servers with a bound accelerator request
    parts: tuple[AuditedDeployable, ...] = ()
    requests: tuple[AuditedRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class ReservedFlavor:
    """The private flavor of a reservation, with its id. `projects` have access to it; None: the flavor is missing."""

    project_id: str  #: project of the lease
    projects: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Reservations:
    leases: frozenset[str]
    reservations: frozenset[str]  #: ids of reservations that are not deleted
    hosts: frozenset[str]  #: hypervisor hostnames
    #: {active reservation: {hypervisor hostname: slots}}, for reservations whose slots are inventories
    slots: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: {active reservation: its flavor}, for reservations that have one
    flavors: Mapping[str, ReservedFlavor] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)  #: {hypervisor hostname: its compute service}
    in_aggregates: frozenset[str] = frozenset()  #: compute services in the pool or in a reservation's aggregate
    pool: str = "freepool"  #: name of the aggregate of unreserved hosts
    #: {hypervisor hostname: {class: units that active reservations have there}}, for reservations of a plain size
    needs: Mapping[str, Resources] = field(default_factory=dict)
    #: {reservation: name of its lease} of those whose service knows that slots are not covered any more
    short: Mapping[str, str] = field(default_factory=dict)
    short_hosts: frozenset[str] = frozenset()  #: hypervisor hostnames with slots of those reservations


@dataclass(frozen=True, slots=True)
class AuditedNames:
    """`classes`: all; `traits`: custom ones that no provider has; `asked_for`: names in flavors and device profiles."""

    classes: frozenset[str]
    traits: frozenset[str]
    asked_for: frozenset[str]


@dataclass(frozen=True, slots=True)
class AuditedPort:
    """A port that is bound to a server."""

    uuid: str
    server: str
    network: str
    host: str  #: empty: its server is on no host
    mac: str
    has_address: bool
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class AuditSnapshot:
    """What all services know, read at `now`.

    `consumers`: only those that need a closer look, and have allocations. A service that is None was not asked, so
    nothing that only it could know is judged.
    """

    now: datetime
    providers: Mapping[str, AuditedProvider]
    consumers: Mapping[str, AuditedConsumer]
    compute: Compute | None = None
    accelerators: AuditedAccelerators | None = None
    reservations: Reservations | None = None
    names: AuditedNames | None = None  #: None: not read
    ports: Mapping[str, AuditedPort] | None = None  #: {port: itself} of Moorage's own network service
    #: {server: the ports that it lists}, for servers whose addresses seem to be those of other ports
    interfaces: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: Ports that those servers list and that were looked up and do not exist, or are not theirs.
    lost_ports: frozenset[str] = frozenset()


class FindingKind(StrEnum):
    UNKNOWN_CONSUMER = "unknown consumer"
    INCOMPLETE_CONSUMER = "incomplete consumer"
    OVER_CAPACITY = "over capacity"
    IMPOSSIBLE_INVENTORY = "impossible inventory"
    MISSING_INVENTORY = "missing inventory"
    OWNERLESS_PROVIDER = "provider without owner"
    OWNERLESS_INVENTORY = "inventory without lease"
    LOST_INVENTORY = "lease without inventory"
    WRONG_ROOT = "wrong root"
    SERVER_WITHOUT_HOST = "server without host"
    SERVER_WITHOUT_ALLOCATION = "server without allocation"
    ALLOCATION_ELSEWHERE = "allocation elsewhere"
    WRONG_AMOUNTS = "allocation other than flavor"
    DEVICE_WITHOUT_SERVER = "accelerator without server"
    SERVER_WITHOUT_DEVICE = "server without accelerator"
    HANDLE_WITHOUT_REQUEST = "handle without request"
    DEVICE_WITHOUT_PROVIDER = "accelerator without provider"
    FLAVOR_WITHOUT_LEASE = "flavor without lease"
    LEASE_WITHOUT_FLAVOR = "lease without flavor"
    LEASE_WITHOUT_ACCESS = "lease without access"
    WRONG_SLOTS = "inventory other than lease"
    LEASE_WITHOUT_RESOURCES = "lease without resources"
    OVERBOOKED_HOST = "leases beyond capacity"
    AGGREGATE_WITHOUT_LEASE = "aggregate without lease"
    HOST_OUTSIDE_POOL = "host outside pool"
    STRANGER_IN_POOL = "stranger in pool"
    STUCK_SERVER = "stuck server"
    STUCK_REQUEST = "stuck accelerator request"
    PORT_WITHOUT_SERVER = "port without server"
    UNLISTED_PORT = "port that its server lacks"
    SERVER_WITHOUT_PORT = "server without port"
    UNUSED_CLASS = "unused class"
    UNUSED_TRAIT = "unused trait"


class Repair(StrEnum):
    """The repair of a finding."""

    RELEASE = "release"
    SET_OWNER = "set owner"
    DROP_INVENTORY = "drop inventory"
    MAKE_INVENTORY = "make inventory"
    DELETE_PROVIDER = "delete provider"
    SET_HOLDING = "set holding"
    FREE_DEVICES = "free devices"
    DELETE_FLAVOR = "delete flavor"
    GRANT_ACCESS = "grant access"
    SET_SLOTS = "set slots"
    JOIN_POOL = "join pool"
    DELETE_CLASS = "delete class"
    DELETE_TRAIT = "delete trait"
    RELEASE_PORT = "release port"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault. `--fix` does its `action` if `is_safe`, or if the operator names `subject` with `--also`."""

    kind: FindingKind
    #: uuid of the consumer, server, provider, deployable, request, port or reservation; or the name of an aggregate,
    #: host, class or trait
    subject: str
    where: str  #: name of the host or provider, for people
    why: str
    advice: str  #: what --fix does, or what the operator can do
    action: Repair | None = None
    is_safe: bool = False
    resource_class: str | None = None
    owner: Owner | None = None
    host: str | None = None  #: hypervisor hostname
    holding: Mapping[str, Resources] | None = None  #: {provider uuid: the server's right allocation there}


def root_by_provider(providers: Mapping[str, AuditedProvider]) -> dict[str, str]:
    """{provider: the root of its parents}. A provider in a loop of parents, or below one, counts as its own root."""
    found: dict[str, str] = {}
    for uuid in providers:
        path, here = [uuid], uuid
        while (parent := providers[here].parent_uuid) is not None and parent in providers and parent not in path:
            path.append(parent)
            here = parent
        found[uuid] = uuid if parent in path else here
    return found


def provider_names(snapshot: AuditSnapshot, uuids: Iterable[str]) -> str:
    """Names of providers for people, at most three of them."""
    return joined_names(sorted(snapshot.providers[uuid].name if uuid in snapshot.providers else uuid for uuid in uuids))


def joined_names(names: list[str], shown: int = 3) -> str:
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + rest
