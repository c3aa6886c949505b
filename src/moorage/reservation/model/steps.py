"""Steps: the effects of a lease's event on other services, as stored in the journal. `step_registry` runs them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from moorage.core.errors import MoorageError
from moorage.core.names import reservation_class, reservation_trait

#: The slots of one reservation: {hypervisor hostname: number of slots}.
Slots: TypeAlias = Mapping[str, int]

#: The FPGA regions of one reservation: names of their resource providers.
Regions: TypeAlias = Sequence[str]

#: {hypervisor hostname: name of its compute service}
Services: TypeAlias = Mapping[str, str]


class StepKind(StrEnum):
    ENSURE_CLASS = "ensure_class"
    ENSURE_FLAVOR = "ensure_flavor"
    PUT_INVENTORY = "put_inventory"
    JOIN_AGGREGATE = "join_aggregate"
    GRANT_ACCESS = "grant_access"
    REVOKE_ACCESS = "revoke_access"
    DELETE_SERVERS = "delete_servers"
    ENSURE_GROUP = "ensure_server_group"
    DELETE_GROUP = "delete_server_group"
    DELETE_FLAVOR = "delete_flavor"
    DELETE_AGGREGATE = "delete_aggregate"
    DROP_INVENTORY = "drop_inventory"
    RETIRE_INVENTORY = "retire_inventory"
    RECLAIM_INVENTORY = "reclaim_inventory"  # like DROP_INVENTORY, and removes consumers that still hold a slot
    DELETE_CLASS = "delete_class"
    FIND_SERVERS = "find_servers"
    FIND_SERVERS_OF_HOSTS = "find_servers_of_hosts"
    SNAPSHOT_SERVER = "snapshot_server"
    SEND_WEBHOOK = "send_webhook"
    SEND_MAIL = "send_mail"
    TELL_END = "tell_end"  # tells the operator's service that the lease of this reservation ends
    ENSURE_AGGREGATE = "ensure_aggregate"
    CLEAR_HOST = "clear_host"
    LEND_HOST = "lend_host"
    RETURN_HOST = "return_host"
    RETIRE_HOST = "retire_host"
    OPEN_AGGREGATE = "open_aggregate"
    CLOSE_AGGREGATE = "close_aggregate"
    CLEAR_AGGREGATE = "clear_aggregate"
    DISSOLVE_AGGREGATE = "dissolve_aggregate"
    PROGRAM_REGION = "program_region"
    EMPTY_REGION = "empty_region"
    RETIRE_REGION = "retire_region"
    DELETE_TRAIT = "delete_trait"
    ENSURE_FLOATING_IPS = "ensure_floating_ips"
    DELETE_FLOATING_IPS = "delete_floating_ips"


@dataclass(frozen=True, slots=True)
class PrivateFlavor:
    """The flavor of a reservation's servers, without its name and the reservation's resource class."""

    vcpus: int
    memory_mb: int
    disk_gb: int
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One effect. Each kind sets the fields that it needs. Notifications have an empty `reservation_id`."""

    kind: StepKind
    reservation_id: str
    host: str = ""  #: hypervisor hostname; for steps on aggregates, the name of its compute service
    total: int = 0
    project_id: str = ""
    aggregate_id: int = 0
    group_id: str = ""
    flavor: PrivateFlavor | None = None
    deployable: str = ""  #: name of an accelerator and of its resource provider
    image_id: str = ""  #: bitstream to program or to remove; or `function_id`, `function_name`
    function_id: str = ""
    function_name: str = ""
    policy: str = ""  #: of the server group
    lease_id: str = ""
    target: str = ""  #: a URL, a mail address or a server's id

    @property
    def resource_class(self) -> str:
        return reservation_class(self.reservation_id)

    @property
    def trait(self) -> str:
        return reservation_trait(self.reservation_id)

    def args(self) -> dict[str, Any]:
        """The arguments in the form that the journal stores, without empty ones. `from_journal` reads them."""
        args: dict[str, Any] = {"reservation_id": self.reservation_id}
        for name in (
            "host",
            "total",
            "project_id",
            "aggregate_id",
            "group_id",
            "deployable",
            "image_id",
            "function_id",
            "function_name",
            "policy",
            "lease_id",
            "target",
        ):
            if value := getattr(self, name):
                args[name] = value
        if self.flavor is not None:
            size = {"vcpus": self.flavor.vcpus, "memory_mb": self.flavor.memory_mb, "disk_gb": self.flavor.disk_gb}
            more = {"ephemeral_gb": self.flavor.ephemeral_gb, "swap_mb": self.flavor.swap_mb}
            args |= size | {name: value for name, value in more.items() if value}
            if self.flavor.extra_specs:
                args["extra_specs"] = dict(self.flavor.extra_specs)
        return args

    @classmethod
    def from_journal(cls, kind: str, args: Mapping[str, Any]) -> "Step":
        flavor = None
        if "vcpus" in args:
            flavor = PrivateFlavor(
                args["vcpus"],
                args["memory_mb"],
                args["disk_gb"],
                args.get("ephemeral_gb", 0),
                args.get("swap_mb", 0),
                args.get("extra_specs", {}),
            )
        return cls(
            StepKind(kind),
            args["reservation_id"],
            args.get("host", ""),
            args.get("total", 0),
            args.get("project_id", ""),
            args.get("aggregate_id", 0),
            args.get("group_id", ""),
            flavor,
            args.get("deployable", ""),
            args.get("image_id", ""),
            args.get("function_id", ""),
            args.get("function_name", ""),
            args.get("policy", ""),
            args.get("lease_id", ""),
            args.get("target", ""),
        )


@dataclass(frozen=True, slots=True)
class Waiting:
    """The step has begun but needs more time. Not an error: run it again later."""

    reason: str


@dataclass(frozen=True, slots=True)
class Further:
    """The step is done and has produced more steps, which run after all others."""

    steps: tuple[Step, ...]


#: Methods that run a step. None: done. They raise a `MoorageError` if the step failed and may be retried.
Actions: TypeAlias = Mapping[StepKind, Callable[[Step], Waiting | Further | None]]

#: Runs some of many steps; returns (positions of these steps, the error if they failed).
Part: TypeAlias = Callable[[], tuple[Sequence[int], MoorageError | None]]

#: Methods that split many steps of a kind into parts, which may run in any order and in parallel.
JointActions: TypeAlias = Mapping[StepKind, Callable[[Sequence[Step]], Sequence[Part]]]
