"""The use cases of ``/leases``: decide, commit, then carry out what the commit started.

What changes Placement or Nova is an event that this request claims as it writes it. When the request is carried out
at once the answer already shows the result; when a step has to wait, or this process dies, a runner takes over.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NoReturn

from sqlalchemy import Connection, Engine

from moorage.core.caller import Caller
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, Forbidden, Invalid, NotFound, Unavailable
from moorage.core.ids import Ids
from moorage.db.transactions import in_transaction, read
from moorage.reservation import event_store, host_store, pick, query, store
from moorage.reservation.admission import Admission
from moorage.reservation.instance import Slots, Step, plan_hosts, plan_resize
from moorage.reservation.model import (
    HOST_PROPERTIES,
    VIRTUAL_INSTANCE,
    Allocation,
    Event,
    EventStatus,
    EventType,
    InstanceRequest,
    Lease,
    LeaseStatus,
    Reservation,
    ReservationStatus,
)
from moorage.reservation.operations import Claim, Operations, Outcome, services_of, slots_of
from moorage.reservation.update import Decision, LeaseChange, NewLease, check_before_end, decide, period_of

#: How often an update is decided anew because the lease changed under it.
ATTEMPTS = 3


class _Changed(Exception):
    """The lease is not the one that was decided on."""


class Leases:
    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        admission: Admission,
        operations: Operations,
        *,
        minutes_before_end: int,
        cleaning_time_s: int,
        on_change: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._ids = ids
        self._admission = admission
        self._operations = operations
        self._minutes_before_end = minutes_before_end
        self._cleaning_time = timedelta(seconds=cleaning_time_s)
        self._on_change = on_change

    def index(self, caller: Caller) -> list[Lease]:
        with read(self._engine) as connection:
            return store.all_leases(connection, None if caller.is_admin else caller.project_id)

    def show(self, caller: Caller, lease_id: str, *, rule: str = "blazar:leases:get") -> Lease:
        """Another project's lease is refused by policy rather than not found: so does the peer."""
        with read(self._engine) as connection:
            lease = store.find_lease(connection, lease_id)
        if lease is None:
            raise _not_found(lease_id)
        if not caller.may_see(lease.project_id):
            raise Forbidden(f"Policy doesn't allow {rule} to be performed", rule=rule)
        return lease

    def create(self, caller: Caller, new: NewLease) -> Lease:
        """R6-R13: search, allocations, class, flavor, in this order; a failure leaves nothing of them."""
        start, end = period_of(new, self._clock.now())
        before_end = check_before_end(new.before_end_date, start, end, self._minutes_before_end)
        lease = self._new_lease(caller, new, start, end, before_end)
        creation = self._operations.born_claimed(lease.id, EventType.CREATE)
        lease = replace(lease, events=(*lease.events, creation))

        def commit(connection: Connection, plan: pick.Plan) -> None:
            store.insert_lease(connection, lease)
            for reservation in lease.reservations:
                self._allocate(connection, reservation.id, reservation.request, plan[reservation.id], start, end)

        self._admission.admit(self._asks(lease.reservations, {}, keep=False), start, self._padded(end), commit=commit)
        result = self._operations.carry_out(Claim(creation.id, lease.id, EventType.CREATE, creation.epoch))
        self._on_change()
        if result.outcome is Outcome.FAILED:
            self._undo_creation(lease.id)
            raise Unavailable(f"The lease could not be created and has been undone: {result.reason}")
        return self._current(lease.id)

    def update(self, caller: Caller, lease_id: str, change: LeaseChange) -> Lease:
        for _ in range(ATTEMPTS):
            lease = self.show(caller, lease_id, rule="blazar:leases:put")
            if self._operations.tell_apart(lease):
                lease = self._current(lease_id)
            decision = decide(lease, change, self._clock.now())
            try:
                claim = self._apply(lease, decision)
            except _Changed:
                continue
            if claim is not None:
                self._operations.carry_out(claim)
            self._on_change()
            return self._current(lease_id)
        raise Conflict(f"lease {lease_id} keeps changing; repeat the request")

    def delete(self, caller: Caller, lease_id: str) -> None:
        """Accepted in every state. What cannot be done at once (servers that are being deleted) goes on behind it."""
        self.show(caller, lease_id, rule="blazar:leases:delete")
        deletion = self._operations.born_claimed(lease_id, EventType.DELETE)

        def work(connection: Connection) -> bool:
            """True when the deletion may be carried out here and now."""
            lease = store.lock(connection, lease_id)
            if lease is None:
                raise _not_found(lease_id)
            if lease.status is LeaseStatus.DELETING:
                return False
            store.move(connection, lease, LeaseStatus.DELETING, self._clock.now())
            now = self._clock.now()
            busy = any(event.claim_until is not None and event.claim_until > now for event in lease.events)
            mine = replace(deletion, claimed_by=None, claim_until=None, status=EventStatus.UNDONE)
            event_store.insert_event(connection, mine if busy else deletion)
            event_store.fence_others(connection, lease_id, deletion.id)
            return not busy

        if in_transaction(self._engine, work):
            self._operations.carry_out(Claim(deletion.id, lease_id, EventType.DELETE, deletion.epoch))
            self._admission.forget()
        self._on_change()

    def _new_lease(self, caller: Caller, new: NewLease, start: datetime, end: datetime, before_end: datetime) -> Lease:
        now = self._clock.now()
        lease_id = self._ids.uuid()

        def event(kind: EventType, time: datetime) -> Event:
            return Event(self._ids.uuid(), lease_id, kind, time, EventStatus.UNDONE, now, None)

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
            reservations=tuple(self._new_reservation(lease_id, request, now) for request in new.reservations),
            events=(
                event(EventType.START, start),
                event(EventType.BEFORE_END, before_end),
                event(EventType.END, end),
            ),
        )

    def _new_reservation(self, lease_id: str, request: InstanceRequest, now: datetime) -> Reservation:
        reservation_id = self._ids.uuid()
        return Reservation(
            id=reservation_id,
            lease_id=lease_id,
            resource_id=self._ids.uuid(),
            resource_type=VIRTUAL_INSTANCE,
            status=ReservationStatus.PENDING,
            missing_resources=False,
            resources_changed=False,
            request=request,
            flavor_id=reservation_id,
            aggregate_id=None,
            server_group_id=None,
            created_at=now,
            updated_at=None,
        )

    def _undo_creation(self, lease_id: str) -> None:
        """The failed creation has become a deletion; do it now if nobody else does."""
        with read(self._engine) as connection:
            pending = [e for e in event_store.unfinished(connection, self._clock.now()) if e.lease_id == lease_id]
        for event in pending:
            if event.type is EventType.DELETE and (claim := self._operations.claim(event)):
                self._operations.carry_out(claim)
        self._admission.forget()

    def _apply(self, lease: Lease, decision: Decision) -> Claim | None:
        """Commit the decision; the claim on what is left to do outside, if anything is."""
        requests = {each.id: decision.requests.get(each.id, each.request) for each in lease.reservations}
        planned = [each for each in lease.reservations if decision.grows or each.id in decision.requests]
        resized = {each.id: requests[each.id].size for each in planned if requests[each.id].size != each.request.size}
        with read(self._engine) as connection:
            held = _held(host_store.allocations_of(connection, [each.id for each in planned]))
        keep = lease.status is not LeaseStatus.PENDING

        def before(connection: Connection) -> None:
            if store.lock(connection, lease.id) != lease:
                raise _Changed

        def commit(connection: Connection, plan: pick.Plan) -> Claim | None:
            now = self._clock.now()
            slots_before = slots_of(connection, lease)
            self._write(connection, lease, decision)
            for reservation in planned:
                request = requests[reservation.id]
                picked = plan[reservation.id]
                self._reallocate(connection, reservation, request, picked, decision)
                if reservation.id in decision.requests:
                    store.change_request(connection, reservation.id, request, now)
            return self._begin_steps(connection, lease, decision, resized, slots_before)

        asks = self._asks([replace(each, request=requests[each.id]) for each in planned], held, keep=keep)
        return self._admission.admit(
            asks,
            decision.start_date,
            self._padded(decision.end_date),
            before=before,
            commit=commit,
            without=[each.id for each in planned],
        )

    def _write(self, connection: Connection, lease: Lease, decision: Decision) -> None:
        """The lease's own columns, its events, and the period of slots that stay where they are."""
        now = self._clock.now()
        start, end = decision.start_date, decision.end_date
        store.change(connection, lease.id, now, name=decision.name, start_date=start, end_date=end)
        if decision.moved:
            ids = [reservation.id for reservation in lease.reservations]
            host_store.move_allocations(connection, ids, start, self._padded(end), now)
        due = {EventType.START: start, EventType.END: end, EventType.BEFORE_END: decision.before_end}
        for event in lease.events:
            if event.type in due and event.time != due[event.type]:
                rearmed = event.type is EventType.BEFORE_END and due[event.type] > now
                status = EventStatus.UNDONE if rearmed else event.status
                event_store.move_event(connection, event, due[event.type], now, status)

    def _reallocate(
        self,
        connection: Connection,
        reservation: Reservation,
        request: InstanceRequest,
        picked: pick.Picked,
        decision: Decision,
    ) -> None:
        """R18: an increase adds rows, a decrease removes the surplus; another size means other rows."""
        rows = host_store.allocations_of(connection, [reservation.id])
        kept = [row for row in rows if row.resources == request.size.resources()]
        added, removed = pick.difference(_held(kept).get(reservation.id, {}), picked)
        surplus = [row.id for row in rows if row not in kept]
        for host, count in removed.items():
            surplus += [row.id for row in kept if row.host_id == host][:count]
        host_store.delete_allocations(connection, surplus)
        self._allocate(connection, reservation.id, request, added, decision.start_date, decision.end_date)

    def _begin_steps(
        self,
        connection: Connection,
        lease: Lease,
        decision: Decision,
        resized: Mapping[str, object],
        slots_before: Slots,
    ) -> Claim | None:
        """What the update means for Placement and Nova, as an event with its steps; None when it means nothing."""
        steps: list[Step] = []
        if lease.status is LeaseStatus.ACTIVE:
            slots, services = slots_of(connection, lease), services_of(connection)
            for reservation in lease.reservations:
                if reservation.id in decision.requests:
                    steps += plan_hosts(reservation, slots, services, slots_before[reservation.id])
        else:
            for reservation_id in resized:
                steps += plan_resize(reservation_id, decision.requests[reservation_id].size)
        if not steps:
            return None
        now = self._clock.now()
        event = self._operations.born_claimed(lease.id, EventType.UPDATE)
        store.move(connection, lease, LeaseStatus.UPDATING, now)
        event_store.insert_event(connection, event)
        event_store.insert_steps(connection, event.id, [(step.kind, step.args()) for step in steps], now)
        return Claim(event.id, lease.id, EventType.UPDATE, event.epoch)

    def _allocate(
        self,
        connection: Connection,
        reservation_id: str,
        request: InstanceRequest,
        picked: pick.Picked,
        start: datetime,
        end: datetime,
    ) -> None:
        resources = request.size.resources()
        rows = [
            Allocation(self._ids.uuid(), host, reservation_id, start, self._padded(end), resources)
            for host, count in picked.items()
            for _ in range(count)
        ]
        host_store.insert_allocations(connection, rows, self._clock.now())

    def _asks(
        self, reservations: Iterable[Reservation], held: Mapping[str, pick.Picked], *, keep: bool
    ) -> list[pick.Ask]:
        return [
            pick.Ask(
                reservation.id,
                reservation.request.size.resources(),
                reservation.request.amount,
                reservation.request.affinity,
                self._eligible(reservation.request.resource_properties),
                held.get(reservation.id, {}),
                keep,
            )
            for reservation in reservations
        ]

    def _eligible(self, text: str) -> frozenset[int] | None:
        """The hosts that a reservation's properties admit; None = all."""
        wanted = query.parse(text)
        if wanted == query.EVERYTHING:
            return None
        with read(self._engine) as connection:
            hosts = host_store.all_hosts(connection)
            known = HOST_PROPERTIES | {row.property_name for row in host_store.properties(connection)}
        if unknown := sorted(query.properties_of(wanted) - known):
            raise Invalid(f"Malformed requirements {text}: no host has a property {', '.join(unknown)}")
        return frozenset(host.id for host in hosts if query.matches(wanted, host.properties()))

    def _padded(self, end: datetime) -> datetime:
        """Allocations last until the host is clean again (A16)."""
        return end + self._cleaning_time

    def _current(self, lease_id: str) -> Lease:
        with read(self._engine) as connection:
            lease = store.find_lease(connection, lease_id)
        return lease or _gone(lease_id)


def _held(allocations: Iterable[Allocation]) -> dict[str, dict[int, int]]:
    """{reservation id: {host id: slots}}"""
    held: dict[str, dict[int, int]] = {}
    for each in allocations:
        mine = held.setdefault(each.reservation_id, {})
        mine[each.host_id] = mine.get(each.host_id, 0) + 1
    return held


def _not_found(lease_id: str) -> NotFound:
    return NotFound(f"Object with {{'lease_id': '{lease_id}'}} not found")


def _gone(lease_id: str) -> NoReturn:
    raise _not_found(lease_id)
