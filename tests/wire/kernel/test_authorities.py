"""Which authorities `SocketTransport` trusts: the machine's, those that SSL_CERT_FILE names, and those of `ca_file`."""

import socket

import pytest

from moorage.core.errors import StartError, Unavailable
from moorage.wire.server.http_server import HttpServer
from moorage.wire.transports import SocketTransport, trusted_authorities
from tests.wire.kernel.security import with_tls


def _answer(environ, start_response):
    start_response("204 No Content", [])
    return []


@pytest.fixture
def url(certificates):
    server = HttpServer(_answer, socket.create_server(("127.0.0.1", 0)), threads=2, tls=with_tls(certificates).tls)
    server.start()
    yield f"https://127.0.0.1:{server.address[1]}"
    server.stop(10)


@pytest.fixture(autouse=True)
def _no_cache():
    trusted_authorities.cache_clear()
    yield
    trusted_authorities.cache_clear()


def test_an_authority_that_the_machine_does_not_know_is_refused_and_the_remedy_named(url):
    with pytest.raises(Unavailable, match=r"set \[endpoints\] ca_file \(or OS_CACERT\) to a file"):
        SocketTransport(url).send("GET", "/", {})


def test_ca_file_names_a_further_authority(url, certificates):
    transport = SocketTransport(url, ca_file=certificates / "ca.crt")
    assert transport.send("GET", "/", {}).status == 204
    with transport.stream("GET", "/", {}) as (status, _, _):
        assert status == 204


def test_ssl_cert_file_names_the_authorities_of_the_machine(url, certificates, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.crt"))
    assert SocketTransport(url).send("GET", "/", {}).status == 204


def test_another_name_than_that_of_the_certificate_is_refused(url, certificates):
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        SocketTransport(url, ca_file=certificates / "ca.crt", tls_name="cloud.example.org").send("GET", "/", {})
    other = SocketTransport(url.replace("127.0.0.1", "127.0.0.2"), ca_file=certificates / "ca.crt")
    with pytest.raises(Unavailable):
        other.send("GET", "/", {})
    named = SocketTransport(url, ca_file=certificates / "ca.crt", tls_name="localhost")
    assert named.send("GET", "/", {}).status == 204


@pytest.mark.parametrize(
    ("content", "said"), [(None, "cannot be read: No such file"), ("words", "has no certificates in PEM format")]
)
def test_an_invalid_ca_file_is_named(tmp_path, content, said):
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(StartError, match=f"{path} {said}"):
        SocketTransport("https://127.0.0.1", ca_file=path)
