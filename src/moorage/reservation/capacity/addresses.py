"""Selects the addresses of floating IP reservations, and finds when enough are free. Pure.

    registered addresses, their allocations, wants  ->  {reservation: addresses}, or a Shortage

An address belongs to at most one reservation at any time; periods are half-open. All wants of a lease are met, or none.
Required addresses come first, then those that the reservation has, then those with the most allocations at other
times, so that the remaining addresses stay free for long reservations.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from ipaddress import ip_address
from types import MappingProxyType
from typing import TypeAlias

from moorage.reservation.capacity.host_selection import Shortage
from moorage.reservation.model.leases import Reservation
from moorage.reservation.model.reservation_requests import FloatingIpRequest, ReservationRequest


@dataclass(frozen=True, slots=True)
class RegisteredAddress:
    """An address registered for reservations. Neutron does not allocate it on its own."""

    id: str
    floating_network_id: str
    subnet_id: str
    floating_ip_address: str
    reservable: bool
    created_at: datetime
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class AddressAllocation:
    """An allocation of an address over ``[start, end)``."""

    floating_ip_id: str
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class AddressRequest:
    """The addresses that one reservation needs.

    `held`: ids of its present addresses; `keep_held`: none of them may be given up, because they are in use.
    """

    reservation_id: str
    request: FloatingIpRequest
    held: frozenset[str] = frozenset()
    keep_held: bool = False


#: {reservation id: its addresses}
ChosenAddresses: TypeAlias = Mapping[str, Sequence[RegisteredAddress]]


@dataclass(frozen=True, slots=True)
class AddressBook:
    """`registered`: addresses of the requested networks; `taken`: allocations of other reservations."""

    registered: Sequence[RegisteredAddress]
    taken: Sequence[AddressAllocation]

    def choose(self, wants: Sequence[AddressRequest], start: datetime, end: datetime) -> ChosenAddresses | Shortage:
        """Addresses for all of `wants` over ``[start, end)``, or the `Shortage` of the first that cannot be met."""
        busy = {each.floating_ip_id for each in self.taken if each.start < end and each.end > start}
        times = Counter(each.floating_ip_id for each in self.taken)
        required = {(want.request.network_id, address) for want in wants for address in want.request.required}
        free = [each for each in self.registered if each.id not in busy]
        chosen: dict[str, Sequence[RegisteredAddress]] = {}
        for want in sorted(wants, key=lambda each: not each.keep_held):
            mine = [
                each
                for each in free
                if each.floating_network_id == want.request.network_id and (each.reservable or each.id in want.held)
            ]
            if reason := self._refusal(want, mine):
                return Shortage(want.reservation_id, len(mine), reason)
            order = sorted(mine, key=lambda each: _preference(each, want, required, times))
            chosen[want.reservation_id] = order[: want.request.amount]
            free = [each for each in free if each not in chosen[want.reservation_id]]
        return chosen

    def without(self, chosen: ChosenAddresses, start: datetime, end: datetime) -> "AddressBook":
        """This book with `chosen` allocated over ``[start, end)``."""
        more = [AddressAllocation(each.id, start, end) for mine in chosen.values() for each in mine]
        return replace(self, taken=[*self.taken, *more])

    def first_fit(
        self, wants: Sequence[AddressRequest], earliest: datetime, latest: datetime, length: timedelta
    ) -> datetime | None:
        """The first moment from `earliest` to `latest` at which `choose` would find addresses for `length`.

        The result is `earliest` or the end of an allocation; None if there is none.
        """
        of_network = defaultdict(list)
        for want in wants:
            of_network[want.request.network_id].append(want)
        tests = [self._test(network, mine, length) for network, mine in of_network.items()]
        ends = sorted({each.end for each in self.taken if earliest < each.end <= latest})
        return next((moment for moment in [earliest, *ends] if all(test.fits(moment) for test in tests)), None)

    def _refusal(self, want: AddressRequest, free: Sequence[RegisteredAddress]) -> str | None:
        network, there = want.request.network_id, {each.floating_ip_address for each in free}
        registered = {
            each.floating_ip_address: each.id for each in self.registered if each.floating_network_id == network
        }
        for address in want.request.required:
            if address not in registered:
                return f"{address} is not registered on network {network}"
            if address not in there:
                return f"{address} is allocated to another reservation in that period"
        if want.keep_held and (lost := want.held - {each.id for each in free}):
            names = sorted(address for address, its in registered.items() if its in lost)
            return f"{', '.join(names)}, which the reservation has now, cannot be kept in that period"
        if len(free) < want.request.amount:
            return (
                f"{want.request.amount} requested on network {network}, but only {len(free)} of its {len(registered)} "
                f"registered addresses {'is' if len(free) == 1 else 'are'} free in that period"
            )
        return None

    def _test(self, network: str, wants: Sequence[AddressRequest], length: timedelta) -> "_Test":
        registered = [each for each in self.registered if each.floating_network_id == network and each.reservable]
        named = [address for want in wants for address in want.request.required]
        ids = {each.floating_ip_address: each.id for each in registered}
        enough = len(registered) - sum(want.request.amount for want in wants)
        # No start fits if two wants require the same address, or if a required address is not registered.
        spare = enough if len(set(named)) == len(named) and set(named) <= ids.keys() else -1
        return _Test(
            spare,
            self._forbidden({each.id for each in registered}, length),
            self._forbidden({ids[address] for address in named if address in ids}, length),
        )

    def _forbidden(self, ids: set[str], length: timedelta) -> "_Forbidden":
        of_address = defaultdict(list)
        for each in self.taken:
            if each.floating_ip_id in ids:
                of_address[each.floating_ip_id].append((each.start - length, each.end))
        merged = [period for periods in of_address.values() for period in _merged(periods)]
        return _Forbidden(sorted(after for after, _ in merged), sorted(before for _, before in merged))


@dataclass(frozen=True, slots=True)
class _Forbidden:
    """Open periods of starts at which addresses are not available: all beginnings and all ends, each ascending."""

    after: Sequence[datetime]
    before: Sequence[datetime]

    def count(self, moment: datetime) -> int:
        return bisect_left(self.after, moment) - bisect_right(self.before, moment)


@dataclass(frozen=True, slots=True)
class _Test:
    """The test for one network: at most `spare` addresses may be unavailable, and no required one."""

    spare: int
    all: _Forbidden
    required: _Forbidden

    def fits(self, moment: datetime) -> bool:
        return self.all.count(moment) <= self.spare and self.required.count(moment) == 0


def build_address_requests(
    reservations: Iterable[Reservation],
    held: Mapping[str, frozenset[str]] = MappingProxyType({}),
    changed: Mapping[str, ReservationRequest] = MappingProxyType({}),
    *,
    keep_held: bool = False,
) -> list[AddressRequest]:
    """The wants of all floating IP reservations in `reservations`.

    `held`: {reservation id: ids of its addresses}; `changed`: {reservation id: its request after an update}.
    """
    asked = [(each.id, changed.get(each.id, each.request)) for each in reservations]
    return [
        AddressRequest(key, request, held.get(key, frozenset()), keep_held)
        for key, request in asked
        if isinstance(request, FloatingIpRequest)
    ]


def _preference(
    each: RegisteredAddress, want: AddressRequest, required: set[tuple[str, str]], times: Mapping[str, int]
) -> tuple[bool, bool, bool, int, int, int]:
    """Sort key, best first. Addresses that another reservation of the lease requires come last."""
    address = ip_address(each.floating_ip_address)
    return (
        each.floating_ip_address not in want.request.required,
        each.id not in want.held,
        (each.floating_network_id, each.floating_ip_address) in required,
        -times.get(each.id, 0),
        address.version,
        int(address),
    )


def _merged(periods: Iterable[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """Merges overlapping open periods. Two that only touch stay apart: the moment between them is available."""
    merged: list[tuple[datetime, datetime]] = []
    for after, before in sorted(periods):
        if merged and after < merged[-1][1]:
            merged[-1] = merged[-1][0], max(before, merged[-1][1])
        else:
            merged.append((after, before))
    return merged
