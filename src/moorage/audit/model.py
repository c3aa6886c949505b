"""What an audit looks at, and what it says."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from moorage.core.inventories import Inventory

#: Owner of allocations that nobody said the owner of.
INCOMPLETE = "00000000-0000-0000-0000-000000000000"

#: The type of compute's consumers, and of what they are while they move. Nova itself says no type: "unknown".
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
    held: Mapping[str, Resources] = field(default_factory=dict)  # {consumer uuid: what it holds here}
    is_device: bool = False  #: the accelerator service says of it that it is its own
    is_sharing: bool = False
    aggregates: frozenset[str] = frozenset()  #: of sharing providers and of roots; else left empty

    @property
    def used(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for resources in self.held.values():
            for name, units in resources.items():
                total[name] = total.get(name, 0) + units
        return total


@dataclass(frozen=True, slots=True)
class AuditedConsumer:
    """As Placement has it. `written_at`: when its newest allocation was written."""

    uuid: str
    generation: int | None
    project_id: str
    user_id: str
    type: str
    allocations: Mapping[str, Resources]  # {provider uuid: what it holds there}
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
    """One that nothing is being done to, as far as its holdings go.

    `wanted`: {class: units} of its flavor; without those of its device profile and of what else its host adds. None: it
    cannot be read. `is_plain`: all of it, and each class from one provider.
    """

    node: str | None  #: hypervisor hostname
    updated_at: datetime
    wanted: Resources | None
    is_plain: bool
    runs: bool = False  #: so it has the devices that it claimed


@dataclass(frozen=True, slots=True)
class BusyServer:
    """A server that something is being done to (`task`), since `since` or longer."""

    node: str | None  #: hypervisor hostname
    task: str
    since: datetime


@dataclass(frozen=True, slots=True)
class AuditedAggregate:
    """One of compute's. `hosts` are names of compute services. `is_lent`: it is named for a reservation of hosts."""

    name: str
    hosts: frozenset[str]
    is_lent: bool


@dataclass(frozen=True, slots=True)
class Compute:
    """What compute knows. All that was there when Placement was read is in it, for it was asked afterwards."""

    servers: frozenset[str]
    migrations: frozenset[str]
    hypervisors: frozenset[str]  #: uuids, which are those of their providers
    owners: Mapping[str, Owner] = field(default_factory=dict)  # {server: whose it is}, where that was asked for
    states: Mapping[str, AuditedServer] = field(default_factory=dict)  # {server: of those that can be judged}
    nodes: Mapping[str, str] = field(default_factory=dict)  # {hypervisor hostname: uuid}
    down: frozenset[str] = frozenset()  #: hypervisor hostnames that do not say that they live
    busy: Mapping[str, BusyServer] = field(default_factory=dict)  # {server: what is being done to it}
    reservation_flavors: frozenset[str] = frozenset()  #: ids of those that the reservation service made
    aggregates: tuple[AuditedAggregate, ...] = ()
    #: {server: hypervisor hostnames that it was evacuated from}: Nova takes its holdings there away when they are back
    evacuated: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditedDeployable:
    """`attached`: its handles that are attached, and no accelerator request has."""

    uuid: str
    name: str
    provider_uuid: str | None
    changed_at: datetime
    attached: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditedRequest:
    """One that is bound, or is being bound. `is_made_here`: by the accelerator service, and not plugged with its server."""

    uuid: str
    server: str
    provider_uuid: str
    host: str
    changed_at: datetime
    is_made_here: bool
    is_waiting: bool = False  #: its host has not yet said whether it is bound


@dataclass(frozen=True, slots=True)
class AuditedAccelerators:
    deployables: frozenset[str]  #: uuids of their providers
    instances: frozenset[str]  #: servers that an accelerator request is bound for
    parts: tuple[AuditedDeployable, ...] = ()
    requests: tuple[AuditedRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class ReservedFlavor:
    """The private flavor of a reservation, which has its id. `projects` may use it; None: it is not there."""

    project_id: str  #: whose lease it is
    projects: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Reservations:
    leases: frozenset[str]
    reservations: frozenset[str]  #: ids of those that are not over
    hosts: frozenset[str]  #: hypervisor hostnames
    #: {reservation that runs: {hypervisor hostname: slots}} of those whose slots are inventories
    slots: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: {reservation that runs: its flavor} of those that have one
    flavors: Mapping[str, ReservedFlavor] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)  #: {hypervisor hostname: its compute service}
    in_aggregates: frozenset[str] = frozenset()  #: compute services that are in the pool, or lent
    pool: str = "freepool"  #: the aggregate of hosts that nobody has reserved


@dataclass(frozen=True, slots=True)
class AuditedNames:
    """`classes`: all; `traits`: custom ones that no provider has; `asked_for`: by flavors and device profiles."""

    classes: frozenset[str]
    traits: frozenset[str]
    asked_for: frozenset[str]


@dataclass(frozen=True, slots=True)
class AuditSnapshot:
    """`consumers` are those that need a closer look, and hold something. A service that is None is not there: nothing is said about it."""

    now: datetime
    providers: Mapping[str, AuditedProvider]
    consumers: Mapping[str, AuditedConsumer]
    compute: Compute | None = None
    accelerators: AuditedAccelerators | None = None
    reservations: Reservations | None = None
    names: AuditedNames | None = None  #: None: not asked for


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
    AGGREGATE_WITHOUT_LEASE = "aggregate without lease"
    HOST_OUTSIDE_POOL = "host outside pool"
    STRANGER_IN_POOL = "stranger in pool"
    STUCK_SERVER = "stuck server"
    STUCK_REQUEST = "stuck accelerator request"
    UNUSED_CLASS = "unused class"
    UNUSED_TRAIT = "unused trait"


class Repair(StrEnum):
    """What mends a finding."""

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


@dataclass(frozen=True, slots=True)
class Finding:
    """`is_safe`: `--fix` does `action`; else only when the operator names `subject`, or, without an action, never."""

    kind: FindingKind
    subject: str  #: uuid of the consumer, server, provider, deployable, request or reservation; or the name of an aggregate, host, class or trait
    where: str  #: for people
    why: str
    advice: str  #: what --fix does, or what the operator can do
    action: Repair | None = None
    is_safe: bool = False
    resource_class: str | None = None
    owner: Owner | None = None
    host: str | None = None  #: hypervisor hostname
    holding: Mapping[str, Resources] | None = None  #: {provider uuid: what the server is to hold there}


def root_by_provider(providers: Mapping[str, AuditedProvider]) -> dict[str, str]:
    """{provider: the root that its parents lead to}; one in a loop, or below one, is its own."""
    found: dict[str, str] = {}
    for uuid in providers:
        path, here = [uuid], uuid
        while (parent := providers[here].parent_uuid) is not None and parent in providers and parent not in path:
            path.append(parent)
            here = parent
        found[uuid] = uuid if parent in path else here
    return found


def provider_names(snapshot: AuditSnapshot, uuids: Iterable[str]) -> str:
    """Of providers, for people."""
    return joined_names(sorted(snapshot.providers[uuid].name if uuid in snapshot.providers else uuid for uuid in uuids))


def joined_names(names: list[str], shown: int = 3) -> str:
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + rest
