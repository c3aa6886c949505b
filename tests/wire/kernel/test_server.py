"""The HTTP server alone, with small applications, over real sockets: without TLS and with it."""

import contextlib
import socket
import threading
import time

import pytest

from moorage.wire.server import connection
from moorage.wire.server.http_server import HttpServer
from moorage.wire.server.limits import ServerLimits
from tests.wire.kernel.security import Security

PATIENCE_S = 30
#: How the server and the clients of the present test speak.
SECURITIES: list[Security] = []


@pytest.fixture(autouse=True)
def _set_security(security):
    SECURITIES.append(security)
    yield
    SECURITIES.remove(security)


def new_server(app, threads, **options):
    return HttpServer(app, socket.create_server(("127.0.0.1", 0)), threads=threads, tls=SECURITIES[0].tls, **options)


@contextlib.contextmanager
def serving(app, threads=2, admission=None, **limits):
    server = new_server(app, threads, limits=ServerLimits(**limits), admission=admission)
    server.start()
    try:
        yield server
    finally:
        server.stop(PATIENCE_S)


def connect(server):
    return SECURITIES[0].connect(server.address, PATIENCE_S)


def request(method="GET", path="/", *lines, body=b""):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: here", *lines, "", ""]).encode() + body


def until_closed(sock):
    pieces = []
    while piece := sock.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def ask(server, raw):
    """All answers until the server closes the connection; `raw` are the requests."""
    with connect(server) as sock:
        sock.sendall(raw)
        return until_closed(sock)


LAST = "Connection: close"


def plain(environ, start_response):
    """Returns the body and the path."""
    content = environ["wsgi.input"].read() + environ["PATH_INFO"].encode("latin-1")
    start_response("200 OK", [("content-length", str(len(content)))])
    return [content]


def silent(environ, start_response):
    start_response("204 No Content", [])
    return []


class Stream:
    """An answer whose pieces the test releases one by one."""

    def __init__(self, pieces, headers=()):
        self._pieces = pieces
        self._headers = list(headers)
        self.closed = threading.Event()

    def __call__(self, environ, start_response):
        start_response("200 OK", self._headers)
        return self

    def __iter__(self):
        return iter(self._pieces)

    def close(self):
        self.closed.set()


def test_requests_of_one_connection_are_answered_in_order():
    with serving(plain) as server:
        raw = b"".join(request("POST", f"/{number}", "Content-Length: 2", body=b"ab") for number in range(50))
        answers = ask(server, raw + request("GET", "/end", LAST))
    assert [part.rpartition(b"\r\n")[2] for part in answers.split(b"HTTP/1.1 200 OK")[1:]] == [
        *(b"ab/%d" % number for number in range(50)), b"/end",
    ]  # fmt: skip


def test_a_request_may_come_byte_by_byte():
    with serving(plain) as server, connect(server) as sock:
        for byte in request("POST", "/a", LAST, "Content-Length: 3", body=b"abc"):
            sock.sendall(bytes([byte]))
        assert until_closed(sock).endswith(b"\r\n\r\nabc/a")


def test_an_answer_to_head_has_the_length_but_no_body():
    with serving(plain) as server:
        answers = ask(server, request("HEAD", "/abc") + request("GET", "/end", LAST))
    assert b"content-length: 4\r\n" in answers
    assert answers.count(b"HTTP/1.1 200") == 2
    assert b"\r\n\r\nHTTP/1.1 200" in answers


def test_an_answer_without_a_body_has_no_headers_about_it():
    with serving(silent) as server:
        answer = ask(server, request("DELETE", "/", LAST)).lower()
    assert b"content-length" not in answer
    assert b"transfer-encoding" not in answer


@pytest.mark.parametrize(("length", "size"), [("Content-Length: 200000", 200_000), ("Transfer-Encoding: chunked", 5)])
def test_a_body_can_be_read_before_it_is_complete(length, size):
    body = b"x" * size if "Length" in length else b"5\r\nxxxxx\r\n0\r\n\r\n"
    with serving(plain) as server:
        answers = ask(server, request("PUT", "/a", length, body=body) + request("GET", "/end", LAST))
    assert answers.count(b"HTTP/1.1 200") == 2
    assert answers.count(b"x" * size + b"/a") == 1


def test_100_continue_is_sent_when_the_application_reads_the_body():
    with serving(plain) as server, connect(server) as sock:
        sock.sendall(request("PUT", "/a", LAST, "Expect: 100-continue", "Content-Length: 2"))
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"ab")
        assert until_closed(sock).endswith(b"\r\n\r\nab/a")


def test_an_unread_body_closes_the_connection_after_the_answer():
    """Its bytes must not be parsed as a request."""
    smuggled = request("GET", "/smuggled")
    with serving(silent) as server:
        raw = request("PUT", "/", f"Content-Length: {200_000}", body=smuggled * 10)
        answers = ask(server, raw)
    assert answers.count(b"HTTP/1.1") == 1
    assert b"connection: close" in answers


def test_slow_bodies_block_no_thread():
    with serving(plain, threads=1) as server, contextlib.ExitStack() as stack:
        for _ in range(20):
            slow = stack.enter_context(connect(server))
            slow.sendall(request("POST", "/", f"Content-Length: {connection.EAGER_BYTES}", body=b"half of it"))
        assert b"200 OK" in ask(server, request("GET", "/", LAST))


def test_a_client_that_does_not_read_a_large_answer_blocks_no_thread():
    large = b"x" * 20_000_000

    def app(environ, start_response):
        content = large if environ["PATH_INFO"] == "/large" else b"small"
        start_response("200 OK", [("content-length", str(len(content)))])
        return [content]

    with serving(app, threads=1) as server, connect(server) as slow:
        slow.sendall(request("GET", "/large", LAST))
        assert ask(server, request("GET", "/small", LAST)).endswith(b"small")
        assert until_closed(slow).endswith(b"\r\n\r\n" + large)


def test_a_streamed_answer_is_chunked_and_its_source_is_closed():
    app = Stream([b"one", b"", b"two"])
    with serving(app) as server:
        answer = ask(server, request("GET", "/", LAST))
    assert answer.endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
    assert app.closed.is_set()


def test_a_streamed_answer_with_a_length_is_not_chunked():
    with serving(Stream([b"one", b"two"], [("content-length", "6")])) as server:
        assert ask(server, request("GET", "/", LAST)).endswith(b"\r\n\r\nonetwo")


def test_a_streamed_answer_that_fails_is_recognisably_incomplete():
    def pieces():
        yield b"one"
        raise OSError("the disk is gone")

    with serving(Stream(pieces())) as server:
        assert not ask(server, request("GET", "/", LAST)).endswith(b"0\r\n\r\n")
    with serving(Stream([b"one"], [("content-length", "6")])) as server, connect(server) as sock:
        sock.sendall(request())
        assert until_closed(sock).endswith(b"one")


def test_the_source_of_a_stream_is_closed_when_the_client_disconnects():
    def forever():
        while True:
            yield b"x" * 1000

    app = Stream(forever())
    with serving(app) as server:
        with connect(server) as sock:
            sock.sendall(request())
            sock.recv(1000)
        assert app.closed.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("status", "headers"), [("200 OK", [("a", "b\r\nc: d")]), ("200 OK", [("content-length", "7")]), ("\u0142", [])]
)
def test_an_invalid_answer_of_the_application_is_500(status, headers):
    def app(environ, start_response):
        start_response(status, headers)
        return [b"ab"]

    with serving(app) as server, connect(server) as sock:
        sock.sendall(request())
        assert until_closed(sock).startswith(b"HTTP/1.1 500 ")


def test_an_application_that_raises_does_not_affect_other_requests():
    def app(environ, start_response):
        raise ZeroDivisionError

    with serving(app, threads=1) as server:
        for _ in range(3):
            assert ask(server, request()).startswith(b"HTTP/1.1 500 ")


def test_an_application_may_return_its_answer_as_a_generator():
    def app(environ, start_response):
        start_response("200 OK", [])
        yield b"one"

    with serving(app) as server:
        assert ask(server, request("GET", "/", LAST)).endswith(b"3\r\none\r\n0\r\n\r\n")


def test_idle_connections_are_closed(monkeypatch):
    monkeypatch.setattr("moorage.wire.server.http_server.LOOK_S", 0.05)
    with serving(plain, head_timeout_s=0.0, idle_timeout_s=0.0) as server:
        for raw in (b"", request()[:10], request()):
            with connect(server) as sock:
                sock.sendall(raw)
                until_closed(sock)


def test_a_connection_with_a_request_in_progress_is_not_closed(monkeypatch):
    # The server itself must not look: with these limits each connection is late until its request has come.
    monkeypatch.setattr("moorage.wire.server.http_server.LOOK_S", 2.0 * PATIENCE_S)
    closed = []

    def app(environ, start_response):
        closed.append(server.end_late_connections())
        return plain(environ, start_response)

    with serving(app, head_timeout_s=0.0, idle_timeout_s=0.0) as server, connect(server) as sock:
        raw = request("GET", "/a")
        sock.sendall(raw[:-2])
        while not server.kept_bytes:  # then the server waits for the rest, which sets a deadline
            pass
        sock.sendall(raw[-2:])
        answer = b""
        while not answer.endswith(b"/a"):
            piece = sock.recv(65536)
            assert piece
            answer += piece
        assert closed == [0]
        while not server.end_late_connections():  # the server may still be sending its answer
            pass
        assert not until_closed(sock)


def test_requests_in_progress_are_completed_when_the_server_stops():
    begun, may_end = threading.Event(), threading.Event()

    def app(environ, start_response):
        begun.set()
        may_end.wait(PATIENCE_S)
        return plain(environ, start_response)

    server = new_server(app, threads=2)
    server.start()
    with connect(server) as sock:
        sock.sendall(request("GET", "/a"))
        assert begun.wait(PATIENCE_S)
        stopping = threading.Thread(target=server.stop, args=(PATIENCE_S,))
        stopping.start()
        with pytest.raises(ConnectionError):
            until_refused(server)
        may_end.set()
        assert until_closed(sock).endswith(b"/a")
        stopping.join(PATIENCE_S)


@pytest.mark.parametrize("security", ["plain"], indirect=True)  # with TLS they have asked nothing yet
def test_connections_in_the_queue_are_answered_when_the_server_stops():
    begun, may_end = threading.Event(), threading.Event()

    def app(environ, start_response):
        if environ["PATH_INFO"] == "/long":
            begun.set()
            may_end.wait(PATIENCE_S)
        return plain(environ, start_response)

    server = new_server(app, threads=1)
    server.start()
    with connect(server) as known, connect(server) as long, connect(server) as queued:
        known.sendall(request("GET", "/first"))
        assert known.recv(65536).endswith(b"/first")
        long.sendall(request("GET", "/long"))
        assert begun.wait(PATIENCE_S)
        known.sendall(request("GET", "/second"))
        queued.sendall(request("GET", "/third"))
        with connect(server) as last:  # the only thread is busy, so nobody has accepted this connection
            last.sendall(request("GET", "/last"))
            stopping = threading.Thread(target=server.stop, args=(PATIENCE_S,))
            stopping.start()
            with pytest.raises(ConnectionError):
                until_refused(server)
            may_end.set()
            assert until_closed(known).endswith(b"/second")
            assert until_closed(queued).endswith(b"/third")
            assert until_closed(last).endswith(b"/last")
            assert until_closed(long).endswith(b"/long")
        stopping.join(PATIENCE_S)


def until_refused(server):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        socket.create_connection(server.address, PATIENCE_S).close()
