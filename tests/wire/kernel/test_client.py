"""The HTTP client, against a server whose answers each test chooses."""

import json
import socket
import threading
import time
from datetime import timedelta

import pytest

from moorage.core.clock import VirtualClock
from moorage.core.errors import NotFound, RemoteError, Unavailable
from moorage.telemetry.logs import request_context
from moorage.wire.client import MAX_REPEATS, ServiceClient, error_of_response, with_query
from moorage.wire.transports import ClientResponse, InProcessTransport, SocketTransport
from tests.conftest import START

OK = (200, b'{"ok": true}')
REFUSED = (401, b"{}")
BUSY = (503, b'{"message": "later"}')


class Server:
    """A WSGI application that gives its answers in order, and then repeats the last one."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []  # {"method", "path", "query", "headers": {lower-case name: value}, "body"}

    def __call__(self, environ, start_response):
        headers = {
            key.removeprefix("HTTP_").replace("_", "-").lower(): value
            for key, value in environ.items()
            if key.startswith(("HTTP_", "CONTENT_"))
        }
        self.requests.append(
            {
                "method": environ["REQUEST_METHOD"],
                "path": environ["PATH_INFO"],
                "query": environ["QUERY_STRING"],
                "headers": headers,
                "body": environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or -1)),
            }
        )
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if status == "down":
            raise Unavailable("nobody answers")
        start_response(f"{status} X", [("content-type", "application/json")])
        return [body]

    @property
    def tokens(self):
        return [request["headers"].get("x-auth-token") for request in self.requests]


class Tokens:
    """Credentials that count their renewals."""

    def __init__(self):
        self.number = 1

    def headers(self, *, renew=False):
        self.number += renew
        return {"x-auth-token": f"token-{self.number}"}


@pytest.fixture
def talk(clock):
    """``talk(*answers)`` -> (client, server)."""

    def talk(*answers, **options):
        server = Server(*answers)
        options = {"service_type": "harbour", "clock": clock, **options}
        return ServiceClient(InProcessTransport(server), **options), server

    return talk


# -------------------------------------------------------------------------------------------------- what is sent


def test_a_request_has_the_accept_and_version_headers(talk):
    client, server = talk(OK, version="1.29", credentials=Tokens())
    assert client.get("/boats", params=[("in_tree", "x"), ("required", "A,!B"), ("none", None)]) == {"ok": True}
    [request] = server.requests
    assert (request["method"], request["path"], request["query"]) == ("GET", "/boats", "in_tree=x&required=A,!B")
    assert request["headers"]["accept"] == "application/json"
    assert request["headers"]["openstack-api-version"] == "harbour 1.29"
    assert request["headers"]["x-auth-token"] == "token-1"
    assert "content-type" not in request["headers"]


def test_the_version_of_one_request_overrides_the_clients(talk):
    client, server = talk(OK, version="1.29")
    client.request("GET", "/", version="1.10")
    assert server.requests[0]["headers"]["openstack-api-version"] == "harbour 1.10"


def test_a_body_is_sent_as_json(talk):
    client, server = talk((204, b""))
    assert client.request("PUT", "/boats/1", json={"name": "grün"}) is None
    assert server.requests[0]["headers"]["content-type"] == "application/json"
    assert json.loads(server.requests[0]["body"]) == {"name": "grün"}


def test_the_request_id_is_passed_on(talk):
    client, server = talk(OK)
    before = request_context.set(("compute", "req-outer"))
    try:
        client.get("/")
    finally:
        request_context.reset(before)
    assert server.requests[0]["headers"]["x-openstack-request-id"] == "req-outer"


def test_query_values_are_quoted_and_none_is_omitted():
    assert with_query("/a", {"q": "x y&z", "n": None, "i": 3}) == "/a?q=x%20y%26z&i=3"
    assert with_query("/a", ()) == "/a"
    assert with_query("/a", [("r", "A:1"), ("r", "B:2")]) == "/a?r=A:1&r=B:2"


# -------------------------------------------------------------------------------------------------------- repeats


@pytest.mark.parametrize("trouble", [BUSY, ("down", b"")])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_idempotent_requests_are_repeated_with_growing_pauses(talk, clock, method, trouble):
    client, server = talk(trouble, trouble, OK)
    assert client.request(method, "/") == {"ok": True}
    assert len(server.requests) == 3
    assert clock.now() - START == timedelta(seconds=0.1 + 0.4)


@pytest.mark.parametrize("trouble", [BUSY, ("down", b"")])
def test_the_number_of_repetitions_is_limited(talk, clock, trouble):
    client, server = talk(trouble)
    with pytest.raises(Unavailable):
        client.get("/")
    assert len(server.requests) == 1 + MAX_REPEATS
    assert clock.now() - START == timedelta(seconds=0.1 + 0.4 + 1.6)


@pytest.mark.parametrize("trouble", [BUSY, ("down", b"")])
def test_a_post_is_repeated_only_if_the_caller_allows_it(talk, trouble):
    client, server = talk(trouble, OK)
    with pytest.raises(Unavailable):
        client.request("POST", "/")
    assert len(server.requests) == 1
    client, server = talk(trouble, OK)
    assert client.request("POST", "/", repeatable=True) == {"ok": True}


@pytest.mark.parametrize("status", [400, 403, 404, 409, 500, 502])
def test_a_refusal_is_not_repeated(talk, status):
    client, server = talk((status, b"{}"))
    with pytest.raises((RemoteError, NotFound)):
        client.get("/")
    assert len(server.requests) == 1


# --------------------------------------------------------------------------------------------------------- tokens


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_refused_token_is_renewed_once(talk, method):
    client, server = talk(REFUSED, OK, credentials=Tokens())
    assert client.request(method, "/") == {"ok": True}
    assert server.tokens == ["token-1", "token-2"]


def test_a_renewed_token_that_is_refused_is_an_error(talk):
    client, server = talk(REFUSED, credentials=Tokens())
    with pytest.raises(RemoteError) as caught:
        client.get("/")
    assert caught.value.status == 401
    assert server.tokens == ["token-1", "token-2"]


def test_an_upload_is_not_repeated(talk):
    client, server = talk(BUSY)
    with pytest.raises(Unavailable):
        client.upload("PUT", "/file", [b"a", b"b"], "application/octet-stream")
    assert len(server.requests) == 1
    assert server.requests[0]["headers"]["content-type"] == "application/octet-stream"


# ------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("peer", "body", "message", "code"),
    [
        (
            "placement",
            {"errors": [{"status": 409, "title": "Conflict", "detail": "generation conflict \n\n   ",
                         "code": "placement.concurrent_update", "request_id": "req-1"}]},
            "generation conflict",
            "placement.concurrent_update",
        ),
        ("nova", {"conflictingRequest": {"code": 409, "message": "Cannot stop"}}, "Cannot stop", None),
        ("blazar", {"error_code": 409, "error_message": "Not enough hosts", "error_name": 409}, "Not enough hosts", None),
        (
            "cyborg", {"error_message": json.dumps({"faultstring": "no such profile"})},
            json.dumps({"faultstring": "no such profile"}), None,
        ),
        ("keystone", {"error": {"code": 401, "message": "authenticate", "title": "Unauthorized"}}, "authenticate", None),
        ("ours", {"message": "plain"}, "plain", None),
        ("keystonemiddleware", b"Authentication required", "Authentication required", None),
        ("nobody", b"", "status 418", None),
        ("a proxy", b"<html>\xff</html>", "<html>\ufffd</html>", None),
        ("strange", ["a"], "['a']", None),
    ],
)  # fmt: skip
def test_the_message_is_read_from_the_error_format_of_every_peer(peer, body, message, code):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert error_of_response(ClientResponse(418, {}, raw)) == (message, code)


def test_an_error_names_the_service_the_status_and_the_request(talk):
    client, _ = talk((409, b'{"conflictingRequest": {"code": 409, "message": "Cannot stop"}}'))
    with pytest.raises(RemoteError) as caught:
        client.request("POST", "/servers/1/action", json={})
    assert caught.value.message == "harbour answered 409 to POST /servers/1/action: Cannot stop"
    assert (caught.value.status, caught.value.fields["detail"]) == (409, "Cannot stop")


def test_a_404_is_not_found_unless_the_caller_accepts_it(talk):
    client, _ = talk((404, b'{"itemNotFound": {"message": "gone"}}'))
    with pytest.raises(NotFound, match="gone"):
        client.get("/boats/1")
    assert client.request_raw("GET", "/boats/1", accept=(404,)).status == 404


# --------------------------------------------------------------------------------------------------------- sockets


def test_a_refused_connection_is_unavailable():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    transport = SocketTransport(url)
    with pytest.raises(Unavailable, match=f"{url} does not answer"):
        transport.send("GET", "/", {})
    with pytest.raises(Unavailable), transport.stream("GET", "/", {}):
        pass


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort", b"nonsense\r\n\r\n"])
def test_a_server_that_closes_the_connection_early_is_unavailable(said):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        transport = SocketTransport(f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(Unavailable):
            transport.send("GET", "/", {})
        thread.join()


def test_a_server_that_does_not_answer_in_time_is_unavailable():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport = SocketTransport(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.1)
        with pytest.raises(Unavailable):
            transport.send("GET", "/", {})


def test_only_small_requests_have_the_shorter_time_limit():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport = SocketTransport(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=1.5, answer_s=0.1)
        for body, limit_s in ((None, 0.1), (b"{}", 0.1), (iter([b"large"]), 1.5)):
            began = time.monotonic()
            with pytest.raises(Unavailable):
                transport.send("PUT", "/", {}, body)
            assert time.monotonic() - began >= limit_s
            assert limit_s > 0.1 or time.monotonic() - began < 1.5


def test_a_proxy_of_the_environment_is_not_used(served, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert SocketTransport(served).send("GET", "/harbour/healthcheck", {}).status == 200


def test_environment_variables_are_not_read_as_headers_of_a_request(served_with_variables):
    """A WSGI server may start the environment of each request with the environment of its process."""
    answer = SocketTransport(served_with_variables).send("GET", "/harbour/boats/ada", {})
    assert answer.status == 401


def test_a_client_works_with_a_virtual_clock(talk):
    clock = VirtualClock(START)
    client, _ = talk(BUSY, OK, clock=clock)
    client.get("/")
    assert clock.now() > START


def page(*ids, more):
    return 200, json.dumps({"ships": [{"id": each} for each in ids], "ships_links": [{}] if more else []}).encode()


def test_a_list_is_read_page_by_page(talk):
    client, server = talk(page("a", "b", more=True), page("c", more=True), page(more=False))
    rows = client.paged_rows("/ships", "ships", [("limit", 2)], more="ships_links")
    assert [row["id"] for row in rows] == ["a", "b", "c"]
    assert [request["query"] for request in server.requests] == ["limit=2", "limit=2&marker=b", "limit=2&marker=c"]


def test_an_endless_list_is_an_error(talk):
    client, _ = talk(*(page(f"{number}", more=True) for number in range(1001)))
    with pytest.raises(Unavailable, match=r"GET /ships still has a next page after 1000 pages"):
        list(client.paged_rows("/ships", "ships", more="ships_links"))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (page("a", more=True), "harbour answered /ships with the same page twice"),
        ((200, b'{"ships": null}'), "harbour answered /ships with a page without a list of ships"),
        ((200, b"[]"), "harbour answered /ships with a page without a list of ships"),
        ((200, b"<html>"), "harbour answered /ships with not JSON"),
    ],
)
def test_a_page_that_cannot_be_used_is_an_error_of_the_service(talk, answer, said):
    client, _ = talk(answer)
    with pytest.raises(RemoteError, match=said) as raised:
        list(client.paged_rows("/ships", "ships", more="ships_links"))
    assert raised.value.status == 502
