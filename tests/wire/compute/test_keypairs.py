"""A user's key pairs: imported and generated, in pages, of both types."""

import base64
import hashlib
import sys

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key, pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID

from moorage.compute.catalogue.keypair_service import generate_keys

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINq58IlCWeEZskehFJsXerpeqXANAIKO2SOIJWaMJ2VT"


def test_keypairs_belong_to_a_user(plane):
    body = {"keypair": {"name": "k1", "public_key": KEY}}
    status, _, document = plane.send("POST", "/v2.1/os-keypairs", body, version="2.10")
    assert (status, document["keypair"]["name"], document["keypair"]["type"]) == (201, "k1", "ssh")
    assert document["keypair"]["fingerprint"].count(":") == 15
    assert plane.send("POST", "/v2.1/os-keypairs", body)[0] == 409
    assert [row["keypair"]["name"] for row in plane.send("GET", "/v2.1/os-keypairs")[2]["keypairs"]] == ["k1"]
    assert plane.send("GET", "/v2.1/os-keypairs/k1", who="bob:red")[0] == 404
    assert plane.send("GET", "/v2.1/os-keypairs?user_id=alice", who="bob:red")[0] == 403
    assert plane.admin("GET", "/v2.1/os-keypairs/k1?user_id=alice")[0] == 200
    assert plane.admin("POST", "/v2.1/os-keypairs", {"keypair": body["keypair"] | {"user_id": "bob"}})[0] == 201
    assert plane.send("GET", "/v2.1/os-keypairs/k1", who="bob:blue")[0] == 200
    assert plane.send("DELETE", "/v2.1/os-keypairs/k1", version="2.10")[0] == 204
    assert plane.send("DELETE", "/v2.1/os-keypairs/k1")[0] == 404


def test_the_imported_key_must_be_one(plane):
    bad = {"keypair": {"name": "k", "public_key": "no key"}}
    assert plane.send("POST", "/v2.1/os-keypairs", bad)[0] == 400


@pytest.mark.parametrize(("version", "status", "kind"), [("2.1", 200, {}), ("2.2", 201, {"type": "ssh"})])
def test_an_ssh_key_pair_is_generated(plane, version, status, kind):
    """The private key opens what the public key closes; the field `type` exists from 2.2 on."""
    answer, headers, made = plane.send("POST", "/v2.1/os-keypairs", {"keypair": {"name": "k"}}, version=version)
    assert headers["cache-control"] == "no-store"
    pair = made["keypair"]
    assert (answer, pair["name"], pair["user_id"]) == (status, "k", "alice")
    assert sorted(pair) == sorted(["fingerprint", "name", "private_key", "public_key", "user_id", *kind])
    assert pair["private_key"].startswith("-----BEGIN RSA PRIVATE KEY-----\n")
    key = load_pem_private_key(pair["private_key"].encode(), None)
    assert key.key_size == 2048
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    assert pair["public_key"] == f"{public} Generated-by-Nova"
    digest = hashlib.md5(base64.b64decode(public.split()[1])).hexdigest()
    assert pair["fingerprint"] == ":".join(digest[at : at + 2] for at in range(0, 32, 2))
    shown = plane.send("GET", "/v2.1/os-keypairs/k")[2]["keypair"]
    assert (shown["public_key"], "private_key" in shown) == (pair["public_key"], False)


def test_an_x509_key_pair_is_generated(plane):
    """A certificate for logins over WinRM, and a PKCS #12 file with an empty password."""
    body = {"keypair": {"name": "k", "type": "x509"}}
    status, _, made = plane.send("POST", "/v2.1/os-keypairs", body, version="2.91")
    pair = made["keypair"]
    certificate = x509.load_pem_x509_certificate(pair["public_key"].encode())
    assert (status, pair["type"]) == (201, "x509")
    assert certificate.subject.rfc4514_string() == certificate.issuer.rfc4514_string() == "CN=alice"
    certificate.verify_directly_issued_by(certificate)
    assert certificate.not_valid_before_utc <= plane.clock.now() < certificate.not_valid_after_utc
    (usage,) = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert usage == ExtendedKeyUsageOID.CLIENT_AUTH
    (principal,) = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert (principal.type_id.dotted_string, principal.value) == ("1.3.6.1.4.1.311.20.2.3", b"\x0c\x0falice@localhost")
    key, packed, _ = pkcs12.load_key_and_certificates(base64.b64decode(pair["private_key"]), b"")
    assert (packed, key.public_key()) == (certificate, certificate.public_key())
    assert pair["fingerprint"].replace(":", "") == certificate.fingerprint(SHA1()).hex()


@pytest.mark.parametrize("user", ["u" * 64, "böb", "a,CN=root", "a\nb", "x" * 200])
def test_a_certificate_names_its_user_whatever_the_user_is_called(plane, user):
    body = {"keypair": {"name": "k", "type": "x509", "user_id": user}}
    status, _, made = plane.admin("POST", "/v2.1/os-keypairs", body, version="2.91")
    if len(user) > 64:
        assert (status, "1 to 64 characters" in made["badRequest"]["message"]) == (400, True)
        return
    certificate = x509.load_pem_x509_certificate(made["keypair"]["public_key"].encode())
    assert [name.value for name in certificate.subject] == [user]
    (principal,) = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    text = f"{user}@localhost".encode()
    assert principal.value == bytes([0x0C, len(text)]) + text


@pytest.mark.parametrize("name", ["a/b", "../k", "k\n", "k\0", "k;id", "<b>", " k", "", "ä", "k" * 256, "k@h", None, 1])
def test_a_key_pair_with_an_odd_name_is_not_generated(plane, name):
    assert plane.send("POST", "/v2.1/os-keypairs", {"keypair": {"name": name}}, version="2.91")[0] == 400
    assert plane.send("GET", "/v2.1/os-keypairs")[2]["keypairs"] == []


def test_key_pairs_are_not_generated_from_2_92_on(plane):
    assert plane.send("POST", "/v2.1/os-keypairs", {"keypair": {"name": "k"}}, version="2.92")[0] == 400


def test_a_generated_key_pair_counts_and_needs_a_new_name(plane):
    new = {"keypair": {"name": "k"}}
    assert plane.send("POST", "/v2.1/os-keypairs", new, version="2.91")[0] == 201
    assert plane.send("POST", "/v2.1/os-keypairs", new, version="2.91")[0] == 409
    assert plane.admin("PUT", "/v2.1/os-quota-sets/red", {"quota_set": {"key_pairs": 1}})[0] == 200
    assert plane.send("POST", "/v2.1/os-keypairs", {"keypair": {"name": "l"}}, version="2.91")[0] == 403
    other = {"keypair": {"name": "k", "user_id": "bob"}}
    assert plane.send("POST", "/v2.1/os-keypairs", other, version="2.10")[0] == 403
    assert plane.admin("POST", "/v2.1/os-keypairs", other, version="2.10")[2]["keypair"]["user_id"] == "bob"


def test_a_private_key_is_neither_stored_nor_logged(plane, caplog):
    caplog.set_level("DEBUG")
    for kind in ("ssh", "x509"):
        body = {"keypair": {"name": kind, "type": kind}}
        pair = plane.send("POST", "/v2.1/os-keypairs", body, version="2.91")[2]["keypair"]
        lines = [line.encode() for line in pair["private_key"].splitlines() if not line.startswith("-")]
        parts = [line[at : at + 40] for line in lines for at in range(0, len(line) - 40, 40)]
        parts = [part for part in parts if part.decode() not in pair["public_key"]]  # the modulus is in both
        assert len(parts) > 10
        written = b"".join(path.read_bytes() for path in plane.process.directory.rglob("*") if path.is_file())
        assert pair["public_key"][20:60].encode() in written, "the files are the right ones"
        assert [part for part in parts if part in written or part.decode() in caplog.text] == []
    assert "private" not in repr(generate_keys("ssh", "alice", plane.clock.now()))


def test_without_cryptography_the_refusal_names_what_is_missing(plane, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    status, _, answer = plane.send("POST", "/v2.1/os-keypairs", {"keypair": {"name": "k"}}, version="2.91")
    assert (status, "moorage[signatures]" in answer["notImplemented"]["message"]) == (501, True)
    assert plane.send("POST", "/v2.1/os-keypairs", {"keypair": {"name": "k", "public_key": KEY}})[0] == 201


@pytest.mark.parametrize(
    ("version", "body", "status"),
    [
        ("2.1", {"name": "k"}, 200),
        ("2.1", {"name": "k", "type": "ssh"}, 400),
        ("2.2", {"name": "k", "type": "ssh"}, 201),
        ("2.9", {"name": "k", "user_id": "alice"}, 400),
        ("2.91", {"name": "k@home.example"}, 400),
        ("2.92", {"name": "k@home.example"}, 201),
        ("2.92", {"name": " k"}, 400),
    ],
)
def test_the_allowed_fields_depend_on_the_microversion(plane, version, body, status):
    body = {"keypair": {"public_key": KEY, **body}}
    assert plane.send("POST", "/v2.1/os-keypairs", body, version=version)[0] == status


def test_keypairs_are_listed_in_pages(plane):
    for name in ("a", "b", "c"):
        plane.send("POST", "/v2.1/os-keypairs", {"keypair": {"name": name, "public_key": KEY}})
    first = plane.send("GET", "/v2.1/os-keypairs?limit=2", version="2.35")[2]
    assert [row["keypair"]["name"] for row in first["keypairs"]] == ["a", "b"]
    rest = first["keypairs_links"][0]["href"].partition("/compute")[2]
    assert [row["keypair"]["name"] for row in plane.send("GET", rest, version="2.35")[2]["keypairs"]] == ["c"]
    assert len(plane.send("GET", "/v2.1/os-keypairs?limit=2", version="2.34")[2]["keypairs"]) == 3
    assert plane.send("GET", "/v2.1/os-keypairs?colour=red")[0] == 400


def test_the_fingerprint_of_a_certificate_is_computed_from_the_certificate(plane):
    der = b"\x30\x82 what a certificate begins with"
    pem = f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(der).decode()}-----END CERTIFICATE-----\n"
    body = {"keypair": {"name": "cert", "type": "x509", "public_key": pem}}
    made = plane.send("POST", "/v2.1/os-keypairs", body)[2]["keypair"]
    assert made["fingerprint"].replace(":", "") == hashlib.sha1(der).hexdigest()
    assert plane.send("POST", "/v2.1/os-keypairs", {"keypair": body["keypair"] | {"public_key": KEY}})[0] == 400


def test_a_shown_keypair_has_more_fields_than_a_listed_one(plane):
    plane.send("POST", "/v2.1/os-keypairs", {"keypair": {"name": "k", "public_key": KEY}})
    shown = plane.send("GET", "/v2.1/os-keypairs/k", version="2.2")[2]["keypair"]
    assert sorted(shown) == [
        "created_at", "deleted", "deleted_at", "fingerprint", "id", "name", "public_key", "type", "updated_at",
        "user_id",
    ]  # fmt: skip
