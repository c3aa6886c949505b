"""SQL of the FPGA regions of reservations: those of their slots, and those that the journal says are programmed.

A region has the name of its resource provider.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, select

from moorage.db.engine import in_list
from moorage.reservation.model.leases import Allocation
from moorage.reservation.model.reservation_requests import FPGA
from moorage.reservation.model.slot_demand import class_of
from moorage.reservation.model.steps import ProgramRegion, RetireRegion, kind_of
from moorage.reservation.store.event_store import StepState
from moorage.reservation.store.host_store import usages_between
from moorage.reservation.store.tables import computehost_resources, computehosts, events, steps

#: {reservation id: {region: a flag; see the functions that return this}}
Regions = Mapping[str, Mapping[str, bool]]

_PLACES = select(
    computehost_resources.c.computehost_id,
    computehost_resources.c.resource_class,
    computehost_resources.c.provider,
    and_(computehosts.c.ready, computehosts.c.reservable).label("is_up"),
).join(computehosts, computehosts.c.id == computehost_resources.c.computehost_id)


def held(connection: Connection, slots: Sequence[Allocation]) -> Regions:
    """The regions of these slots; True if the region's host is up."""
    wanted = {(slot.host_id, place) for slot in slots for place in slot.resources if class_of(place) == FPGA}
    if not wanted:
        return {}
    hosts = {host for host, _ in wanted}
    known = _places(connection, in_list(connection, computehost_resources.c.computehost_id, hosts))
    found: dict[str, dict[str, bool]] = defaultdict(dict)
    for slot in slots:
        for place in slot.resources:
            if (slot.host_id, place) in wanted & known.keys():
                region, is_up = known[slot.host_id, place]
                found[slot.reservation_id][region] = is_up
    return found


def ordered(connection: Connection, lease_id: str) -> Regions:
    """All regions that steps of the lease were to program; True if the region is still programmed for it."""
    statement = (
        select(steps.c.kind, steps.c.args, steps.c.state)
        .join(events, events.c.id == steps.c.event_id)
        .where(events.c.lease_id == lease_id, steps.c.kind.in_([kind_of(ProgramRegion), kind_of(RetireRegion)]))
        .order_by(events.c.created_at, steps.c.event_id, steps.c.seq)
    )
    found: dict[str, dict[str, bool]] = defaultdict(dict)
    for row in connection.execute(statement):
        is_loaded = row.kind == kind_of(ProgramRegion) and row.state == StepState.DONE
        found[row.args["reservation_id"]][row.args["deployable"]] = is_loaded
    return found


def of_others(
    connection: Connection, regions: Collection[str], reservation_ids: Collection[str], now: datetime
) -> frozenset[str]:
    """The subset of `regions` that slots of other reservations use at `now`."""
    if not regions:
        return frozenset()
    places = _places(connection, in_list(connection, computehost_resources.c.provider, set(regions)))
    hosts = {host for host, _ in places}
    used = usages_between(connection, hosts, now, now + timedelta(seconds=1), reservation_ids) if hosts else ()
    taken = {(usage.host, place) for usage in used for place in usage.amounts}
    return frozenset(region for place, (region, _) in places.items() if place in taken)


def _places(connection: Connection, which: ColumnElement[bool]) -> dict[tuple[int, str], tuple[str, bool]]:
    """{(host id, label): (region, whether its host is up)}"""
    rows: Iterable[Any] = connection.execute(_PLACES.where(which, computehost_resources.c.provider.is_not(None)))
    return {(row.computehost_id, row.resource_class): (row.provider, bool(row.is_up)) for row in rows}
