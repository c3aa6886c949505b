"""The one tree of errors.

Code raises an error at the lowest place that knows the cause. It is translated once, at the edge: `moorage.wire.errors`
maps it to a status, the CLI to a line of text. A message names the fault, its place and the remedy.

An error about a request to another service names it in `fields["peer"]`, or has the address in `fields["url"]`;
`fields["detail"]` is that service's own message. Tenants must not see addresses and requests inside the cloud; see
`message_for_tenants`.

Not here: "no candidates" and "host rejected", which are results with reasons, not exceptions.
"""

import re
from typing import ClassVar


class MoorageError(Exception):
    """The base class. `code` is stable and meant for programs; `fields` hold the facts behind the message."""

    code: ClassVar[str] = "moorage.error"

    def __init__(self, message: str, *, code: str | None = None, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = code or self.code
        self.fields = fields


class Invalid(MoorageError):
    """The request is invalid in every state of the system."""

    code = "moorage.invalid"


class Unauthorized(MoorageError):
    """The caller is not authenticated."""

    code = "moorage.unauthorized"


class Forbidden(MoorageError):
    """The caller is authenticated, but a policy rule denies the request."""

    code = "moorage.forbidden"


class OverQuota(Forbidden):
    """A limit of the project is reached."""

    code = "moorage.over_quota"


class NotFound(MoorageError):
    """The resource does not exist, or the caller may not know that it exists."""

    code = "moorage.not_found"


class Gone(MoorageError):
    """The data was kept for a limited time, which is over. The message says which data is still there."""

    code = "moorage.gone"


class MethodNotAllowed(MoorageError):
    """The resource does not support this method. `fields["allowed"]` lists the methods that it supports."""

    code = "moorage.method_not_allowed"


class NotAcceptable(MoorageError):
    """The requested version or media type is not available. `fields` may hold `min_version` and `max_version`."""

    code = "moorage.not_acceptable"


class UnsupportedMedia(MoorageError):
    """This route does not accept the body's media type."""

    code = "moorage.unsupported_media"


class TooLarge(MoorageError):
    """The body exceeds its bound."""

    code = "moorage.too_large"


class Conflict(MoorageError):
    """The request is valid, but the current state of the system does not allow it."""

    code = "moorage.conflict"


class ConcurrentUpdate(Conflict):
    """Another request changed the resource in the meantime: read it again and repeat."""

    code = "moorage.concurrent_update"


class Locked(MoorageError):
    """The requested state is not final yet; repeat the request later."""

    code = "moorage.locked"


class TooManyRequests(MoorageError):
    """The caller sends too many requests. It must wait for `fields["retry_after_s"]` seconds."""

    code = "moorage.too_many_requests"


class NotBuilt(MoorageError):
    """Upstream has this feature; this service does not."""

    code = "moorage.not_built"


class Unavailable(MoorageError):
    """A service, host or database that is needed does not answer. The request may succeed later."""

    code = "moorage.unavailable"


class DamagedDatabase(Unavailable):
    """A SQLite file is not a database, or its pages contradict each other. `fields["file"]` is its path."""

    code = "moorage.damaged_database"


class RetryableConflict(Unavailable):
    """The database aborted this transaction (serialisation failure, deadlock, locked file): run it again."""

    code = "moorage.retryable_conflict"


class RemoteError(MoorageError):
    """Another service rejected a request. `status` is its HTTP status, `error_code` its own code if it sends one."""

    code = "moorage.remote"

    def __init__(self, message: str, *, status: int, code: str | None = None, **fields: object) -> None:
        super().__init__(message, code=code, **fields)
        self.status = status


class StartError(MoorageError):
    """A process cannot start with this configuration or state. The message names the file, the place and the remedy."""

    code = "moorage.start"


def message_for_tenants(error: MoorageError) -> str:
    """The message of `error` without requests to other services, their addresses, and paths of damaged databases; it
    only names the failed service.

    Applies to `error` itself and to all errors that led to it and whose message it quotes.
    """
    message = error.message
    seen: BaseException | None = error
    passed: set[int] = set()
    while seen is not None and id(seen) not in passed:  # an error that is raised again can be in its own context
        passed.add(id(seen))
        if isinstance(seen, DamagedDatabase):
            message = message.replace(seen.message, "the database of this service is damaged")
        elif isinstance(seen, MoorageError) and seen.message and ("peer" in seen.fields or "url" in seen.fields):
            message = message.replace(seen.message, _peer_failure(seen, error))
        seen = seen.__cause__ or seen.__context__
    return message


def _peer_failure(of_peer: MoorageError, error: MoorageError) -> str:
    peer = of_peer.fields.get("peer")
    service = f"the {peer} service" if peer else "another service"
    if isinstance(of_peer, Unavailable):
        return f"{service} does not answer; try again later"
    detail = str(of_peer.fields.get("detail") or "")
    # If the tenant caused the rejection, the service has turned it into an error of another class.
    if isinstance(error, Unavailable | RemoteError) or not detail or _QUOTED_REQUEST.search(detail):
        failed = isinstance(of_peer, RemoteError) and of_peer.status >= 500
        return f"{service} {'failed' if failed else 'refused a request'}; an administrator can read why"
    return f"{service} refused: {detail}"


#: Matches a service's message that quotes its own request to a third service.
_QUOTED_REQUEST = re.compile(r"://| answered \d{3} to ")
