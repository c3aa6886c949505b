"""Steps: the effects of a lease's event on other services. The journal stores them; the modules in `steps` run them.

Each kind of step is a class with the arguments of that kind, and `Step` is the union of them. In the journal, the tag
of the class is the `kind` of the row, and the other fields are its `args`, without those that have their default.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, get_args

import msgspec

from moorage.core.json import Json
from moorage.core.names import reservation_class, reservation_trait

#: The slots of one reservation: {hypervisor hostname: number of slots}.
Slots: TypeAlias = Mapping[str, int]

#: The FPGA regions of one reservation: names of their resource providers.
Regions: TypeAlias = Sequence[str]

#: {hypervisor hostname: name of its compute service}
Services: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PrivateFlavor:
    """The flavor of a reservation's servers, without its name and the reservation's resource class."""

    vcpus: int
    memory_mb: int
    disk_gb: int
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)


class ReservationStep(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True):
    reservation_id: str

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def resource_class(self) -> str:
        return reservation_class(self.reservation_id)

    @property
    def trait(self) -> str:
        return reservation_trait(self.reservation_id)


# --- servers in slots: Placement's inventories, and flavors --------------------------------------------------------


class EnsureClass(ReservationStep, frozen=True, tag="ensure_class"):
    pass


class DeleteClass(ReservationStep, frozen=True, tag="delete_class"):
    pass


class EnsureFlavor(ReservationStep, frozen=True, tag="ensure_flavor"):
    """The fields of a `PrivateFlavor`."""

    vcpus: int
    memory_mb: int
    disk_gb: int
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: dict[str, str] = {}


class DeleteFlavor(ReservationStep, frozen=True, tag="delete_flavor"):
    pass


class PutInventory(ReservationStep, frozen=True, tag="put_inventory"):
    host: str  #: hypervisor hostname
    total: int


class ReleaseSlots(ReservationStep, frozen=True, tag="release_slots"):
    """Gives up unused slots of an active reservation on a host."""

    host: str
    total: int  #: slots that stay
    slots: list[str]  #: ids of the slots to give up


class DropInventory(ReservationStep, frozen=True, tag="drop_inventory"):
    host: str


class RetireInventory(ReservationStep, frozen=True, tag="retire_inventory"):
    host: str


class ReclaimInventory(ReservationStep, frozen=True, tag="reclaim_inventory"):
    """Like `DropInventory`; also removes consumers that still hold a slot."""

    host: str


class GrantAccess(ReservationStep, frozen=True, tag="grant_access"):
    project_id: str


class RevokeAccess(ReservationStep, frozen=True, tag="revoke_access"):
    project_id: str


class DeleteServers(ReservationStep, frozen=True, tag="delete_servers"):
    pass


# --- server groups, and aggregates of older systems -----------------------------------------------------------------


class EnsureGroup(ReservationStep, frozen=True, tag="ensure_server_group"):
    policy: str = ""  #: empty: no group


class DeleteGroup(ReservationStep, frozen=True, tag="delete_server_group"):
    group_id: str = ""  #: empty: the id was lost in a crash


class JoinAggregate(ReservationStep, frozen=True, tag="join_aggregate"):
    host: str  #: name of the compute service, as in all steps on aggregates
    aggregate_id: int


class DeleteAggregate(ReservationStep, frozen=True, tag="delete_aggregate"):
    aggregate_id: int


# --- whole hosts: the aggregate of a reservation --------------------------------------------------------------------


class EnsureAggregate(ReservationStep, frozen=True, tag="ensure_aggregate"):
    pass


class ClearHost(ReservationStep, frozen=True, tag="clear_host"):
    host: str


class LendHost(ReservationStep, frozen=True, tag="lend_host"):
    host: str


class ReturnHost(ReservationStep, frozen=True, tag="return_host"):
    host: str


class RetireHost(ReservationStep, frozen=True, tag="retire_host"):
    host: str


class OpenAggregate(ReservationStep, frozen=True, tag="open_aggregate"):
    project_id: str


class CloseAggregate(ReservationStep, frozen=True, tag="close_aggregate"):
    pass


class ClearAggregate(ReservationStep, frozen=True, tag="clear_aggregate"):
    pass


class DissolveAggregate(ReservationStep, frozen=True, tag="dissolve_aggregate"):
    pass


# --- regions of FPGAs -----------------------------------------------------------------------------------------------


class ProgramRegion(ReservationStep, frozen=True, tag="program_region"):
    """The bitstream has an image id, or the id or the name of its function."""

    project_id: str
    deployable: str  #: name of an accelerator and of its resource provider
    image_id: str = ""
    function_id: str = ""
    function_name: str = ""


class EmptyRegion(ReservationStep, frozen=True, tag="empty_region"):
    """Removes the bitstream if the region carries this one."""

    deployable: str
    image_id: str = ""
    function_id: str = ""
    function_name: str = ""


class RetireRegion(ReservationStep, frozen=True, tag="retire_region"):
    deployable: str


class DeleteTrait(ReservationStep, frozen=True, tag="delete_trait"):
    pass


# --- floating IPs ---------------------------------------------------------------------------------------------------


class EnsureFloatingIps(ReservationStep, frozen=True, tag="ensure_floating_ips"):
    pass


class DeleteFloatingIps(ReservationStep, frozen=True, tag="delete_floating_ips"):
    pass


# --- before the end, and at the end ---------------------------------------------------------------------------------


class FindServers(ReservationStep, frozen=True, tag="find_servers"):
    pass


class FindServersOfHosts(ReservationStep, frozen=True, tag="find_servers_of_hosts"):
    pass


class SnapshotServer(ReservationStep, frozen=True, tag="snapshot_server"):
    server_id: str = msgspec.field(name="target")


class LeaveServer(ReservationStep, frozen=True, tag="leave_server"):
    """Records that a server was not saved, and why. Has no effect."""

    server_id: str = msgspec.field(name="target")
    reason: str


class SendWebhook(ReservationStep, frozen=True, tag="send_webhook"):
    """Notifications have an empty `reservation_id`."""

    lease_id: str
    target: str  #: a URL


class SendMail(ReservationStep, frozen=True, tag="send_mail"):
    lease_id: str
    target: str  #: a mail address


class TellEnd(ReservationStep, frozen=True, tag="tell_end"):
    """Tells the operator's service that the lease of this reservation ends."""


Step: TypeAlias = (
    EnsureClass
    | DeleteClass
    | EnsureFlavor
    | DeleteFlavor
    | PutInventory
    | ReleaseSlots
    | DropInventory
    | RetireInventory
    | ReclaimInventory
    | GrantAccess
    | RevokeAccess
    | DeleteServers
    | EnsureGroup
    | DeleteGroup
    | JoinAggregate
    | DeleteAggregate
    | EnsureAggregate
    | ClearHost
    | LendHost
    | ReturnHost
    | RetireHost
    | OpenAggregate
    | CloseAggregate
    | ClearAggregate
    | DissolveAggregate
    | ProgramRegion
    | EmptyRegion
    | RetireRegion
    | DeleteTrait
    | EnsureFloatingIps
    | DeleteFloatingIps
    | FindServers
    | FindServersOfHosts
    | SnapshotServer
    | LeaveServer
    | SendWebhook
    | SendMail
    | TellEnd
)


def kind_of(step_type: type[ReservationStep]) -> str:
    """The kind of these steps in the journal."""
    return str(step_type.__struct_config__.tag)


def journal_entry(step: Step) -> dict[str, Json]:
    """`kind` and `args` in the form that the journal stores. `step_from_journal` reads them."""
    args: dict[str, Json] = msgspec.to_builtins(step)
    return {"kind": args.pop("kind"), "args": args}


_CLASSES: Mapping[str, type[Step]] = {kind_of(each): each for each in get_args(Step)}


def step_from_journal(kind: str, args: Mapping[str, Json]) -> Step:
    return msgspec.convert(args, _CLASSES[kind])


@dataclass(frozen=True, slots=True)
class Waiting:
    """The step has begun but needs more time. Not an error: run it again later."""

    reason: str


@dataclass(frozen=True, slots=True)
class Further:
    """The step is done and has produced more steps, which run after all others."""

    steps: tuple[Step, ...]


#: {class of steps: the method that runs one}. None: done. It raises a `MoorageError` if the step failed and may be
#: retried.
Actions: TypeAlias = Mapping[type[ReservationStep], Callable[[Any], Waiting | Further | None]]
