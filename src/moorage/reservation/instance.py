"""Instance reservations in Placement and Nova: what a lease's start, end and changes do there, step by step.

Spec: docs/specs/instance-reservation.md

    create   class CUSTOM_RESERVATION_<ID>, then a private flavor that asks for 1 of it             (R8, R9)
    start    inventory of the class on each host's reservation provider, then flavor access      (R20-R24)
    end      access off, servers deleted and gone, flavor, inventory per host, class             (R29-R32)

The plans are pure; `InstanceSteps` carries one step out. Every step may happen twice: names derive from the
reservation's id and the host's name, what is there already is left, what is gone already is fine. No aggregate and no
server group is ever made (R10): the inventory itself says where the servers may go, and how many. Those of an older
system are used and taken down with their reservation (R25, R33): its hosts join its aggregate before the access, and
server group and aggregate go with the flavor; one without a class has no inventory steps at all.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from moorage.compute.client import ComputeClient
from moorage.core.errors import Conflict
from moorage.core.names import reservation_class
from moorage.placement.client import Inventory, PlacementClient
from moorage.reservation.host import ensure_reservation_provider, provider_name
from moorage.reservation.model import Generation, Reservation, ReservationStatus, Size, generation_of


class StepKind(StrEnum):
    ENSURE_CLASS = "ensure_class"
    ENSURE_FLAVOR = "ensure_flavor"
    PUT_INVENTORY = "put_inventory"
    JOIN_AGGREGATE = "join_aggregate"
    GRANT_ACCESS = "grant_access"
    REVOKE_ACCESS = "revoke_access"
    DELETE_SERVERS = "delete_servers"
    DELETE_GROUP = "delete_server_group"
    DELETE_FLAVOR = "delete_flavor"
    DELETE_AGGREGATE = "delete_aggregate"
    DROP_INVENTORY = "drop_inventory"
    DELETE_CLASS = "delete_class"


@dataclass(frozen=True, slots=True)
class Step:
    """One effect. Fields beyond the first two are set where the kind needs them."""

    kind: StepKind
    reservation_id: str
    host: str = ""  #: hypervisor hostname; where it joins an aggregate, the name of its compute service
    total: int = 0
    project_id: str = ""
    aggregate_id: int = 0
    group_id: str = ""
    size: Size | None = None

    @property
    def resource_class(self) -> str:
        return reservation_class(self.reservation_id)

    def args(self) -> dict[str, Any]:
        """As the journal keeps them."""
        args: dict[str, Any] = {"reservation_id": self.reservation_id}
        for name in ("host", "total", "project_id", "aggregate_id", "group_id"):
            if value := getattr(self, name):
                args[name] = value
        if self.size is not None:
            args |= {"vcpus": self.size.vcpus, "memory_mb": self.size.memory_mb, "disk_gb": self.size.disk_gb}
        return args

    @classmethod
    def from_journal(cls, kind: str, args: Mapping[str, Any]) -> "Step":
        size = Size(args["vcpus"], args["memory_mb"], args["disk_gb"]) if "vcpus" in args else None
        return cls(
            StepKind(kind),
            args["reservation_id"],
            args.get("host", ""),
            args.get("total", 0),
            args.get("project_id", ""),
            args.get("aggregate_id", 0),
            args.get("group_id", ""),
            size,
        )


@dataclass(frozen=True, slots=True)
class Waiting:
    """The step was begun and needs time: try it again. Not an error."""

    reason: str


#: {reservation id: {hypervisor hostname: slots}}
Slots = Mapping[str, Mapping[str, int]]

#: {hypervisor hostname: the name of its compute service}
Services = Mapping[str, str]


def plan_create(reservations: Iterable[Reservation]) -> list[Step]:
    steps = []
    for reservation in reservations:
        steps.append(Step(StepKind.ENSURE_CLASS, reservation.id))
        steps.append(Step(StepKind.ENSURE_FLAVOR, reservation.id, size=reservation.request.size))
    return steps


def plan_start(reservations: Sequence[Reservation], slots: Slots, services: Services, project_id: str) -> list[Step]:
    """All hosts of all reservations before the first access: who may launch finds everything there (R24)."""
    hosts = [step for reservation in reservations for step in plan_hosts(reservation, slots, services)]
    return hosts + [Step(StepKind.GRANT_ACCESS, reservation.id, project_id=project_id) for reservation in reservations]


def plan_hosts(
    reservation: Reservation, slots: Slots, services: Services, before: Mapping[str, int] | None = None
) -> list[Step]:
    """One inventory per distinct host, with the number of the reservation's slots there (R20).

    Hosts of `before` that have none any more lose the class: an inventory of 0 is none (A4).
    """
    now = slots.get(reservation.id, {})
    steps = []
    if reservation.has_inventory:
        steps += [Step(StepKind.PUT_INVENTORY, reservation.id, host=host, total=now[host]) for host in sorted(now)]
        gone = sorted((before or {}).keys() - now.keys())
        steps += [Step(StepKind.DROP_INVENTORY, reservation.id, host=host) for host in gone]
    if reservation.aggregate_id is not None:
        steps += [
            Step(StepKind.JOIN_AGGREGATE, reservation.id, host=services[host], aggregate_id=reservation.aggregate_id)
            for host in sorted(now)
        ]
    return steps


def plan_resize(reservation_id: str, size: Size) -> list[Step]:
    """Before the start nobody uses the flavor yet: it is made anew."""
    return [Step(StepKind.DELETE_FLAVOR, reservation_id), Step(StepKind.ENSURE_FLAVOR, reservation_id, size=size)]


def plan_end(reservations: Iterable[Reservation], slots: Slots, project_id: str) -> list[Step]:
    """Access goes first, so that no server is launched while the others are being deleted."""
    steps = []
    for reservation in reservations:
        if reservation.status is ReservationStatus.DELETED:
            continue
        steps += [
            Step(StepKind.REVOKE_ACCESS, reservation.id, project_id=project_id),
            Step(StepKind.DELETE_SERVERS, reservation.id),
        ]
        if reservation.server_group_id is not None:
            steps.append(Step(StepKind.DELETE_GROUP, reservation.id, group_id=reservation.server_group_id))
        steps.append(Step(StepKind.DELETE_FLAVOR, reservation.id))
        if reservation.aggregate_id is not None:
            steps.append(Step(StepKind.DELETE_AGGREGATE, reservation.id, aggregate_id=reservation.aggregate_id))
        if reservation.has_inventory:
            hosts = sorted(slots.get(reservation.id, {}))
            steps += [Step(StepKind.DROP_INVENTORY, reservation.id, host=host) for host in hosts]
            steps.append(Step(StepKind.DELETE_CLASS, reservation.id))
    return steps


class InstanceSteps:
    """Carries steps out, over the public APIs of Placement and Nova only."""

    def __init__(self, placement: PlacementClient, compute: ComputeClient) -> None:
        self._placement = placement
        self._compute = compute
        self._actions = {
            StepKind.ENSURE_CLASS: self._ensure_class,
            StepKind.ENSURE_FLAVOR: self._ensure_flavor,
            StepKind.PUT_INVENTORY: self._put_inventory,
            StepKind.JOIN_AGGREGATE: self._join_aggregate,
            StepKind.GRANT_ACCESS: self._grant_access,
            StepKind.REVOKE_ACCESS: self._revoke_access,
            StepKind.DELETE_SERVERS: self._delete_servers,
            StepKind.DELETE_GROUP: self._delete_group,
            StepKind.DELETE_FLAVOR: self._delete_flavor,
            StepKind.DELETE_AGGREGATE: self._delete_aggregate,
            StepKind.DROP_INVENTORY: self._drop_inventory,
            StepKind.DELETE_CLASS: self._delete_class,
        }

    def run(self, step: Step) -> Waiting | None:
        """None when the step is done. Raises a `MoorageError` when it could not be; it may be tried again."""
        return self._actions[step.kind](step)

    def generation(self, reservation: Reservation) -> Generation:
        """What a reservation is that came from an older system; asks Placement (A1)."""
        has_class = self._placement.has_class(reservation.resource_class)
        return generation_of(reservation.aggregate_id, reservation.server_group_id, has_class=has_class)

    def _ensure_class(self, step: Step) -> None:
        self._placement.ensure_class(step.resource_class)

    def _ensure_flavor(self, step: Step) -> None:
        if step.size is None:
            raise ValueError(f"{step} has no size")
        name = f"reservation:{step.reservation_id}"
        size = step.size
        self._compute.create_flavor(step.reservation_id, name, size.vcpus, size.memory_mb, size.disk_gb, public=False)
        self._compute.set_extra_specs(step.reservation_id, {f"resources:{step.resource_class}": "1"})

    def _put_inventory(self, step: Step) -> None:
        # A host that was registered before reservation providers existed gets its own here (R21).
        provider = ensure_reservation_provider(self._placement, step.host)
        wanted = Inventory(total=step.total, min_unit=1, max_unit=1, step_size=1, allocation_ratio=1.0)
        self._placement.put_inventory(provider.uuid, step.resource_class, wanted)  # the others stay (R22, R23)

    def _join_aggregate(self, step: Step) -> None:
        self._compute.add_host(step.aggregate_id, step.host)

    def _grant_access(self, step: Step) -> None:
        self._compute.add_flavor_access(step.reservation_id, step.project_id)

    def _revoke_access(self, step: Step) -> None:
        self._compute.remove_flavor_access(step.reservation_id, step.project_id)

    def _delete_servers(self, step: Step) -> Waiting | None:
        servers = self._compute.servers_of_flavor(step.reservation_id)
        for server in servers:
            self._compute.delete_server(server.id)
        if not servers:
            return None
        names = ", ".join(sorted(server.name for server in servers)[:3])
        return Waiting(f"{len(servers)} server(s) of the reservation are being deleted: {names}")

    def _delete_flavor(self, step: Step) -> None:
        self._compute.delete_flavor(step.reservation_id)

    def _delete_group(self, step: Step) -> None:
        self._compute.delete_server_group(step.group_id)

    def _delete_aggregate(self, step: Step) -> None:
        self._compute.delete_aggregate(step.aggregate_id)

    def _drop_inventory(self, step: Step) -> Waiting | None:
        provider = self._placement.provider_by_name(provider_name(step.host))
        if provider is None:
            return None
        try:
            self._placement.delete_inventory(provider.uuid, step.resource_class)
        except Conflict:
            # In use and changed-in-between look the same here (A5): the usage tells them apart, neither is skipped.
            used = self._placement.usages(provider.uuid).get(step.resource_class, 0)
            return Waiting(f"{used} of {step.resource_class} on {provider.name} are still in use")
        return None

    def _delete_class(self, step: Step) -> Waiting | None:
        try:
            self._placement.delete_class(step.resource_class)
        except Conflict as error:
            return Waiting(f"{step.resource_class} is still in some inventory: {error.message}")
        return None
