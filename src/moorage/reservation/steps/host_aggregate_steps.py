"""The steps of host reservations in Nova: aggregates, and the servers on their hosts. Each may be repeated."""

from moorage.compute.client.compute_client import ComputeClient
from moorage.compute.client.values import Aggregate, Server
from moorage.core.errors import Conflict, NotFound, RemoteError
from moorage.core.ids import is_uuid
from moorage.core.names import reservation_zone
from moorage.reservation.model.steps import (
    Actions,
    ClearAggregate,
    ClearHost,
    CloseAggregate,
    DissolveAggregate,
    EnsureAggregate,
    LendHost,
    OpenAggregate,
    RetireHost,
    ReturnHost,
    Waiting,
)

#: Metadata key of an aggregate with the id of its project; the filter of older systems reads it.
OWNER_KEY = "blazar:owner"


class HostAggregateSteps:
    """`freepool`: name of the aggregate of the registered hosts that no reservation has."""

    def __init__(self, compute: ComputeClient, freepool: str) -> None:
        self._compute = compute
        self._freepool = freepool
        self.actions: Actions = {
            EnsureAggregate: self._ensure_aggregate,
            ClearHost: self._clear_host,
            LendHost: self._lend_host,
            ReturnHost: self._return_host,
            RetireHost: self._retire_host,
            OpenAggregate: self._open_aggregate,
            CloseAggregate: self._close_aggregate,
            ClearAggregate: self._clear_aggregate,
            DissolveAggregate: self._dissolve_aggregate,
        }

    def _ensure_aggregate(self, step: EnsureAggregate) -> None:
        """Gives the aggregate an availability zone of its own, as Blazar does, unless a reservable host is in another.

        Nova puts no host into two zones, so the aggregate then has none, and the hosts keep the zones that they are in.
        """
        aggregates = self._compute.aggregates()
        reservable = {
            host
            for each in aggregates
            if each.name == self._freepool or _is_of_reservation(each)
            for host in each.hosts
        }
        if any(_operators_zone(each) and reservable.intersection(each.hosts) for each in aggregates):
            self._aggregate(step.reservation_id)
        else:
            self._aggregate(step.reservation_id, zone=reservation_zone(step.reservation_id))

    def _clear_host(self, step: ClearHost) -> Waiting | None:
        """Deletes servers that bypassed reservations or belong to one that has ended."""
        aggregate = self._compute.aggregate_by_name(step.reservation_id)
        if aggregate is not None and step.host in aggregate.hosts:
            return None  # lent already: the servers there are the project's
        return self._deleted(self._compute.servers_of_host(step.host))

    def _lend_host(self, step: LendHost) -> None:
        """Adds to the aggregate first: a host in neither aggregate would be open to all servers."""
        aggregate = self._compute.aggregate_by_name(step.reservation_id)
        if aggregate is None:
            raise NotFound(
                f"the aggregate of reservation {step.reservation_id} does not exist any more; delete the lease"
            )
        others = [each for each in self._compute.aggregates() if step.host in each.hosts and each.id != aggregate.id]
        for other in others:
            if (zone := _operators_zone(other)) and aggregate.zone:
                raise Conflict(
                    f"host {step.host} has been put into availability zone {zone} (aggregate {other.name}) after "
                    f"reservation {step.reservation_id} was made, whose aggregate is a zone of its own, and a host is "
                    "in one zone only: remove the host from that aggregate, or delete the lease and make it again"
                )
        for other in others:
            if _is_of_reservation(other):  # it was moved off this host after a failure, but still had servers on it
                self._compute.remove_host(other.id, step.host)
        if step.host not in aggregate.hosts:
            self._compute.add_host(aggregate.id, step.host)
        pool = self._compute.aggregate_by_name(self._freepool)
        if pool is not None and step.host in pool.hosts:
            self._compute.remove_host(pool.id, step.host)

    def _return_host(self, step: ReturnHost | RetireHost) -> None:
        aggregate = self._compute.aggregate_by_name(step.reservation_id)
        if aggregate is not None and step.host in aggregate.hosts:
            self._take_back(aggregate, step.host)

    def _retire_host(self, step: RetireHost) -> None:
        """Takes back a failed host without waiting. If servers remain on it, it stays lent until the lease ends."""
        for server in self._compute.servers_of_host(step.host):
            self._compute.delete_server(server.id)
        try:
            self._return_host(step)
        except RemoteError as error:
            if error.status != 409:
                raise

    def _open_aggregate(self, step: OpenAggregate) -> None:
        self._own(step.reservation_id, step.project_id)

    def _close_aggregate(self, step: CloseAggregate) -> None:
        self._own(step.reservation_id, None)

    def _clear_aggregate(self, step: ClearAggregate) -> Waiting | None:
        aggregate = self._compute.aggregate_by_name(step.reservation_id)
        hosts = aggregate.hosts if aggregate is not None else ()
        return self._deleted([server for host in hosts for server in self._compute.servers_of_host(host)])

    def _dissolve_aggregate(self, step: DissolveAggregate) -> None:
        aggregate = self._compute.aggregate_by_name(step.reservation_id)
        if aggregate is None:
            return
        for host in aggregate.hosts:
            self._take_back(aggregate, host)
        self._compute.delete_aggregate(aggregate.id)

    def _take_back(self, aggregate: Aggregate, host: str) -> None:
        """Adds to the free pool first: a host in neither aggregate would be open to all servers."""
        pool = self._aggregate(self._freepool)
        if host not in pool.hosts:
            self._compute.add_host(pool.id, host)
        self._compute.remove_host(aggregate.id, host)

    def _own(self, reservation_id: str, project_id: str | None) -> None:
        aggregate = self._compute.aggregate_by_name(reservation_id)
        if aggregate is not None and aggregate.metadata.get(OWNER_KEY) != project_id:
            self._compute.set_aggregate_metadata(aggregate.id, {OWNER_KEY: project_id})

    def _aggregate(self, name: str, zone: str | None = None) -> Aggregate:
        if found := self._compute.aggregate_by_name(name):
            return found
        try:
            return self._compute.create_aggregate(name, zone)
        except RemoteError as error:
            found = self._compute.aggregate_by_name(name) if error.status == 409 else None
            if found is None:
                raise
            return found  # created by another request, or by one whose answer was lost

    def _deleted(self, servers: list[Server]) -> Waiting | None:
        for server in servers:
            self._compute.delete_server(server.id)
        if not servers:
            return None
        names = ", ".join(sorted(server.name for server in servers)[:3])
        return Waiting(f"{len(servers)} server(s) are being deleted from lent hosts: {names}")


def _is_of_reservation(aggregate: Aggregate) -> bool:
    """The aggregate of a reservation has the reservation's id as name and no zone but the reservation's."""
    return is_uuid(aggregate.name) and aggregate.zone in (None, reservation_zone(aggregate.name))


def _operators_zone(aggregate: Aggregate) -> str | None:
    """The availability zone that an operator gave to the aggregate."""
    return None if _is_of_reservation(aggregate) else aggregate.zone
