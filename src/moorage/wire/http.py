"""`Request`, `Response` and `Route`: the types that handlers and route tables are written with.

Also here: which media types an Accept header allows (`accept_quality`), and the protocols `Authenticator` and
`Policy`, which the kernel calls and `moorage.identity` implements.
Not here: routing and the checks before a handler (`moorage.wire.app`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, overload
from urllib.parse import parse_qsl

from moorage.core.caller import Caller
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.microversion import Version

if TYPE_CHECKING:
    from moorage.wire.audit_entries import AuditedChange

S = TypeVar("S")
D = TypeVar("D")


class Query:
    """The query parameters, in order and with repetitions."""

    def __init__(self, text: str) -> None:
        self.pairs: list[tuple[str, str]] = parse_qsl(text, keep_blank_values=True) if text else []

    def first(self, name: str) -> str | None:
        """The first value. OpenStack's clients send the text ``None`` for "no filter", so it counts as absent."""
        for key, value in self.pairs:
            if key == name and value != "None":
                return value
        return None

    def every(self, name: str) -> list[str]:
        return [value for key, value in self.pairs if key == name]

    def names(self) -> set[str]:
        return {key for key, _ in self.pairs}


class Headers(Mapping[str, str]):
    """The headers of a request by lower-case name, read from the WSGI environment on demand.

    Some servers put their process environment there too: of a hundred entries, a request needs about three.
    """

    __slots__ = ("_environ",)

    def __init__(self, environ: Mapping[str, Any]) -> None:
        self._environ = environ

    @overload
    def get(self, key: str, /) -> str | None: ...
    @overload
    def get(self, key: str, /, default: str | D) -> str | D: ...
    def get(self, key: str, /, default: str | D | None = None) -> str | D | None:
        value: str | D | None = self._environ.get(_variable(key), default)
        return value

    def __getitem__(self, key: str) -> str:
        value: str = self._environ[_variable(key)]
        return value

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and _variable(key) in self._environ

    def __iter__(self) -> Iterator[str]:
        for name in self._environ:
            if name in _CONTENT or (name.startswith("HTTP_") and name[5:] not in _CONTENT):
                yield name.removeprefix("HTTP_").replace("_", "-").lower()

    def __len__(self) -> int:
        return sum(1 for _ in self)


#: Headers that WSGI stores without the prefix ``HTTP_``.
_CONTENT = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})


@lru_cache(maxsize=256)
def _variable(name: str) -> str:
    variable = name.upper().replace("-", "_")
    return variable if variable in _CONTENT else f"HTTP_{variable}"


@lru_cache(maxsize=256)
def accept_quality(accept: str, media_type: str) -> float:
    """The quality of `media_type` in an Accept header, 0 (not acceptable) to 1; the most specific range counts."""
    best = (-1, 0.0)
    kind = media_type.partition("/")[0]
    for part in accept.split(","):
        media_range, *parameters = (piece.strip().lower() for piece in part.split(";"))
        specificity = {media_type: 2, f"{kind}/*": 1, "*/*": 0}.get(media_range)
        if specificity is not None:
            best = max(best, (specificity, _q_parameter(parameters)))
    return best[1]


def _q_parameter(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


@dataclass(slots=True)
class Request(Generic[S]):
    """A request that was authenticated; its microversion is negotiated, its body decoded and validated."""

    service: S  #: the use cases behind the route table
    caller: Caller
    method: str
    path: str  #: below the mount, as sent
    query: Query
    version: Version  #: Version(0, 0) for a service without microversions
    request_id: str
    base_url: str  #: scheme, host and mount prefix, without a trailing slash: for links
    headers: Mapping[str, str]  #: by lower-case name
    address: str  #: of the client, by `wire.forwarded`; "" if unknown
    json: Any  #: None if the route reads no JSON
    stream: IO[bytes]  #: the raw body of a route with ``reads="stream"`` or ``"raw"``, else empty
    #: Whether the body is chunked and the stream raises an error if the client dies before the end of the body.
    has_chunked_body: bool
    allowed: Callable[[str], bool]  #: whether a policy rule allows this caller; for rules that depend on the request
    change: "AuditedChange | None" = None  #: its audit entry; None for a request that has none


@dataclass(slots=True)
class Response:
    """A response. `body` is encoded as JSON (bytes are sent as they are); None sends no body and no content type."""

    status: int = 200
    body: object = None
    headers: dict[str, str] = field(default_factory=dict)
    stream: Iterable[bytes] | None = None  #: sent piece by piece instead of `body`, with `content_type`
    content_type: str = "application/json"
    cookies: tuple[str, ...] = ()  #: values of ``Set-Cookie`` headers


@dataclass(frozen=True)
class ResponseDoc:
    """The documentation of a successful response. `body` is None for a response without a body."""

    description: str
    body: Schema | VersionedSchema | None = None
    content_type: str = "application/json"


@dataclass(frozen=True)
class OperationDoc:
    """The texts and response schemas of one method of one path, for the OpenAPI document."""

    summary: str
    responses: Mapping[int, ResponseDoc]
    #: The schema that the handler validates ``{name: last value}`` of the query against.
    query: Schema | VersionedSchema | None = None
    #: An example query: {parameter: value}.
    example: Mapping[str, str] = field(default_factory=dict)
    notes: str = ""
    #: Error statuses in addition to those that every operation of its kind may return.
    error_statuses: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Route(Generic[S]):
    """One row of a service's route table.

    `rule` names the policy rule that must allow the caller; None makes the route public. Outside
    ``since <= version <= until`` the route does not exist (404).
    """

    method: str
    path: str  #: ``/servers/{server_id}/action``; placeholders become keyword arguments of the handler
    handler: Callable[..., Response]
    rule: str | None
    schema: Schema | VersionedSchema | None = None
    since: Version | None = None
    until: Version | None = None
    #: Called with the request and the path parameters before the body is validated: Placement answers 404 for an
    #: unknown provider even if the body is invalid.
    before_schema: Callable[..., None] | None = None
    #: How the body is read: ``json``; ``raw`` (undecoded bytes in `Request.stream`, bounded); ``stream`` (undecoded,
    #: read while it arrives, unbounded); ``none`` (ignored).
    reads: str = "json"
    #: Bound of the body. None: the service's bound for JSON, or 64 KiB on routes that need no authentication.
    max_bytes: int | None = None
    #: For methods other than GET and HEAD: ``change``; ``none`` for a query that needs a body; or ``routine`` for the
    #: regular reports and polls of host agents, which the audit trail records only if they were rejected.
    effect: Literal["change", "none", "routine"] = "change"
    #: Query parameters that name the changed resources; each holds ids or names separated by commas.
    ids_in_query: tuple[str, ...] = ()
    #: For a service that publishes OpenAPI. Of the rows of a method and path, the first has it.
    doc: OperationDoc | None = None

    @property
    def is_change(self) -> bool:
        """Whether a request to this route gets an entry in the audit trail."""
        return self.effect != "none" and self.method not in ("GET", "HEAD")


class Authenticator(Protocol):
    """Identifies the caller of a request."""

    def authenticate(self, headers: Mapping[str, str], environ: Mapping[str, object]) -> Caller:
        """`headers` are by lower-case name. Raises `Unauthorized`."""
        ...


class Policy(Protocol):
    """A service's table of rules. A rule that is not in the table refuses all callers."""

    def allows(self, rule: str, caller: Caller) -> bool: ...

    def refusal_message(self, rule: str) -> str:
        """Upstream's message for a rejection by `rule`."""
        ...
