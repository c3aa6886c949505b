"""The wire format of offers, holds, dry runs and the calendar (from microversion 1.1 on)."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Required, TypedDict, cast

from moorage.core.json import Json
from moorage.reservation.api.schemas import lease
from moorage.reservation.api.schemas.common import DATE_TEXT, decode_date, decode_when, encode_date, encode_time
from moorage.reservation.api.schemas.reservation import ReservationBody
from moorage.reservation.booking.previews import Addresses, LeasePreview, UpdatePreview
from moorage.reservation.capacity import host_selection
from moorage.reservation.capacity.lease_update import When
from moorage.reservation.leases.availability import AvailabilityRequest, AvailabilityResult, Prolongation
from moorage.reservation.leases.calendar_service import CalendarView
from moorage.reservation.model.leases import EventType
from moorage.reservation.model.property_query import MAX_TEXT
from moorage.reservation.store.hold_store import Hold
from moorage.wire.body import Schema

_MOST_OFFERS = 20
_A_YEAR_M = 366 * 24 * 60

_SEARCH: dict[str, object] = {
    "duration_minutes": {"type": "integer", "minimum": 1, "maximum": _A_YEAR_M},
    "earliest_start": {"type": "string"},
    "latest_start": {"type": "string"},
    "reservations": {**lease.RESERVATIONS, "minItems": 1},
}

SEARCH = Schema(
    {
        "type": "object",
        "required": ["duration_minutes", "reservations"],
        "properties": _SEARCH | {"limit": {"type": "integer", "minimum": 1, "maximum": _MOST_OFFERS}},
        "additionalProperties": False,
    }
)

HOLD = Schema(
    {
        "type": "object",
        "required": ["duration_minutes", "reservations"],
        "properties": _SEARCH,
        "additionalProperties": False,
    }
)

#: `hold_id` replaces dates and reservations: the lease takes those of the hold.
FROM_HOLD = Schema(
    {
        "type": "object",
        "required": ["name", "hold_id"],
        "properties": {
            "name": lease.NAME,
            "hold_id": {"type": "string", "maxLength": 36},
            "before_end_date": lease.OPTIONAL_DATE,
            "before_end_actions": lease.CREATE_OURS.document["properties"]["before_end_actions"],
            "events": {"type": "array"},
        },
        "additionalProperties": False,
    }
)

#: From 1.1 on: a lease with dates, or from a hold. The body is validated again, against the schema of its variant.
CREATE_LEASE = Schema(
    {
        "type": "object",
        "properties": {**lease.CREATE_OURS.document["properties"], **FROM_HOLD.document["properties"]},
        "additionalProperties": False,
    }
)


CALENDAR_QUERY = Schema(
    {
        "type": "object",
        "properties": {
            "start_date": {"type": "string"},
            "end_date": DATE_TEXT,
            "resource_properties": {"type": "string", "maxLength": MAX_TEXT},
            "step_minutes": {"type": "string", "pattern": "^[1-9][0-9]{0,5}$"},
        },
        "additionalProperties": False,
    }
)


class SearchBody(TypedDict, total=False):
    reservations: Required[list[ReservationBody]]
    duration_minutes: Required[int | str]
    earliest_start: str
    latest_start: str
    limit: int | str


def decode_search(body: SearchBody) -> AvailabilityRequest:
    placeholder: lease.LeaseBody = {
        "name": "offer",
        "start_date": "now",
        "end_date": "now",
        "reservations": body["reservations"],
    }
    return AvailabilityRequest(
        lease.decode_create(placeholder),
        timedelta(minutes=int(body["duration_minutes"])),
        decode_when(body["earliest_start"]) if "earliest_start" in body else "now",
        decode_date(body["latest_start"]) if "latest_start" in body else None,
        int(body.get("limit", 1)),
    )


def encode_offers(found: AvailabilityResult) -> dict[str, Json]:
    body: dict[str, Json] = {"offers": [_period(*slot) for slot in found.slots]}
    if found.shortage is not None:
        body["earliest_start"] = {"free": found.shortage.free, "reason": found.shortage.reason}
    return body


def encode_hold(hold: Hold) -> dict[str, Json]:
    return {
        "id": hold.id,
        "user_id": hold.user_id,
        "project_id": hold.project_id,
        **_period(hold.start_date, hold.end_date),
        "expires_at": encode_date(hold.expires_at),
        "created_at": encode_time(hold.created_at),
        "reservations": list(hold.requests),
    }


def lease_from(body: lease.LeaseBody, hold: Hold) -> lease.LeaseBody:
    """The body of a lease with the dates and reservations of the hold."""
    return {
        **body,
        "start_date": f"{hold.start_date:%Y-%m-%d %H:%M}",
        "end_date": f"{hold.end_date:%Y-%m-%d %H:%M}",
        "reservations": cast(list[ReservationBody], list(hold.requests)),  # kept as they were sent
    }


def encode_prolongation(found: Prolongation) -> dict[str, Json]:
    return {
        "end_date": encode_date(found.end_date),
        "latest_end_date": encode_date(found.latest_end),
        "limited": found.limited,
    }


def encode_draft(draft: LeasePreview, plan: host_selection.Plan, names: Mapping[int, str] | None) -> dict[str, Json]:
    """Only administrators see `names` of hosts; others get the number of hosts."""
    made = draft.lease
    before_end = next(event.time for event in made.events if event.type is EventType.BEFORE_END)
    return {
        "name": made.name,
        **_period(made.start_date, made.end_date),
        "before_end_date": encode_date(before_end),
        "before_end_actions": [lease.encode_action(each) for each in made.before_end_actions],
        "reservations": [
            {
                "resource_type": each.resource_type,
                **_addresses(draft.addresses, each.id),
                **_chosen(plan.get(each.id, {}), names),
            }
            for each in made.reservations
        ],
    }


def encode_change(change: UpdatePreview, plan: host_selection.Plan, names: Mapping[int, str] | None) -> dict[str, Json]:
    """Omits reservations that keep their slots."""
    decision = change.decision
    found = []
    placings = [(each, change.held.get(each.id, {}), plan.get(each.id, {})) for each in change.planned]
    for each, before, after in [*placings, *((one.reservation, one.before, one.after) for one in change.released)]:
        chosen = _chosen(after, names)
        chosen["added"] = _chosen(_more(before, after), names)
        chosen["removed"] = _chosen(_more(after, before), names)
        found.append(
            {"id": each.id, "resource_type": each.resource_type, **_addresses(change.addresses, each.id), **chosen}
        )
    return {
        "id": change.lease.id,
        "name": decision.name,
        **_period(decision.start_date, decision.end_date),
        "before_end_date": encode_date(decision.before_end),
        "before_end_actions": [lease.encode_action(each) for each in decision.before_end_actions],
        "reservations": found,
    }


def decode_calendar_query(values: Mapping[str, str]) -> tuple[When, datetime | None, timedelta, str]:
    """(start, end, step, query that selects hosts)"""
    return (
        decode_when(values.get("start_date", "now")),
        decode_date(values["end_date"]) if "end_date" in values else None,
        timedelta(minutes=int(values.get("step_minutes", "60"))),
        values.get("resource_properties", ""),
    )


def encode_calendar(view: CalendarView) -> dict[str, Json]:
    return {
        "start_date": encode_date(view.start),
        "end_date": encode_date(view.end),
        "capacity": dict(view.capacity),
        "busy": [
            {"start_date": encode_date(each.start), "end_date": encode_date(each.end), "used": dict(each.used)}
            for each in view.busy
        ],
        "leases": [
            {
                "id": each.id,
                "name": each.name,
                "status": each.status,
                "start_date": encode_date(each.start_date),
                "end_date": encode_date(each.end_date),
            }
            for each in view.leases
        ],
    }


def _addresses(addresses: Addresses, reservation_id: str) -> dict[str, Json]:
    """The addresses of a floating IP reservation; empty for other types."""
    return {"floating_ips": list(addresses[reservation_id])} if reservation_id in addresses else {}


def _more(before: host_selection.Placing, after: host_selection.Placing) -> dict[int, list[Mapping[str, int]]]:
    """The slots per host that `after` has beyond `before`."""
    counts = {host: len(slots) - len(before.get(host, ())) for host, slots in after.items()}
    return {host: list(after[host])[:count] for host, count in counts.items() if count > 0}


def _chosen(placing: host_selection.Placing, names: Mapping[int, str] | None) -> dict[str, Json]:
    chosen: dict[str, Json] = {"slots": sum(len(slots) for slots in placing.values()), "hosts": len(placing)}
    if names is not None:
        chosen["on"] = {names.get(host, str(host)): len(slots) for host, slots in sorted(placing.items())}
    return chosen


def _period(start: datetime, end: datetime) -> dict[str, str]:
    return {"start_date": encode_date(start), "end_date": encode_date(end)}
