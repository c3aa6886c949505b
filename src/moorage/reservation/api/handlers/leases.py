"""Handlers of ``/leases``, series, maintenance windows, lists in pages, and the limits of projects."""

from collections.abc import Sequence
from urllib.parse import urlencode

from moorage.core.json import Json
from moorage.reservation.api.handlers.hosts import encode_matching_slots
from moorage.reservation.api.schemas import host as host_schema
from moorage.reservation.api.schemas import lease as lease_schema
from moorage.reservation.api.schemas import listing
from moorage.reservation.leases.list_service import timeline_of
from moorage.reservation.model.leases import Lease
from moorage.reservation.model.limits import Account, AccountKind, Limits
from moorage.reservation.service import ReservationService
from moorage.wire.http import Request, Response


def encode_leases(request: Request[ReservationService], leases: Sequence[Lease]) -> list[dict[str, Json]]:
    """The leases in the shape of the request's microversion."""
    if request.version < (1, 1):
        return [lease_schema.encode(lease) for lease in leases]
    done = request.service.lists.before_end_results(leases)
    return [lease_schema.encode_ours(lease, done[lease.id], to_admin=request.caller.is_admin) for lease in leases]


def list_leases(request: Request[ReservationService]) -> Response:
    return Response(200, {"leases": encode_leases(request, request.service.leases.list_leases(request.caller))})


def create_lease_before_1_1(request: Request[ReservationService]) -> Response:
    """Up to microversion 1.0. From 1.1 on the handler is `availability.create_lease`."""
    lease = request.service.leases.create_lease(request.caller, lease_schema.decode_create(request.json, as_peer=True))
    return Response(201, {"lease": lease_schema.encode(lease)})


def show_lease(request: Request[ReservationService], lease_id: str) -> Response:
    return Response(
        200, {"lease": encode_leases(request, [request.service.leases.get_lease(request.caller, lease_id)])[0]}
    )


def update_lease(request: Request[ReservationService], lease_id: str) -> Response:
    change = lease_schema.decode_update(request.json, as_peer=request.version < (1, 1))
    lease = request.service.leases.update_lease(request.caller, lease_id, change)
    return Response(200, {"lease": encode_leases(request, [lease])[0]})


def delete_lease(request: Request[ReservationService], lease_id: str) -> Response:
    request.service.leases.delete_lease(request.caller, lease_id)
    return Response(204)


def create_series(request: Request[ReservationService]) -> Response:
    news = lease_schema.decode_series(request.json, request.service.now())
    made = request.service.leases.create_series(request.caller, news)
    return Response(201, {"leases": encode_leases(request, made)})


def create_maintenance(request: Request[ReservationService]) -> Response:
    lease = request.service.maintenance.create_lease(request.caller, *lease_schema.decode_maintenance(request.json))
    return Response(201, {"lease": encode_leases(request, [lease])[0]})


def rehearse_maintenance(request: Request[ReservationService]) -> Response:
    found = request.service.maintenance.affected_leases(*lease_schema.decode_maintenance(request.json))
    return Response(200, {"leases": lease_schema.encode_affected(found)})


def list_leases_page(request: Request[ReservationService]) -> Response:
    wanted = listing.decode_leases(listing.checked_query(request.query, listing.LEASES))
    found, more = request.service.lists.leases(request.caller, wanted)
    return _page(request, "leases", encode_leases(request, found), found[-1].id if more else None)


def show_timeline(request: Request[ReservationService], lease_id: str) -> Response:
    found = request.service.lists.timeline(request.service.leases.get_lease(request.caller, lease_id))
    return Response(200, {"timeline": lease_schema.encode_timeline(found, to_admin=request.caller.is_admin)})


def list_hosts_of_lease(request: Request[ReservationService], lease_id: str) -> Response:
    """The hosts of each reservation: their number, and for administrators their names."""
    lease = request.service.leases.get_lease(request.caller, lease_id)
    slots = request.service.lists.hosts_of_lease(lease)
    rows = [
        host_schema.encode_hosts_of_reservation(each.id, slots[each.id], to_admin=request.caller.is_admin)
        for each in lease.reservations
    ]
    return Response(200, {"reservations": rows})


def list_deleted_leases(request: Request[ReservationService]) -> Response:
    wanted = listing.decode_deleted(listing.checked_query(request.query, listing.DELETED_LEASES))
    found, more = request.service.lists.deleted(request.caller, wanted)
    rows = [lease_schema.encode_deleted(each) for each in found]
    return _page(request, "leases", rows, found[-1].lease.id if more else None)


def show_deleted_lease(request: Request[ReservationService], lease_id: str) -> Response:
    found = request.service.lists.show_deleted(request.caller, lease_id)
    timeline = timeline_of(found.lease, found.steps, found.incidents)
    return Response(
        200,
        {
            "lease": lease_schema.encode_deleted(found),
            "timeline": lease_schema.encode_timeline(timeline, to_admin=request.caller.is_admin),
        },
    )


def list_hosts_page(request: Request[ReservationService]) -> Response:
    wanted = listing.decode_hosts(listing.checked_query(request.query, listing.HOSTS))
    found, more = request.service.lists.hosts(wanted)
    return _page(request, "hosts", [host_schema.encode(host) for host in found], str(found[-1].id) if more else None)


def list_allocations_page(request: Request[ReservationService]) -> Response:
    """A host without a matching reservation is listed too, as in 1.0."""
    wanted = listing.decode_hosts(listing.checked_query(request.query, listing.ALLOCATIONS))
    found, more = request.service.lists.allocations(wanted)
    rows = [encode_matching_slots(request, host, slots) for host, slots in found]
    return _page(request, "allocations", rows, str(found[-1][0].id) if more else None)


def _page(request: Request[ReservationService], name: str, rows: list[dict[str, Json]], last: str | None) -> Response:
    body: dict[str, Json] = {name: rows}
    if last is not None:
        pairs = [(key, value) for key, value in request.query.pairs if key != "marker"]
        href = f"{request.base_url}{request.path}?{urlencode([*pairs, ('marker', last)])}"
        body[f"{name}_links"] = [{"rel": "next", "href": href}]
    return Response(200, body)


def show_own_limits(request: Request[ReservationService]) -> Response:
    return show_limits(request, request.caller.project_id)


def show_limits(request: Request[ReservationService], project_id: str) -> Response:
    return _show_limits(request, Account(AccountKind.PROJECT, project_id))


def update_limits(request: Request[ReservationService], project_id: str) -> Response:
    return _update_limits(request, Account(AccountKind.PROJECT, project_id))


def show_own_user_limits(request: Request[ReservationService]) -> Response:
    return show_user_limits(request, request.caller.user_id)


def show_user_limits(request: Request[ReservationService], user_id: str) -> Response:
    return _show_limits(request, Account(AccountKind.USER, user_id))


def update_user_limits(request: Request[ReservationService], user_id: str) -> Response:
    return _update_limits(request, Account(AccountKind.USER, user_id))


def _show_limits(request: Request[ReservationService], account: Account) -> Response:
    return _limits_reply(request, account, request.service.enforcement.limits_of(account))


def _update_limits(request: Request[ReservationService], account: Account) -> Response:
    limits = host_schema.decode_limits(request.json)
    return _limits_reply(request, account, request.service.enforcement.set_limits(account, limits))


def _limits_reply(request: Request[ReservationService], account: Account, limits: Limits) -> Response:
    return Response(200, host_schema.encode_limits(account, limits, request.service.enforcement.period))
