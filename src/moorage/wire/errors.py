"""Maps errors to HTTP statuses and messages. Each service defines the shape of its error bodies (`ErrorShape`)."""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from moorage.core import errors as e
from moorage.wire.http import Response
from moorage.wire.microversion import Version

NO_VERSION = Version(0, 0)

#: The first class that matches counts, so subclasses stand before their bases.
_STATUSES: list[tuple[type[e.MoorageError], int]] = [
    (e.Invalid, 400),
    (e.Unauthorized, 401),
    (e.Forbidden, 403),
    (e.NotFound, 404),
    (e.MethodNotAllowed, 405),
    (e.NotAcceptable, 406),
    (e.Conflict, 409),
    (e.Gone, 410),
    (e.TooLarge, 413),
    (e.UnsupportedMedia, 415),
    (e.Locked, 423),
    (e.TooManyRequests, 429),
    (e.NotBuilt, 501),
    (e.Unavailable, 503),
    (e.RemoteError, 502),
]


#: Disk errors that are no bug of ours and may go away.
_DISK_ERRORS = {
    errno.ENOSPC: "is full: free some space there",
    errno.EDQUOT: "has no more space for this user: raise the user's quota or free some space",
    errno.EROFS: "is read-only: check why it was mounted so",
    errno.EIO: "fails: see the machine's log for the reason",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error that is about to be sent. `error` is None for an unexpected exception; its details stay in the log."""

    status: int
    message: str
    code: str
    request_id: str
    accept: str
    error: e.MoorageError | None
    version: Version = NO_VERSION  #: of the response; 0.0 if it could not be negotiated

    @property
    def title(self) -> str:
        return HTTPStatus(self.status).phrase


#: Renders a problem in upstream's shape.
ErrorShape = Callable[[Problem], Response]


def problem_of(
    error: BaseException, request_id: str, accept: str, version: Version = NO_VERSION, *, to_operators: bool = True
) -> Problem:
    """The problem for `error`. Only operators see the whole message; others see which service failed and the request id
    to give to an administrator.
    """
    if isinstance(error, e.MoorageError):
        message = error.message if to_operators else e.message_for_tenants(error)
        status = status_of(error)
        if message != error.message and status >= 500:
            message += f" (the log says more under {request_id})"
        return Problem(status, message, error.error_code, request_id, accept, error, version)
    return Problem(
        500,
        f"Unexpected error; the log of this service says more under {request_id}.",
        "moorage.bug",
        request_id,
        accept,
        None,
        version,
    )


def disk_error(error: BaseException) -> e.Unavailable | None:
    """`Unavailable`, if `error` means that this service cannot write its own files. The log names the file."""
    if isinstance(error, OSError) and (what := _DISK_ERRORS.get(error.errno or 0)):
        return e.Unavailable(f"the disk of this service {what}, then repeat the request", code="moorage.disk")
    return None


def status_of(error: e.MoorageError) -> int:
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
