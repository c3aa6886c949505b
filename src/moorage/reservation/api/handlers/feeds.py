"""Handlers of calendar feeds. A feed is read by plain URL: its secret is in the query, which no log contains."""

import hashlib

from moorage.core.errors import NotFound
from moorage.core.json import Json
from moorage.reservation.api.schemas.common import encode_time
from moorage.reservation.model import ical
from moorage.reservation.service import ReservationService
from moorage.reservation.store.feed_store import Feed
from moorage.wire.body import Schema
from moorage.wire.http import Request, Response

CREATE = Schema(
    {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 255}},
        "additionalProperties": False,
    }
)

#: The parameter of the URL that holds the secret.
KEY = "key"

KEY_QUERY = Schema(
    {"type": "object", "required": [KEY], "properties": {KEY: {"type": "string"}}, "additionalProperties": False}
)


def show_calendar_feed(request: Request[ReservationService]) -> Response:
    """The same document for a caller with a token."""
    return Response(200, ical.feed(request.service.calendar.feed(request.caller)), content_type=ical.CONTENT_TYPE)


def create_feed(request: Request[ReservationService]) -> Response:
    """The answer has the URL, which cannot be read again."""
    feed, secret = request.service.feeds.create_feed(request.caller, request.json["name"])
    url = f"{request.base_url}/v1/calendar-feeds/{feed.id}/leases.ics?{KEY}={secret}"
    return Response(201, {"feed": {**_encoded(feed), "url": url}}, {"cache-control": "no-store"})


def list_feeds(request: Request[ReservationService]) -> Response:
    return Response(200, {"feeds": [_encoded(each) for each in request.service.feeds.list_feeds(request.caller)]})


def revoke_feed(request: Request[ReservationService], feed_id: str) -> Response:
    request.service.feeds.revoke_feed(request.caller, feed_id)
    return Response(204)


def read_feed(request: Request[ReservationService], feed_id: str) -> Response:
    """Needs no token. Answers 304 to a program that has the present content."""
    secrets = [value for name, value in request.query.pairs if name == KEY]
    if len(secrets) != 1:
        raise NotFound("there is no such calendar feed; use the whole URL that was shown when it was created")
    body = ical.feed(request.service.feeds.read_leases(feed_id, secrets[0]))
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {
        "etag": etag,
        "cache-control": "private, no-cache",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
    if etag in known or "*" in known:
        return Response(304, headers=headers)
    return Response(200, body, headers, content_type=ical.CONTENT_TYPE)


def _encoded(feed: Feed) -> dict[str, Json]:
    return {
        "id": feed.id,
        "name": feed.name,
        "user_id": feed.user_id,
        "project_id": feed.project_id,
        "created_at": encode_time(feed.created_at),
        "read_at": encode_time(feed.read_at),
    }
