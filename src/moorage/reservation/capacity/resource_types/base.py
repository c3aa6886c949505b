"""The interface of resource types. Each type has a module in this folder; its other code is elsewhere:

model.reservation_requests   its request           api.schemas.reservation   the request on the wire
store.request_store          the request's rows    steps                     the effects of its steps
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, TypeVar

from moorage.core.errors import Invalid
from moorage.reservation.model.leases import Reservation
from moorage.reservation.model.reservation_requests import ReservationChange, ReservationRequest
from moorage.reservation.model.slot_demand import SlotDemand
from moorage.reservation.model.steps import Regions, Services, Slots, Step


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """The slots that a reservation needs on hosts: at least `amount`, at most `most` (None: exactly `amount`)."""

    demand: SlotDemand
    amount: int
    affinity: bool | None = None
    most: int | None = None
    properties: tuple[str, ...] = ()  #: queries (see `property_query`); a host must match all of them


class ResourceType(Protocol):
    """The rules of one resource type. Pure. Each ``plan_`` method returns steps of one reservation; `step_plans`
    combines them for a lease.
    """

    name: str
    has_flavor: bool  #: True if servers use a flavor whose id is the reservation's id

    def wanted(self, request: ReservationRequest) -> SlotRequest | None:
        """None for resource types that do not use hosts."""

    def changed(self, reservation: Reservation, change: ReservationChange) -> ReservationRequest:
        """The request after an update. Raises `Invalid` or `Conflict`."""

    def plan_create(self, reservation: Reservation) -> list[Step]: ...

    def plan_hosts(self, reservation: Reservation, slots: Slots, services: Services, before: Slots) -> list[Step]:
        """Steps from the slots `before` (none before the start) to `slots`."""

    def plan_move(self, reservation: Reservation, slots: Slots, services: Services, lost: Slots) -> list[Step]:
        """Steps after hosts of an active reservation failed. `lost`: {failed host: number of slots moved away from it};
        `slots`: the slots after the move.

        The end of the lease cleans up failed hosts. No step here may wait for a failed host.
        """

    def plan_open(self, reservation: Reservation, project_id: str) -> list[Step]:
        """Steps that give the project access. They run after `plan_hosts` of all reservations of the lease."""

    def plan_regions(self, reservation: Reservation, regions: Regions, project_id: str) -> list[Step]:
        """Steps that program accelerators, before servers are launched there."""

    def plan_leave(self, reservation: Reservation, regions: Regions) -> list[Step]:
        """Steps that retire regions of failed hosts, so that no server starts there. None may wait for these hosts."""

    def plan_change(self, reservation: Reservation, request: ReservationRequest) -> list[Step]:
        """Steps that adapt the created resources to `request`, before the start."""

    def plan_snapshot(self, reservation: Reservation) -> Step | None:
        """The step that finds the reservation's servers to snapshot. None for types without servers."""

    def plan_end(self, reservation: Reservation, slots: Slots, services: Services, project_id: str) -> list[Step]: ...

    def plan_empty(self, reservation: Reservation, regions: Regions) -> list[Step]:
        """Steps that empty accelerators, after the steps of `plan_end`."""


R = TypeVar("R")


def expect(request: ReservationRequest, kind: type[R]) -> R:
    """`request` as a `kind`. Raises `TypeError` if it is of another class."""
    if not isinstance(request, kind):
        raise TypeError(f"{request} is not a {kind.__name__}")
    return request


def check_known(
    change: ReservationChange, changeable: Collection[str], shown: Mapping[str, object] = MappingProxyType({})
) -> None:
    """Raises `Invalid` for a field that this type cannot change, unless it has the value that answers show."""
    unknown = [
        name
        for name, value in change.given().items()
        if name not in changeable and (name not in shown or shown[name] != value)
    ]
    if unknown and not change.as_peer:
        raise Invalid(
            f"Unknown parameter {', '.join(sorted(unknown))}: a reservation of this type can change "
            f"{', '.join(changeable)}"
        )
