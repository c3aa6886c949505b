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


def error_page(error: MoorageError, path: str = "", *, has_session: bool = False, has_projects: bool = False) -> Page:
    """The error page for `error`. `path`: the address, below the mount, of which a page that is missing is named.

    `has_projects`: the signed-in user has roles in other projects, too.
    """
    status, missing = error_status(error), missing_of(path)
    if status == 404 and missing is not None and missing.name.casefold() in error_text(error).casefold():
        return status_page(404, f"There is no {missing.kind} {missing.name}", error.error_code, back=missing)
    advice = None
    if status == 403:
        advice = "" if not has_session or error.error_code in _OF_FORMS else _ASK + _SWITCH * has_projects
    return status_page(status, error_text(error), error.error_code, advice=advice)


@dataclass(frozen=True, slots=True)
class Missing:
    """What an address names. `list_path`, `list_words`: the page that lists all of its kind."""

    kind: str  #: ``lease``
    name: str
    list_path: str
    list_words: str


#: (beginning of the path, kind, words for the list). The first one that matches counts.
_KINDS = (
    ("/leases/holds/", "hold", "holds"),
    ("/leases/", "lease", "leases"),
    ("/servers/", "server", "servers"),
    ("/hosts/", "host", "hosts"),
    ("/map/", "host", "hosts"),
    ("/devices/", "device", "accelerators"),
    ("/people/users/", "person", "people"),
    ("/people/projects/", "project", "projects"),
)
#: Names without blanks: an address that somebody was sent must not make a page say whole sentences.
_NAME = re.compile(r"[\w.:-]+")
_LISTS = {"/devices/": "/accelerators", "/people/users/": "/people"}


def missing_of(path: str) -> Missing | None:
    """What the address names; None if it names nothing of its own.

    >>> missing_of("/leases/nope/change")
    Missing(kind='lease', name='nope', list_path='/leases', list_words='leases')
    """
    for prefix, kind, words in _KINDS:
        name = path.removeprefix(prefix).partition("/")[0]
        if path.startswith(prefix) and _NAME.fullmatch(name):
            return Missing(kind, name, _LISTS.get(prefix, prefix.rstrip("/")), words)
    return None


def sentence(text: str) -> str:
    """`text` with a capital letter at its beginning, unless it begins with a name, such as ``compute-1``."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


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

#: Codes of refused forms, whose messages say what to do.
_OF_FORMS = ("dashboard.form_token", "dashboard.origin")
_ASK = "An administrator can give you this permission."
_SWITCH = " You may also have it in another project: switch the project at the top of the page."
_GONE = "It may have ended or been deleted, or belong to another project."

#: {status: advice}. That for 403 depends on the user.
_WHAT_TO_DO = {
    404: f"{_GONE} Go back and reload the list.",
    409: "Another request was faster, or the resources are not available any more. Reload the page and choose again.",
    502: "The service did not understand the request. Look for the request ID in its log.",
    503: "A service is not answering. Reload this page in a moment.",
}


def status_page(
    status: int,
    message: str,
    code: str,
    request_id: str = "",
    *,
    advice: str | None = None,
    back: Missing | None = None,
) -> Page:
    """`advice`: what to do, otherwise that for the status. `back`: what is missing, whose list the page links to."""
    if advice is None:
        advice = _GONE if back else _WHAT_TO_DO.get(status, "")
    values = {"status": status, "message": sentence(message), "code": code, "advice": advice,
              "request_id": request_id, "back": back}  # fmt: skip
    return Page("error.html", HTTPStatus(status).phrase, values, status)
