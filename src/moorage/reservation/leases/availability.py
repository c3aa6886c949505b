"""The use cases of availability (next free slot, holds, dry runs, latest end of a lease) and of maintenance windows.

A hold occupies capacity until it expires. One transaction turns it into a lease and deletes it. A maintenance window is
an administrator's ``physical:host`` lease; `Maintenance` also finds the leases that it would affect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

import numpy as np
from sqlalchemy import Connection

from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Invalid, NotFound
from moorage.core.json import Json
from moorage.db.session import in_transaction, read
from moorage.reservation.booking.admission import HORIZON, NotEnoughHostsAvailable
from moorage.reservation.booking.previews import HoldConversion, LeasePreview, UpdatePreview
from moorage.reservation.capacity import host_selection
from moorage.reservation.capacity.calendar import Calendar
from moorage.reservation.capacity.lease_update import LeaseChange, NewLease, When, period_of
from moorage.reservation.capacity.next_slot import first_fit
from moorage.reservation.deps import BookingParts, ReservationDeps, ReservationSettings
from moorage.reservation.leases.lease_service import LeaseService
from moorage.reservation.model.leases import Allocation, Lease, LeaseStatus, floor_minute
from moorage.reservation.model.reservation_requests import VIRTUAL_FLOATING_IP, FloatingIpRequest
from moorage.reservation.store import hold_store, host_store, lease_store, limit_store
from moorage.reservation.store.hold_store import Hold

#: Maximum distance from the earliest to the latest start of a search.
FARTHEST = timedelta(days=366)

#: Maximum number of attempts to hold a slot if other requests take it first.
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class AvailabilityRequest:
    """`new`: the reservations to fit; its dates are ignored."""

    new: NewLease
    duration: timedelta
    earliest_start: When = "now"
    latest_start: datetime | None = None  #: None: `HORIZON` after the earliest
    most: int = 1  #: maximum number of offers, which do not overlap


@dataclass(frozen=True, slots=True)
class AvailabilityResult:
    """`slots`: (start, end) of each offer. `shortage`: the reason if the first is not at the earliest start."""

    slots: Sequence[tuple[datetime, datetime]]
    shortage: host_selection.Shortage | None


@dataclass(frozen=True, slots=True)
class Prolongation:
    """`latest_end`: the latest end that fits. If `limited` is false, it is only the end of the search."""

    end_date: datetime
    latest_end: datetime
    limited: bool


@dataclass(frozen=True)
class AvailabilityService:
    deps: ReservationDeps
    settings: ReservationSettings
    booking: BookingParts
    leases: LeaseService

    def find_offers(self, caller: Caller, wanted: AvailabilityRequest) -> AvailabilityResult:
        """The next slots, which do not overlap. Takes no capacity."""
        draft, latest = self._drafted(caller, wanted)
        calendar, booking = self.booking.admission.calendar(), draft.booking
        slots: list[tuple[datetime, datetime]] = []
        start: datetime | None = booking.start
        while start is not None and start <= latest and len(slots) < wanted.most:
            start = self._first_fit(calendar, draft, start, latest, wanted.duration)
            if start is not None:
                slots.append((start, start + wanted.duration))
                start += max(wanted.duration, timedelta(minutes=1))
        if slots and slots[0][0] == booking.start:
            return AvailabilityResult(slots, None)
        plan = host_selection.plan(calendar, booking.asks, booking.start, booking.end)
        if isinstance(plan, host_selection.Shortage):
            return AvailabilityResult(slots, plan)
        return AvailabilityResult(
            slots, self.booking.addresses.first_fit(draft.lease, booking.start, booking.start, wanted.duration)[1]
        )

    def _first_fit(
        self, calendar: Calendar, draft: LeasePreview, start: datetime, latest: datetime, duration: timedelta
    ) -> datetime | None:
        """The first start from `start` to `latest` at which hosts and addresses suffice; None if there is none."""
        length = draft.booking.end - draft.booking.start
        while True:
            on_hosts = first_fit(calendar, draft.booking.asks, start, latest, length)
            found = on_hosts and self.booking.addresses.first_fit(draft.lease, on_hosts, latest, duration)[0]
            if found is None or found == on_hosts:
                return found
            start = found

    def create_hold(self, caller: Caller, wanted: AvailabilityRequest, requests: Sequence[Mapping[str, Json]]) -> Hold:
        """Takes the next slot until the hold expires. `requests`: the reservations as in the request's body."""
        if any(isinstance(each, FloatingIpRequest) for each in wanted.new.reservations):
            raise Invalid(f"{VIRTUAL_FLOATING_IP} cannot be held: a hold only covers hosts; create the lease directly")
        for _ in range(ATTEMPTS):
            found = self.find_offers(caller, replace(wanted, most=1))
            if not found.slots:
                reason = found.shortage.reason if found.shortage else "there is no capacity"
                raise NotEnoughHostsAvailable(
                    f"Not enough hosts available: {reason}; no start in the requested range fits"
                )
            start, end = found.slots[0]
            draft = self.leases.preview_creation(caller, replace(wanted.new, start_date=start, end_date=end))
            hold = self._new_hold(draft, requests)
            self.booking.enforcement.before_create(draft.lease, partial(self.leases.plan, draft.booking))
            try:
                return self.booking.admission.admit(
                    draft.booking,
                    limits=self.booking.enforcement.hold_check(hold, draft.lease),
                    commit=partial(self._keep, draft=draft, hold=hold),
                    only_held=True,
                )
            except NotEnoughHostsAvailable:
                continue  # another request has just taken it
        raise Conflict("other requests took each offer that was found; repeat the request")

    def list_holds(self, caller: Caller) -> list[Hold]:
        with read(self.deps.engine) as connection:
            return hold_store.of_project(connection, caller.project_id, self.deps.clock.now())

    def show_hold(self, caller: Caller, hold_id: str) -> Hold:
        with read(self.deps.engine) as connection:
            hold = hold_store.find(connection, hold_id, self.deps.clock.now())
        return _owned(caller, hold, hold_id)

    def release_hold(self, caller: Caller, hold_id: str) -> None:
        def delete_hold(connection: Connection) -> None:
            now = self.deps.clock.now()
            hold = _owned(caller, hold_store.find(connection, hold_id, now, lock=True), hold_id)
            hold_store.remove(connection, [hold_id])
            limit_store.end_hold(connection, hold, now)

        in_transaction(self.deps.engine, delete_hold)

    def convert_hold(self, caller: Caller, hold_id: str) -> tuple[Hold, HoldConversion]:
        """(the hold, with its start not before now; the argument `conversion` of `LeaseService.create_lease`)"""
        now = self.deps.clock.now()
        with read(self.deps.engine) as connection:
            hold = _owned(caller, hold_store.find(connection, hold_id, now), hold_id)
            placings = hold_store.placings(connection, hold_id)
        return replace(hold, start_date=max(hold.start_date, floor_minute(now))), HoldConversion(hold_id, placings, now)

    def rehearse_create(
        self, caller: Caller, news: Sequence[NewLease]
    ) -> list[tuple[LeasePreview, host_selection.Plan]]:
        """The result of `LeaseService.create_lease`, or of `create_series`, without writing. Raises its errors."""
        drafts = [self.leases.preview_creation(caller, new) for new in news]
        plans = self.booking.admission.plan_all([draft.booking for draft in drafts])
        addresses = self.booking.addresses.rehearse_create([draft.lease for draft in drafts])
        self.booking.enforcement.rehearse_create([draft.lease for draft in drafts], plans)
        return [(replace(draft, addresses=addresses), plan) for draft, plan in zip(drafts, plans, strict=True)]

    def rehearse_update(
        self, caller: Caller, lease_id: str, change: LeaseChange
    ) -> tuple[UpdatePreview, host_selection.Plan]:
        """The result of `LeaseService.update_lease`, without writing. Raises its errors."""
        found = self.leases.preview_update(caller, lease_id, change)
        plan = self.booking.admission.plan_all([found.booking], found.excluding)[0]
        addresses = self.booking.addresses.rehearse_update(found)
        self.booking.enforcement.rehearse_update(found, plan)
        return replace(found, addresses=addresses), plan

    def prolongation(self, caller: Caller, lease_id: str) -> Prolongation:
        """The latest end to which the lease can be prolonged, keeping the hosts on which servers may run."""
        lease = self.leases.get_lease(caller, lease_id)
        if lease.status not in (LeaseStatus.PENDING, LeaseStatus.ACTIVE):
            raise Conflict(f"lease {lease_id} is {lease.status}; only a pending or active lease can be prolonged")
        farthest = lease.end_date + HORIZON
        change = self.leases.preview_update(caller, lease_id, LeaseChange(end_date=farthest))
        calendar, booking = self.booking.admission.calendar(change.excluding), change.booking
        has_addresses, begins = self.booking.addresses.prolongation_test(change)
        begins = [each for each in begins if lease.end_date < each < farthest]
        ends = [*sorted({*self._ends(calendar, lease.end_date, farthest), *begins}), farthest]

        def fits(end: datetime) -> bool:
            plan = host_selection.plan(calendar, booking.asks, booking.start, end + self.settings.cleaning_time)
            return not isinstance(plan, host_selection.Shortage) and has_addresses(end)

        if fits(farthest):
            return Prolongation(lease.end_date, farthest, limited=False)
        low, high = -1, len(ends) - 1  # ends[high] does not fit; -1 stands for the present end, which always fits
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(ends[middle]) else (low, middle)
        return Prolongation(lease.end_date, ends[low] if low >= 0 else lease.end_date, limited=True)

    def host_names(self) -> dict[int, str]:
        with read(self.deps.engine) as connection:
            return {host.id: host.hypervisor_hostname for host in host_store.all_hosts(connection)}

    def _drafted(self, caller: Caller, wanted: AvailabilityRequest) -> tuple[LeasePreview, datetime]:
        """(a lease at the earliest start, the latest start). Raises `Invalid`."""
        now = floor_minute(self.deps.clock.now())
        earliest = now if wanted.earliest_start == "now" else max(wanted.earliest_start, now)
        latest = earliest + HORIZON if wanted.latest_start is None else wanted.latest_start
        if not earliest <= latest <= earliest + FARTHEST:
            raise Invalid(
                f"latest_start must not be before now or earliest_start, and at most {FARTHEST.days} days after it"
            )
        draft = self.leases.preview_creation(
            caller, replace(wanted.new, start_date=earliest, end_date=earliest + wanted.duration, before_end_date=None)
        )
        return draft, latest

    def _new_hold(self, draft: LeasePreview, requests: Sequence[Mapping[str, Json]]) -> Hold:
        lease, now = draft.lease, self.deps.clock.now()
        period = lease.start_date, lease.end_date
        expires_at = now + self.settings.hold
        return Hold(self.deps.ids.uuid(), lease.user_id, lease.project_id, *period, expires_at, requests, now)

    def _keep(self, connection: Connection, plan: host_selection.Plan, *, draft: LeasePreview, hold: Hold) -> Hold:
        booking = draft.booking
        slots = [
            [
                Allocation(self.deps.ids.uuid(), host, reservation.id, booking.start, booking.end, amounts)
                for host, some in plan[reservation.id].items()
                for amounts in some
            ]
            for reservation in draft.lease.reservations
        ]
        hold_store.remove_expired(connection, hold.created_at)
        hold_store.insert_hold(connection, hold, slots)
        return hold

    def _ends(self, calendar: Calendar, after: datetime, until: datetime) -> list[datetime]:
        """Ends of the lease after which less may fit, ascending: starts of other usages minus the cleaning time."""
        starts = np.unique(calendar.segments().start)
        offset = self.settings.cleaning_time.total_seconds()
        minutes = np.unique(np.floor((starts - offset) / 60)) * 60
        inside = minutes[(minutes > after.timestamp()) & (minutes < until.timestamp())]
        return [datetime.fromtimestamp(second, after.tzinfo) for second in inside.tolist()]


def _owned(caller: Caller, hold: Hold | None, hold_id: str) -> Hold:
    """Raises `NotFound` also for another project's hold."""
    if hold is None or not caller.may_see(hold.project_id):
        raise NotFound(f"Object with {{'hold_id': '{hold_id}'}} not found")
    return hold


#: Maximum number of leases named in a refusal; `affected_leases` returns all.
_NAMED = 5


@dataclass(frozen=True)
class Maintenance:
    deps: ReservationDeps
    leases: LeaseService

    def affected_leases(self, new: NewLease, names: Sequence[str]) -> list[Lease]:
        """Leases with slots on these hosts in that period. Raises `NotFound` for an unknown host."""
        start, end = period_of(new, self.deps.clock.now())
        with read(self.deps.engine) as connection:
            found = [host_store.host_named(connection, name) for name in names]
            if missing := [name for name, host in zip(names, found, strict=True) if host is None or not host.ready]:
                raise NotFound(f"Host '{missing[0]}' not found!")
            ids = [host.id for host in found if host is not None]
            return lease_store.find_leases(connection, host_store.leases_on(connection, ids, start, end))

    def create_lease(self, caller: Caller, new: NewLease, names: Sequence[str]) -> Lease:
        """Creates the lease. Raises `Conflict`, naming affected leases, if a host is in use."""
        found = self.affected_leases(new, names)
        if not found:
            try:
                return self.leases.create_lease(caller, new)
            except NotEnoughHostsAvailable:
                found = self.affected_leases(new, names)  # leases created meanwhile; none if only holds conflict
        words = ", ".join(f"{lease.name} ({lease.id}) of project {lease.project_id}" for lease in found[:_NAMED])
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise Conflict(f"The hosts are not free in that period; leases on them: {words or 'none, but holds'}{more}")
