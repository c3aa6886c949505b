"""`ServiceClient`: the HTTP client that every service's `client` module builds on.

As in upstream's clients, it renews a rejected token once, sends the microversion with each request, passes the request
id on, and repeats a request only if a repetition is harmless.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import orjson

from moorage.core.backoff import Backoff
from moorage.core.clock import Clock, SystemClock
from moorage.core.errors import NotFound, RemoteError, Unavailable
from moorage.wire.microversion import HEADER
from moorage.wire.transports import ClientResponse, Transport, outgoing_request_id

#: Repeats of a repeatable request, and the pauses before them.
MAX_REPEATS = 3
REPEAT_BACKOFF = Backoff(first_s=0.1, longest_s=1.6, factor=4)

#: Methods that may be repeated. A POST is repeated only if the caller says that it is harmless.
_REPEATABLE = {"GET", "HEAD", "PUT", "DELETE"}


#: Bound on the pages of one list, against a server whose list never ends.
_MAX_PAGES = 1000


class TokenSource(Protocol):
    """The source of a client's credentials (`moorage.identity.client`)."""

    def headers(self, *, renew: bool = False) -> Mapping[str, str]:
        """Headers that authenticate a request; `renew` after the previous ones were rejected."""
        ...


class NoCredentials:
    def headers(self, *, renew: bool = False) -> Mapping[str, str]:
        return {}


class OnBehalfOf:
    """The user's credentials with our own service token beside them, for requests in the user's name.

    If the user has no credentials (identity mode none), nothing is sent: our own rights never replace the user's.
    """

    def __init__(self, user: Mapping[str, str], service: TokenSource) -> None:
        self._user = user
        self._service = service

    def headers(self, *, renew: bool = False) -> Mapping[str, str]:
        """`renew` renews our own token; the user's cannot be renewed."""
        if not self._user:
            return {}
        own = self._service.headers(renew=renew).get("x-auth-token")
        if own is None or renew:
            # The request was rejected with our service token, which may be old or belong to a user without the role
            # `service`. The user's token may still be accepted alone.
            return self._user
        return {**self._user, "x-service-token": own}


#: Of a query; a value of None leaves its parameter out.
Params = Mapping[str, object] | Iterable[tuple[str, object]]


class ServiceClient:
    """A client of one service. Thread-safe if its transport is; ours are."""

    def __init__(
        self,
        transport: Transport,
        *,
        service_type: str,
        version: str | None = None,
        credentials: TokenSource | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._transport = transport
        self._service_type = service_type
        self._version = version
        self._credentials = credentials or NoCredentials()
        self._clock = clock or SystemClock()

    def on_behalf_of(self, user: Mapping[str, str]) -> "ServiceClient":
        """A client of the same service that sends the credentials of `user` (`Caller.credentials`)."""
        return ServiceClient(
            self._transport,
            service_type=self._service_type,
            version=self._version,
            credentials=OnBehalfOf(user, self._credentials),
            clock=self._clock,
        )

    def get(self, path: str, *, params: Params = (), **options: Any) -> Any:
        """The decoded body of a GET; see `request`."""
        return self.request("GET", path, params=params, **options)

    def request(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        params: Params = (),
        version: str | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
    ) -> Any:
        """The decoded body of a 2xx response; None if it has no body.

        Raises `NotFound` for 404, `Unavailable` if there is no response or a 503 after all repetitions, and
        `RemoteError` for other statuses.
        """
        response = self.request_raw(
            method, path, json=json, params=params, version=version, headers=headers, repeatable=repeatable
        )
        return self.decoded(path, response)

    def decoded(self, path: str, response: ClientResponse) -> Any:
        """The body of a response to a request for `path`; None if it has no body. Raises `RemoteError` for no JSON."""
        try:
            return decode_body(response)
        except orjson.JSONDecodeError as error:
            raise self._unusable(path, f"not JSON: {error}") from error

    def request_raw(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        params: Params = (),
        version: str | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
        accept: tuple[int, ...] = (),
    ) -> ClientResponse:
        """Like `request`, but returns the response undecoded; statuses in `accept` are no errors either."""
        target = with_query(path, params)
        body = None if json is None else orjson.dumps(json)
        may_repeat = method in _REPEATABLE if repeatable is None else repeatable
        response = self._send(method, target, self._headers(version, headers, body), body, may_repeat)
        if 200 <= response.status < 300 or response.status in accept:
            return response
        raise self._response_error(method, path, response)

    def paged_rows(
        self, path: str, key: str, params: Iterable[tuple[str, object]] = (), *, more: str, version: str | None = None
    ) -> Iterator[Any]:
        """All rows under `key` of a paged list. A response with a value under `more` has a next page.

        The marker is the last row's id; the link to the next page is not used, because it lacks the path prefix that
        the service may be mounted at.
        """
        query = list(params)
        marker: list[tuple[str, object]] = []
        for _ in range(_MAX_PAGES):
            page = self.get(path, params=[*query, *marker], version=version)
            rows = page.get(key) if isinstance(page, dict) else None
            if not isinstance(rows, list):
                raise self._unusable(path, f"a page without a list of {key}")
            yield from rows
            if not rows or not page.get(more):
                return
            before, last = marker, rows[-1] if isinstance(rows[-1], dict) else {}
            marker = [("marker", last.get("uuid") or last.get("id"))]
            if marker == before:
                raise self._unusable(path, "the same page twice")
        raise Unavailable(f"{self._service_type}: GET {path} still has a next page after {_MAX_PAGES} pages",
                          peer=self._service_type)  # fmt: skip

    def _unusable(self, path: str, what: str) -> RemoteError:
        """An answer with a status of success that is none. (502: that of a gateway in this case.)"""
        return RemoteError(
            f"{self._service_type} answered {path} with {what}", status=502, detail=what, peer=self._service_type
        )

    def upload(
        self,
        method: str,
        path: str,
        chunks: Iterable[bytes],
        content_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a body that is not JSON. Never repeated, since the chunks can be read only once."""
        headers = self._headers(None, {"content-type": content_type, **(headers or {})}, None)
        headers |= dict(self._credentials.headers())
        with naming_peer(self._service_type):
            response = self._transport.send(method, path, headers, chunks)
        if not 200 <= response.status < 300:
            raise self._response_error(method, path, response)

    @contextmanager
    def download(self, path: str, headers: Mapping[str, str] | None = None) -> Iterator[Iterator[bytes]]:
        """The body of a GET, in chunks as they arrive."""
        headers = self._headers(None, headers, None)
        for renew in (False, True):
            own = headers | dict(self._credentials.headers(renew=renew))
            with (
                naming_peer(self._service_type),
                self._transport.stream("GET", path, own) as (status, answer_headers, chunks),
            ):
                if status == 200:
                    yield chunks
                    return
                response = ClientResponse(status, answer_headers, b"".join(chunks))
                if status != 401 or renew:
                    raise self._response_error("GET", path, response)

    def _send(
        self, method: str, target: str, headers: dict[str, str], body: bytes | None, may_repeat: bool
    ) -> ClientResponse:
        renewed = False
        for failures in range(1, MAX_REPEATS + 2):
            is_last = not may_repeat or failures > MAX_REPEATS
            try:
                with naming_peer(self._service_type):
                    response = self._transport.send(method, target, headers | dict(self._credentials.headers()), body)
                    if response.status == 401 and not renewed:
                        renewed = True
                        response = self._transport.send(
                            method, target, headers | dict(self._credentials.headers(renew=True)), body
                        )
                if response.status != 503 or is_last:
                    return response
            except Unavailable:
                if is_last:
                    raise
            self._clock.sleep(REPEAT_BACKOFF.pause_s(failures))
        raise AssertionError("unreachable")

    def _headers(self, version: str | None, extra: Mapping[str, str] | None, body: bytes | None) -> dict[str, str]:
        headers = {"accept": "application/json"}
        if body is not None:
            headers["content-type"] = "application/json"
        if wanted := version or self._version:
            headers[HEADER] = f"{self._service_type} {wanted}"
        if request_id := outgoing_request_id():
            headers["x-openstack-request-id"] = request_id
        return headers | dict(extra or {})

    def _response_error(self, method: str, path: str, response: ClientResponse) -> NotFound | RemoteError | Unavailable:
        message, code = error_of_response(response)
        where = f"{self._service_type} answered {response.status} to {method} {path}: {message}"
        if response.status == 404:
            return NotFound(where, code=code, detail=message, peer=self._service_type)
        if response.status == 503:
            return Unavailable(where, code=code, detail=message, peer=self._service_type)
        return RemoteError(where, status=response.status, code=code, detail=message, peer=self._service_type)


@contextmanager
def naming_peer(service_type: str) -> Iterator[None]:
    """Adds the name of the service to a transport's `Unavailable`: the transport knows only the address."""
    try:
        yield
    except Unavailable as error:
        if "url" in error.fields:
            error.fields.setdefault("peer", service_type)
        raise


def with_query(path: str, params: Params) -> str:
    pairs = params.items() if isinstance(params, Mapping) else params
    query = urlencode([(name, str(value)) for name, value in pairs if value is not None], safe=":,!", quote_via=quote)
    return f"{path}?{query}" if query else path


def decode_body(response: ClientResponse) -> Any:
    return orjson.loads(response.body) if response.body else None


def error_of_response(response: ClientResponse) -> tuple[str, str | None]:
    """(message, code) of an error body in any of the four upstream shapes; the raw text for another shape."""
    try:
        document = orjson.loads(response.body)
    except orjson.JSONDecodeError:
        return response.body[:500].decode(errors="replace") or f"status {response.status}", None
    match document:
        case {"errors": [{**error}, *_]}:
            code = error.get("code")
            return str(error.get("detail", "")).strip(), code if isinstance(code, str) else None
        case {"error_message": str(message)}:
            return message, None
        case {"error": {"message": str(message)}} | {"message": str(message)}:
            return message, None
        case dict() if len(document) == 1 and isinstance(fault := next(iter(document.values())), dict):
            return str(fault.get("message", fault)), None
    return str(document)[:500], None
