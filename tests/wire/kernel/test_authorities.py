"""Which authorities `SocketTransport` trusts: the machine's, those that SSL_CERT_FILE names, and those of `ca_file`."""

import socket
from contextlib import contextmanager
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from moorage.core.errors import StartError, Unavailable
from moorage.wire.server.http_server import HttpServer
from moorage.wire.server.tls import ServerTls
from moorage.wire.transports import SocketTransport, trusted_authorities
from tests.wire.kernel.security import with_tls


def _answer(environ, start_response):
    start_response("204 No Content", [])
    return []


@contextmanager
def served(tls):
    server = HttpServer(_answer, socket.create_server(("127.0.0.1", 0)), threads=2, tls=tls)
    server.start()
    yield f"https://127.0.0.1:{server.address[1]}"
    server.stop(10)


@pytest.fixture
def url(certificates):
    with served(with_tls(certificates).tls) as address:
        yield address


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


@pytest.mark.parametrize("sent", [["moorage.crt"], ["moorage.crt", "ca.crt"]])
def test_a_servers_certificate_in_ca_file_is_trusted_for_its_name_without_its_authority(certificates, tmp_path, sent):
    own, chain = certificates / "moorage.crt", tmp_path / "chain.crt"
    chain.write_bytes(b"".join((certificates / name).read_bytes() for name in sent))
    with served(ServerTls(chain, certificates / "moorage.key")) as url:
        assert SocketTransport(url, ca_file=own).send("GET", "/", {}).status == 204
        with pytest.raises(Unavailable, match=r"IP address mismatch|Hostname mismatch"):
            SocketTransport(url, ca_file=own, tls_name="cloud.example.org").send("GET", "/", {})


def test_a_servers_certificate_in_ca_file_cannot_issue_others(certificates, tmp_path):
    """What the owner of that server's key could try against another server."""
    issuer = x509.load_pem_x509_certificate((certificates / "moorage.crt").read_bytes())
    issuer_key = load_pem_private_key((certificates / "moorage.key").read_bytes(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    forged = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "forged")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(issuer.not_valid_before_utc)
        .not_valid_after(issuer.not_valid_after_utc)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    (tmp_path / "moorage.crt").write_bytes(forged.public_bytes(Encoding.PEM))
    (tmp_path / "moorage.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with served(ServerTls(tmp_path / "moorage.crt", tmp_path / "moorage.key")) as url:
        assert SocketTransport(url, ca_file=tmp_path / "moorage.crt").send("GET", "/", {}).status == 204
        with pytest.raises(Unavailable, match="invalid CA certificate"):
            SocketTransport(url, ca_file=certificates / "moorage.crt").send("GET", "/", {})


@pytest.mark.parametrize(
    ("content", "said"), [(None, "cannot be read: No such file"), ("words", "has no certificates in PEM format")]
)
def test_an_invalid_ca_file_is_named(tmp_path, content, said):
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(StartError, match=f"{path} {said}"):
        SocketTransport("https://127.0.0.1", ca_file=path)
