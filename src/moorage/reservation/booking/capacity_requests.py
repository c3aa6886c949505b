"""Builds capacity requests from reservations: the demand of a slot, the number of slots and the eligible hosts."""

from collections.abc import Collection, Iterable, Mapping

from sqlalchemy import Engine

from moorage.core.errors import Invalid
from moorage.db.session import read
from moorage.reservation.booking.external_lookups import ExternalLookups
from moorage.reservation.capacity import host_selection
from moorage.reservation.capacity.resource_types.registry import type_named
from moorage.reservation.model import property_query
from moorage.reservation.model.leases import HOST_PROPERTIES, Allocation, Reservation
from moorage.reservation.model.slot_demand import Amounts
from moorage.reservation.store import host_store, property_store


class CapacityRequests:
    def __init__(self, engine: Engine, lookups: ExternalLookups) -> None:
        self._engine = engine
        self._lookups = lookups

    def build(
        self, reservations: Iterable[Reservation], held: Mapping[str, host_selection.Placing], *, keep: bool
    ) -> list[host_selection.CapacityRequest]:
        """The capacity requests of all reservations that need hosts.

        `held`: {reservation id: its present slots}; `keep`: none of them may be given up.
        """
        asks = []
        for reservation in reservations:
            wanted = type_named(reservation.resource_type).wanted(reservation.request)
            if wanted is None:
                continue
            demand, roots = self._lookups.resolve_demand(wanted.demand)
            has = held.get(reservation.id, {})
            # The present slots, all of which are kept, may exceed the minimum.
            least = max(wanted.amount, sum(map(len, has.values()))) if keep and wanted.most else wanted.amount
            asks.append(
                host_selection.CapacityRequest(
                    reservation.id,
                    demand,
                    least if wanted.most is None else min(least, wanted.most),
                    wanted.affinity,
                    self.eligible(wanted.properties, roots),
                    has,
                    keep,
                    wanted.most,
                )
            )
        return asks

    def eligible(self, texts: Iterable[str], names: Collection[str] | None = None) -> frozenset[int] | None:
        """Ids of hosts that match all property queries and, if given, one of the names. None: all hosts."""
        queries = [(text, property_query.parse(text)) for text in texts]
        queries = [(text, wanted) for text, wanted in queries if wanted != property_query.EVERYTHING]
        if not queries and names is None:
            return None
        with read(self._engine) as connection:
            hosts = host_store.all_hosts(connection)
            known = HOST_PROPERTIES | {row.property_name for row in property_store.properties(connection)}
        for text, wanted in queries:
            if unknown := sorted(property_query.properties_of(wanted) - known):
                raise Invalid(f"Malformed requirements {text}: no host has a property {', '.join(unknown)}")
        admitted = (
            host for host in hosts if all(property_query.matches(each, host.properties()) for _, each in queries)
        )
        return frozenset(host.id for host in admitted if names is None or host.hypervisor_hostname in names)


def held_of(allocations: Iterable[Allocation]) -> dict[str, dict[int, list[Amounts]]]:
    """{reservation id: {host id: [amounts of each slot]}}"""
    held: dict[str, dict[int, list[Amounts]]] = {}
    for each in allocations:
        held.setdefault(each.reservation_id, {}).setdefault(each.host_id, []).append(each.resources)
    return held
