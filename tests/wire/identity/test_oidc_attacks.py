"""A provider that lies, hangs or is away, and answers that do not belong to the browser: none of them signs anybody in.

`tests/system/identity/test_oidc.py` signs in with a real provider.
"""

import base64
import hmac
import json
import threading
from datetime import timedelta

import pytest

from moorage.core.errors import StartError
from moorage.identity.oidc.provider import FAILURE_KEPT, KEPT, KEYS_REFETCHED
from moorage.identity.oidc.provider_http import MAX_ANSWER_BYTES, MAX_AT_ONCE
from moorage.identity.oidc.sign_in import DEVICE_TOKEN_AGE
from moorage.identity.tokens.throttle import FREE_FAILURES
from tests.plane import InProcessPlane
from tests.wire.identity.conftest import Wire
from tests.wire.identity.lying_provider import new_key, running_provider

SECRET = "b" * 43
MAPPING = "- {value: lab, project: demo, role: member}\n- {value: root, project: admin, role: admin}\n"


@pytest.fixture
def provider(clock):
    with running_provider(clock) as provider:
        yield provider


@pytest.fixture
def options(provider):
    return {
        "issuer": provider.issuer, "client_id": "dashboard", "device_client_id": "cli", "mapping_file": "oidc.yaml",
        "timeout_s": 0.5, "name": "the lab",
    }  # fmt: skip


@pytest.fixture
def plane(tmp_path, clock, ids, options):
    (tmp_path / "oidc.yaml").write_text(MAPPING)
    with InProcessPlane(tmp_path, "identity", clock=clock, ids=ids, authenticator=None, oidc=options) as plane:
        yield plane


@pytest.fixture
def wire(plane, passwords):
    return Wire(plane.transport(), passwords)


def begin(wire, secret=SECRET):
    return wire.send("POST", "/moorage/v1/oidc/authorizations", {"browser_secret": secret})


def come_back(wire, answer, secret=SECRET, address="192.0.2.9"):
    body = {"browser_secret": secret, **answer}
    status, headers, document = wire.send("POST", "/moorage/v1/oidc/codes", body, x_forwarded_for=address)
    return status, document["error"]["message"] if status >= 400 else headers["x-subject-token"]


def sign_in(wire, provider):
    status, _, document = begin(wire)
    assert status == 200, document
    return come_back(wire, provider.authorize(document["url"]))


def with_id_token(wire, id_token):
    status, headers, document = wire.send("POST", "/moorage/v1/oidc/id_tokens", {"id_token": id_token})
    return status, document["error"]["message"] if status >= 400 else headers["x-subject-token"]


def test_an_honest_answer_signs_in_and_the_verifier_fits_the_challenge(wire, provider):
    assert sign_in(wire, provider)[0] == 201
    form = provider.token_requests[0]
    assert form["code"] == "a-code"
    assert len(form["code_verifier"]) == 43
    assert form["redirect_uri"].endswith("/ui/sign-in/provider/callback")


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"nonce": "another"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"iss": "https://other.example"}, "iss"),
        ({"iss": None}, "iss"),
        ({"aud": "another client"}, "aud"),
        ({"aud": None}, "aud"),
        ({"aud": ["dashboard", "another"]}, "azp"),
        ({"azp": "another"}, "azp"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "tomorrow"}, "exp"),
        ({"iat": 99_999_999_999}, "future"),
        ({"iat": None}, "iat"),
        ({"nbf": 99_999_999_999}, "not yet valid"),
        ({"sub": None}, "sub"),
        ({"sub": 7}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": "x" * 300}, "sub"),
        ({"at_hash": "d3Jvbmc"}, "at_hash"),
    ],
)
def test_an_id_token_with_a_wrong_claim_is_refused(wire, provider, claims, reason):
    provider.claims = claims
    status, message = sign_in(wire, provider)
    assert status == 401
    assert reason in message.lower()


def part(document):
    return base64.urlsafe_b64encode(document).rstrip(b"=").decode()


def forged(provider, algorithm, kid, secret):
    """The honest claims under another header; signed with HMAC if there is a `secret`."""
    header = part(json.dumps({"alg": algorithm, "kid": kid}).encode())
    signed = f"{header}.{provider.id_token().split('.')[1]}"
    return f"{signed}.{part(hmac.digest(secret, signed.encode(), 'sha256')) if secret else ''}"


def test_an_unsigned_id_token_is_refused(wire, provider):
    provider.claims = {"aud": "cli"}
    for algorithm in ("none", "None", ""):
        assert with_id_token(wire, forged(provider, algorithm, "first", b""))[0] == 401


def test_the_public_key_is_no_secret_for_a_symmetric_signature(wire, provider):
    """The classic confusion: HS256 with the text of the public key, and a key set that offers a symmetric key."""
    provider.claims = {"aud": "cli"}
    public = provider.key.as_pem(private=False)
    provider.jwks = {"keys": [provider.key.as_dict(private=False), {"kty": "oct", "kid": "s", "k": part(b"a secret")}]}
    assert with_id_token(wire, provider.id_token())[0] == 201
    for secret, kid in ((public, "first"), (b"a secret", "s")):
        assert with_id_token(wire, forged(provider, "HS256", kid, secret))[0] == 401


def test_a_foreign_key_under_the_published_name_is_refused(wire, provider):
    provider.jwks = {"keys": [provider.key.as_dict(private=False)]}
    provider.key = new_key("first")
    status, message = sign_in(wire, provider)
    assert status == 401
    assert "signature" in message


def test_a_new_key_is_fetched_but_not_for_every_unknown_name(wire, provider, clock):
    assert sign_in(wire, provider)[0] == 201
    provider.key, provider.header = new_key("second"), {"alg": "RS256", "kid": "second"}
    assert sign_in(wire, provider)[0] == 401
    assert provider.jwks_requests == 1
    clock.sleep(KEYS_REFETCHED.total_seconds() + 1)
    assert sign_in(wire, provider)[0] == 201
    assert provider.jwks_requests == 2


def test_a_state_counts_only_with_the_secret_of_its_browser(wire, provider):
    answer = provider.authorize(begin(wire)[2]["url"])
    for wrong in (answer | {"state": "x"}, answer | {"state": "é"}):
        assert come_back(wire, wrong)[0] == 401
    assert come_back(wire, answer, secret="c" * 43)[0] == 401
    assert provider.token_requests == [], "nobody asked the provider"
    assert come_back(wire, answer)[0] == 201


def test_an_answer_that_names_another_issuer_is_refused_or_that_names_none_where_the_provider_says_it_does(
    wire, provider
):
    answer = provider.authorize(begin(wire)[2]["url"])
    assert come_back(wire, answer | {"iss": "https://other.example"})[0] == 401
    assert come_back(wire, answer | {"iss": provider.issuer})[0] == 201


def test_a_missing_issuer_is_refused_where_the_provider_says_that_it_names_it(wire, provider):
    provider.metadata = {"authorization_response_iss_parameter_supported": True}
    answer = provider.authorize(begin(wire)[2]["url"])
    assert come_back(wire, answer)[0] == 401
    assert come_back(wire, answer | {"iss": provider.issuer})[0] == 201


def test_metadata_of_another_issuer_or_with_plain_addresses_is_not_used(wire, provider, clock):
    for wrong in (
        {"issuer": "https://other.example"},
        {"token_endpoint": "http://far.example/token"},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"token_endpoint": None},
    ):
        provider.metadata = wrong
        assert begin(wire)[0] == 503
        clock.sleep(FAILURE_KEPT.total_seconds() + 1)
    provider.metadata = {}
    assert begin(wire)[0] == 200


def test_an_endless_answer_is_cut_off_and_passwords_still_work(wire, provider):
    sent = []

    def endless(handler):
        handler.send_response(200)
        handler.end_headers()
        try:
            while len(sent) < 200:
                handler.wfile.write(b" " * 65_536)
                sent.append(65_536)
        except OSError:
            pass

    provider.answers["/.well-known/openid-configuration"] = endless
    assert begin(wire)[0] == 503
    assert sum(sent) < 10_000_000
    assert MAX_ANSWER_BYTES < 1_000_000
    assert wire.log_in("demo")[0] == 201


def test_a_provider_that_hangs_keeps_few_threads_waiting_and_the_next_caller_none(wire, provider, clock):
    hangs, arrived = threading.Event(), threading.Semaphore(0)

    def hang(handler):
        arrived.release()
        hangs.wait(30)

    provider.answers["/.well-known/openid-configuration"] = hang
    statuses = []
    threads = [threading.Thread(target=lambda: statuses.append(begin(wire)[0])) for _ in range(MAX_AT_ONCE)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert arrived.acquire(timeout=20)
    assert begin(wire)[0] == 503
    assert not arrived.acquire(blocking=False), "one more was not let through"
    for thread in threads:
        thread.join(30)
    assert statuses == [503] * MAX_AT_ONCE
    assert begin(wire)[0] == 503
    assert not arrived.acquire(blocking=False), "soon after a failure nobody is asked"
    hangs.set()
    provider.answers.clear()
    clock.sleep(FAILURE_KEPT.total_seconds() + 1)
    assert begin(wire)[0] == 200


@pytest.mark.parametrize("answer", [b"<html>", b"[1]", b"\xff\xfe", b'{"id_token": 7}', b"{}", b'{"error": 7}'])
def test_a_token_endpoint_that_answers_anything_else_signs_nobody_in(wire, provider, answer):
    def send(handler):
        handler.send_response(200)
        handler.send_header("content-length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)

    provider.answers["/token"] = send
    assert sign_in(wire, provider)[0] in (401, 503)


def test_metadata_is_kept_for_a_while_only(wire, provider, clock):
    assert begin(wire)[0] == 200
    provider.metadata = {"issuer": "https://other.example"}
    assert begin(wire)[0] == 200
    clock.sleep(KEPT.total_seconds() + 1)
    assert begin(wire)[0] == 503


def test_a_device_token_counts_for_its_client_and_for_a_short_time(wire, provider, clock):
    assert with_id_token(wire, provider.id_token(aud="dashboard", nonce=None))[0] == 401
    honest = provider.id_token(aud="cli", exp=int((clock.now() + timedelta(days=1)).timestamp()))
    assert with_id_token(wire, honest)[0] == 201
    clock.sleep((DEVICE_TOKEN_AGE + timedelta(minutes=2)).total_seconds())
    status, message = with_id_token(wire, honest)
    assert status == 401
    assert "too old" in message


def test_an_address_that_is_refused_again_and_again_must_wait(wire, provider):
    answer = provider.authorize(begin(wire)[2]["url"]) | {"state": "x"}
    statuses = [come_back(wire, answer, address="192.0.2.66")[0] for _ in range(FREE_FAILURES + 1)]
    assert statuses == [401] * FREE_FAILURES + [429]
    assert sign_in(wire, provider)[0] == 201, "another address does not wait"


@pytest.mark.parametrize("groups", ["root", ["root"], [["root"], {"root": 1}, "root"]])
def test_a_value_in_any_shape_that_a_rule_names_grants_its_role(wire, provider, groups):
    provider.claims = {"groups": groups}
    assert sign_in(wire, provider)[0] == 201


@pytest.mark.parametrize(
    "groups", [None, [], {}, 7, True, {"root": True}, ["ROOT", " root", "root\0", "root\n", "r\u200boot", "root,lab"]]
)
def test_a_value_that_only_resembles_a_rule_s_grants_nothing(wire, provider, groups):
    provider.claims = {"groups": groups}
    status, message = sign_in(wire, provider)
    assert status == 403
    assert "no rule of this cloud" in message


@pytest.mark.parametrize("name", ["admin", "moorage", "Ad\0a", "\u202egnp.exe", "x" * 5000, "<script>", 7, "", None])
def test_a_name_from_the_provider_is_nobody_else_s_and_no_danger(wire, provider, name):
    provider.claims = {"preferred_username": name}
    status, token = sign_in(wire, provider)
    assert status == 201, token
    said = wire.send("GET", "/v3/auth/tokens", token=token, x_subject_token=token)[2]["token"]
    assert said["user"]["domain"]["id"] != "default"
    assert said["user"]["name"].isprintable()
    assert {role["name"] for role in said["roles"]} == {"member", "reader"}


def test_two_people_with_one_name_are_two_users(wire, provider):
    tokens = []
    for subject in ("1", "2"):
        provider.claims = {"sub": subject}
        tokens.append(sign_in(wire, provider)[1])
    users = [wire.send("GET", "/v3/auth/tokens", token=t, x_subject_token=t)[2]["token"]["user"] for t in tokens]
    assert users[0]["id"] != users[1]["id"]
    assert users[0]["name"] == "ada"
    assert users[1]["name"].startswith("ada (")


def test_a_role_that_an_administrator_gave_ends_at_the_next_sign_in(wire, provider, plane):
    token = sign_in(wire, provider)[1]
    user = wire.send("GET", "/v3/auth/tokens", token=token, x_subject_token=token)[2]["token"]["user"]["id"]
    admin = wire.token("admin", "admin")
    projects = {row["name"]: row["id"] for row in wire.send("GET", "/v3/projects", token=admin)[2]["projects"]}
    assert wire.send("PUT", f"/v3/projects/{projects['admin']}/users/{user}/roles/admin", token=admin)[0] == 204
    assert sign_in(wire, provider)[0] == 201
    accounts = plane.service("identity").identity.accounts()
    assert set(accounts.users[user].roles) == {projects["demo"]}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"issuer": "http://far.example"}, "must be a URL with https"),
        ({"client_id": ""}, "client_id is empty"),
        ({"device_client_id": "dashboard"}, "device_client_id must not be client_id"),
        ({"scopes": "profile"}, "scopes must contain openid"),
        ({"person_claim": "email"}, "does not identify a person for ever"),
        ({"algorithms": "RS256, HS256"}, "algorithms names HS256"),
        ({"algorithms": "none"}, "algorithms names none"),
        ({"mapping_file": ""}, "mapping_file is empty"),
        ({"mapping_file": "missing.yaml"}, "cannot be read"),
        ({"client_secret_file": "missing"}, "cannot be read"),
        ({"redirect_uri": "http://far.example/ui"}, "redirect_uri"),
        ({"timeout_s": 0.0}, "timeout_s"),
    ],
)
def test_a_configuration_that_is_not_safe_does_not_start(tmp_path, options, changes, reason):
    (tmp_path / "oidc.yaml").write_text(MAPPING)
    with (
        pytest.raises(StartError, match=reason),
        InProcessPlane(tmp_path, "identity", authenticator=None, oidc=options | changes),
    ):
        pass


def test_without_a_provider_the_routes_say_so(tmp_path, clock, ids):
    with InProcessPlane(tmp_path, "identity", clock=clock, ids=ids, authenticator=None) as plane:
        answer = plane.transport().send("GET", "/identity/moorage/v1/oidc", {})
    assert answer.status == 404
    assert b"has no OpenID provider" in answer.body
