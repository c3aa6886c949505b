"""What a create or an update would do: decided, with what has to be found for it, and not written."""

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
from moorage.reservation.store import hold_store

#: {reservation of floating IPs: their addresses}
Addresses: TypeAlias = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class LeasePreview:
    """A lease as it would be made."""

    lease: Lease
    booking: Booking
    addresses: Addresses = field(default_factory=dict)  #: as a rehearsal found them


@dataclass(frozen=True, slots=True)
class UpdatePreview:
    """A lease as it is, and what would become of it."""

    lease: Lease
    decision: UpdateDecision
    planned: Sequence[Reservation]  #: those that need other room than they have
    requests: Mapping[str, ReservationRequest]  #: {reservation id: what it asks for afterwards}, of all
    held: Mapping[str, host_selection.Placing]  #: {reservation id: where it is now}, of `planned`
    booking: Booking
    addresses: Addresses = field(default_factory=dict)  #: as a rehearsal found them

    @property
    def excluding(self) -> Excluding:
        return Excluding([each.id for each in self.planned])


@dataclass(frozen=True, slots=True)
class HoldConversion:
    """A hold that becomes a lease: its room is given up and taken in one transaction."""

    hold_id: str
    placings: Mapping[int, host_selection.Placing]  #: {position of a reservation: where}
    now: datetime

    @property
    def excluding(self) -> Excluding:
        return Excluding(hold=self.hold_id)

    def kept(self, booking: Booking) -> Booking:
        """The same, with the hosts that are held before all others."""
        asks = [replace(ask, held=self.placings.get(at, {})) for at, ask in enumerate(booking.asks)]
        return replace(booking, asks=asks)

    def give_up(self, connection: Connection) -> None:
        """Raises `Gone` when somebody else has taken it, or it has expired."""
        if hold_store.find(connection, self.hold_id, self.now, lock=True) is None:
            raise Gone(f"hold {self.hold_id} has expired or was used; look for an offer again")
        hold_store.remove(connection, [self.hold_id])
