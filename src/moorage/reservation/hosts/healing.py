"""Moves the slots of leases to other hosts or devices when they have lost their capacity.

    a host is down (not reservable then), or Placement has less: inventory, trait, provider
        -> `lost_capacity` finds the slots -> move those that no server uses, as far as others fit
             |-> not started: only rows change; the project does not notice
             |-> active: `resources_changed`; an update event changes Placement and Nova
             |-> no capacity: the slots stay; `missing_resources`
    it is back -> missing slots count again; inventories are written and regions programmed again

A lease is `degraded` while it has slots without capacity, and while a host is down from which slots were moved while
the lease was active. Slots on hosts that are down are only moved if their lease starts within `healing_interval`,
because the host may be up again by then. On a host that is up, a slot that a server uses is never moved.

A decision is committed as the steps of an update event before any effect, so that a runner continues after a crash.
Each change is an incident in the lease's timeline, and is reported to the addresses of its before_end actions.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sqlalchemy import Connection

from moorage.core.errors import MoorageError
from moorage.core.names import reservation_provider
from moorage.db.session import in_transaction, read
from moorage.reservation.booking.admission import Booking, Excluding, NotEnoughHostsAvailable
from moorage.reservation.booking.capacity_requests import held_of
from moorage.reservation.booking.enforcement import moved_by_service
from moorage.reservation.capacity import host_selection
from moorage.reservation.capacity.step_plans import plan_hosts, plan_move, plan_regions
from moorage.reservation.deps import BookingParts, ReservationDeps, ReservationSettings
from moorage.reservation.events.event_executor import EventExecutor
from moorage.reservation.events.event_run import EventClaim
from moorage.reservation.hosts.lost_capacity import LostCapacity
from moorage.reservation.leases.lease_service import LeaseChanged, LeaseService
from moorage.reservation.leases.slot_releases import SlotUsers
from moorage.reservation.model.leases import Allocation, Lease, LeaseStatus, Reservation
from moorage.reservation.model.steps import Step
from moorage.reservation.steps.notification_steps import IncidentNotices
from moorage.reservation.steps.plan_builder import abandoned_regions, regions_to_load, services_of, slots_of
from moorage.reservation.store import capacity_store, event_store, host_store, lease_store
from moorage.reservation.store.capacity_store import Incident, IncidentKind

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Moved:
    """The result of moving one reservation's slots."""

    reservation: Reservation
    moved: Sequence[Allocation]  #: the slots that were given up for others
    missing: Sequence[Allocation]  #: slots that are still without capacity

    def flags(self, lease: Lease) -> tuple[bool, bool]:
        changed = bool(self.moved) and lease.status is LeaseStatus.ACTIVE
        return bool(self.missing), self.reservation.resources_changed or changed


@dataclass(frozen=True, slots=True)
class _Affected:
    """A lease with slots that have no capacity. `pinned`: ids of slots that must stay, because servers use them."""

    lease: Lease
    reservations: Sequence[Reservation]  #: those with such slots
    rows: Sequence[Allocation]  #: all slots of the lease
    pinned: frozenset[str]


@dataclass(frozen=True)
class Healing:
    deps: ReservationDeps
    settings: ReservationSettings
    booking: BookingParts
    executor: EventExecutor
    leases: LeaseService
    notices: IncidentNotices

    def heal_leases(self, lost: LostCapacity) -> frozenset[str]:
        """Idempotent, and safe in several processes at once: healed leases are not changed again.

        Returns the ids of the leases that could not be examined now, because they are being changed, or an error
        occurred.
        """
        now = self.deps.clock.now()
        self.notices.begin_round()
        with read(self.deps.engine) as connection:
            on_failed = host_store.leases_on(connection, lost.down.keys(), now, now + self.settings.healing_interval)
            hit = lease_store.by_rank(connection, {*on_failed, *lost.leases})
        left = set()
        for lease_id in hit:
            try:
                with self.notices.reporting(lease_id):
                    is_done = self._move(lease_id, lost)
            except MoorageError as error:
                log.warning("a lease could not be healed", extra={"lease_id": lease_id, "reason": error.message})
                is_done = False
            if not is_done:
                left.add(lease_id)
        with read(self.deps.engine) as connection:
            degraded = lease_store.degraded_leases(connection)
        for lease_id in degraded:
            with self.notices.reporting(lease_id):
                restored = in_transaction(self.deps.engine, partial(self._recover, lease_id=lease_id, lost=lost))
            self._load(lease_id, restored)
        return frozenset(left)

    def _move(self, lease_id: str, lost: LostCapacity) -> bool:
        """False if the lease is being changed."""
        lease = self._stable(lease_id)
        if lease is not None and self.executor.determine_generations(lease):
            lease = self._stable(lease_id)
        if lease is None:
            return False
        with read(self.deps.engine) as connection:
            rows = host_store.allocations_of(connection, [each.id for each in lease.reservations])
        hit = {row.reservation_id for row in rows if lost.concerns(row)}
        affected = [each for each in lease.reservations if each.id in hit]
        if not affected:
            return True
        pinned = frozenset[str]()
        if lease.status is LeaseStatus.ACTIVE:
            pinned = pinned.union(*(self._used(each, rows, lost) for each in affected))
        try:
            claim = self._plan(_Affected(lease, affected, rows, pinned), lost)
        except LeaseChanged:
            return False
        if claim is not None:
            self.executor.run_claimed([claim])
            self.deps.wake_runner()
        return True

    def _used(self, reservation: Reservation, rows: Sequence[Allocation], lost: LostCapacity) -> frozenset[str]:
        """Ids of the reservation's slots without capacity that servers use, on hosts that are up."""
        mine = [row for row in rows if row.reservation_id == reservation.id]
        gone = [row for row in mine if row.id in lost.slots and row.host_id not in lost.down]
        hosts = {row.host_id for row in gone}
        if not hosts:
            return frozenset()
        with read(self.deps.engine) as connection:
            names = host_store.host_names(connection, hosts)
            providers = {each.host: each.providers for each in host_store.capacities_of(connection, hosts)}
        users = SlotUsers(self.deps.placement, self.deps.compute)
        found = frozenset[str]()
        for host in hosts:
            there, lost_there = ([row for row in some if row.host_id == host] for some in (mine, gone))
            found |= users.used(reservation, names[host][0], there, lost_there, providers.get(host, {}))
        return found

    def _stable(self, lease_id: str) -> Lease | None:
        """None if the lease is gone, or if an operation on it is in progress, which must finish first."""
        with read(self.deps.engine) as connection:
            lease = lease_store.find_lease(connection, lease_id)
        return lease if lease is not None and lease.status in (LeaseStatus.PENDING, LeaseStatus.ACTIVE) else None

    def _plan(self, affected: _Affected, lost: LostCapacity) -> EventClaim | None:
        """Moves as many slots as fit elsewhere; omits reservations of which none fit."""
        lease = affected.lease
        asks = self._asks(affected, lost)

        def before(connection: Connection) -> None:
            if lease_store.lock(connection, lease.id) != lease:
                raise LeaseChanged

        while True:
            try:
                return self.booking.admission.admit(
                    Booking(asks, max(lease.start_date, self.deps.clock.now()), self.leases.padded(lease.end_date)),
                    limits=moved_by_service,
                    before=before,
                    commit=lambda connection, plan: self._commit(connection, affected, plan, lost),
                    excluding=Excluding([each.id for each in affected.reservations], lost=list(lost.slots)),
                )
            except NotEnoughHostsAvailable as error:
                asks = _less(asks, str(error.fields["reservation_id"]), int(str(error.fields["free"])))

    def _asks(self, affected: _Affected, lost: LostCapacity) -> list[host_selection.CapacityRequest]:
        """One request for each reservation: for exactly as many slots as it has, without pinned ones."""
        movable = [row for row in affected.rows if row.id not in affected.pinned]
        sound = held_of(row for row in movable if not lost.concerns(row))
        keep = affected.lease.status is LeaseStatus.ACTIVE
        asks = []
        for ask in self.booking.capacity_requests.build(affected.reservations, sound, keep=keep):
            pinned = {
                row.host_id
                for row in affected.rows
                if row.id in affected.pinned and row.reservation_id == ask.reservation_id
            }
            if pinned and ask.affinity is True:
                continue  # the others must stay with them
            eligible = ask.eligible
            if pinned and ask.affinity is False:
                eligible = frozenset(self._hosts() if eligible is None else eligible) - pinned
            amount = sum(row.reservation_id == ask.reservation_id for row in movable)
            if amount:
                asks.append(replace(ask, amount=amount, most=None, eligible=eligible))
        return asks

    def _hosts(self) -> Collection[int]:
        with read(self.deps.engine) as connection:
            return capacity_store.ready_hosts(connection)

    def _commit(
        self, connection: Connection, affected: _Affected, plan: host_selection.Plan, lost: LostCapacity
    ) -> EventClaim | None:
        lease = affected.lease
        before = slots_of(connection, lease)
        outcomes = [
            self._reallocate(connection, affected, each, plan.get(each.id), lost) for each in affected.reservations
        ]
        flags = {each.reservation.id: each.flags(lease) for each in outcomes}
        moved = [each for each in outcomes if each.moved]
        old_flags = {each.id: (each.missing_resources, each.resources_changed) for each in lease.reservations}
        off_hosts = any(row.host_id in lost.down for each in moved for row in each.moved)
        degraded = (
            lease.degraded
            or any(missing for missing, _ in flags.values())
            or (off_hosts and lease.status is LeaseStatus.ACTIVE)
        )
        if (degraded, old_flags) != (lease.degraded, old_flags | flags):
            lease_store.mark(connection, lease.id, degraded, flags, self.deps.clock.now())
        self._record_moves(connection, lease, outcomes, lost)
        if not moved or lease.status is not LeaseStatus.ACTIVE:
            return None
        slots = slots_of(connection, lease)
        services = services_of(connection, before, slots)
        new, old = regions_to_load(connection, lease), abandoned_regions(connection, lease)
        steps: list[Step] = []
        for each in moved:
            key = each.reservation.id
            left = {host: count for host, count in before[key].items() if slots[key].get(host, 0) < count}
            steps += plan_regions(each.reservation, new.get(key, ()), old.get(key, ()), lease.project_id)
            steps += plan_move(each.reservation, slots, services, left)
        log.warning("moving slots of a lease that have no capacity", extra={"lease_id": lease.id})
        return self.executor.begin_update(connection, lease, steps)

    def _record_moves(
        self, connection: Connection, lease: Lease, outcomes: Sequence[_Moved], lost: LostCapacity
    ) -> None:
        moved = [row for each in outcomes for row in each.moved]
        missing = [row for each in outcomes if not each.reservation.missing_resources for row in each.missing]
        incidents = []
        if missing:
            incidents.append(self._incident(lease, IncidentKind.LOST, _reasons(missing, lost)))
        if moved:
            incidents.append(self._incident(lease, IncidentKind.MOVED, _reasons(moved, lost)))
        capacity_store.insert_incidents(connection, incidents)

    def _incident(self, lease: Lease, kind: IncidentKind, reason: str) -> Incident:
        log.warning("resources of a lease %s", kind, extra={"lease_id": lease.id, "reason": reason})
        return Incident(self.deps.ids.uuid(), lease.id, kind, self.deps.clock.now(), reason)

    def _load(self, lease_id: str, restored: Collection[str]) -> None:
        """Restores hosts that are back: programs their regions, and writes the inventories of the `restored`
        reservations whose host was not in Placement. Until then, no server can start there.
        """
        missing = self._without_provider(lease_id, restored)

        def begin_loading(connection: Connection) -> EventClaim | None:
            lease = lease_store.lock(connection, lease_id)
            if lease is None or lease.status is not LeaseStatus.ACTIVE:
                return None
            regions = regions_to_load(connection, lease)
            slots = slots_of(connection, lease)
            services = services_of(connection, slots)
            steps: list[Step] = []
            for each in lease.reservations:
                steps += plan_regions(each, regions.get(each.id, ()), (), lease.project_id)
                steps += plan_hosts(each, slots, services, {}) if each.id in missing else []
            return self.executor.begin_update(connection, lease, steps) if steps else None

        claim = in_transaction(self.deps.engine, begin_loading)
        if claim is not None:
            self.executor.run_claimed([claim])
            self.deps.wake_runner()

    def _without_provider(self, lease_id: str, restored: Collection[str]) -> frozenset[str]:
        """The restored reservations with slots on a host that has no reservation provider."""
        if not restored:
            return frozenset()
        with read(self.deps.engine) as connection:
            rows = host_store.allocations_of(connection, restored)
            names = host_store.host_names(connection, {row.host_id for row in rows})
        bare = {
            host
            for host, (name, _) in names.items()
            if self.deps.placement.provider_by_name(reservation_provider(name)) is None
        }
        return frozenset(row.reservation_id for row in rows if row.host_id in bare)

    def _reallocate(
        self,
        connection: Connection,
        affected: _Affected,
        reservation: Reservation,
        placing: host_selection.Placing | None,
        lost: LostCapacity,
    ) -> _Moved:
        lease = affected.lease
        rows = host_store.allocations_of(connection, [reservation.id])
        free = [row for row in rows if row.id not in affected.pinned]
        surplus: list[Allocation] = []
        if placing is not None:
            positions, missing = host_selection.difference([(row.host_id, row.resources) for row in free], placing)
            # If there is not enough free capacity, the remaining rows stay where they are, without capacity.
            surplus = sorted((free[each] for each in positions), key=lost.concerns)[: len(missing)]
            host_store.delete_allocations(connection, [row.id for row in surplus])
            start = max(lease.start_date, self.deps.clock.now())
            self.leases.allocate(connection, reservation.id, missing, start, lease.end_date)
        left = [row for row in rows if lost.concerns(row) and row not in surplus]
        return _Moved(reservation, surplus, left)

    def _recover(self, connection: Connection, lease_id: str, lost: LostCapacity) -> frozenset[str]:
        """Clears flags that no longer apply; returns the ids of reservations that have all their slots again."""
        lease = lease_store.lock(connection, lease_id)
        if lease is None:
            return frozenset()
        rows = host_store.allocations_of(connection, [each.id for each in lease.reservations])
        missing = {row.reservation_id for row in rows if lost.concerns(row)}
        flags = {
            each.id: (False, each.resources_changed)
            for each in lease.reservations
            if each.missing_resources and each.id not in missing
        }
        retired = {host for hosts in event_store.retired_hosts(connection, lease_id).values() for host in hosts}
        degraded = bool(missing or retired & set(lost.down.values()))
        if flags or not degraded:
            lease_store.mark(connection, lease_id, degraded, flags, self.deps.clock.now())
        if flags and not missing:
            restored = self._incident(lease, IncidentKind.RESTORED, "all resources of the lease are available again")
            capacity_store.insert_incidents(connection, [restored])
        return frozenset(flags)


def _reasons(rows: Sequence[Allocation], lost: LostCapacity) -> str:
    """At most three different reasons."""
    found = sorted({lost.reason(row) for row in rows if lost.concerns(row)})
    return "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")


def _less(
    asks: Sequence[host_selection.CapacityRequest], reservation_id: str, free: int
) -> list[host_selection.CapacityRequest]:
    """Requests the free slots if they exceed those on sound hosts; else drops the request."""
    less = []
    for ask in asks:
        sound = sum(len(slots) for slots in ask.held.values())
        if ask.reservation_id != reservation_id:
            less.append(ask)
        elif ask.affinity is not True and sound < free < ask.amount:
            less.append(replace(ask, amount=free))
    return less
