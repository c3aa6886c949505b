"""``virtual:floatingip``: addresses of an external network. `addresses` selects them and finds when enough are free.

create   no step: the addresses are only assigned in the database
start    each address becomes a floating IP in the lease's project, with the same tags as Blazar's
end      the floating IPs are unbound and deleted, even if a server uses them
"""

from dataclasses import replace

from moorage.core.errors import Conflict, Invalid
from moorage.reservation.capacity.resource_types.base import check_known, expect
from moorage.reservation.model.leases import Reservation, ReservationStatus
from moorage.reservation.model.reservation_requests import (
    VIRTUAL_FLOATING_IP,
    FloatingIpRequest,
    ReservationChange,
    ReservationRequest,
)
from moorage.reservation.model.steps import DeleteFloatingIps, EnsureFloatingIps, Regions, Services, Slots, Step

_CHANGEABLE = ("amount", "network_id", "required_floatingips")


class VirtualFloatingIp:
    name = VIRTUAL_FLOATING_IP
    has_flavor = False

    def wanted(self, request: ReservationRequest) -> None:
        return None

    def changed(self, reservation: Reservation, change: ReservationChange) -> ReservationRequest:
        """The request after an update. Refusals have status 400, as in Blazar, and come before any write."""
        check_known(change, _CHANGEABLE)
        old = expect(reservation.request, FloatingIpRequest)
        if change.network_id not in (None, old.network_id):
            raise Invalid("network_id cannot be changed; create another reservation for another network")
        if change.required_floatingips not in (None, (), old.required):
            raise Invalid("required_floatingips can only be emptied; create another reservation for other addresses")
        required = old.required if change.required_floatingips is None else change.required_floatingips
        request = replace(old, amount=old.amount if change.amount is None else change.amount, required=required)
        if request == old:
            return old
        check_amount(request)
        if reservation.status not in (ReservationStatus.PENDING, ReservationStatus.ACTIVE):
            raise Conflict(f"reservation {reservation.id} is in state {reservation.status} and cannot be changed")
        if reservation.status is ReservationStatus.ACTIVE and request.amount < old.amount:
            raise Invalid("amount cannot be reduced: an active reservation keeps its floating IPs")
        return request

    def plan_create(self, reservation: Reservation) -> list[Step]:
        return []

    def plan_hosts(self, reservation: Reservation, slots: Slots, services: Services, before: Slots) -> list[Step]:
        """No steps before the start: `plan_open` makes the floating IPs after all other steps."""
        is_active = reservation.status is ReservationStatus.ACTIVE
        return [EnsureFloatingIps(reservation.id)] if is_active else []

    def plan_move(self, reservation: Reservation, slots: Slots, services: Services, lost: Slots) -> list[Step]:
        return []

    def plan_open(self, reservation: Reservation, project_id: str) -> list[Step]:
        return [EnsureFloatingIps(reservation.id)]

    def plan_regions(self, reservation: Reservation, regions: Regions, project_id: str) -> list[Step]:
        return []

    def plan_leave(self, reservation: Reservation, regions: Regions) -> list[Step]:
        return []

    def plan_change(self, reservation: Reservation, request: ReservationRequest) -> list[Step]:
        return []

    def plan_snapshot(self, reservation: Reservation) -> None:
        return None

    def plan_end(self, reservation: Reservation, slots: Slots, services: Services, project_id: str) -> list[Step]:
        return [DeleteFloatingIps(reservation.id)]

    def plan_empty(self, reservation: Reservation, regions: Regions) -> list[Step]:
        return []


def check_amount(request: FloatingIpRequest) -> None:
    if len(request.required) > request.amount:
        raise Invalid(
            f"required_floatingips names {len(request.required)} addresses, which is more than the amount of "
            f"{request.amount}"
        )
