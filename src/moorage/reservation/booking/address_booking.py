"""Allocates floating IPs with their networks locked, in the transaction that writes the lease.

Unlike for hosts, nothing is cached: a network has some hundred registered addresses, not ten thousand.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.core.errors import Invalid
from moorage.core.ids import Ids
from moorage.db.session import read
from moorage.reservation.booking.admission import HORIZON
from moorage.reservation.booking.previews import Addresses, UpdatePreview
from moorage.reservation.capacity.addresses import AddressBook, AddressRequest, ChosenAddresses, build_address_requests
from moorage.reservation.capacity.host_selection import Shortage
from moorage.reservation.model.leases import Lease, LeaseStatus
from moorage.reservation.store import address_store

#: (a test whether enough addresses are free until a given end, starts of other allocations that may change its result)
ProlongationTest: TypeAlias = tuple[Callable[[datetime], bool], Sequence[datetime]]


class NotEnoughFloatingIps(Invalid):
    """`fields`: reservation_id, free (number of available addresses), later (when enough are free; None: not within
    `HORIZON`). Status 400, as in Blazar.
    """

    code = "reservation.not_enough_floating_ips"


class AddressBooking:
    def __init__(self, engine: Engine, clock: Clock, ids: Ids) -> None:
        self._engine = engine
        self._clock = clock
        self._ids = ids

    def allocate_new(self, connection: Connection, leases: Sequence[Lease]) -> None:
        """Allocates addresses for all of these new leases or for none. Raises `NotEnoughFloatingIps`."""
        wants = {lease.id: build_address_requests(lease.reservations) for lease in leases}
        networks = _networks([want for each in wants.values() for want in each])
        if not networks:
            return
        address_store.of_networks(connection, networks, lock=True)
        for lease in leases:  # in order: each gets addresses that the earlier ones leave
            if wants[lease.id]:
                book = self._book(connection, wants[lease.id])
                chosen = _chosen(book, wants[lease.id], lease.start_date, lease.end_date, is_new=True)
                self._write(connection, chosen, {}, lease.start_date, lease.end_date)

    def allocate_updated(self, connection: Connection, change: UpdatePreview) -> None:
        """Allocates addresses again for a lease that is being updated. Raises `NotEnoughFloatingIps`."""
        decision, own = change.decision, build_address_requests(change.lease.reservations)
        if not own:
            return
        address_store.of_networks(connection, _networks(own), lock=True)
        start, end = decision.start_date, decision.end_date
        if decision.moved:
            ids = [want.reservation_id for want in own]
            address_store.move(connection, ids, start, end, self._clock.now())
        wants, held = self._wants(connection, change)
        if wants:
            self._write(connection, _chosen(self._book(connection, wants), wants, start, end), held, start, end)

    def rehearse_create(self, leases: Sequence[Lease]) -> Addresses:
        """The addresses that `allocate_new` would choose now. Raises `NotEnoughFloatingIps`."""
        wants = [(lease, build_address_requests(lease.reservations)) for lease in leases]
        with read(self._engine) as connection:
            book = self._book(connection, [want for _, mine in wants for want in mine])
        found: dict[str, list[str]] = {}
        for lease, mine in wants:
            chosen = _chosen(book, mine, lease.start_date, lease.end_date, is_new=True)
            book = book.without(chosen, lease.start_date, lease.end_date)
            found |= _addresses(chosen)
        return found

    def rehearse_update(self, change: UpdatePreview) -> Addresses:
        with read(self._engine) as connection:
            wants, _ = self._wants(connection, change)
            book = self._book(connection, wants)
        return _addresses(_chosen(book, wants, change.decision.start_date, change.decision.end_date))

    def first_fit(
        self, lease: Lease, earliest: datetime, latest: datetime, length: timedelta
    ) -> tuple[datetime | None, Shortage | None]:
        """(first start with addresses for `length`, or None; the `Shortage` at `earliest`, or None)"""
        wants = build_address_requests(lease.reservations)
        if not wants:
            return earliest, None
        with read(self._engine) as connection:
            book = self._book(connection, wants)
        found = book.choose(wants, earliest, earliest + length)
        return book.first_fit(wants, earliest, latest, length), found if isinstance(found, Shortage) else None

    def prolongation_test(self, change: UpdatePreview) -> ProlongationTest:
        """The test for a later end of the lease. `change`: the update to the latest end that is considered."""
        with read(self._engine) as connection:
            wants, _ = self._wants(connection, change)
            book = self._book(connection, wants)
        start = change.decision.start_date

        def fits(end: datetime) -> bool:
            return not isinstance(book.choose(wants, start, end), Shortage)

        return fits, [each.start for each in book.taken]

    def _book(self, connection: Connection, wants: Sequence[AddressRequest]) -> AddressBook:
        """The addresses of the wants' networks, and their allocations to other reservations."""
        networks = _networks(wants)
        if not networks:
            return AddressBook((), ())
        without = [want.reservation_id for want in wants]
        registered = address_store.of_networks(connection, networks)
        return AddressBook(registered, address_store.taken(connection, networks, self._clock.now(), without))

    def _wants(
        self, connection: Connection, change: UpdatePreview
    ) -> tuple[list[AddressRequest], Mapping[str, frozenset[str]]]:
        """(wants of the reservations planned again, {reservation id: ids of its present addresses})"""
        ids = [want.reservation_id for want in build_address_requests(change.planned)]
        found = address_store.of_reservations(connection, ids)
        held = {key: frozenset(each.id for each in mine) for key, mine in found.items()}
        keep = change.lease.status is not LeaseStatus.PENDING
        return build_address_requests(change.planned, held, change.requests, keep_held=keep), held

    def _write(
        self,
        connection: Connection,
        chosen: ChosenAddresses,
        held: Mapping[str, frozenset[str]],
        start: datetime,
        end: datetime,
    ) -> None:
        for reservation_id, floating_ips in chosen.items():
            has = held.get(reservation_id, frozenset())
            address_store.release(connection, reservation_id, has - {each.id for each in floating_ips})
            new = {self._ids.uuid(): each for each in floating_ips if each.id not in has}
            address_store.allocate(connection, reservation_id, new, start, end, self._clock.now())


def _chosen(
    book: AddressBook, wants: Sequence[AddressRequest], start: datetime, end: datetime, *, is_new: bool = False
) -> ChosenAddresses:
    chosen = book.choose(wants, start, end)
    if not isinstance(chosen, Shortage):
        return chosen
    words, later = f"Not enough floating IPs available: {chosen.reason}", None
    if is_new:
        later = book.first_fit(wants, start, start + HORIZON, end - start)
        when = f"from {later:%Y-%m-%d %H:%M} on" if later else f"at no time within {HORIZON.days} days"
        words += f"; all addresses are available {when}"
    raise NotEnoughFloatingIps(words, reservation_id=chosen.reservation_id, free=chosen.free, later=later)


def _networks(wants: Collection[AddressRequest]) -> list[str]:
    return sorted({want.request.network_id for want in wants})


def _addresses(chosen: ChosenAddresses) -> dict[str, list[str]]:
    return {key: [each.floating_ip_address for each in floating_ips] for key, floating_ips in chosen.items()}
