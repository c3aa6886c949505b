"""What a handler returns: a template with its values. Also the error page."""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from moorage.core.errors import MoorageError, RemoteError, message_for_tenants
from moorage.wire.errors import status_of

log = logging.getLogger(__name__)

#: Only our own files may load or run, and no other site may frame a page.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)


def policy_with_console(proxy: str) -> str:
    """The policy of the page with a terminal. `proxy`: the origin of the proxy of consoles, ``wss://host:6083``.

    xterm.js writes style elements of its own, which only `unsafe-inline` allows; scripts stay ours alone.
    """
    return _POLICY.replace("connect-src 'self'", f"connect-src 'self' {proxy}").replace(
        "style-src 'self'", "style-src 'self' 'unsafe-inline'"
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
    """`template` filled with `values`; `title` is also the page's main heading."""

    template: str
    title: str
    values: Mapping[str, object] = field(default_factory=dict)
    status: int = 200


def error_page(error: MoorageError) -> Page:
    """The error page for `error`."""
    return status_page(error_status(error), error_text(error), error.error_code)


def error_status(error: MoorageError) -> int:
    """The HTTP status of the page. A 4xx of a service is passed on."""
    if isinstance(error, RemoteError) and 400 <= error.status < 500:
        return error.status
    return status_of(error)


def error_text(error: MoorageError) -> str:
    """The service's message as one sentence, without Placement's preamble and without the text of a violated schema."""
    detail = error.fields.get("detail")
    said = str(detail or message_for_tenants(error))
    if not detail and said != error.message:
        log.warning("a request to another service failed", extra={"reason": error.message})
    parts = [" ".join(part.split()) for part in said.split("\n\n")]
    told = parts[1] if len(parts) > 1 and parts[0].startswith(_PREAMBLES) else parts[0]
    return told.removeprefix("Invalid query string parameters: ").partition(" Failed validating")[0]


def field_of(error: MoorageError | None, names: Iterable[str]) -> str:
    """The form field that an error is about, of these `names`: named by our own checks, or in the service's message."""
    if error is None:
        return ""
    if isinstance(named := error.fields.get("field"), str):
        return named
    said = error_text(error)
    # "name" and "times" are also words of other messages; they are fields if "name must be ..." is the message.
    for name in names:
        if said.startswith(f"{name} must ") or ("_" in name and re.search(rf"\b{name}\b", said)):
            return name
    return ""


_PREAMBLES = (
    "The server could not comply",
    "The resource could not be found",
    "Access was denied",
    "There was a conflict",
)

_WHAT_TO_DO = {
    403: "Another project or an administrator may have this permission. Switch the project at the top of the page.",
    404: "The resource may have ended or been deleted, or belongs to another project. Go back and reload the list.",
    409: "Another request was faster, or the resources are not available any more. Reload the page and choose again.",
    502: "The service did not understand the request. Look for the request ID in its log.",
    503: "A service is not answering. Reload this page in a moment.",
}


def status_page(status: int, message: str, code: str, request_id: str = "") -> Page:
    values = {"status": status, "message": message, "code": code, "advice": _WHAT_TO_DO.get(status, ""),
              "request_id": request_id}  # fmt: skip
    return Page("error.html", HTTPStatus(status).phrase, values, status)
