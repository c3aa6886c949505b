"""Chunked uploads through our own server: broken, endless and lying ones leave nothing, and are answered."""

import http.client
import json
import socket
import threading
import time

import pytest

from moorage.wire.server.http_server import HttpServer
from moorage.wire.server.limits import ServerLimits
from tests.plane import InProcessPlane
from tests.wire.images.conftest import Wire

PATIENCE_S = 60
#: Short for a test, but longer than the pauses of a normal client on a busy machine.
LIMITS = ServerLimits(stall_s=1.5, public_stall_s=1.0)


class Uploads:
    """A served image service with one queued image, and raw requests to it."""

    def __init__(self, plane, address):
        self.wire = Wire(plane.transport())
        self.directory = plane.directory / "images"
        self.image = self.wire.create()["id"]
        self._address = address

    def connect(self, *lines, who="alice:red", image=None, body=b""):
        """A connection that has sent the head of an upload, with `lines` in it, and `body`."""
        sock = socket.create_connection(self._address, PATIENCE_S)
        token = [] if who is None else [f"X-Auth-Token: {who}", "X-Roles: member"]
        first = f"PUT /image/v2/images/{image or self.image}/file HTTP/1.1"
        fields = ["Host: x", "Accept: application/json", "Content-Type: application/octet-stream", *token, *lines]
        sock.sendall("\r\n".join([first, *fields, "Transfer-Encoding: chunked", "", ""]).encode() + body)
        return sock

    def send(self, body, *lines, **options):
        """(status, message) of the answer to an upload of `body`, which arrives with its head; its sender then
        waits.
        """
        with self.connect(*lines, body=body, **options) as sock:
            return answer_of(sock)

    def state(self):
        """(status of the image, its data, the files of uploads)"""
        image = self.wire.send("GET", f"/v2/images/{self.image}")[2]
        data = self.wire.send("GET", f"/v2/images/{self.image}/file")[2]
        return image["status"], data, [path.name for path in self.directory.glob("*.part")]


def answer_of(sock):
    answer = http.client.HTTPResponse(sock)
    answer.begin()
    body = answer.read()
    return answer.status, json.loads(body)["message"] if body else ""


@pytest.fixture
def uploads(tmp_path, clock, ids):
    yield from _served(tmp_path, clock, ids)


@pytest.fixture
def full(tmp_path, clock, ids):
    """For a project that may have no data."""
    yield from _served(tmp_path, clock, ids, quota_gb=0)


def _served(tmp_path, clock, ids, **options):
    with InProcessPlane(tmp_path, "image", clock=clock, ids=ids, image=options) as plane:
        listener = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(plane.plane.app, listener, threads=8, limits=LIMITS, admission=plane.plane.admission)
        server.start()
        try:
            yield Uploads(plane, server.address)
        finally:
            server.stop(PATIENCE_S)


EMPTY = ("queued", b"", [])
ALICE = b"5\r\nalice\r\n"


def test_chunks_may_have_extensions_and_trailers_which_are_not_data(uploads):
    body = b'5;name=value;other="quoted"\r\nalice\r\n1;\r\n \r\n2\r\nof\r\n0;last\r\nX-Checksum: abc\r\nContent-MD5: x\r\n\r\n'
    assert uploads.send(body) == (204, "")
    assert uploads.state() == ("active", b"alice of", [])


@pytest.mark.parametrize(
    "body",
    [
        b"5\r\nalicealice\r\n0\r\n\r\n",
        b"-5\r\nalice\r\n0\r\n\r\n",
        b"0x5\r\nalice\r\n0\r\n\r\n",
        b"1" * 16 + b"\r\nalice\r\n0\r\n\r\n",
        b"5\nalice\r\n0\r\n\r\n",
        ALICE + b"0\r\nContent-Length: 5\r\n\r\n",
        ALICE + b"0\r\nnot a trailer\r\n\r\n",
        ALICE + b"0\r\n" + b"X: y\r\n" * 65 + b"\r\n",
        b"5;" + b"e" * 5000,
    ],
    ids=["longer than it says", "negative", "hexadecimal prefix", "too long a size", "line feeds", "a length as trailer",
         "an invalid trailer", "too many trailers", "too long an extension"],
)  # fmt: skip
def test_a_malformed_chunked_body_leaves_nothing(uploads, body):
    """Whether it arrives with the head or after it."""
    with uploads.connect() as sock:
        sock.sendall(body)
        assert answer_of(sock)[0] == 400
    assert (uploads.send(body)[0], uploads.state()) == (400, EMPTY)
    assert uploads.send(ALICE + b"0\r\n\r\n") == (204, "")


@pytest.mark.parametrize("announced", [4, 6])
def test_a_chunked_body_with_another_length_than_announced_leaves_nothing(uploads, announced):
    status, _ = uploads.send(ALICE + b"0\r\n\r\n", f"X-OpenStack-Image-Size: {announced}")
    assert (status, uploads.state()) == (413 if announced < 5 else 400, EMPTY)


@pytest.mark.parametrize("body", [b"", ALICE, b"9\r\nalice", ALICE + b"0\r\n"], ids=["head", "chunk", "half", "no end"])
def test_a_sender_that_dies_before_the_end_leaves_nothing(uploads, body):
    """Also after the last chunk: only the empty line ends the body."""
    with uploads.connect() as sock:
        sock.sendall(body)
        sock.shutdown(socket.SHUT_WR)
        assert answer_of(sock) == (400, "the body ended in the middle")
    assert uploads.state() == EMPTY


def test_a_sender_that_stops_is_answered_and_leaves_nothing(uploads):
    status, said = uploads.send(ALICE)
    assert (status, "arrives at less than" in said, uploads.state()) == (400, True, EMPTY)


def test_an_endless_body_is_answered_when_it_exceeds_the_quota(full):
    """The sender never ends the body and reads its answer only after it can send no more."""
    with full.connect() as sock:
        chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"

        def send_forever():
            try:
                while True:
                    sock.sendall(chunk)
            except OSError:
                return

        sender = threading.Thread(target=send_forever)
        sender.start()
        status, said = answer_of(sock)
        sock.close()
        sender.join(PATIENCE_S)
    assert status == 413
    assert "Image exceeds the storage quota: The size of the data 1048576 will exceed the limit" in said
    assert full.state() == EMPTY


def test_a_body_that_nobody_may_send_is_not_read(uploads):
    private = uploads.wire.create(visibility="private")["id"]
    for options, status in (({"who": None}, 401), ({"who": "bob:blue", "image": private}, 404)):
        assert uploads.send(ALICE, **options)[0] == status, "no end of the body was sent"
    assert uploads.state() == EMPTY


def test_of_two_chunked_uploads_at_once_one_is_stored(uploads):
    with uploads.connect() as first:
        first.sendall(ALICE)
        deadline = time.monotonic() + PATIENCE_S
        while uploads.state()[0] != "saving":
            assert time.monotonic() < deadline
        status, _ = uploads.send(b"3\r\nbob\r\n0\r\n\r\n")
        assert status == 409
        first.sendall(b"0\r\n\r\n")
        assert answer_of(first) == (204, "")
    assert uploads.state() == ("active", b"alice", [])
