"""The parts that all handlers share: response headers, links, version discovery, and checks of queries."""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from email.utils import format_datetime
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec
from urllib.parse import urlsplit

from moorage.core.errors import NotAcceptable
from moorage.placement.service.service import PlacementService
from moorage.placement.sync import snapshot
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.http import Request, Response, accept_quality
from moorage.wire.microversion import Version, VersionRange

if TYPE_CHECKING:
    import jsonschema

P = ParamSpec("P")

PlacementApiRequest = Request[PlacementService]
Handler = Callable[Concatenate[PlacementApiRequest, P], Response]


VERSIONS = VersionRange(service_type="placement", minimum=Version(1, 0), maximum=Version(1, 39), loose=True)


def json_only(handler: Handler[P]) -> Handler[P]:
    """`handler`, but with status 406 for clients that do not accept JSON."""

    @wraps(handler)
    def checked(request: PlacementApiRequest, /, *args: P.args, **kwargs: P.kwargs) -> Response:
        accept = request.headers.get("accept")
        if accept and not accept_quality(accept, "application/json"):
            raise NotAcceptable("Only application/json is provided")
        return handler(request, *args, **kwargs)

    return checked


def with_stale_reads(handler: Handler[P]) -> Handler[P]:
    """`handler`, which must only read: while the database does not answer, it may return the last known state.

    Headers of the response then contain the age of that state.
    """
    checked = json_only(handler)

    @wraps(handler)
    def reading(request: PlacementApiRequest, /, *args: P.args, **kwargs: P.kwargs) -> Response:
        with snapshot.StaleRead() as read:
            response = checked(request, *args, **kwargs)
        if read.age_s is None:
            return response
        return replace(response, headers=response.headers | _stale_headers(request.service.clock.now(), read.age_s))

    return reading


def _stale_headers(now: datetime, age_s: float) -> dict[str, str]:
    """``age`` as in RFC 9111, ``warning`` 110 as of older caches, and the time of the state, for people."""
    return {
        "age": str(math.ceil(age_s)),
        "warning": '110 moorage "the database does not answer: this is the last known state"',
        "x-moorage-as-of": (now - timedelta(seconds=age_s)).isoformat(timespec="milliseconds"),
    }


def answer(
    request: PlacementApiRequest,
    body: object,
    modified: datetime | None = None,
    *,
    status: int = 200,
    location: str | None = None,
) -> Response:
    """A JSON answer.

    From 1.15 on it contains the time of the last change, or the present time if `modified` is None.
    """
    headers = freshness_headers(request, modified)
    if location is not None:
        headers["location"] = request.base_url + location
    return Response(status, body, headers)


def freshness_headers(request: PlacementApiRequest, modified: datetime | None = None) -> dict[str, str]:
    if request.version < (1, 15):
        return {}
    moment = modified or request.service.clock.now()
    return {"cache-control": "no-cache", "last-modified": _http_date(moment.replace(microsecond=0))}


@lru_cache(maxsize=4096)
def _http_date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


def answer_without_body(request: PlacementApiRequest, status: int = 204, *, location: str | None = None) -> Response:
    """No body, no content type."""
    return Response(status, None, {} if location is None else {"location": request.base_url + location})


def link_path(request: PlacementApiRequest, below: str) -> str:
    """The path of a link: with the mount prefix, without scheme and host."""
    return urlsplit(request.base_url).path + below


def checked_query(request: PlacementApiRequest, schemas: Schema | VersionedSchema) -> dict[str, str]:
    """{query parameter: its last value}. Raises `Invalid`."""
    schema = schemas.for_version(request.version) if isinstance(schemas, VersionedSchema) else schemas
    values = dict(request.query.pairs)
    if schema is not None:
        schema.validate(values, lambda error: f"Invalid query string parameters: {error}")
    return values


def body_error_text(error: "jsonschema.ValidationError") -> str:
    return f"JSON does not validate: {error}"


def show_versions(request: PlacementApiRequest) -> Response:
    version = {
        "id": f"v{VERSIONS.minimum}",
        "max_version": str(VERSIONS.maximum),
        "min_version": str(VERSIONS.minimum),
        "status": "CURRENT",
        "links": [{"rel": "self", "href": ""}],
    }
    return answer(request, {"versions": [version]})
