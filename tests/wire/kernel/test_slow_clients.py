"""Clients that send or read as slowly as possible: none blocks a thread, and each connection ends in a limited time.

The tests count connections that the server closed and other requests that it answered meanwhile, not seconds.
"""

import contextlib
import http.client
import json
import resource
import socket
import threading
import time
from dataclasses import replace

import pytest

from moorage.telemetry.logs import request_context
from moorage.wire.http import Response
from moorage.wire.server.limits import ServerLimits
from tests.wire.kernel import hostile
from tests.wire.kernel.hostile import JSON, KINDS, Hostile, head, timed
from tests.wire.kernel.security import PLAIN

PATIENCE_S = 60
#: Short for a test, but longer than the pauses of a normal client on a busy machine.
SHORT = ServerLimits(head_timeout_s=2.0, idle_timeout_s=5.0, stall_s=2.0, public_stall_s=1.0)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch):
    monkeypatch.setattr("moorage.wire.server.http_server.LOOK_S", 0.1)


@contextlib.contextmanager
def serving(threads=2, security=PLAIN, **limits):
    listener = socket.create_server(("127.0.0.1", 0))
    server = hostile.server(listener, threads=threads, limits=replace(SHORT, **limits), security=security)
    server.start()
    try:
        yield server
    finally:
        server.stop(PATIENCE_S)


def connect(server, security=PLAIN):
    return security.connect(server.address, PATIENCE_S)


def answer_to(sock):
    """(status, decoded body or None) of the next answer."""
    answer = http.client.HTTPResponse(sock)
    answer.begin()
    body = answer.read()
    return answer.status, json.loads(body) if body else None


def until(condition):
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_slow_clients_are_disconnected_and_other_requests_are_answered_meanwhile(kind, security):
    """Sixty slow clients, and a server with two threads."""
    count = 60
    with (
        serving(security=security) as server,
        Hostile(server.address, kind, count, period_s=0.1, security=security) as slow,
    ):
        assert len(timed(server.address, PATIENCE_S, requests=50, security=security)) == 50
        until(lambda: server.ended.total() + len(slow.told) >= count)
        assert len(timed(server.address, PATIENCE_S, requests=5, security=security)) == 5
        if "reader" not in kind:
            assert slow.wait_until_ended(PATIENCE_S)


#: How long requests are timed beside 2,000 clients: until a plane's limits have ended those of this kind. Others than
#: these are ended after 5 s, or after 20 s, which no test waits for.
WATCHED_S = {"slow head": 10.0}


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_thousand_slow_clients_hardly_delay_a_normal_one(kind, security, certificates):
    """With the limits of a plane. On a quiet machine 99 of 100 requests take less than 50 ms:
    docs/evidence/reliability.md.
    """
    count = 2000
    hostile.raise_file_limit()
    if (files := resource.getrlimit(resource.RLIMIT_NOFILE)[0]) < count + 500:
        pytest.skip(f"this process may open {files} files only")
    with (
        hostile.serving(None if security is PLAIN else certificates) as address,
        Hostile(address, kind, count, security=security),
    ):
        timed(address, 60.0, 1, security)  # this request waits behind 2,000 connections that arrive at once
        took = timed(address, WATCHED_S.get(kind, 5.0), security=security)
    assert len(took) > 10
    assert took[len(took) // 2] < 1.0


# --- limits for bodies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", ["Content-Length: 500000", "Transfer-Encoding: chunked"])
def test_a_large_body_that_arrives_slowly_blocks_no_thread(length, security):
    """JSON of an authenticated client, of which 200 KB have arrived; the server has one thread."""
    text = b" " * 499_986 + b'{"name":"ada"}'
    body = b"7a120\r\n%s\r\n0\r\n\r\n" % text if "chunked" in length else text
    with serving(security=security, threads=1, stall_s=PATIENCE_S) as server, connect(server, security) as slow:
        slow.sendall(head("POST", "/boats", JSON, length) + body[:200_000])
        assert len(timed(server.address, PATIENCE_S, requests=3, security=security)) == 3
        slow.sendall(body[200_000:])
        assert answer_to(slow)[0] == 201
        slow.sendall(head("GET", "/boats/next"))
        assert answer_to(slow)[1]["name"] == "next"


def test_100_continue_is_sent_after_the_caller_is_authenticated(security):
    with serving(security=security) as server, connect(server, security) as sock:
        sock.sendall(head("POST", "/boats", JSON, "Content-Length: 14", "Expect: 100-continue"))
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b'{"name":"ada"}')
        assert answer_to(sock)[0] == 201


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (head("POST", "/boats", JSON, "Content-Length: 900000", token=None), 401),
        (head("POST", "/boats", JSON, "Content-Length: 14", "Expect: 100-continue", token=None), 401),
        (head("POST", "/boats", JSON, "Transfer-Encoding: chunked", token=None), 401),
        (head("PUT", "/cargo", "Content-Length: 900000000", token=None), 401),
        (head("POST", "/nowhere", JSON, "Content-Length: 900000"), 404),
        (head("PUT", "/boats/ada", JSON, "Content-Length: 900000"), 405),
        (head("POST", "/boats", JSON, "Content-Length: 1048577"), 413),
        (head("POST", "/sign-in", JSON, "Content-Length: 65537", token=None), 413),
        (head("POST", "/sign-in", JSON, "Transfer-Encoding: chunked", token=None) + b"10001\r\n" + b" " * 65537, 413),
    ],
)
def test_a_request_that_will_be_refused_is_answered_before_its_body_arrives(raw, status, security):
    with (
        serving(security=security, public_stall_s=PATIENCE_S, stall_s=PATIENCE_S) as server,
        connect(server, security) as sock,
    ):
        sock.sendall(raw)
        assert answer_to(sock)[0] == status
        assert sock.recv(100) == b"", "nothing behind it is taken for a request"


def test_a_client_that_is_too_slow_gets_408(security):
    with serving(security=security) as server, connect(server, security) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 408 Request Timeout")


# --- limits for connections, memory and threads -------------------------------------------------------------------


def test_a_new_connection_replaces_the_one_that_was_idle_longest(security):
    with (
        serving(security=security, connections=20, head_timeout_s=PATIENCE_S) as server,
        contextlib.ExitStack() as stack,
    ):
        known = stack.enter_context(connect(server, security))
        known.sendall(head("GET", "/boats/ada"))
        assert answer_to(known)[0] == 200
        idle = [stack.enter_context(connect(server, security)) for _ in range(60)]
        until(lambda: server.ended["crowded out"] == 41)
        assert all(one.recv(1) == b"" for one in idle[:41]), "those that came first and asked nothing"
        known.sendall(head("GET", "/boats/ada"))
        assert answer_to(known)[0] == 200


def test_at_the_memory_limit_the_oldest_incomplete_body_is_dropped(security):
    with (
        serving(security=security, buffer_bytes=1_000_000, stall_s=PATIENCE_S) as server,
        contextlib.ExitStack() as stack,
    ):
        slow = []
        for number in range(4):
            sock = stack.enter_context(connect(server, security))
            sock.sendall(head("POST", "/boats", JSON, "Content-Length: 500000") + b" " * 300_000)
            slow.append(sock)
            until(lambda number=number: server.kept_bytes >= min(3, number + 1) * 300_000)
        until(lambda: server.ended["buffers full"] == 1)
        assert slow[0].recv(100).startswith(b"HTTP/1.1 408")
        slow[3].sendall(b" " * 199_986 + b'{"name":"ada"}')
        assert answer_to(slow[3])[0] == 201


@contextlib.contextmanager
def blocked(server, count):
    """Keeps this many requests in progress."""
    begun, may_end = threading.Semaphore(0), threading.Event()

    def wait(_call):
        begun.release()
        may_end.wait(PATIENCE_S)
        return Response(204)

    with contextlib.ExitStack() as stack:
        hostile.WAITS.append(wait)
        sockets = [stack.enter_context(connect(server)) for _ in range(count)]
        try:
            for sock in sockets:
                sock.sendall(head("GET", "/waits"))
            for _ in range(count):
                assert begun.acquire(timeout=PATIENCE_S)
            yield
        finally:
            may_end.set()
            hostile.WAITS.clear()
        assert [answer_to(sock)[0] for sock in sockets] == [204] * count


def test_the_last_threads_are_reserved_for_healthchecks_and_agents():
    with serving(threads=6) as server, contextlib.ExitStack() as stack:
        ordinary, urgent, agent = (stack.enter_context(connect(server)) for _ in range(3))
        with blocked(server, 4):
            ordinary.sendall(head("GET", "/boats/ada"))
            urgent.sendall(head("GET", "/healthcheck"))
            assert answer_to(urgent)[0] == 200
            agent.sendall(head("GET", "/agent/v1/jobs"))
            assert answer_to(agent)[0] == 404
            ordinary.settimeout(0.2)
            with pytest.raises(TimeoutError):
                ordinary.recv(1)
            ordinary.settimeout(PATIENCE_S)
        assert answer_to(ordinary)[0] == 200


def test_requests_waiting_for_a_thread_are_answered_when_the_server_stops():
    listener = socket.create_server(("127.0.0.1", 0))
    server = hostile.server(listener, threads=6, limits=SHORT)
    server.start()
    with connect(server) as ordinary:
        with blocked(server, 4):
            ordinary.sendall(head("GET", "/boats/ada"))
            until(lambda: server.waiting == 1)
            stopping = threading.Thread(target=server.stop, args=(PATIENCE_S,))
            stopping.start()
            assert answer_to(ordinary)[0] == 200
        stopping.join(PATIENCE_S)
    assert not stopping.is_alive()


def test_an_upload_waits_for_other_uploads_of_its_project():
    """Eight threads: four are for uploads, two of these for one project."""
    raw = head("PUT", "/cargo", "Content-Length: 100000")
    with serving(threads=8, stall_s=PATIENCE_S) as server, contextlib.ExitStack() as stack:
        first, second, third = (stack.enter_context(connect(server)) for _ in range(3))
        for sock in (first, second):
            sock.sendall(raw + b"x" * 50_000)
        until(lambda: server.at_work == 2)
        third.sendall(raw + b"x" * 100_000)
        until(lambda: server.waiting == 1)
        assert len(timed(server.address, PATIENCE_S, requests=3)) == 3
        first.sendall(b"x" * 50_000)
        assert answer_to(first)[1]["size"] == 100_000
        assert answer_to(third)[1]["size"] == 100_000
        second.sendall(b"x" * 50_000)
        assert answer_to(second)[1]["size"] == 100_000


# --- streamed answers ---------------------------------------------------------------------------------------------


def test_a_stream_that_is_not_read_is_not_generated_and_blocks_no_thread():
    with serving(threads=1, stall_s=PATIENCE_S) as server, connect(server) as slow:
        before = hostile.made_bytes()
        slow.sendall(head("GET", "/endless"))
        assert len(timed(server.address, PATIENCE_S, requests=3)) == 3
        assert hostile.made_bytes() - before < 16 << 20


def test_a_stream_keeps_its_request_id_while_other_requests_run_in_its_thread():
    seen = []

    def pieces(request):
        for _ in range(64):
            seen.append(request_context.get()[1] == request.request_id)
            yield b"x" * 65536

    hostile.WAITS.append(lambda request: Response(stream=pieces(request), content_type="text/plain"))
    try:
        with serving(threads=1, stall_s=PATIENCE_S) as server, connect(server) as sock:
            sock.sendall(head("GET", "/waits"))
            answer = http.client.HTTPResponse(sock)
            answer.begin()
            size = 0
            while piece := answer.read(65536):
                size += len(piece)
                timed(server.address, PATIENCE_S, requests=1)
    finally:
        hostile.WAITS.clear()
    assert size == 64 * 65536
    assert seen == [True] * 64
