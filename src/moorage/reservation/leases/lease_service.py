"""The use cases of ``/leases``: decide, commit, then run the event that the commit created.

Every change of Placement or Nova is part of an event. The request writes the event with a claim on it, then runs it, so
the response usually shows the result. If a step has to wait, or this process dies, a runner takes over.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Forbidden, NotFound, Unavailable
from moorage.db.session import in_transaction, read
from moorage.reservation.booking.admission import Booking
from moorage.reservation.booking.capacity_requests import held_of
from moorage.reservation.booking.previews import HoldConversion, LeasePreview, UpdatePreview
from moorage.reservation.capacity import host_selection
from moorage.reservation.capacity.lease_update import (
    LeaseChange,
    NewLease,
    UpdateDecision,
    check_before_end,
    decide,
    period_of,
    rearmed,
)
from moorage.reservation.capacity.resource_types.registry import type_named
from moorage.reservation.capacity.resource_types.virtual_instance import KEEPS_SLOTS
from moorage.reservation.capacity.step_plans import SlotsOfAll, plan_change, plan_hosts, plan_regions
from moorage.reservation.deps import BookingParts, ReservationDeps, ReservationSettings
from moorage.reservation.events.event_executor import EventExecutor
from moorage.reservation.events.event_run import EventClaim
from moorage.reservation.leases.slot_releases import SlotReleases
from moorage.reservation.model.leases import (
    Allocation,
    Event,
    EventStatus,
    EventType,
    Lease,
    LeaseStatus,
    Reservation,
    ReservationStatus,
    is_claimed,
)
from moorage.reservation.model.reservation_requests import ReservationRequest
from moorage.reservation.model.slot_demand import Amounts
from moorage.reservation.model.steps import Step
from moorage.reservation.steps.plan_builder import regions_to_load, services_of, slots_of
from moorage.reservation.store import archive_store, event_store, host_store, lease_store, request_store

#: Maximum number of attempts of an update if the lease changes concurrently.
ATTEMPTS = 3


class LeaseChanged(Exception):
    """The lease has changed since the update was decided."""


@dataclass(frozen=True)
class LeaseService:
    deps: ReservationDeps
    settings: ReservationSettings
    booking: BookingParts
    executor: EventExecutor

    def list_leases(self, caller: Caller) -> list[Lease]:
        with read(self.deps.engine) as connection:
            return lease_store.all_leases(connection, None if caller.is_admin else caller.project_id)

    def get_lease(self, caller: Caller, lease_id: str, *, rule: str = "blazar:leases:get") -> Lease:
        """The lease. Another project's lease is refused by policy (403, not 404), as in Blazar."""
        with read(self.deps.engine) as connection:
            lease = lease_store.find_lease(connection, lease_id)
        if lease is None:
            raise _not_found(lease_id)
        if not caller.may_see(lease.project_id):
            raise Forbidden(f"Policy doesn't allow {rule} to be performed", rule=rule)
        return lease

    def preview_creation(self, caller: Caller, new: NewLease) -> LeasePreview:
        """The lease that `create` would make. Raises the same errors for invalid requests."""
        start, end = period_of(new, self.deps.clock.now())
        for action in new.before_end_actions:
            self.settings.allowed.check(action)
        before_end = check_before_end(new.before_end_date, start, end, self.settings.minutes_before_end)
        lease = self._new_lease(caller, new, start, end, before_end)
        return LeasePreview(
            lease,
            Booking(self.booking.capacity_requests.build(lease.reservations, {}, keep=False), start, self.padded(end)),
        )

    def create_lease(self, caller: Caller, new: NewLease, conversion: HoldConversion | None = None) -> Lease:
        """Selects hosts, writes allocations, creates class and flavor (R6-R13). A failure leaves nothing behind."""
        draft = self.preview_creation(caller, new)
        if conversion is not None:
            draft = replace(draft, booking=conversion.prefer_held_hosts(draft.booking))
        return self._create([draft], conversion)[0]

    def create_series(self, caller: Caller, news: Sequence[NewLease]) -> list[Lease]:
        """Creates all leases or none. A refusal names the first lease that does not fit."""
        return self._create([self.preview_creation(caller, new) for new in news])

    def _create(self, drafts: Sequence[LeasePreview], conversion: HoldConversion | None = None) -> list[Lease]:
        for draft in drafts:
            self.booking.enforcement.before_create(draft.lease, partial(self.plan, draft.booking))
        creations = [self.executor.new_claimed_event(draft.lease.id, EventType.CREATE) for draft in drafts]
        leases = [
            replace(draft.lease, events=(*draft.lease.events, creation))
            for draft, creation in zip(drafts, creations, strict=True)
        ]
        claims = [
            EventClaim(
                creation.id,
                lease.id,
                EventType.CREATE,
                creation.epoch,
                journal=event_store.new_rows(self.executor.plan_builder.creation_steps(lease)),
            )
            for lease, creation in zip(leases, creations, strict=True)
        ]

        def commit(connection: Connection, plans: Sequence[host_selection.Plan]) -> None:
            for lease, plan in zip(leases, plans, strict=True):
                lease_store.insert_lease(connection, lease)
                for reservation_id, placing in plan.items():
                    self.allocate(connection, reservation_id, _listed(placing), lease.start_date, lease.end_date)
            self.booking.addresses.allocate_new(connection, leases)
            journals = {claim.event_id: claim.journal or () for claim in claims}
            event_store.insert_steps(connection, journals, self.deps.clock.now())

        bookings, limits = [draft.booking for draft in drafts], self.booking.enforcement.creation_check(leases)
        if conversion is None:
            self.booking.admission.admit_all(bookings, limits=limits, commit=commit)
        else:
            self.booking.admission.admit_all(
                bookings,
                limits=limits,
                before=conversion.delete_hold,
                commit=commit,
                excluding=conversion.excluding,
            )
        failed = self.executor.run_claimed(claims)
        for claim in claims if failed else ():
            if claim.event_id in failed:
                self._undo_creation(claim.lease_id)
            else:
                self._delete(claim.lease_id)
        self.deps.wake_runner()
        if failed:
            error = next(iter(failed.values()))
            raise Unavailable(
                f"The lease could not be created, and all changes were undone: {error.message}"
            ) from error
        return [self._current(lease.id) for lease in leases]

    def plan(self, booking: Booking) -> host_selection.Plan:
        """Where the booking would be placed now."""
        return self.booking.admission.plan_all([booking])[0]

    def update_lease(self, caller: Caller, lease_id: str, change: LeaseChange) -> Lease:
        for _ in range(ATTEMPTS):
            lease = self.get_lease(caller, lease_id, rule="blazar:leases:put")
            if self.executor.determine_generations(lease):
                lease = self._current(lease_id)
            found = self._changed(lease, change)
            try:
                claim = self._apply(found)
            except LeaseChanged:
                continue
            if claim is not None:
                self.executor.run_claimed([claim])
            self.deps.wake_runner()
            updated = self._current(lease_id)
            if found.released:
                self.booking.admission.invalidate()
                _check_released(found, updated)
            return updated
        raise Conflict(f"lease {lease_id} was changed by other requests meanwhile; repeat the request")

    def delete_lease(self, caller: Caller, lease_id: str) -> None:
        """Deletes the lease, in any state. Slow steps (deleting servers) continue after the response."""
        self.get_lease(caller, lease_id, rule="blazar:leases:delete")
        self._delete(lease_id)
        self.deps.wake_runner()

    def _delete(self, lease_id: str) -> None:
        deletion = self.executor.new_claimed_event(lease_id, EventType.DELETE)

        def begin_deletion(connection: Connection) -> bool:
            """True if this request may run the deletion at once."""
            lease = lease_store.lock(connection, lease_id)
            if lease is None:
                raise _not_found(lease_id)
            if lease.status is LeaseStatus.DELETING:
                return False
            now = self.deps.clock.now()
            archive_store.remove_before(connection, now - self.settings.keep_deleted)
            lease_store.move(connection, [lease.id], lease.status, LeaseStatus.DELETING, now)
            busy = any(is_claimed(event.claim_until, now) for event in lease.events)
            mine = replace(deletion, claimed_by=None, claim_until=None, status=EventStatus.UNDONE)
            event_store.insert_events(connection, [mine if busy else deletion])
            event_store.fence_others(connection, lease_id, deletion.id)
            return not busy

        if in_transaction(self.deps.engine, begin_deletion):
            self.executor.run_claimed([EventClaim(deletion.id, lease_id, EventType.DELETE, deletion.epoch)])
            self.booking.admission.invalidate()

    def _new_lease(self, caller: Caller, new: NewLease, start: datetime, end: datetime, before_end: datetime) -> Lease:
        now = self.deps.clock.now()
        lease_id = self.deps.ids.uuid()

        def event(kind: EventType, time: datetime) -> Event:
            return Event(self.deps.ids.uuid(), lease_id, kind, time, EventStatus.UNDONE, now, None)

        return Lease(
            id=lease_id,
            name=new.name,
            user_id=caller.user_id,
            project_id=caller.project_id,
            start_date=start,
            end_date=end,
            trust_id=None,
            status=LeaseStatus.CREATING,
            degraded=False,
            created_at=now,
            updated_at=None,
            reservations=tuple(
                self._new_reservation(lease_id, self.booking.lookups.resolve_request(caller, unresolved), now)
                for unresolved in new.reservations
            ),
            events=(
                event(EventType.START, start),
                event(EventType.BEFORE_END, before_end),
                event(EventType.END, end),
            ),
            before_end_actions=new.before_end_actions,
        )

    def _new_reservation(self, lease_id: str, request: ReservationRequest, now: datetime) -> Reservation:
        reservation_id = self.deps.ids.uuid()
        return Reservation(
            id=reservation_id,
            lease_id=lease_id,
            resource_id=self.deps.ids.uuid(),
            resource_type=request.resource_type,
            status=ReservationStatus.PENDING,
            missing_resources=False,
            resources_changed=False,
            request=request,
            flavor_id=reservation_id if type_named(request.resource_type).has_flavor else None,
            aggregate_id=None,
            server_group_id=None,
            created_at=now,
            updated_at=None,
        )

    def _undo_creation(self, lease_id: str) -> None:
        """Runs the deletion that follows a failed creation, unless another worker has claimed it."""
        with read(self.deps.engine) as connection:
            pending = event_store.unfinished_of(connection, lease_id, self.deps.clock.now())
        for event in pending:
            if event.type is EventType.DELETE:
                self.executor.run_events([event])
        self.booking.admission.invalidate()

    def preview_update(self, caller: Caller, lease_id: str, change: LeaseChange) -> UpdatePreview:
        """The result of `update` without writing it. Raises the same errors for invalid requests."""
        return self._changed(self.get_lease(caller, lease_id, rule="blazar:leases:put"), change)

    def _changed(self, lease: Lease, change: LeaseChange) -> UpdatePreview:
        decision = decide(lease, change, self.deps.clock.now())
        if decision.before_end_actions != lease.before_end_actions:
            for action in decision.before_end_actions:
                self.settings.allowed.check(action)
        if lease.status is LeaseStatus.PENDING:
            for request in decision.requests.values():
                self.booking.lookups.check_bitstream(request, lease.project_id)
        requests = {each.id: decision.requests.get(each.id, each.request) for each in lease.reservations}
        released = SlotReleases(self.deps).of(lease, decision)
        shrinking = {each.reservation.id for each in released}
        changing = decision.requests.keys() - shrinking
        planned = [each for each in lease.reservations if decision.grows or each.id in changing]
        with read(self.deps.engine) as connection:
            held = held_of(host_store.allocations_of(connection, [each.id for each in planned]))
        keep = lease.status is not LeaseStatus.PENDING
        asks = self.booking.capacity_requests.build(
            [replace(each, request=requests[each.id]) for each in planned], held, keep=keep
        )
        booking = Booking(asks, decision.start_date, self.padded(decision.end_date))
        return UpdatePreview(lease, decision, planned, requests, held, booking, released=released)

    def _apply(self, change: UpdatePreview) -> EventClaim | None:
        """Commits the decision; returns the claim on the update event, or None if it needs no steps."""
        lease, decision = change.lease, change.decision
        self.booking.enforcement.before_update(
            change, lambda: self.booking.admission.plan_all([change.booking], change.excluding)[0]
        )

        def before(connection: Connection) -> None:
            if lease_store.lock(connection, lease.id) != lease:
                raise LeaseChanged

        def commit(connection: Connection, plan: host_selection.Plan) -> EventClaim | None:
            now = self.deps.clock.now()
            slots_before = slots_of(connection, lease)
            self._write(connection, lease, decision)
            for reservation in change.planned:
                if reservation.id in plan:
                    self._reallocate(connection, reservation, plan[reservation.id], decision)
                if reservation.id in decision.requests:
                    request_store.change_request(connection, reservation.id, change.requests[reservation.id], now)
            self.booking.addresses.allocate_updated(connection, change)
            return self._begin_steps(connection, change, slots_before)

        return self.booking.admission.admit(
            change.booking,
            limits=self.booking.enforcement.update_check(change),
            before=before,
            commit=commit,
            excluding=change.excluding,
        )

    def _write(self, connection: Connection, lease: Lease, decision: UpdateDecision) -> None:
        """Writes the lease's columns, its events, and the new period of slots that stay on their hosts."""
        now = self.deps.clock.now()
        start, end = decision.start_date, decision.end_date
        lease_store.change(connection, lease.id, now, name=decision.name, start_date=start, end_date=end)
        if decision.before_end_actions != lease.before_end_actions:
            lease_store.change_actions(connection, lease.id, decision.before_end_actions, now)
        if decision.moved:
            ids = [reservation.id for reservation in lease.reservations]
            host_store.move_allocations(connection, ids, start, self.padded(end), now)
        due = {EventType.START: start, EventType.END: end, EventType.BEFORE_END: decision.before_end}
        for event in lease.events:
            if event.type in due and event.time != due[event.type]:
                again = rearmed(event, due[event.type], now)
                status = EventStatus.UNDONE if again else event.status
                event_store.move_event(connection, event, due[event.type], now, status)
                if again:
                    event_store.forget_steps(connection, event.id)

    def _reallocate(
        self,
        connection: Connection,
        reservation: Reservation,
        placing: host_selection.Placing,
        decision: UpdateDecision,
    ) -> None:
        """Inserts missing slots and deletes surplus ones. A new size replaces all slots (R18)."""
        rows = host_store.allocations_of(connection, [reservation.id])
        surplus, missing = host_selection.difference([(row.host_id, row.resources) for row in rows], placing)
        host_store.delete_allocations(connection, [rows[position].id for position in surplus])
        self.allocate(connection, reservation.id, missing, decision.start_date, decision.end_date)

    def _begin_steps(
        self, connection: Connection, change: UpdatePreview, slots_before: SlotsOfAll
    ) -> EventClaim | None:
        """Writes an update event with the steps in Placement and Nova; returns its claim, or None without steps."""
        lease, decision = change.lease, change.decision
        steps: list[Step] = [step for each in change.released for step in each.steps]
        shrinking = {each.reservation.id for each in change.released}
        slots = slots_of(connection, lease)
        services = services_of(connection, slots_before, slots)
        regions = regions_to_load(connection, lease) if lease.status is LeaseStatus.ACTIVE else {}
        for reservation in lease.reservations:
            if reservation.id not in decision.requests or reservation.id in shrinking:
                continue
            if lease.status is LeaseStatus.ACTIVE:
                steps += plan_regions(reservation, regions.get(reservation.id, ()), (), lease.project_id)
                steps += plan_hosts(reservation, slots, services, slots_before[reservation.id])
            else:
                request = decision.requests[reservation.id]
                steps += plan_change(reservation, request)
                steps += self.executor.plan_builder.server_group_steps(reservation, request)
        return self.executor.begin_update(connection, lease, steps) if steps else None

    def allocate(
        self,
        connection: Connection,
        reservation_id: str,
        slots: Iterable[tuple[int, Amounts]],
        start: datetime,
        end: datetime,
    ) -> None:
        rows = [
            Allocation(self.deps.ids.uuid(), host, reservation_id, start, self.padded(end), amounts)
            for host, amounts in slots
        ]
        host_store.insert_allocations(connection, rows, self.deps.clock.now())

    def padded(self, end: datetime) -> datetime:
        """The end of allocations: the lease's end plus the cleaning time (A16)."""
        return end + self.settings.cleaning_time

    def _current(self, lease_id: str) -> Lease:
        with read(self.deps.engine) as connection:
            lease = lease_store.find_lease(connection, lease_id)
        if lease is None:
            raise _not_found(lease_id)
        return lease


def _check_released(change: UpdatePreview, updated: Lease) -> None:
    """Raises `Conflict` if a step found that a server had taken a slot. A step that is not done yet is repeated."""
    requests = {each.id: each.request for each in updated.reservations}
    released = [each.reservation.id for each in change.released]
    if any(requests[key] != change.requests[key] for key in released) and updated.status is LeaseStatus.ACTIVE:
        raise Conflict(f"{KEEPS_SLOTS} A server was launched in one of them meanwhile; repeat the request.")


def _listed(placing: host_selection.Placing) -> Iterator[tuple[int, Amounts]]:
    return ((host, amounts) for host, slots in placing.items() for amounts in slots)


def _not_found(lease_id: str) -> NotFound:
    return NotFound(f"Object with {{'lease_id': '{lease_id}'}} not found")
