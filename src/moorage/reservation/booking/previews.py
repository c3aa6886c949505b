"""Previews: a create or update that is decided but not yet written, with the capacity that it requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias

from sqlalchemy import Connection

from moorage.core.errors import Gone
from moorage.reservation.booking.admission import Booking, Excluding
from moorage.reservation.capacity import host_selection
from moorage.reservation.capacity.lease_update import UpdateDecision
from moorage.reservation.model.leases import Lease, Reservation
from moorage.reservation.model.reservation_requests import ReservationRequest
from moorage.reservation.model.steps import ReleaseSlots
from moorage.reservation.store import hold_store, limit_store

#: {reservation of floating IPs: their addresses}
Addresses: TypeAlias = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class LeasePreview:
    """A lease that would be created, and its booking."""

    lease: Lease
    booking: Booking
    addresses: Addresses = field(default_factory=dict)  #: set in dry runs only


@dataclass(frozen=True, slots=True)
class SlotRelease:
    """Unused slots of an active reservation that are given up. `before`, `after`: its slots."""

    reservation: Reservation
    before: host_selection.Placing
    after: host_selection.Placing
    steps: Sequence[ReleaseSlots]


@dataclass(frozen=True, slots=True)
class UpdatePreview:
    """A lease and the update that would be applied to it."""

    lease: Lease
    decision: UpdateDecision
    planned: Sequence[Reservation]  #: reservations whose slots must be planned again
    requests: Mapping[str, ReservationRequest]  #: {reservation id: its request after the update}, for all reservations
    held: Mapping[str, host_selection.Placing]  #: {reservation id: its present slots}, for `planned`
    booking: Booking
    addresses: Addresses = field(default_factory=dict)  #: set in dry runs only
    released: Sequence[SlotRelease] = ()  #: the reservations that shrink; they are not among `planned`

    @property
    def excluding(self) -> Excluding:
        return Excluding([each.id for each in self.planned])


@dataclass(frozen=True, slots=True)
class HoldConversion:
    """A hold that becomes a lease. One transaction deletes the hold and allocates its slots."""

    hold_id: str
    placings: Mapping[int, host_selection.Placing]  #: {position of a reservation: where}
    now: datetime

    @property
    def excluding(self) -> Excluding:
        return Excluding(hold=self.hold_id)

    def prefer_held_hosts(self, booking: Booking) -> Booking:
        """The booking with the hosts of the hold preferred."""
        asks = [replace(ask, held=self.placings.get(at, {})) for at, ask in enumerate(booking.asks)]
        return replace(booking, asks=asks)

    def delete_hold(self, connection: Connection) -> None:
        """Deletes the hold. Raises `Gone` if it has expired or was used."""
        if hold_store.find(connection, self.hold_id, self.now, lock=True) is None:
            raise Gone(f"hold {self.hold_id} has expired or was already used; search for an offer again")
        hold_store.remove(connection, [self.hold_id])
        limit_store.forget_hold(connection, self.hold_id)
