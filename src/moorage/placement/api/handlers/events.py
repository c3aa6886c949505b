"""GET /moorage/v1/events, a watch of the change log, and GET /moorage/v1/changes, a page of it"""

from moorage.core.errors import NotAcceptable
from moorage.placement.api.accept import quality
from moorage.placement.api.handlers.answers import PlacementApiRequest, checked_query
from moorage.placement.api.schemas import event as schemas
from moorage.placement.forest.change_events import Cursor, Filter, listing
from moorage.wire.http import Response

EVENT_STREAM = "text/event-stream"

#: Nothing on the way may keep or collect what is to be seen at once; the second is nginx's.
_AT_ONCE = {"cache-control": "no-cache", "x-accel-buffering": "no"}


def watch(request: PlacementApiRequest) -> Response:
    """From the place that the client has seen last, else from `since`, else from now on."""
    if not quality(request.headers.get("accept") or "*/*", EVENT_STREAM):
        raise NotAcceptable(f"Only {EVENT_STREAM} is provided")
    values = checked_query(request, schemas.EVENTS)
    # A browser that comes again asks with the URL it began with, so its header counts.
    since = request.headers.get("last-event-id") or values.get("since")
    events = request.service.events
    answer = events.watch(Cursor.parse(since) if since else events.newest(), _filter(values))
    if isinstance(answer, bytes):
        return Response(200, answer, dict(_AT_ONCE), content_type=EVENT_STREAM)
    return Response(200, None, dict(_AT_ONCE), stream=answer, content_type=EVENT_STREAM)


def index(request: PlacementApiRequest) -> Response:
    """From `since`, else from the oldest that is kept."""
    values = checked_query(request, schemas.CHANGES)
    events = request.service.events
    after = Cursor.parse(values["since"]) if "since" in values else events.oldest()
    return Response(200, listing(events.page(after, _filter(values), int(values.get("limit", "100")))))


def _filter(values: dict[str, str]) -> Filter:
    kinds, subjects = (tuple(values[name].split(",")) if name in values else () for name in ("kind", "subject"))
    return Filter(kinds, subjects)
