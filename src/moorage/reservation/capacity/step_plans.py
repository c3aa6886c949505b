"""Orders the steps of a lease's events across its reservations; `resource_types` orders those of one reservation."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from moorage.reservation.capacity.resource_types.registry import type_named
from moorage.reservation.model.before_end_actions import EndActionKind
from moorage.reservation.model.leases import Lease, Reservation, ReservationGeneration, ReservationStatus
from moorage.reservation.model.reservation_requests import ReservationRequest, WholeHostRequest
from moorage.reservation.model.steps import EnsureGroup, Regions, SendMail, SendWebhook, Services, Slots, Step

#: {reservation id: its slots}
SlotsOfAll = Mapping[str, Slots]

#: {reservation id: names of providers of FPGAs}
RegionsOfAll = Mapping[str, Regions]


def plan_create(reservations: Iterable[Reservation]) -> list[Step]:
    return [step for each in reservations for step in type_named(each.resource_type).plan_create(each)]


def plan_group(reservation: Reservation, request: ReservationRequest) -> list[Step]:
    """The step for the server group that Blazar would create, for clouds with ``compat_server_groups``.

    The step creates the group, or deletes one that is no longer needed.
    """
    wanted = type_named(reservation.resource_type).wanted(request)
    affinity = None if wanted is None else wanted.affinity
    is_older = reservation.generation is not ReservationGeneration.PURE  # it keeps its present group, if any
    if is_older or (affinity is None and reservation.server_group_id is None):
        return []
    policy = "" if affinity is None else "affinity" if affinity else "anti-affinity"
    return [EnsureGroup(reservation.id, policy)]


def plan_start(
    reservations: Sequence[Reservation],
    slots: SlotsOfAll,
    services: Services,
    project_id: str,
    regions: RegionsOfAll = MappingProxyType({}),
) -> list[Step]:
    """Prepares the hosts of all reservations before it gives access, so that the project finds all capacity (R24)."""
    steps: list[Step] = []
    for each in reservations:
        steps += type_named(each.resource_type).plan_hosts(each, slots.get(each.id, {}), services, {})
    for each in reservations:
        steps += type_named(each.resource_type).plan_regions(each, regions.get(each.id, ()), project_id)
    for each in reservations:
        steps += type_named(each.resource_type).plan_open(each, project_id)
    return steps


def plan_hosts(reservation: Reservation, slots: SlotsOfAll, services: Services, before: Slots) -> list[Step]:
    now = slots.get(reservation.id, {})
    return type_named(reservation.resource_type).plan_hosts(reservation, now, services, before)


def plan_move(reservation: Reservation, slots: SlotsOfAll, services: Services, lost: Slots) -> list[Step]:
    """See `ResourceType.plan_move`."""
    return type_named(reservation.resource_type).plan_move(reservation, slots[reservation.id], services, lost)


def plan_regions(reservation: Reservation, load: Regions, leave: Regions, project_id: str) -> list[Step]:
    """Region steps of an active reservation. They run first: a server needs a programmed region before a slot."""
    kind = type_named(reservation.resource_type)
    return kind.plan_leave(reservation, leave) + kind.plan_regions(reservation, load, project_id)


def plan_change(reservation: Reservation, request: ReservationRequest) -> list[Step]:
    return type_named(reservation.resource_type).plan_change(reservation, request)


def plan_end(
    reservations: Iterable[Reservation],
    slots: SlotsOfAll,
    services: Services,
    project_id: str,
    regions: RegionsOfAll = MappingProxyType({}),
) -> list[Step]:
    steps = []
    for each in reservations:
        if each.status is not ReservationStatus.DELETED:
            kind = type_named(each.resource_type)
            steps += kind.plan_end(each, slots.get(each.id, {}), services, project_id)
            steps += kind.plan_empty(each, regions.get(each.id, ()))
    return steps


def plan_before_end(lease: Lease, of_hosts: str) -> list[Step]:
    """`of_hosts`: the action that ``default`` means in ``physical:host`` reservations, by configuration.

    Snapshots come first, because they take longest.
    """
    all_saved = any(action.kind is EndActionKind.SNAPSHOT for action in lease.before_end_actions)
    steps: list[Step] = [
        step
        for each in lease.reservations
        if each.status is ReservationStatus.ACTIVE
        and (all_saved or _asks_for_snapshot(each.request, of_hosts))
        and (step := type_named(each.resource_type).plan_snapshot(each)) is not None
    ]
    for action in lease.before_end_actions:
        if action.kind is EndActionKind.WEBHOOK:
            steps.append(SendWebhook("", lease.id, action.target))
        elif action.kind is EndActionKind.EMAIL:
            steps.append(SendMail("", lease.id, action.target))
    return steps


def _asks_for_snapshot(request: ReservationRequest, of_hosts: str) -> bool:
    if not isinstance(request, WholeHostRequest):
        return False
    return (of_hosts if request.before_end == "default" else request.before_end) == "snapshot"
