"""Hostile bytes on the socket of a real server: each request is answered in time, memory is bounded, and the next
request works.
"""

import contextlib
import json
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from bench.processes import cpu_seconds, tree
from tests.fuzz.world import trouble_with
from tests.ports import free_port
from tests.system.planes import PlaneProcess, until, write_config

pytestmark = pytest.mark.slow

MIB = 1 << 20
#: Limits for 10 MiB, the largest accepted body: CPU of all processes, growth of the largest one's resident memory.
#: Measured 2026-11-21: at most 2.5 s (900,000 unexpected keys) and 190 MiB (5,000,000 numbers).
CPU_S = 6.0
GROWTH_MIB = 400
#: The maximum time of an answer, also on a busy machine.
PATIENCE_S = 60
HOST = "10000000-0000-4000-8000-000000000001"


class Server:
    def __init__(self, process: PlaneProcess, port: int) -> None:
        self.port = port
        self.pids = tree([process.process.pid])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)

    def send(self, raw: bytes) -> tuple[int, str, bytes]:
        """Sends the bytes; returns (status, content type, body) of the first answer, or status 0 if the connection
        ends.
        """
        with self.connect() as connection:
            with suppress(ConnectionError):  # the server refused the upload before its end, but the answer has arrived
                connection.sendall(raw)
            return receive(connection)

    def assert_alive(self) -> None:
        assert self.send(request("GET", "/resource_providers"))[0] == 200

    def forget_peak(self) -> None:
        for pid in self.pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def memory_mib(self, name: str) -> float:
        """Of the largest process: ``VmRSS`` is its memory now, ``VmHWM`` the maximum since `forget_peak`."""
        lines = [line for pid in self.pids for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
        return max(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def receive(connection: socket.socket) -> tuple[int, str, bytes]:
    received = b""
    while (end := received.find(b"\r\n\r\n")) < 0:
        if not (part := _part(connection)):
            return 0, "", received
        received += part
    head = received[:end].decode("latin-1").lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:])
    body = received[end + 4 :]
    while len(body) < int(headers.get("content-length", 0)):
        body += _part(connection)
    return int(head[0].split()[1]), headers.get("content-type", ""), body


def _part(connection: socket.socket) -> bytes:
    try:
        return connection.recv(MIB)
    except ConnectionError:
        return b""


def request(method: str, path: str, body: bytes | None = None, *headers: bytes, length: int | None = None) -> bytes:
    lines = [
        f"{method} /placement{path} HTTP/1.1".encode("utf-8", "surrogateescape"),
        b"Host: localhost",
        b"OpenStack-API-Version: placement 1.39",
        *headers,
    ]
    if body is not None:
        lines += [b"Content-Type: application/json", b"Content-Length: %d" % (len(body) if length is None else length)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    port = free_port()
    directory = tmp_path_factory.mktemp("hostile") / "state"
    write_config(directory, plane={"services": "placement"}, identity={"mode": "none"}, server={"port": port})
    with PlaneProcess(directory / "moorage.conf") as process:
        until(lambda: not _refused(port))
        server = Server(process, port)
        body = json.dumps({"name": "host", "uuid": HOST}).encode()
        assert server.send(request("POST", "/resource_providers", body))[0] == 200
        yield server


def _refused(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


# --- large and unusual bodies -------------------------------------------------------------------------------------

_KEYS = ",".join(f'"{number}":1' for number in range(900_000))
_CONSUMERS = ",".join(f'"{number:08x}-0000-4000-8000-000000000000":1' for number in range(200_000))
_CLASSES = ",".join(f'"CUSTOM_{number}":1' for number in range(400_000))

BODIES = {
    "nesting": b"[" * 5_000_000,
    "nesting that ends": b"[" * 1000 + b"]" * 1000,
    "nesting with a NUL": b"[" * 900 + rb'"\u0000"' + b"]" * 900,
    "numbers": b"[" + b"1," * 4_999_000 + b"1]",
    "keys": f"{{{_KEYS}}}".encode(),
    "the same key": b'{"name":"a",' + b'"name":"b",' * 800_000 + b'"name":"c"}',
    "consumers": f"{{{_CONSUMERS}}}".encode(),
    "classes": f'{{"resource_provider_generation":0,"inventories":{{{_CLASSES}}}}}'.encode(),
    "text": b'{"name":"' + b"a" * 9_000_000 + b'"}',
    "escapes": b'{"name":"' + rb"\u00e9" * 1_500_000 + b'"}',
    "lone surrogates": rb'{"name":"\ud800\udfff\udc00"}',
    "a long number": b'{"name":' + b"9" * 5_000_000 + b"}",
    "a long fraction": b'{"total":1.' + b"9" * 5_000_000 + b"}",
    "beyond 64 bits": b'{"resource_provider_generation":18446744073709551616,"inventories":{}}',
    "infinity": b'{"total":1e999}',
    "NaN": b'{"resource_class":"VCPU","total":NaN}',
    "UTF-16": '{"name":"a"}'.encode("utf-16"),
    "bad UTF-8": b'{"name":"\xff\xfe"}',
    "traits": b'{"resource_provider_generation":0,"traits":[' + b'"CUSTOM_A",' * 800_000 + b'"CUSTOM_A"]}',
    "a list of pairs": b"[" + b'["a",1],' * 1_000_000 + b"1]",
    "nothing": b"",
    "blanks": b" " * 10_000_000,
}
TARGETS = [
    ("POST", "/resource_providers"),
    ("PUT", f"/resource_providers/{HOST}/inventories"),
    ("PUT", f"/resource_providers/{HOST}/traits"),
    ("POST", "/allocations"),
]


@pytest.mark.parametrize("name", BODIES)
def test_an_unusual_body_is_refused_within_limits_of_cpu_and_memory(server, name):
    for method, path in TARGETS:
        server.forget_peak()
        before, cpu = server.memory_mib("VmRSS"), cpu_seconds(server.pids[:1])
        status, content_type, answer = server.send(request(method, path, BODIES[name]))
        assert status in (200, 204, 400, 409, 413), (method, path, status, answer[:300])
        assert trouble_with(status, content_type, answer) is None
        assert len(answer) < MIB
        assert cpu_seconds(server.pids[:1]) - cpu < CPU_S
        assert server.memory_mib("VmHWM") - before < GROWTH_MIB


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(server):
    raw = request("POST", "/resource_providers", b"{", length=1 << 40)
    status, content_type, answer = server.send(raw)
    assert (status, trouble_with(status, content_type, answer)) == (413, None)


def test_an_endless_chunked_body_is_refused_and_not_kept_in_memory(server):
    server.forget_peak()
    before = server.memory_mib("VmRSS")
    head = request(
        "POST", "/resource_providers", None, b"Content-Type: application/json", b"Transfer-Encoding: chunked"
    )
    with server.connect() as connection:
        connection.sendall(head)
        with suppress(ConnectionError):
            for _ in range(500):
                connection.sendall(b"100000\r\n" + b" " * MIB + b"\r\n")
        status, content_type, answer = receive(connection)
    assert (status, trouble_with(status, content_type, answer)) == (413, None)
    assert server.memory_mib("VmHWM") - before < 100


@pytest.mark.parametrize("chunks", [b"ffffffffffffffffff\r\n", b"-1\r\n\r\n", b"zz\r\n", b"1\r\nab\r\n", b"5\r\nab"])
def test_invalid_chunks_end_only_their_own_connection(server, chunks):
    head = request(
        "POST", "/resource_providers", None, b"Content-Type: application/json", b"Transfer-Encoding: chunked"
    )
    with server.connect() as connection:
        connection.sendall(head + chunks)
        connection.shutdown(socket.SHUT_WR)
        status, _, answer = receive(connection)
    assert status < 500, answer
    server.assert_alive()


# --- request lines and headers ------------------------------------------------------------------------------------

_LONG = "x" * 20_000
PATHS = [
    "/allocation_candidates?"
    + "&".join(f"resources{number}=VCPU:1" for number in range(1, 2500))
    + "&group_policy=none",
    "/allocation_candidates?" + "&".join(f"a{number}=1" for number in range(6000)),
    "/allocation_candidates?resources=" + ",".join(f"CUSTOM_{number}:1" for number in range(4000)),
    "/allocation_candidates?resources=VCPU:1&required=" + ",".join(f"CUSTOM_{number}" for number in range(4000)),
    "/allocation_candidates?resources=VCPU:1" + "&required=in:CUSTOM_A,CUSTOM_B" * 1500,
    "/allocation_candidates?resources=VCPU:1" + f"&member_of=in:{HOST},{HOST}" * 600,
    "/allocation_candidates?resources_A=VCPU:1&group_policy=none" + "&same_subtree=_A" * 3000,
    f"/allocation_candidates?resources_{_LONG}=VCPU:1",
    f"/resource_providers?name={_LONG}",
    f"/resource_providers?name={'%00' * 5000}",
    "/resource_providers?name=%ff%fe%ed%a0%80",
    "/resource_providers?" + "&" * 50_000,
    "/resource_providers?" + "%" * 50_000,
    f"/resource_providers/{_LONG}",
    f"/resource_providers/{'%2f' * 10_000}",
    "/resource_providers/%00",
    "/resource_providers/../../../etc/passwd",
    "/traits?name=in:" + ",".join(f"CUSTOM_{number}" for number in range(4000)),
    f"/traits/CUSTOM_{'A' * 20_000}",
    f"/usages?project_id={_LONG}",
    f"/moorage/v1/explain?resources_{'A' * 64}=VCPU:99999999999999999999",
    "/moorage/v1/events?since=999999999999999999999999",
    "/" + "a/" * 20_000,
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path[:50])
def test_an_unusual_url_is_refused_or_answered_in_time(server, path):
    cpu = cpu_seconds(server.pids[:1])
    status, content_type, answer = server.send(request("GET", path))
    assert 200 <= status < 500, (status, answer[:300])
    assert trouble_with(status, content_type, answer) is None
    assert cpu_seconds(server.pids[:1]) - cpu < 1.0


@pytest.mark.parametrize(
    "header",
    [
        b"OpenStack-API-Version: placement " + b"1" * 10_000,
        b"OpenStack-API-Version: placement 1.1" + b", placement 1.1" * 3000,
        "OpenStack-API-Version: placement \u0661.\u0661".encode(),
        b"Accept: " + b"application/json;q=0.1," * 3000,
        b"Accept: application/json;q=" + b"9" * 5000,
        b"Accept: application/json;q=nan",
        b"X-Openstack-Request-Id: req-\xff\xfe",
        b"X-Openstack-Request-Id: " + b"r" * 10_000,
        b"Content-Length: -1",
        b"Content-Length: " + b"9" * 40,
        b"Transfer-Encoding: gzip",
        b"Expect: 200-maybe",
        b"Forwarded: host=[::1;proto=\xff",
        b"X-Forwarded-Host: " + b"," * 10_000,
        b"\r\n".join(b"X-%d: y" % number for number in range(90)),
    ],
    ids=lambda header: header[:30],
)
def test_an_unusual_header_is_refused_or_ignored(server, header):
    status, content_type, answer = server.send(request("GET", "/resource_providers", None, header))
    assert 200 <= status < 500, (status, answer[:300])
    # A request that the HTTP layer cannot parse gets an answer without a body, because it does not reach Placement.
    assert not answer or trouble_with(status, content_type, answer) is None
    server.assert_alive()


@pytest.mark.parametrize(
    "raw",
    [
        b"\0" * 1000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,  # the first message of TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"G" * 100_000,
        b"GET /placement/ HTTP/1.1\r\n" + b"X-A: b\r\n" * 2000 + b"\r\n",
        b"GET http://elsewhere.example/placement/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT here:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"G\xc3\x89T /placement/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"BREW /placement/resource_providers HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=lambda raw: raw[:20],
)
def test_bytes_that_are_not_http_end_only_their_own_connection(server, raw):
    with server.connect() as connection:
        connection.sendall(raw)
        with contextlib.suppress(OSError):  # the server may have closed the connection already
            connection.shutdown(socket.SHUT_WR)
        assert receive(connection)[0] < 500
    server.assert_alive()


# --- connections --------------------------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order(server):
    paths = ["/resource_providers", "/nowhere", "/resource_classes/VCPU", "/traits/CUSTOM_NONE"]
    with server.connect() as connection:
        connection.sendall(b"".join(request("GET", path) for path in paths * 5))
        received = b""
        while received.count(b"HTTP/1.1 ") < 20:
            part = connection.recv(MIB)
            assert part, received[-500:]
            received += part
    assert [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]] == [200, 404, 200, 404] * 5


@pytest.mark.parametrize("sent", ["half a header", "half a body", "nothing"])
def test_a_hundred_slow_clients_delay_no_other_request(server, sent):
    half = {
        "half a header": request("GET", "/resource_providers")[:60],
        "half a body": request("POST", "/resource_providers", b'{"name":', length=100),
        "nothing": b"",
    }[sent]
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(server.connect()).sendall(half)
        server.assert_alive()
    server.assert_alive()
