"""The wire format of leases, series and maintenance windows."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Required, TypedDict

from moorage.core.errors import Invalid
from moorage.core.json import Json, JsonObject
from moorage.reservation.api.schemas import reservation
from moorage.reservation.api.schemas.common import (
    OURS,
    PEERS,
    decode_date,
    decode_when,
    encode_date,
    encode_time,
    tolerant,
)
from moorage.reservation.capacity.lease_update import LeaseChange, NewLease, period_of
from moorage.reservation.leases.list_service import FAILED_FOR_OPERATOR, BeforeEndResult
from moorage.reservation.model.before_end_actions import MAX_ACTIONS, EndAction, EndActionKind
from moorage.reservation.model.leases import WIRE_EVENTS, Event, EventStatus, EventType, Lease
from moorage.reservation.model.reservation_requests import PHYSICAL_HOST
from moorage.reservation.model.steps import LeaveServer
from moorage.reservation.store.archive_store import DeletedLease
from moorage.reservation.store.capacity_store import Incident
from moorage.reservation.store.event_store import StepCount
from moorage.wire.body import Schema, VersionedSchema

NAME = {"type": "string", "minLength": 1, "maxLength": 255}
_DATE = {"type": "string"}
#: Stock clients send null for omitted values.
OPTIONAL_DATE = {"type": ["string", "null"]}
_CHANGES = {"type": "array", "items": {"type": "object"}, "maxItems": 100}
RESERVATIONS = _CHANGES | {"items": {"type": "object", "description": reservation.DESCRIPTION}}

CREATE = Schema(
    {
        "type": "object",
        "required": ["start_date", "end_date", "name"],
        "properties": {
            "name": NAME,
            "start_date": _DATE,
            "end_date": _DATE,
            "before_end_date": OPTIONAL_DATE,
            "reservations": RESERVATIONS,
            "events": {"type": "array"},
        },
        "additionalProperties": False,
    }
)

UPDATE = Schema(
    {
        "type": "object",
        "properties": {
            "name": NAME,
            "start_date": _DATE,
            "end_date": _DATE,
            "before_end_date": OPTIONAL_DATE,
            "reservations": _CHANGES,
        },
        "additionalProperties": False,
    }
)


_ACTIONS = {
    "type": "array",
    "maxItems": MAX_ACTIONS,
    "uniqueItems": True,
    "items": {
        "type": "object",
        "required": ["action"],
        "properties": {
            "action": {"enum": [str(kind) for kind in EndActionKind]},
            "url": {"type": "string", "maxLength": 2000},
            "to": {"type": "string", "maxLength": 254},
        },
        "additionalProperties": False,
    },
}


def _with_actions(schema: Schema) -> Schema:
    """The schema with `before_end_actions`, which microversion 1.1 added."""
    properties = {**schema.document["properties"], "before_end_actions": _ACTIONS}
    return Schema({**schema.document, "properties": properties})


CREATE_OURS = _with_actions(CREATE)
UPDATE_OURS = _with_actions(UPDATE)
#: Up to 1.0, unknown keys are ignored, as by the peer.
CREATE_AS_PEER = tolerant(CREATE)
UPDATE_BY_VERSION = VersionedSchema([(PEERS, tolerant(UPDATE)), (OURS, UPDATE_OURS)])

_MAX_SERIES = 100

CREATE_SERIES = Schema(
    {
        "type": "object",
        "required": [*CREATE.document["required"], "every_days", "count"],
        "properties": {
            **CREATE_OURS.document["properties"],
            "name": {"type": "string", "minLength": 1, "maxLength": 240},
            "every_days": {"type": "integer", "minimum": 1, "maximum": 366},
            "count": {"type": "integer", "minimum": 1, "maximum": _MAX_SERIES},
        },
        "additionalProperties": False,
    }
)

MAINTENANCE = Schema(
    {
        "type": "object",
        "required": ["name", "start_date", "end_date", "hosts"],
        "properties": {
            "name": NAME,
            "start_date": {"type": "string"},
            "end_date": {"type": "string"},
            "hosts": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": 255},
                "minItems": 1,
                "maxItems": 50,
                "uniqueItems": True,
            },
        },
        "additionalProperties": False,
    }
)

_AFFECTED_KEYS = ("id", "name", "project_id", "start_date", "end_date", "status")

#: {action: the key that names its target}
_TARGETS = {EndActionKind.WEBHOOK: "url", EndActionKind.EMAIL: "to"}


class LeaseBody(TypedDict, total=False):
    """A lease in a request, which the schema of the route has validated."""

    name: Required[str]
    start_date: Required[str]
    end_date: Required[str]
    before_end_date: str | None
    events: list[JsonObject]
    reservations: list[reservation.ReservationBody]
    before_end_actions: list[dict[str, str]]


class SeriesBody(LeaseBody):
    every_days: int | str
    count: int | str


class LeaseChangeBody(TypedDict, total=False):
    name: str
    start_date: str
    end_date: str
    before_end_date: str | None
    reservations: list[reservation.ReservationBody]
    before_end_actions: list[dict[str, str]]


class MaintenanceBody(TypedDict):
    name: str
    start_date: str
    end_date: str
    hosts: list[str]


def decode_create(body: LeaseBody, *, as_peer: bool = False) -> NewLease:
    """`as_peer`: as in microversion 1.0; see `reservation.decode_create`."""
    if as_peer:
        _refuse_ours(body)
    elif body.get("events"):
        raise Invalid("events cannot be set; use before_end_date to set the time of the before_end event")
    before_end = body.get("before_end_date") or (_asked_before_end(body.get("events", ())) if as_peer else None)
    return NewLease(
        name=body["name"],
        start_date=decode_when(body["start_date"]),
        end_date=decode_when(body["end_date"]),
        before_end_date=decode_date(before_end) if before_end else None,
        reservations=tuple(reservation.decode_create(each, as_peer=as_peer) for each in body.get("reservations", ())),
        before_end_actions=_decode_actions(body.get("before_end_actions", ())),
    )


def _refuse_ours(body: Mapping[str, object]) -> None:
    """Raises `Invalid` for a key that 1.0 does not know and 1.1 does: it would be requested and silently not done."""
    if "before_end_actions" in body:
        raise Invalid(
            "before_end_actions requires microversion 1.1: send the header OpenStack-API-Version: reservation 1.1"
        )


def _asked_before_end(events: Iterable[object]) -> str | None:
    """The time of the first ``before_end_lease`` in `events`, in the format of ``lease create --event``.

    The peer keeps events of any type without their times, so none of them ever comes. The others are not kept here.
    """
    for event in events:
        if isinstance(event, dict) and event.get("event_type") == EventType.BEFORE_END:
            date = event.get("event_date")
            return date if isinstance(date, str) else None
    return None


def decode_update(body: LeaseChangeBody, *, as_peer: bool = False) -> LeaseChange:
    """`as_peer`: as in microversion 1.0; see `reservation.decode_change`."""
    if as_peer:
        _refuse_ours(body)
    before_end = body.get("before_end_date")
    actions = body.get("before_end_actions")
    return LeaseChange(
        name=body.get("name"),
        start_date=decode_when(body["start_date"]) if "start_date" in body else None,
        end_date=decode_when(body["end_date"]) if "end_date" in body else None,
        before_end_date=decode_date(before_end) if before_end else None,
        reservations=tuple(reservation.decode_change(each, as_peer=as_peer) for each in body.get("reservations", ())),
        before_end_actions=None if actions is None else _decode_actions(actions),
    )


def _decode_actions(given: Iterable[Mapping[str, str]]) -> tuple[EndAction, ...]:
    actions = []
    for each in given:
        kind = EndActionKind(each["action"])
        needed = _TARGETS.get(kind)
        if needed is not None and needed not in each:
            raise Invalid(f"Missing parameter {needed}: the action {kind} in before_end_actions requires it")
        if more := sorted(each.keys() - {"action", needed}):
            raise Invalid(f"Unknown parameter {more[0]}: the action {kind} in before_end_actions does not accept it")
        actions.append(EndAction(kind, "" if needed is None else each[needed]))
    return tuple(actions)


def encode_action(action: EndAction) -> dict[str, str]:
    """The action in the form of a request."""
    return {"action": action.kind} | ({_TARGETS[action.kind]: action.target} if action.kind in _TARGETS else {})


def encode(lease: Lease) -> dict[str, Json]:
    return {
        "id": lease.id,
        "name": lease.name,
        "user_id": lease.user_id,
        "project_id": lease.project_id,
        "start_date": encode_date(lease.start_date),
        "end_date": encode_date(lease.end_date),
        "trust_id": lease.trust_id,
        "status": lease.status,
        "degraded": lease.degraded,
        "created_at": encode_time(lease.created_at),
        "updated_at": encode_time(lease.updated_at),
        "reservations": [reservation.encode(each) for each in lease.reservations],
        "events": [_encode_event(each) for each in lease.events if each.type in WIRE_EVENTS],
    }


def encode_ours(lease: Lease, done: Sequence[BeforeEndResult], *, to_admin: bool) -> dict[str, Json]:
    """From microversion 1.1 on: with the actions before the end, and their results."""
    encoded = encode(lease)
    encoded["before_end_actions"] = [
        {
            **encode_action(each.action),
            "status": each.status,
            "attempts": each.attempts,
            "error": each.error if to_admin else each.shown_error,
            **({"not_saved": [_encode_left(one) for one in each.not_saved]} if each.not_saved else {}),
        }
        for each in done
    ]
    before_end = lease.event(EventType.BEFORE_END)
    events = []
    for event in lease.events:
        if event.type in WIRE_EVENTS:
            events.append(_encode_event(event))
            if before_end is not None and event.id == before_end.id:
                error = event.last_error if to_admin else event.last_error and FAILED_FOR_OPERATOR
                events[-1]["error"] = error
    encoded["events"] = events
    return encoded


def encode_deleted(deleted: DeletedLease) -> dict[str, Json]:
    """Like a lease, with the time of its deletion instead of its last status."""
    return {**encode(deleted.lease), "status": "DELETED", "deleted_at": encode_time(deleted.deleted_at)}


def _encode_left(step: LeaveServer) -> dict[str, Json]:
    return {"server_id": step.server_id, "reason": step.reason}


def encode_timeline(
    timeline: Sequence[tuple[Event, Sequence[StepCount]] | Incident], *, to_admin: bool
) -> list[dict[str, Json]]:
    """Errors and the reasons of incidents may name hosts and services, so only administrators get them."""
    return [
        _encode_incident(entry, to_admin=to_admin)
        if isinstance(entry, Incident)
        else _encode_entry(*entry, to_admin=to_admin)
        for entry in timeline
    ]


def _encode_entry(event: Event, steps: Sequence[StepCount], *, to_admin: bool) -> dict[str, Json]:
    return {
        "id": event.id,
        "event_type": event.type,
        "time": encode_date(max(event.time, event.created_at)),
        "status": event.status,
        "attempts": event.attempt,
        "updated_at": encode_time(event.updated_at),
        "error": event.last_error if to_admin else None,
        "steps": [
            {
                "kind": step.kind,
                "total": step.total,
                "done": step.done,
                "failed": step.failed,
                "attempts": step.attempts,
                "updated_at": encode_time(step.changed_at),
                "error": step.error if to_admin else None,
            }
            for step in steps
        ],
    }


def _encode_incident(incident: Incident, *, to_admin: bool) -> dict[str, Json]:
    """In the form of an event that is over."""
    return {
        "id": incident.id,
        "event_type": f"resources_{incident.kind}",
        "time": encode_date(incident.at),
        "status": EventStatus.DONE,
        "attempts": 0,
        "updated_at": None,
        "error": incident.reason if to_admin else None,
        "steps": [],
    }


def _encode_event(event: Event) -> dict[str, Json]:
    return {
        "id": event.id,
        "lease_id": event.lease_id,
        "event_type": event.type,
        "time": encode_date(event.time),
        "status": event.status,
        "created_at": encode_time(event.created_at),
        "updated_at": encode_time(event.updated_at),
    }


def decode_series(body: SeriesBody, now: datetime) -> list[NewLease]:
    """The leases of a series. The first has the dates of the body; each later one starts `every_days` days after the
    one before, at the same time of day in UTC.
    """
    first, count, step = decode_create(body), int(body["count"]), timedelta(days=int(body["every_days"]))
    start, end = period_of(first, now)
    if count > 1 and end - start > step:
        raise Invalid("the leases of the series would overlap: every_days is shorter than the duration of a lease")
    return [
        replace(
            first,
            name=f"{first.name} {number + 1}/{count}",
            start_date=start + step * number,
            end_date=end + step * number,
            before_end_date=None if first.before_end_date is None else first.before_end_date + step * number,
        )
        for number in range(count)
    ]


def decode_maintenance(body: MaintenanceBody) -> tuple[NewLease, Sequence[str]]:
    """(a lease of whole hosts, the names of the hosts)"""
    names = body["hosts"]
    whole: reservation.ReservationBody = {
        "resource_type": PHYSICAL_HOST,
        "min": len(names),
        "max": len(names),
        "hypervisor_properties": json.dumps(["in", "$hypervisor_hostname", list(names)]),
        "resource_properties": "",
    }
    plain: LeaseBody = {"name": body["name"], "start_date": body["start_date"], "end_date": body["end_date"]}
    return decode_create({**plain, "reservations": [whole]}), names


def encode_affected(found: Sequence[Lease]) -> list[dict[str, Json]]:
    """The keys of leases that are shown to operators who plan a maintenance."""
    encoded = (encode(each) for each in found)
    return [{key: each[key] for key in _AFFECTED_KEYS} for each in encoded]
