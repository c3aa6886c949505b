"""What a handler is given and what it gives back."""

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
    """Query parameters in order, repetitions kept."""

    def __init__(self, text: str) -> None:
        self.pairs: list[tuple[str, str]] = parse_qsl(text, keep_blank_values=True) if text else []

    def first(self, name: str) -> str | None:
        """The first value. OpenStack's clients send the text ``None`` for "no filter": it counts as absent."""
        for key, value in self.pairs:
            if key == name and value != "None":
                return value
        return None

    def every(self, name: str) -> list[str]:
        return [value for key, value in self.pairs if key == name]

    def names(self) -> set[str]:
        return {key for key, _ in self.pairs}


class Headers(Mapping[str, str]):
    """The headers of a request by lower-case name, looked up in the WSGI environment when they are asked for.

    Servers put the variables of their process there too; of a hundred entries a request needs three.
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


#: What the gateway interface calls without a prefix.
_CONTENT = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})


@lru_cache(maxsize=256)
def _variable(name: str) -> str:
    variable = name.upper().replace("-", "_")
    return variable if variable in _CONTENT else f"HTTP_{variable}"


@dataclass(slots=True)
class Request(Generic[S]):
    """One request, authenticated, its version negotiated, its body decoded and held against the schema."""

    service: S  #: the use cases behind the route table
    caller: Caller
    method: str
    path: str  #: below the mount, as sent
    query: Query
    version: Version  #: Version(0, 0) for a service without microversions
    request_id: str
    base_url: str  #: scheme, host and mount prefix, without a trailing slash: for links
    headers: Mapping[str, str]  #: by lower-case name
    address: str  #: of the client, by `wire.forwarded`; "" where it says nothing about who that is
    json: Any  #: None where the route reads no JSON
    stream: IO[bytes]  #: the raw body of a route with ``reads="stream"`` or ``"raw"``, else empty
    allowed: Callable[[str], bool]  #: does a policy rule allow this caller? For rules that depend on the request
    change: "AuditedChange | None" = None  #: its entry in the audit trail, where it has one


@dataclass(slots=True)
class Response:
    """One answer. `body` is encoded as JSON; None sends no body and no content type."""

    status: int = 200
    body: object = None
    headers: dict[str, str] = field(default_factory=dict)
    stream: Iterable[bytes] | None = None  #: sent as it comes, `content_type` says what it is
    content_type: str = "application/json"
    cookies: tuple[str, ...] = ()  #: a ``Set-Cookie`` each


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
    #: Called with the request and the path's parameters before the body is held against its schema: Placement answers
    #: 404 for a provider that does not exist, whatever the body says.
    before_schema: Callable[..., None] | None = None
    #: ``json``; ``raw`` (as it came, in `Request.stream`, bounded); ``stream`` (raw, while it comes, unbounded) or ``none`` (a
    #: body is ignored).
    reads: str = "json"
    #: Of a body; None: as much as the service takes of JSON, and of clients that need not show who they are 64 KiB.
    max_bytes: int | None = None
    #: Of methods other than GET and HEAD: ``change``; ``none``, a question that needs a body; or ``routine``, what the agent
    #: of a host says and asks all the time, which the audit trail leaves out where it was not refused.
    effect: Literal["change", "none", "routine"] = "change"
    #: Parameters of the query that name what is changed, each with ids or names between commas.
    ids_in_query: tuple[str, ...] = ()

    @property
    def is_change(self) -> bool:
        """Whether requests have an entry in the audit trail."""
        return self.effect != "none" and self.method not in ("GET", "HEAD")


class Authenticator(Protocol):
    """Who sent this request?"""

    def authenticate(self, headers: Mapping[str, str], environ: Mapping[str, object]) -> Caller:
        """The caller. `headers` are by lower-case name. Raises `Unauthorized`."""
        ...


class Policy(Protocol):
    """May they? One table of rules per service; a rule that is not in it allows nobody."""

    def allows(self, rule: str, caller: Caller) -> bool: ...

    def refusal(self, rule: str) -> str:
        """The peer's words for a refusal by `rule`."""
        ...
