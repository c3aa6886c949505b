"""What a handler gives back: a template and its values; and the page of an error."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from moorage.core.errors import MoorageError, RemoteError, message_for_tenants
from moorage.wire.errors import status_of

log = logging.getLogger(__name__)

#: Nothing but our own files runs, nothing is loaded from elsewhere, and no page of others may frame ours.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": _POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
HTML = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Page:
    """`template` filled with `values`; `title` is also the heading that screen readers jump to."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


def error_page(error: MoorageError) -> Page:
    """What, where, what to do."""
    return trouble_page(status_shown(error), words_of(error), error.error_code)


def status_shown(error: MoorageError) -> int:
    """A refusal of a service keeps its status."""
    if isinstance(error, RemoteError) and 400 <= error.status < 500:
        return error.status
    return status_of(error)


def words_of(error: MoorageError) -> str:
    """What a service has said, in a sentence: without Placement's preamble, and without the schema that was not met."""
    detail = error.fields.get("detail")
    said = str(detail or message_for_tenants(error))
    if not detail and said != error.message:
        log.warning("another service failed", extra={"reason": error.message})
    parts = [" ".join(part.split()) for part in said.split("\n\n")]
    told = parts[1] if len(parts) > 1 and parts[0].startswith(_PREAMBLES) else parts[0]
    return told.removeprefix("Invalid query string parameters: ").partition(" Failed validating")[0]


_PREAMBLES = (
    "The server could not comply",
    "The resource could not be found",
    "Access was denied",
    "There was a conflict",
)


_WHAT_TO_DO = {
    403: "Another project or an administrator may be allowed to do this: switch the project at the top of the page.",
    404: "It may have ended or been deleted, or belong to another project. Go back, and load the list again.",
    409: "Somebody else was faster, or what you asked for does not fit now. Go back, load the page again, and choose anew.",
    502: "The service did not understand. Its log says more under the request's number.",
    503: "A service does not answer just now. Load this page again in a moment.",
}


def trouble_page(status: int, message: str, code: str, request_id: str = "") -> Page:
    values = {"status": status, "message": message, "code": code, "advice": _WHAT_TO_DO.get(status, ""),
              "request_id": request_id}  # fmt: skip
    return Page("error.html", HTTPStatus(status).phrase, values, status)
