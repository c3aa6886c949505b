"""The change log: /moorage/v1/events (server-sent events), /moorage/v1/changes (a page), and /moorage/v1/history (past
states of providers and consumers).
"""

from collections.abc import Callable
from datetime import datetime

from moorage.core import parsing
from moorage.core.errors import Invalid, NotAcceptable
from moorage.placement.api.handlers.answers import PlacementApiRequest, checked_query
from moorage.placement.api.schemas import event as schemas
from moorage.placement.forest.change_entries import ChangeEvent, Cursor, Filter, iso_utc, page_json
from moorage.placement.service.history_service import PastState
from moorage.placement.store.change_store import TimeRange
from moorage.wire.http import Response, accept_quality

EVENT_STREAM = "text/event-stream"


#: Keeps proxies from caching or buffering the stream; the second header is nginx's.
_UNBUFFERED = {"cache-control": "no-cache", "x-accel-buffering": "no"}


def watch_changes(request: PlacementApiRequest) -> Response:
    """Resumes after the header ``Last-Event-ID``, else starts after `since`, else with the next change."""
    if not accept_quality(request.headers.get("accept") or "*/*", EVENT_STREAM):
        raise NotAcceptable(f"Only {EVENT_STREAM} is provided")
    values = checked_query(request, schemas.EVENTS)
    # A browser reconnects with its first URL, so the header takes precedence.
    since = request.headers.get("last-event-id") or values.get("since")
    events = request.service.events
    answer = events.watch(Cursor.parse(since) if since else events.newest_cursor(), _filter(values))
    if isinstance(answer, bytes):
        return Response(200, answer, dict(_UNBUFFERED), content_type=EVENT_STREAM)
    return Response(200, None, dict(_UNBUFFERED), stream=answer, content_type=EVENT_STREAM)


def list_changes(request: PlacementApiRequest) -> Response:
    """After `since`, else from the oldest retained entry."""
    values = checked_query(request, schemas.CHANGES)
    events = request.service.events
    after = Cursor.parse(values["since"]) if "since" in values else events.oldest_cursor()
    return Response(200, page_json(events.read_page(after, _filter(values), int(values.get("limit", "100")))))


def _filter(values: dict[str, str]) -> Filter:
    kinds, subjects = (tuple(values[name].split(",")) if name in values else () for name in ("kind", "subject"))
    return Filter(kinds, subjects)


def show_provider_history(request: PlacementApiRequest, uuid: str) -> Response:
    return _state_reply(
        request.service.history.provider_state(uuid, query_time(checked_query(request, schemas.STATE), "at"))
    )


def show_consumer_history(request: PlacementApiRequest, consumer_uuid: str) -> Response:
    return _state_reply(
        request.service.history.consumer_state(consumer_uuid, query_time(checked_query(request, schemas.STATE), "at"))
    )


def list_provider_changes(request: PlacementApiRequest, uuid: str) -> Response:
    return _entries_reply(request, uuid, request.service.history.provider_entries)


def list_consumer_changes(request: PlacementApiRequest, consumer_uuid: str) -> Response:
    return _entries_reply(request, consumer_uuid, request.service.history.consumer_entries)


def _state_reply(state: PastState) -> Response:
    body = {
        "at": iso_utc(state.at),
        "changed_at": iso_utc(state.changed_at),
        "id": str(state.cursor),
        "state": state.document,
    }
    return Response(200, body)


def _entries_reply(request: PlacementApiRequest, uuid: str, read: Callable[..., list[ChangeEvent]]) -> Response:
    values = checked_query(request, schemas.ENTRIES)
    limit = int(values.get("limit", "100"))
    after = Cursor.parse(values["after"]) if "after" in values else Cursor(0)
    found = read(uuid, TimeRange(query_time(values, "since"), query_time(values, "until")), after, limit + 1)
    changes = ",".join(entry.json() for entry in found[:limit])
    following = f'"{found[limit - 1].cursor}"' if len(found) > limit else "null"
    return Response(200, f'{{"changes":[{changes}],"next":{following}}}'.encode())


def query_time(values: dict[str, str], name: str) -> datetime | None:
    """The time in the query parameter `name`, with a time zone; None if it is missing. Raises `Invalid`."""
    text = values.get(name)
    if text is None:
        return None
    try:
        return parsing.parse_time(text, zone=None)
    except ValueError as error:
        raise Invalid(f"{name}={text!r} is not a time with a zone; write it like 2026-03-01T09:30:00Z") from error
