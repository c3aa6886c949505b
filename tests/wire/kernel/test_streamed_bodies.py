"""Bodies that are not JSON or of unknown length: uploads and downloads, in process."""

from collections.abc import Iterator

import pytest

from moorage.core.caller import ANONYMOUS
from moorage.core.errors import Unauthorized
from moorage.core.ids import SeededIds
from moorage.identity.policy import RuleTable, anyone
from moorage.wire.app import AppContext, ServiceApi, build_app
from moorage.wire.client import ServiceClient
from moorage.wire.errors import Problem
from moorage.wire.http import Request, Response, Route
from moorage.wire.transports import InProcessTransport


class Store:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.received = b""


def take(request: Request[Store]) -> Response:
    while chunk := request.stream.read(4):
        request.service.events.append(f"read {len(chunk)}")
        request.service.received += chunk
    return Response(204)


def give(request: Request[Store]) -> Response:
    return Response(stream=(b"x" * 10 for _ in range(3)), content_type="application/octet-stream")


def echo(request: Request[Store]) -> Response:
    return Response(body=request.json)


def _plain(problem: Problem) -> Response:
    return Response(problem.status, {"message": problem.message})


API: ServiceApi[Store] = ServiceApi(
    name="store",
    error_shape=_plain,
    routes=(
        Route("PUT", "/file", take, "file", reads="stream"),
        Route("GET", "/file", give, "file"),
        Route("POST", "/echo", echo, "file"),
    ),
)


class RenewedTokenOnly:
    """Accepts only a renewed token."""

    def authenticate(self, headers, environ):
        if headers.get("x-auth-token") != "new":
            raise Unauthorized("old")
        return ANONYMOUS


class Tokens:
    def __init__(self, first: str) -> None:
        self._text = first

    def headers(self, *, renew: bool = False):
        if renew:
            self._text = "new"
        return {"x-auth-token": self._text}


@pytest.fixture
def store() -> Store:
    return Store()


def client(store: Store, token: str = "new") -> ServiceClient:
    app = build_app(API, store, AppContext(RenewedTokenOnly(), RuleTable({"file": anyone}), SeededIds(1)))
    return ServiceClient(InProcessTransport(app), service_type="store", credentials=Tokens(token))


def test_an_upload_is_read_while_it_is_generated(store):
    def chunks() -> Iterator[bytes]:
        for letter in (b"aaaa", b"", b"bbbbbb"):
            store.events.append(f"made {len(letter)}")
            yield letter

    client(store).upload("PUT", "/file", chunks(), "application/octet-stream")
    assert store.received == b"aaaabbbbbb"
    assert store.events.index("read 4") < len(store.events) - 1
    assert store.events[0].startswith("made")


def test_an_upload_of_bytes_is_sent_with_its_length(store):
    client(store).upload("PUT", "/file", b"hello", "application/octet-stream")
    assert store.received == b"hello"


def test_a_json_body_may_be_chunked(store):
    transport = client(store)._transport
    headers = {"content-type": "application/json", "x-auth-token": "new"}
    answer = transport.send("POST", "/echo", headers, iter([b'{"a"', b": 1}"]))
    assert answer.body == b'{"a":1}'


def test_a_download_renews_a_refused_token_once(store):
    with client(store, token="old").download("/file") as chunks:
        assert b"".join(chunks) == b"x" * 30
