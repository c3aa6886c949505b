"""The interface of resource types. Each type has a module beside this one; other type-specific code is in

requests        what is asked of it                schemas.reservation   its shape on the wire
request_store   where that is kept                 effects               what its steps do outside
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, TypeVar

from moorage.core.errors import Invalid
from moorage.reservation.model.leases import Reservation
from moorage.reservation.model.reservation_requests import ReservationChange, ReservationRequest
from moorage.reservation.model.slot_demand import SlotDemand
from moorage.reservation.model.steps import Regions, Services, Slots, Step


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """What a reservation wants of the hosts: `amount` slots, or up to `most`."""

    demand: SlotDemand
    amount: int
    affinity: bool | None = None
    most: int | None = None
    properties: tuple[str, ...] = ()  #: queries in the language of `property_query`; hosts must answer all of them


class ResourceType(Protocol):
    """Pure. The plans are of one reservation; those of a lease are put together in `step_plans`."""

    name: str
    has_flavor: bool  #: servers are launched with a flavor of the reservation's id

    def wanted(self, request: ReservationRequest) -> SlotRequest | None:
        """None for resource types that do not use hosts."""

    def changed(self, reservation: Reservation, change: ReservationChange) -> ReservationRequest:
        """The request after an update. Raises `Invalid` or `Conflict`."""

    def plan_create(self, reservation: Reservation) -> list[Step]: ...

    def plan_hosts(self, reservation: Reservation, slots: Slots, services: Services, before: Slots) -> list[Step]:
        """Steps from the slots `before` (none before the start) to `slots`."""

    def plan_move(self, reservation: Reservation, slots: Slots, services: Services, lost: Slots) -> list[Step]:
        """While it is active: hosts failed, of which `lost` says how many slots are now elsewhere in `slots`.

        The end of the lease cleans up failed hosts. No step here may wait for a failed host.
        """

    def plan_open(self, reservation: Reservation, project_id: str) -> list[Step]:
        """Gives the project access, after the hosts of all reservations of the lease."""

    def plan_regions(self, reservation: Reservation, regions: Regions, project_id: str) -> list[Step]:
        """Programs accelerators, before servers are launched there."""

    def plan_leave(self, reservation: Reservation, regions: Regions) -> list[Step]:
        """Retires regions of failed hosts, so that no server is launched there. No step may wait for these hosts."""

    def plan_change(self, reservation: Reservation, request: ReservationRequest) -> list[Step]:
        """Before the start: changes what was created to match `request`."""

    def plan_snapshot(self, reservation: Reservation) -> Step | None:
        """Finds its servers, to save each. None for types without servers."""

    def plan_end(self, reservation: Reservation, slots: Slots, services: Services, project_id: str) -> list[Step]: ...

    def plan_empty(self, reservation: Reservation, regions: Regions) -> list[Step]:
        """Empties accelerators, after everything else has ended."""


R = TypeVar("R")


def expect(request: ReservationRequest, kind: type[R]) -> R:
    """Casts `request` to the class that belongs to the reservation's type."""
    if not isinstance(request, kind):
        raise TypeError(f"{request} is no {kind.__name__}")
    return request


def check_known(change: ReservationChange, changeable: Collection[str]) -> None:
    if unknown := sorted(change.given().keys() - set(changeable)):
        raise Invalid(
            f"Unknown parameter {', '.join(unknown)}: such a reservation can change in {', '.join(changeable)}"
        )
