"""/moorage/v1/history: what providers and consumers were"""

from collections.abc import Callable
from datetime import datetime

from moorage.core import parsing
from moorage.core.errors import Invalid
from moorage.placement.api.handlers.answers import PlacementApiRequest, checked_query
from moorage.placement.api.schemas import event as schemas
from moorage.placement.forest.change_events import ChangeEvent, Cursor, written
from moorage.placement.service.history_service import State
from moorage.placement.store.change_store import TimeRange
from moorage.wire.http import Response


def provider(request: PlacementApiRequest, uuid: str) -> Response:
    return _state(request.service.history.provider(uuid, moment(checked_query(request, schemas.STATE), "at")))


def consumer(request: PlacementApiRequest, consumer_uuid: str) -> Response:
    return _state(request.service.history.consumer(consumer_uuid, moment(checked_query(request, schemas.STATE), "at")))


def provider_entries(request: PlacementApiRequest, uuid: str) -> Response:
    return _entries(request, uuid, request.service.history.provider_entries)


def consumer_entries(request: PlacementApiRequest, consumer_uuid: str) -> Response:
    return _entries(request, consumer_uuid, request.service.history.consumer_entries)


def _state(state: State) -> Response:
    body = {
        "at": written(state.at),
        "changed_at": written(state.changed_at),
        "id": str(state.cursor),
        "state": state.document,
    }
    return Response(200, body)


def _entries(request: PlacementApiRequest, uuid: str, read: Callable[..., list[ChangeEvent]]) -> Response:
    values = checked_query(request, schemas.ENTRIES)
    most = int(values.get("limit", "100"))
    after = Cursor.parse(values["after"]) if "after" in values else Cursor(0)
    found = read(uuid, TimeRange(moment(values, "since"), moment(values, "until")), after, most + 1)
    changes = ",".join(entry.json() for entry in found[:most])
    following = f'"{found[most - 1].cursor}"' if len(found) > most else "null"
    return Response(200, f'{{"changes":[{changes}],"next":{following}}}'.encode())


def moment(values: dict[str, str], name: str) -> datetime | None:
    """Aware. Raises `Invalid`."""
    text = values.get(name)
    if text is None:
        return None
    try:
        return parsing.parse_time(text, zone=None)
    except ValueError as error:
        raise Invalid(f"{name}={text!r} is no time with a zone; write it like 2026-03-01T09:30:00Z") from error
