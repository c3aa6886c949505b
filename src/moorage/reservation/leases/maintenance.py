"""Maintenance windows: an administrator's ``physical:host`` lease, and the leases that it would affect."""

from collections.abc import Sequence
from dataclasses import dataclass

from moorage.core.caller import Caller
from moorage.core.errors import Conflict, NotFound
from moorage.db.session import read
from moorage.reservation.booking.admission import NotEnoughHostsAvailable
from moorage.reservation.capacity.lease_update import NewLease, period_of
from moorage.reservation.deps import ReservationDeps
from moorage.reservation.leases.lease_service import LeaseService
from moorage.reservation.model.leases import Lease
from moorage.reservation.store import host_store, lease_store

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
