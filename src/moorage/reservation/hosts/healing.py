"""Moves the slots of leases off hosts that fail, and watches which hosts are up.

    a host goes down -> not reservable -> move the slots of leases that are active or start soon, as far as others fit
                                            |-> not started: only rows change; the project does not notice
                                            |-> active: `resources_changed`; an update event changes Placement and Nova
                                            |-> no capacity: the slots stay on the host; `missing_resources`
    it is up again   -> reservable -> missing slots count again; regions that could not be programmed are programmed

A lease is `degraded` while a host is down that has slots of it, or had some while the lease was active. Leases that
start later than `ahead_s` are not changed, because the host may be up again by then. A decision is committed as the
steps of an update event before any effect, so that a runner continues after a crash.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import Connection

from moorage.core.errors import MoorageError
from moorage.db.session import in_transaction, read
from moorage.reservation.booking.admission import Booking, Excluding, NotEnoughHostsAvailable
from moorage.reservation.booking.capacity_requests import held_of
from moorage.reservation.capacity import host_selection
from moorage.reservation.capacity.step_plans import plan_move, plan_regions
from moorage.reservation.deps import BookingParts, ReservationDeps, ReservationSettings
from moorage.reservation.events.event_executor import EventClaim, EventExecutor
from moorage.reservation.leases.lease_service import LeaseChanged, LeaseService
from moorage.reservation.model.leases import Allocation, Lease, LeaseStatus, Reservation
from moorage.reservation.model.steps import Step
from moorage.reservation.steps.plan_builder import abandoned_regions, regions_to_load, services_of, slots_of
from moorage.reservation.store import event_store, host_store, lease_store

log = logging.getLogger(__name__)

#: {host id: hypervisor hostname} of hosts that are down
Failed = Mapping[int, str]


@dataclass(frozen=True, slots=True)
class _Moved:
    """The result of moving one reservation's slots."""

    reservation: Reservation
    moved: int
    missing: int  #: slots that are still on a failed host

    def flags(self, lease: Lease) -> tuple[bool, bool]:
        changed = self.moved > 0 and lease.status is LeaseStatus.ACTIVE
        return self.missing > 0, self.reservation.resources_changed or changed


@dataclass(frozen=True)
class Healing:
    deps: ReservationDeps
    settings: ReservationSettings
    booking: BookingParts
    executor: EventExecutor
    leases: LeaseService

    def heal_leases(self, failed: Failed) -> None:
        """Idempotent, and safe in several processes at once: healed leases are not changed again."""
        now = self.deps.clock.now()
        with read(self.deps.engine) as connection:
            hit = host_store.leases_on(connection, failed.keys(), now, now + self.settings.healing_interval)
            degraded = lease_store.degraded_leases(connection)
        for lease_id in hit:
            try:
                self._move(lease_id, failed)
            except MoorageError as error:  # retried in the next round
                log.warning("a lease could not be healed", extra={"lease_id": lease_id, "reason": error.message})
        for lease_id in degraded:
            in_transaction(self.deps.engine, partial(self._recover, lease_id=lease_id, failed=failed))
            self._load(lease_id)

    def _move(self, lease_id: str, failed: Failed) -> None:
        lease = self._stable(lease_id)
        if lease is not None and self.executor.determine_generations(lease):
            lease = self._stable(lease_id)
        if lease is None:
            return
        with read(self.deps.engine) as connection:
            rows = host_store.allocations_of(connection, [each.id for each in lease.reservations])
        hit = {row.reservation_id for row in rows if row.host_id in failed}
        affected = [each for each in lease.reservations if each.id in hit]
        if not affected:
            return
        try:
            claim = self._plan(lease, affected, rows, failed)
        except LeaseChanged:
            return  # retried in the next round
        if claim is not None:
            self.executor.run_claimed([claim])
            self.deps.wake_runner()

    def _stable(self, lease_id: str) -> Lease | None:
        """None if the lease is gone, or if an operation on it is in progress, which must finish first."""
        with read(self.deps.engine) as connection:
            lease = lease_store.find_lease(connection, lease_id)
        return lease if lease is not None and lease.status in (LeaseStatus.PENDING, LeaseStatus.ACTIVE) else None

    def _plan(
        self, lease: Lease, affected: Sequence[Reservation], rows: Sequence[Allocation], failed: Failed
    ) -> EventClaim | None:
        """Moves as many slots as fit elsewhere; omits reservations of which none fit."""
        asks = [_all_of(ask, rows) for ask in self._asks(lease, affected, rows, failed)]

        def before(connection: Connection) -> None:
            if lease_store.lock(connection, lease.id) != lease:
                raise LeaseChanged

        while True:
            try:
                return self.booking.admission.admit(
                    Booking(asks, max(lease.start_date, self.deps.clock.now()), self.leases.padded(lease.end_date)),
                    before=before,
                    commit=lambda connection, plan: self._commit(connection, lease, affected, plan, failed),
                    excluding=Excluding([each.id for each in affected]),
                )
            except NotEnoughHostsAvailable as error:
                asks = _less(asks, str(error.fields["reservation_id"]), int(str(error.fields["free"])))

    def _asks(
        self, lease: Lease, affected: Sequence[Reservation], rows: Sequence[Allocation], failed: Failed
    ) -> list[host_selection.CapacityRequest]:
        sound = held_of(row for row in rows if row.host_id not in failed)
        return self.booking.capacity_requests.build(affected, sound, keep=lease.status is LeaseStatus.ACTIVE)

    def _commit(
        self,
        connection: Connection,
        lease: Lease,
        affected: Sequence[Reservation],
        plan: host_selection.Plan,
        failed: Failed,
    ) -> EventClaim | None:
        before = slots_of(connection, lease)
        outcomes = [self._reallocate(connection, lease, each, plan.get(each.id), failed) for each in affected]
        flags = {each.reservation.id: each.flags(lease) for each in outcomes}
        moved = [each for each in outcomes if each.moved]
        old_flags = {each.id: (each.missing_resources, each.resources_changed) for each in lease.reservations}
        degraded = (
            lease.degraded
            or any(missing for missing, _ in flags.values())
            or (bool(moved) and lease.status is LeaseStatus.ACTIVE)
        )
        if (degraded, old_flags) != (lease.degraded, old_flags | flags):
            lease_store.mark(connection, lease.id, degraded, flags, self.deps.clock.now())
        if not moved or lease.status is not LeaseStatus.ACTIVE:
            return None
        slots = slots_of(connection, lease)
        services = services_of(connection, before, slots)
        new, old = regions_to_load(connection, lease), abandoned_regions(connection, lease)
        steps: list[Step] = []
        for each in moved:
            key = each.reservation.id
            lost = {host: count for host, count in before[key].items() if slots[key].get(host, 0) < count}
            steps += plan_regions(each.reservation, new.get(key, ()), old.get(key, ()), lease.project_id)
            steps += plan_move(each.reservation, slots, services, lost)
        log.warning("moving slots of a lease off failed hosts", extra={"lease_id": lease.id})
        return self.executor.begin_update(connection, lease, steps)

    def _load(self, lease_id: str) -> None:
        """Programs regions that could not be programmed while their host was down, before servers start there."""

        def begin_loading(connection: Connection) -> EventClaim | None:
            lease = lease_store.lock(connection, lease_id)
            if lease is None or lease.status is not LeaseStatus.ACTIVE:
                return None
            regions = regions_to_load(connection, lease)
            steps = [
                step
                for each in lease.reservations
                for step in plan_regions(each, regions.get(each.id, ()), (), lease.project_id)
            ]
            return self.executor.begin_update(connection, lease, steps) if steps else None

        claim = in_transaction(self.deps.engine, begin_loading)
        if claim is not None:
            self.executor.run_claimed([claim])
            self.deps.wake_runner()

    def _reallocate(
        self,
        connection: Connection,
        lease: Lease,
        reservation: Reservation,
        placing: host_selection.Placing | None,
        failed: Failed,
    ) -> _Moved:
        rows = host_store.allocations_of(connection, [reservation.id])
        surplus: list[Allocation] = []
        if placing is not None:
            positions, missing = host_selection.difference([(row.host_id, row.resources) for row in rows], placing)
            # If there is not enough room, the remaining rows stay on the failed hosts.
            surplus = sorted((rows[each] for each in positions), key=lambda row: row.host_id in failed)[: len(missing)]
            host_store.delete_allocations(connection, [row.id for row in surplus])
            start = max(lease.start_date, self.deps.clock.now())
            self.leases.allocate(connection, reservation.id, missing, start, lease.end_date)
        left = [row for row in rows if row.host_id in failed and row not in surplus]
        return _Moved(reservation, len(surplus), len(left))

    def _recover(self, connection: Connection, lease_id: str, failed: Failed) -> None:
        """Clears the flags that no longer apply."""
        lease = lease_store.lock(connection, lease_id)
        if lease is None:
            return
        rows = host_store.allocations_of(connection, [each.id for each in lease.reservations])
        missing = {row.reservation_id for row in rows if row.host_id in failed}
        flags = {
            each.id: (False, each.resources_changed)
            for each in lease.reservations
            if each.missing_resources and each.id not in missing
        }
        retired = {host for hosts in event_store.retired_hosts(connection, lease_id).values() for host in hosts}
        degraded = bool(missing or retired & set(failed.values()))
        if flags or not degraded:
            lease_store.mark(connection, lease_id, degraded, flags, self.deps.clock.now())


def _all_of(ask: host_selection.CapacityRequest, rows: Sequence[Allocation]) -> host_selection.CapacityRequest:
    """Requests exactly as many slots as the reservation has, even if it would accept fewer or more."""
    held = sum(row.reservation_id == ask.reservation_id for row in rows)
    return replace(ask, amount=held, most=None)


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


class HostMonitor:
    name = "reservation.watch"

    def __init__(self, deps: ReservationDeps, booking: BookingParts, healing: Healing, *, period_s: float) -> None:
        self._deps = deps
        self._admission = booking.admission
        self._healing = healing
        self._period = timedelta(seconds=period_s)

    def run_once(self) -> datetime | None:
        self._check_hosts()
        return self._deps.clock.now() + self._period

    def _check_hosts(self) -> None:
        with read(self._deps.engine) as connection:
            hosts = [host for host in host_store.all_hosts(connection) if host.ready]
        if not hosts:
            return
        try:
            up = self._deps.compute.hosts_up()
        except MoorageError as error:
            log.warning("compute does not answer which hosts are up", extra={"reason": error.message})
            return
        failed = {host.id: host.hypervisor_hostname for host in hosts if not up.get(host.service_name, False)}
        for host in hosts:
            if host.reservable == (host.id in failed):
                self._mark(host.id, host.hypervisor_hostname, reservable=host.id not in failed)
        self._healing.heal_leases(failed)

    def _mark(self, host_id: int, name: str, *, reservable: bool) -> None:
        now = self._deps.clock.now()
        in_transaction(
            self._deps.engine, lambda connection: host_store.set_reservable(connection, host_id, reservable, now)
        )
        self._admission.invalidate()
        log.warning("host is up again" if reservable else "host is down", extra={"host": name})
