"""A user's key pairs: imported, in pages, of both types."""

import base64
import hashlib

import pytest

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


def test_a_keypair_can_be_imported_but_not_generated(plane):
    unmade = {"keypair": {"name": "k"}}
    assert plane.send("POST", "/v2.1/os-keypairs", unmade, version="2.91")[0] == 501
    assert plane.send("POST", "/v2.1/os-keypairs", unmade, version="2.92")[0] == 400
    bad = {"keypair": {"name": "k", "public_key": "no key"}}
    assert plane.send("POST", "/v2.1/os-keypairs", bad)[0] == 400


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
