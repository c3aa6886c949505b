"""The client side: what the `client.py` of every service is built on.

Follows the peers' rules: a token from identity that is fetched anew once when refused, the microversion on each
request, a request id passed on, and repeats only where a repeat is harmless.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import orjson

from moorage.core.clock import Clock, SystemClock
from moorage.core.errors import NotFound, RemoteError, Unavailable
from moorage.wire.microversion import HEADER
from moorage.wire.transports import ClientResponse, Transport, outgoing_request_id

#: Pauses before the 2nd, 3rd and 4th try of a request that may be repeated.
RETRY_PAUSES_S = (0.1, 0.4, 1.6)

#: Repeating these does no harm; a POST is only repeated when the caller says so.
_REPEATABLE = {"GET", "HEAD", "PUT", "DELETE"}


#: Pages of a list asked for at most: one that never ends would be somebody's mistake.
_MAX_PAGES = 1000


class TokenSource(Protocol):
    """Where a client's credentials come from (`moorage.identity.client`)."""

    def headers(self, *, renew: bool = False) -> Mapping[str, str]:
        """What to send; `renew` after the last one was refused."""
        ...


class NoCredentials:
    def headers(self, *, renew: bool = False) -> Mapping[str, str]:
        return {}


class OnBehalfOf:
    """A user's credentials, as they came, with our own token beside them: as whom a service works on a user's request.

    Where the user has none (nobody is asked who calls) nothing is sent: never our own rights in place of the user's.
    """

    def __init__(self, user: Mapping[str, str], service: TokenSource) -> None:
        self._user = user
        self._service = service

    def headers(self, *, renew: bool = False) -> Mapping[str, str]:
        """`renew` renews our own token; the user's is what it is."""
        if not self._user:
            return {}
        own = self._service.headers(renew=renew).get("x-auth-token")
        if own is None or renew:
            # Refused with ours beside it (which may be old, or of a user without the role of a service): the user's token
            # alone is still good.
            return self._user
        return {**self._user, "x-service-token": own}


class ServiceClient:
    """Requests to one service. Thread-safe as long as its transport is; ours are."""

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
        """The same service, asked with the credentials of `user` (`Caller.credentials`)."""
        return ServiceClient(
            self._transport,
            service_type=self._service_type,
            version=self._version,
            credentials=OnBehalfOf(user, self._credentials),
            clock=self._clock,
        )

    def get(self, path: str, *, params: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), **options: Any) -> Any:
        """The decoded body of a 200."""
        return self.request("GET", path, params=params, **options)

    def request(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        params: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        version: str | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
    ) -> Any:
        """The decoded body (None where there is none) of a 2xx answer.

        Raises `NotFound` for 404, `RemoteError` for other refusals, `Unavailable` when nobody answers or the
        service says 503, after the repeats.
        """
        return decode_body(self.request_raw(method, path, json=json, params=params, version=version, headers=headers,
                                  repeatable=repeatable))  # fmt: skip

    def request_raw(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        params: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        version: str | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
        accept: tuple[int, ...] = (),
    ) -> ClientResponse:
        """Like `request`, undecoded; statuses in `accept` are answers too, not errors."""
        target = with_query(path, params)
        body = None if json is None else orjson.dumps(json)
        may_repeat = method in _REPEATABLE if repeatable is None else repeatable
        answer = self._send(method, target, self._headers(version, headers, body), body, may_repeat)
        if 200 <= answer.status < 300 or answer.status in accept:
            return answer
        raise self._refusal(method, path, answer)

    def paged_rows(
        self, path: str, key: str, params: Iterable[tuple[str, Any]] = (), *, more: str, version: str | None = None
    ) -> Iterator[Mapping[str, Any]]:
        """The rows below `key` of a list that comes in pages, as long as the answer has something below `more`.

        Markers are taken from the rows: the link to the next page lacks the prefix that a service may be behind.
        """
        asked = list(params)
        marker: list[tuple[str, Any]] = []
        for _ in range(_MAX_PAGES):
            page = self.get(path, params=[*asked, *marker], version=version)
            yield from page[key]
            if not page[key] or not page.get(more):
                return
            marker = [("marker", page[key][-1].get("uuid") or page[key][-1]["id"])]
        raise Unavailable(f"{self._service_type}: GET {path} has no end, not even after {_MAX_PAGES} pages",
                          peer=self._service_type)  # fmt: skip

    def upload(
        self,
        method: str,
        path: str,
        chunks: Iterable[bytes],
        content_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a body that is not JSON. Not repeated: the chunks can be read once only."""
        headers = self._headers(None, {"content-type": content_type, **(headers or {})}, None)
        headers |= dict(self._credentials.headers())
        with naming_peer(self._service_type):
            answer = self._transport.send(method, path, headers, chunks)
        if not 200 <= answer.status < 300:
            raise self._refusal(method, path, answer)

    @contextmanager
    def download(self, path: str, headers: Mapping[str, str] | None = None) -> Iterator[Iterator[bytes]]:
        """The body of a GET in chunks, as they come."""
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
                answer = ClientResponse(status, answer_headers, b"".join(chunks))
                if status != 401 or renew:
                    raise self._refusal("GET", path, answer)

    def _send(
        self, method: str, target: str, headers: dict[str, str], body: bytes | None, may_repeat: bool
    ) -> ClientResponse:
        pauses = RETRY_PAUSES_S if may_repeat else ()
        renewed = False
        for pause in (*pauses, None):
            try:
                with naming_peer(self._service_type):
                    answer = self._transport.send(method, target, headers | dict(self._credentials.headers()), body)
                    if answer.status == 401 and not renewed:
                        renewed = True
                        answer = self._transport.send(
                            method, target, headers | dict(self._credentials.headers(renew=True)), body
                        )
                if answer.status != 503 or pause is None:
                    return answer
            except Unavailable:
                if pause is None:
                    raise
            self._clock.sleep(pause)
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

    def _refusal(self, method: str, path: str, answer: ClientResponse) -> NotFound | RemoteError | Unavailable:
        message, code = error_of_response(answer)
        where = f"{self._service_type} answered {answer.status} to {method} {path}: {message}"
        if answer.status == 404:
            return NotFound(where, code=code, detail=message, peer=self._service_type)
        if answer.status == 503:
            return Unavailable(where, code=code, detail=message, peer=self._service_type)
        return RemoteError(where, status=answer.status, code=code, detail=message, peer=self._service_type)


@contextmanager
def naming_peer(service_type: str) -> Iterator[None]:
    """A transport's error gets the name of the service that did not answer: a transport knows only the address."""
    try:
        yield
    except Unavailable as error:
        if "url" in error.fields:
            error.fields.setdefault("peer", service_type)
        raise


def with_query(path: str, params: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> str:
    pairs = params.items() if isinstance(params, Mapping) else params
    query = urlencode([(name, str(value)) for name, value in pairs if value is not None], safe=":,!", quote_via=quote)
    return f"{path}?{query}" if query else path


def decode_body(answer: ClientResponse) -> Any:
    return orjson.loads(answer.body) if answer.body else None


def error_of_response(answer: ClientResponse) -> tuple[str, str | None]:
    """(message, code) from any of the four peers' error bodies; the raw text where it is none of them."""
    try:
        document = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return answer.body[:500].decode(errors="replace") or f"status {answer.status}", None
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
