"""The background task that watches registered hosts: which of them are up, and their inventories in Placement."""

import logging
from collections.abc import Collection
from datetime import datetime, timedelta

from moorage.core.errors import MoorageError
from moorage.db.session import in_transaction, read
from moorage.reservation.deps import BookingParts, ReservationDeps
from moorage.reservation.hosts.healing import Healing
from moorage.reservation.hosts.lost_capacity import CapacityCheck, LostCapacity
from moorage.reservation.store import capacity_store, host_store, lease_store

log = logging.getLogger(__name__)


class HostMonitor:
    name = "reservation.watch"

    def __init__(self, deps: ReservationDeps, booking: BookingParts, healing: Healing, *, period_s: float) -> None:
        self._deps = deps
        self._admission = booking.admission
        self._capacity = booking.placement_capacity
        self._check = CapacityCheck(deps.engine, booking.lookups)
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
            log.warning("the hosts that are up could not be read from compute", extra={"reason": error.message})
            return
        down = {host.id: host.hypervisor_hostname for host in hosts if not up.get(host.service_name, False)}
        for host in hosts:
            if host.reservable == (host.id in down):
                self._mark(host.id, host.hypervisor_hostname, reservable=host.id not in down)
        try:
            self._capacity.refresh(reads_all=True)
            self._capacity.save_position()
        except MoorageError as error:
            log.warning("the capacity of hosts could not be read from Placement", extra={"reason": error.message})
            return
        self._heal(down)

    def _heal(self, down: dict[int, str]) -> None:
        changed = self._capacity.take_changed()
        try:
            lost = self._check.uncovered(self._with_degraded(changed), self._deps.clock.now())
        except MoorageError as error:
            self._capacity.put_back(changed)
            log.warning("the slots of leases could not be compared with Placement", extra={"reason": error.message})
            return
        left = self._healing.heal_leases(LostCapacity(down, lost))
        with read(self._deps.engine) as connection:
            self._capacity.put_back(capacity_store.hosts_of_leases(connection, left))

    def _with_degraded(self, changed: Collection[int] | None) -> Collection[int] | None:
        """Also the hosts of degraded leases, which may have their capacity back."""
        if changed is None:
            return None
        with read(self._deps.engine) as connection:
            degraded = lease_store.degraded_leases(connection)
            return {*changed, *capacity_store.hosts_of_leases(connection, degraded)}

    def _mark(self, host_id: int, name: str, *, reservable: bool) -> None:
        now = self._deps.clock.now()
        in_transaction(
            self._deps.engine, lambda connection: host_store.set_reservable(connection, host_id, reservable, now)
        )
        self._admission.invalidate()
        log.warning("host is up again" if reservable else "host is down", extra={"host": name})
