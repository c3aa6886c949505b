"""What a resource type decides. One module per type beside this one; all that is a type's own is there, and

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
        """None where it is not hosts that it is of."""

    def changed(self, reservation: Reservation, change: ReservationChange) -> ReservationRequest:
        """The request as an update would have it. Raises `Invalid` or `Conflict`."""

    def plan_create(self, reservation: Reservation) -> list[Step]: ...

    def plan_hosts(self, reservation: Reservation, slots: Slots, services: Services, before: Slots) -> list[Step]:
        """From the slots `before`, none before the start, to `slots`: what the project will find."""

    def plan_move(self, reservation: Reservation, slots: Slots, services: Services, lost: Slots) -> list[Step]:
        """While it is active: hosts failed, of which `lost` says how many slots are now elsewhere in `slots`.

        What a host has lost is looked for again when the lease ends. Nothing here may wait for a host that failed.
        """

    def plan_open(self, reservation: Reservation, project_id: str) -> list[Step]:
        """Let the project in: after the hosts of all reservations of the lease."""

    def plan_regions(self, reservation: Reservation, regions: Regions, project_id: str) -> list[Step]:
        """Before a server comes there: what accelerators are to carry."""

    def plan_leave(self, reservation: Reservation, regions: Regions) -> list[Step]:
        """Their hosts failed, the slots are elsewhere: no server comes there any more. Nothing here may wait for them."""

    def plan_change(self, reservation: Reservation, request: ReservationRequest) -> list[Step]:
        """Before the start: what was created, as `request` would have it."""

    def plan_snapshot(self, reservation: Reservation) -> Step | None:
        """Find its servers, to save each. None where it can have none."""

    def plan_end(self, reservation: Reservation, slots: Slots, services: Services, project_id: str) -> list[Step]: ...

    def plan_empty(self, reservation: Reservation, regions: Regions) -> list[Step]:
        """After the end of all else: accelerators give back what they carry."""


R = TypeVar("R")


def expect(request: ReservationRequest, kind: type[R]) -> R:
    """`request`, which is of this class: a reservation's type tells."""
    if not isinstance(request, kind):
        raise TypeError(f"{request} is no {kind.__name__}")
    return request


def check_known(change: ReservationChange, changeable: Collection[str]) -> None:
    if unknown := sorted(change.given().keys() - set(changeable)):
        raise Invalid(
            f"Unknown parameter {', '.join(unknown)}: such a reservation can change in {', '.join(changeable)}"
        )
