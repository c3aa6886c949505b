"""The one tree of errors.

Raised at the lowest place that knows the cause, translated once, at the edge: `moorage.wire.errors` gives
them a status, the CLI a line of text. A message says what is wrong, where, and what to do.

What a request to another service came to has its name in `fields["peer"]`, or where it was sent in `fields["url"]`, and
the service's own sentence in `fields["detail"]`: addresses and requests inside the cloud are no business of tenants, see
`message_for_tenants`.

Not here: "no candidates" and "host rejected", which are results with reasons and not exceptions.
"""

import re
from typing import ClassVar


class MoorageError(Exception):
    """Base of all. `code` is stable and meant for programs; `fields` hold the facts behind the message."""

    code: ClassVar[str] = "moorage.error"

    def __init__(self, message: str, *, code: str | None = None, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = code or self.code
        self.fields = fields


class Invalid(MoorageError):
    """The request cannot be right, whatever the state of the system."""

    code = "moorage.invalid"


class Unauthorized(MoorageError):
    """We do not know who is calling."""

    code = "moorage.unauthorized"


class Forbidden(MoorageError):
    """We know who is calling; a policy rule says no."""

    code = "moorage.forbidden"


class OverQuota(Forbidden):
    """A limit of the project is reached."""

    code = "moorage.over_quota"


class NotFound(MoorageError):
    """It does not exist, or the caller may not know that it does."""

    code = "moorage.not_found"


class Gone(MoorageError):
    """It was kept for a while, and no longer is. The message says what still is."""

    code = "moorage.gone"


class MethodNotAllowed(MoorageError):
    """The resource exists, the verb does not. `fields["allowed"]` lists the verbs that do."""

    code = "moorage.method_not_allowed"


class NotAcceptable(MoorageError):
    """No answer in the wanted version or media type. `fields` may hold `min_version`, `max_version`."""

    code = "moorage.not_acceptable"


class UnsupportedMedia(MoorageError):
    """The body is of a type that this route does not read."""

    code = "moorage.unsupported_media"


class TooLarge(MoorageError):
    """The body is over its bound."""

    code = "moorage.too_large"


class Conflict(MoorageError):
    """Right in itself, but the state of the system forbids it now."""

    code = "moorage.conflict"


class ConcurrentUpdate(Conflict):
    """Somebody else changed it in between: read again and repeat."""

    code = "moorage.concurrent_update"


class Locked(MoorageError):
    """What was asked for is not settled yet; ask again."""

    code = "moorage.locked"


class TooManyRequests(MoorageError):
    """The caller goes too fast. `fields["retry_after_s"]` is how long it must wait."""

    code = "moorage.too_many_requests"


class NotBuilt(MoorageError):
    """The peer has it, this service honestly has not."""

    code = "moorage.not_built"


class Unavailable(MoorageError):
    """A service, host or database that is needed does not answer. Worth repeating later."""

    code = "moorage.unavailable"


class RetryableConflict(Unavailable):
    """The database gave up this transaction (serialisation failure, deadlock, locked file): run it again."""

    code = "moorage.retryable_conflict"


class RemoteError(MoorageError):
    """Another service refused. `status` is its HTTP status, `error_code` its own code where it sends one."""

    code = "moorage.remote"

    def __init__(self, message: str, *, status: int, code: str | None = None, **fields: object) -> None:
        super().__init__(message, code=code, **fields)
        self.status = status


class StartError(MoorageError):
    """A process must not start like this: the message names file, place and remedy."""

    code = "moorage.start"


def message_for_tenants(error: MoorageError) -> str:
    """The message without what it says of requests to other services, and of their addresses: only which service failed.

    Those are the failures of services that `error` is, or that led to it and are quoted in its message.
    """
    told = error.message
    seen: BaseException | None = error
    passed: set[int] = set()
    while seen is not None and id(seen) not in passed:  # an error that is raised again can be in its own context
        passed.add(id(seen))
        if isinstance(seen, MoorageError) and seen.message and ("peer" in seen.fields or "url" in seen.fields):
            told = told.replace(seen.message, _peer_failure(seen, error))
        seen = seen.__cause__ or seen.__context__
    return told


def _peer_failure(of_peer: MoorageError, error: MoorageError) -> str:
    peer = of_peer.fields.get("peer")
    service = f"the {peer} service" if peer else "another service"
    if isinstance(of_peer, Unavailable):
        return f"{service} does not answer; try again later"
    detail = str(of_peer.fields.get("detail") or "")
    # What a service refused for a reason that is the tenant's has become another error than that of a service.
    if isinstance(error, Unavailable | RemoteError) or not detail or _QUOTED_REQUEST.search(detail):
        failed = isinstance(of_peer, RemoteError) and of_peer.status >= 500
        return f"{service} {'failed' if failed else 'refused a request'}; an administrator can read why"
    return f"{service} refused: {detail}"


#: A service's sentence that quotes a third one.
_QUOTED_REQUEST = re.compile(r"://| answered \d{3} to ")
