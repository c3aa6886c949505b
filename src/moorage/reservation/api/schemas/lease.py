"""Leases on the wire."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moorage.core.errors import Invalid
from moorage.reservation.api.schemas import reservation
from moorage.reservation.api.schemas.common import decode_date, decode_when, encode_date, encode_time
from moorage.reservation.capacity.lease_update import LeaseChange, NewLease
from moorage.reservation.leases.list_service import OPERATORS_KNOW, Done
from moorage.reservation.model.before_end_actions import MOST_ACTIONS, EndAction, EndActionKind
from moorage.reservation.model.leases import WIRE_EVENTS, Event, EventType, Lease
from moorage.reservation.store.event_store import StepCount
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.microversion import Version

NAME = {"type": "string", "minLength": 1, "maxLength": 255}
_DATE = {"type": "string"}
#: Stock clients send null for what was not given.
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
    "maxItems": MOST_ACTIONS,
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
    """From microversion 1.1 on."""
    properties = {**schema.document["properties"], "before_end_actions": _ACTIONS}
    return Schema({**schema.document, "properties": properties})


CREATE_OURS = _with_actions(CREATE)
UPDATE_OURS = _with_actions(UPDATE)
UPDATE_BY_VERSION = VersionedSchema([(Version(1, 0), UPDATE), (Version(1, 1), UPDATE_OURS)])

#: {action: what it needs beside its name}
_TARGETS = {EndActionKind.WEBHOOK: "url", EndActionKind.EMAIL: "to"}


def decode_create(body: Mapping[str, Any], *, peers_only: bool = False) -> NewLease:
    """`peers_only`: see `reservation.decode_create`."""
    if body.get("events"):
        raise Invalid("Events of a lease cannot be given; use before_end_date for the one before its end")
    before_end = body.get("before_end_date")
    return NewLease(
        name=body["name"],
        start_date=decode_when(body["start_date"]),
        end_date=decode_when(body["end_date"]),
        before_end_date=decode_date(before_end) if before_end else None,
        reservations=tuple(
            reservation.decode_create(each, peers_only=peers_only) for each in body.get("reservations", ())
        ),
        before_end_actions=_decode_actions(body.get("before_end_actions", ())),
    )


def decode_update(body: Mapping[str, Any]) -> LeaseChange:
    before_end = body.get("before_end_date")
    return LeaseChange(
        name=body.get("name"),
        start_date=decode_when(body["start_date"]) if "start_date" in body else None,
        end_date=decode_when(body["end_date"]) if "end_date" in body else None,
        before_end_date=decode_date(before_end) if before_end else None,
        reservations=tuple(reservation.decode_change(each) for each in body.get("reservations", ())),
        before_end_actions=(_decode_actions(body["before_end_actions"]) if "before_end_actions" in body else None),
    )


def _decode_actions(given: Iterable[Mapping[str, str]]) -> tuple[EndAction, ...]:
    actions = []
    for each in given:
        kind = EndActionKind(each["action"])
        needed = _TARGETS.get(kind)
        if needed is not None and needed not in each:
            raise Invalid(f"Missing parameter {needed}: {kind} of before_end_actions needs it")
        if more := sorted(each.keys() - {"action", needed}):
            raise Invalid(f"Unknown parameter {more[0]}: {kind} of before_end_actions does not have it")
        actions.append(EndAction(kind, "" if needed is None else each[needed]))
    return tuple(actions)


def encode_action(action: EndAction) -> dict[str, str]:
    """As it was asked for."""
    return {"action": action.kind} | ({_TARGETS[action.kind]: action.target} if action.kind in _TARGETS else {})


def encode(lease: Lease) -> dict[str, Any]:
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


def encode_ours(lease: Lease, done: Sequence[Done], *, to_admin: bool) -> dict[str, Any]:
    """From microversion 1.1 on: with what is asked for before the end, and what became of it."""
    encoded = encode(lease)
    encoded["before_end_actions"] = [
        {
            **encode_action(each.action),
            "status": each.status,
            "attempts": each.attempts,
            "error": each.error if to_admin else each.told,
        }
        for each in done
    ]
    event = lease.event(EventType.BEFORE_END)
    for each in encoded["events"]:
        if event is not None and each["id"] == event.id:
            each["error"] = event.last_error if to_admin else event.last_error and OPERATORS_KNOW
    return encoded


def encode_timeline(timeline: Sequence[tuple[Event, Sequence[StepCount]]], *, to_admin: bool) -> list[dict[str, Any]]:
    """Errors name hosts and services, which are the operators' business."""
    return [
        {
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
        for event, steps in timeline
    ]


def _encode_event(event: Event) -> dict[str, Any]:
    return {
        "id": event.id,
        "lease_id": event.lease_id,
        "event_type": event.type,
        "time": encode_date(event.time),
        "status": event.status,
        "created_at": encode_time(event.created_at),
        "updated_at": encode_time(event.updated_at),
    }
