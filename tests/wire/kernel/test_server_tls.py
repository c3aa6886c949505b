"""TLS of the HTTP server: handshakes, certificates and their faults, clients that stop in the middle of a message."""

import contextlib
import logging
import socket
import ssl
import time

import pytest
from cryptography.hazmat.primitives import serialization

from moorage.core.errors import StartError
from moorage.wire.server.http_server import HttpServer
from moorage.wire.server.limits import ServerLimits
from moorage.wire.server.tls import ServerTls
from tests.certificates import make_certificates
from tests.wire.kernel.security import NAME, with_tls

PATIENCE_S = 30
REQUEST = b"GET /a HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.fixture
def security(certificates):
    return with_tls(certificates)


def scheme_and_length(environ, start_response):
    """Returns the scheme of the URL, and the length of the body."""
    size = sum(len(piece) for piece in iter(lambda: environ["wsgi.input"].read(65536), b""))
    content = f"{environ['wsgi.url_scheme']} {size}".encode()
    start_response("200 OK", [("content-length", str(len(content)))])
    return [content]


@contextlib.contextmanager
def serving(security, app=scheme_and_length, threads=2, **limits):
    server = HttpServer(
        app, socket.create_server(("127.0.0.1", 0)), threads=threads, tls=security.tls, limits=ServerLimits(**limits)
    )
    server.start()
    try:
        yield server
    finally:
        server.stop(PATIENCE_S)


def connect(server, security):
    return security.connect(server.address, PATIENCE_S)


def until_closed(sock):
    pieces = []
    with contextlib.suppress(ConnectionResetError):
        while piece := sock.recv(65536):
            pieces.append(piece)
    return b"".join(pieces)


def until(condition):
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def is_answered(server, security):
    with connect(server, security) as sock:
        sock.sendall(REQUEST)
        return sock.recv(65536).endswith(b"https 0")


def first_flight(security):
    """The bytes with which a client begins the handshake."""
    outgoing = ssl.MemoryBIO()
    client = security.trust.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=NAME)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


# --- handshakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begins_with", [0, 1, 100, None], ids=["nothing", "one byte", "a part", "the whole greeting"])
def test_clients_that_stop_in_the_handshake_block_nobody_and_are_ended(security, monkeypatch, begins_with):
    """Thirty of them, and a server with one thread."""
    monkeypatch.setattr("moorage.wire.server.http_server.LOOK_S", 0.1)
    greeting = first_flight(security)[:begins_with]
    with serving(security, threads=1, head_timeout_s=2.0) as server, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(server.address, PATIENCE_S)) for _ in range(30)]
        for sock in silent:
            sock.sendall(greeting)
        assert is_answered(server, security)
        until(lambda: server.ended["late"] == 30)
        for sock in silent:
            until_closed(sock)


def test_a_handshake_byte_by_byte_has_one_deadline_in_all(security, monkeypatch):
    monkeypatch.setattr("moorage.wire.server.http_server.LOOK_S", 0.1)
    greeting = first_flight(security)
    with serving(security, head_timeout_s=1.0) as server, contextlib.closing(socket.socket()) as slow:
        slow.connect(server.address)
        for at in range(len(greeting)):
            if server.ended["late"]:
                break
            slow.sendall(greeting[at : at + 1])
            time.sleep(0.05)
        assert at < len(greeting) - 1
        assert is_answered(server, security)


def test_a_connection_that_asks_nothing_after_its_handshake_is_ended(security, monkeypatch):
    monkeypatch.setattr("moorage.wire.server.http_server.LOOK_S", 0.1)
    with serving(security, head_timeout_s=1.0) as server, connect(server, security) as sock:
        assert until_closed(sock) == b""
        assert server.ended["late"] == 1


def test_a_client_that_speaks_plain_http_is_told_so(security):
    with serving(security) as server, socket.create_connection(server.address, PATIENCE_S) as sock:
        sock.sendall(REQUEST)
        assert until_closed(sock).startswith(b"HTTP/1.1 400 Bad Request: this port expects TLS; use https://\r\n")
        assert is_answered(server, security)


@pytest.mark.parametrize("noise", [b"\x16" + bytes(500), b"\x16\x03\x01\x40\x00" + bytes(20_000), b"\xff" * 9])
def test_noise_is_refused(security, noise):
    with serving(security) as server, socket.create_connection(server.address, PATIENCE_S) as sock:
        sock.sendall(noise)
        assert b"200" not in until_closed(sock)
        assert is_answered(server, security)


def test_old_versions_of_tls_are_refused(security):
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with serving(security) as server, socket.create_connection(server.address, PATIENCE_S) as sock:
        with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
            old.wrap_socket(sock)
        assert is_answered(server, security)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_http_1_1_is_chosen_from_the_protocols_that_a_client_offers(security, version):
    security.trust.set_alpn_protocols(["h2", "http/1.1"])
    security.trust.minimum_version = security.trust.maximum_version = version
    with serving(security) as server, connect(server, security) as sock:
        assert sock.selected_alpn_protocol() == "http/1.1"
        sock.sendall(REQUEST)
        assert sock.recv(65536).endswith(b"https 0")


# --- messages ---------------------------------------------------------------------------------------------------------


def test_requests_need_not_fit_records(security):
    """Two requests in one record, and one request in many."""
    with serving(security) as server, connect(server, security) as sock:
        sock.sendall(REQUEST + REQUEST)
        answered = b""
        while answered.count(b"https 0") < 2:
            answered += sock.recv(65536)
        for at in range(len(REQUEST)):
            sock.sendall(REQUEST[at : at + 1])
        assert sock.recv(65536).endswith(b"https 0")


@pytest.mark.parametrize("is_stream", [False, True])
def test_large_bodies_arrive_whole_in_both_directions(security, is_stream):
    content = bytes(range(256)) * 40_000

    def app(environ, start_response):
        arrived = environ["wsgi.input"].read()
        start_response("200 OK", [("content-length", str(len(arrived)))])
        return iter([arrived[:1_000_000], arrived[1_000_000:]]) if is_stream else [arrived]

    with serving(security, app) as server, connect(server, security) as sock:
        for _ in range(2):
            sock.sendall(b"PUT /a HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % len(content) + content)
            answered = b""
            while len(answered) < len(content) or not answered.endswith(content):
                piece = sock.recv(1 << 20)
                assert piece
                answered += piece
            assert answered.startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_client_that_ends_its_side_gets_its_answer(security):
    """It sends the request and the end of TLS at once."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = security.trust.wrap_bio(incoming, outgoing, server_hostname=NAME)
    with serving(security) as server, socket.create_connection(server.address, PATIENCE_S) as sock:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(65536))
        client.write(REQUEST)
        with contextlib.suppress(ssl.SSLWantReadError):
            client.unwrap()
        sock.sendall(outgoing.read())
        incoming.write(until_closed(sock))
        assert client.read(65536).endswith(b"https 0")


def test_a_client_that_vanishes_in_the_middle_of_a_record_is_forgotten(security):
    with serving(security) as server:
        sock = connect(server, security)
        raw = socket.socket(fileno=sock.detach())
        raw.sendall(b"\x17\x03\x03\x00\xff" + bytes(100))
        raw.close()
        until(lambda: not server._connections)
        assert is_answered(server, security)


def test_the_end_of_an_answer_is_told_before_the_connection_closes(security):
    """Otherwise a client could not tell a whole answer of unknown length from one that was cut off."""
    with serving(security) as server:
        raw = socket.create_connection(server.address, PATIENCE_S)
        with security.trust.wrap_socket(raw, server_hostname=NAME, suppress_ragged_eofs=False) as sock:
            sock.sendall(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            assert until_closed(sock).endswith(b"https 0")


# --- certificates -----------------------------------------------------------------------------------------------------


def serial(server, security):
    with connect(server, security) as sock:
        return sock.getpeercert()["serialNumber"]


def test_a_reload_changes_the_certificate_of_new_connections(certificates, tmp_path):
    make_certificates(tmp_path)
    security = with_tls(tmp_path)
    with serving(security) as server, connect(server, security) as old:
        before = serial(server, security)
        make_certificates(tmp_path)
        security.trust.load_verify_locations(tmp_path / "ca.crt")
        assert serial(server, security) == before, "it is not read again by itself"
        security.tls.reload()
        assert serial(server, security) != before
        old.sendall(REQUEST)
        assert old.recv(65536).endswith(b"https 0")


def test_a_reload_of_invalid_files_keeps_the_certificate_and_logs_why(tmp_path, caplog):
    make_certificates(tmp_path)
    security = with_tls(tmp_path)
    (tmp_path / "moorage.key").write_text("gone")
    with serving(security) as server, caplog.at_level(logging.ERROR):
        security.tls.reload()
        assert is_answered(server, security)
    (record,) = [
        each for each in caplog.records if each.getMessage() == "the new certificate is invalid; the present one stays"
    ]
    assert "moorage.key" in record.reason


def _encrypt(directory):
    key = serialization.load_pem_private_key((directory / "moorage.key").read_bytes(), None)
    (directory / "moorage.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


def _of_another(directory):
    other = directory / "other"
    other.mkdir()
    make_certificates(other)
    (other / "moorage.key").replace(directory / "moorage.key")


FAULTS = {
    "no certificate": (lambda at: (at / "moorage.crt").unlink(), r"certificate_file: \S+moorage.crt cannot be read: No"),
    "no key": (lambda at: (at / "moorage.key").unlink(), r"key_file: \S+moorage.key cannot be read: No such file"),
    "a directory": (lambda at: ((at / "moorage.key").unlink(), (at / "moorage.key").mkdir()), "Is a directory"),
    "key of another": (_of_another, r"key_file: \S+moorage.key is not the key of the certificate \S+moorage.crt"),
    "encrypted key": (_encrypt, r"key_file: \S+moorage.key is encrypted; save it without a passphrase"),
    "empty certificate": (lambda at: (at / "moorage.crt").write_text(""), "both must be PEM files"),
    "key for certificate": (
        lambda at: (at / "moorage.crt").write_bytes((at / "moorage.key").read_bytes()), "both must be PEM files",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_files_are_named(tmp_path, fault):
    make_certificates(tmp_path)
    spoil, message = FAULTS[fault]
    spoil(tmp_path)
    with pytest.raises(StartError, match=message):
        ServerTls(tmp_path / "moorage.crt", tmp_path / "moorage.key")
