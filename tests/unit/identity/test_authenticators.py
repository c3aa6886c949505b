import base64
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from moorage.core.errors import Forbidden, StartError, Unauthorized
from moorage.identity.authentication.authenticators import (
    EmbeddedTokens,
    HttpBasic,
    NoAuth,
    TestTokens,
    TokensOrBasic,
    refuse_beyond_loopback,
)
from moorage.identity.first_start.first_credentials import first_credentials
from moorage.identity.tokens import passwords as passwords_module
from moorage.identity.tokens.passwords import hash_password
from tests.people import change_user, open_people


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def identity(state, clock, ids):
    return open_people(state, clock=clock, ids=ids)


@pytest.fixture
def token(identity, state):
    def make(name, project=None):
        accounts = identity.accounts()
        user = accounts.user_named(name)
        where = accounts.project_named(project) if project else accounts.default_project(user)
        return identity.issue_token(user, where, ("password",))[0]

    return make


def basic(name, password):
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


@pytest.fixture
def bcrypts(monkeypatch):
    """A list with one entry for each run of bcrypt."""
    runs = []
    original = passwords_module.bcrypt.checkpw
    monkeypatch.setattr(passwords_module.bcrypt, "checkpw", lambda *given: runs.append(1) or original(*given))
    return runs


class TestEmbeddedTokens:
    def test_the_caller_is_the_user_of_the_token_in_its_project(self, identity, token):
        caller = EmbeddedTokens(identity).authenticate({"x-auth-token": token("admin", "demo")}, {})
        assert (caller.user_name, caller.project_name, caller.roles) == ("admin", "demo", {"admin"})
        assert caller.user_id != caller.user_name

    def test_the_caller_has_the_token_as_credentials_and_its_repr_does_not_show_it(self, identity, token):
        """The token is for requests in the user's name. It is not part of the caller's equality."""
        given = token("demo")
        for headers in ({"x-auth-token": given}, {"x-auth-token": given, "x-service-token": token("moorage")}):
            caller = EmbeddedTokens(identity).authenticate(
                headers | {"authorization": "Basic eDp5", "x-roles": "admin"}, {}
            )
            assert caller.credentials == {"x-auth-token": given}
            assert given not in repr(caller)
            assert caller == replace(caller, credentials={})

    def test_no_token_is_refused(self, identity):
        for headers in ({}, {"x-auth-token": ""}):
            with pytest.raises(Unauthorized, match="requires authentication"):
                EmbeddedTokens(identity).authenticate(headers, {})

    def test_with_a_service_token_an_expired_user_token_is_accepted_for_48_hours(self, identity, token, clock):
        users = token("demo")
        clock.sleep(3601)
        authenticator = EmbeddedTokens(identity)
        with pytest.raises(Unauthorized, match="expired"):
            authenticator.authenticate({"x-auth-token": users}, {})
        headers = {"x-auth-token": users, "x-service-token": token("moorage")}
        assert authenticator.authenticate(headers, {}).user_name == "demo"
        clock.sleep(timedelta(hours=48).total_seconds())
        headers["x-service-token"] = token("moorage")
        with pytest.raises(Unauthorized, match="expired"):
            authenticator.authenticate(headers, {})

    def test_a_service_token_of_a_user_without_the_role_service_is_refused(self, identity, token):
        for service_token in ("nonsense", token("admin")):
            with pytest.raises(Unauthorized):
                EmbeddedTokens(identity).authenticate(
                    {"x-auth-token": token("demo"), "x-service-token": service_token}, {}
                )


class TestHttpBasic:
    def test_the_caller_is_the_user_in_the_default_project(self, identity, state, clock):
        password, _ = first_credentials(state, "demo")
        caller = HttpBasic(identity, clock).authenticate(basic("demo", password), {})
        assert (caller.user_name, caller.project_name, caller.roles) == ("demo", "demo", {"member"})
        assert caller.credentials == basic("demo", password), "for requests to other services in the user's name"
        assert basic("demo", password)["authorization"] not in repr(caller)

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"authorization": "Bearer x"},
            {"authorization": "Basic"},
            {"authorization": "Basic !!!"},
            {"authorization": "Basic " + base64.b64encode(b"demo").decode()},
            {"authorization": "Basic " + base64.b64encode(b"\xff:\xff").decode()},
            basic("demo", "wrong"),
            basic("nobody", "wrong"),
            basic("", ""),
        ],
        ids=str,
    )
    def test_wrong_credentials_are_refused(self, identity, clock, headers):
        with pytest.raises(Unauthorized):
            HttpBasic(identity, clock).authenticate(headers, {})

    def test_a_checked_password_is_cached_for_a_few_seconds(self, identity, state, clock, bcrypts):
        authenticator = HttpBasic(identity, clock, cache_s=5)
        headers = basic("demo", first_credentials(state, "demo")[0])
        for _ in range(10):
            authenticator.authenticate(headers, {})
        assert len(bcrypts) == 1
        clock.sleep(5)
        authenticator.authenticate(headers, {})
        assert len(bcrypts) == 2

    def test_a_wrong_password_is_not_cached(self, identity, state, clock, bcrypts):
        authenticator = HttpBasic(identity, clock)
        authenticator.authenticate(basic("demo", first_credentials(state, "demo")[0]), {})
        for _ in range(2):
            with pytest.raises(Unauthorized):
                authenticator.authenticate(basic("demo", "wrong"), {})
        assert len(bcrypts) == 3

    def test_a_changed_password_invalidates_the_cached_one(self, identity, state, clock):
        authenticator = HttpBasic(identity, clock, cache_s=60)
        old = basic("demo", first_credentials(state, "demo")[0])
        authenticator.authenticate(old, {})
        change_user(identity, "demo", password_hash=hash_password("fresh", 4))
        with pytest.raises(Unauthorized):
            authenticator.authenticate(old, {})
        assert authenticator.authenticate(basic("demo", "fresh"), {})

    def test_the_cache_contains_no_password(self, identity, state, clock):
        authenticator = HttpBasic(identity, clock)
        password, _ = first_credentials(state, "demo")
        authenticator.authenticate(basic("demo", password), {})
        assert password not in repr(vars(authenticator))


class TestTokensOrBasicOrder:
    @pytest.fixture
    def both(self, identity, clock):
        return TokensOrBasic(EmbeddedTokens(identity), HttpBasic(identity, clock))

    def test_a_token_or_a_password_alone_is_accepted(self, both, state, token):
        assert both.authenticate({"x-auth-token": token("admin")}, {}).user_name == "admin"
        assert both.authenticate(basic("demo", first_credentials(state, "demo")[0]), {}).user_name == "demo"

    def test_if_both_are_sent_the_token_is_used(self, both, state, token):
        headers = basic("demo", first_credentials(state, "demo")[0]) | {"x-auth-token": token("admin")}
        assert both.authenticate(headers, {}).user_name == "admin"

    def test_an_invalid_token_is_refused_even_with_a_valid_password(self, both, state):
        headers = basic("demo", first_credentials(state, "demo")[0]) | {"x-auth-token": "nonsense"}
        with pytest.raises(Unauthorized):
            both.authenticate(headers, {})

    def test_a_request_with_neither_is_refused(self, both):
        with pytest.raises(Unauthorized):
            both.authenticate({}, {})


class TestNoAuth:
    def test_the_caller_has_no_credentials(self):
        headers = {"x-auth-token": "notused", "authorization": "Basic eDp5"}
        assert NoAuth().authenticate(headers, {"REMOTE_ADDR": "127.0.0.1"}).credentials == {}

    @pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "127.9.9.9", "unix:", ""])
    def test_a_caller_on_this_machine_is_an_administrator(self, address):
        caller = NoAuth(project_id="demo").authenticate({"x-auth-token": "notused"}, {"REMOTE_ADDR": address})
        assert caller.project_id == "demo"
        assert {"admin", "service"} <= caller.roles

    @pytest.mark.parametrize("address", ["10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "example.org"])
    def test_callers_from_other_machines_are_refused_unless_an_option_allows_them(self, address):
        with pytest.raises(Unauthorized, match="only requests from this machine"):
            NoAuth().authenticate({}, {"REMOTE_ADDR": address})
        assert NoAuth(beyond_loopback=True).authenticate({}, {"REMOTE_ADDR": address})

    @pytest.mark.parametrize(
        "host",
        ["", "localhost", "LOCALHOST:8778", "127.0.0.1:8778", "[::1]:8778", "10.1.2.3", "cloud.test", "cloud.test:1"],
    )
    def test_requests_to_an_address_or_a_known_host_name_are_accepted(self, host):
        assert NoAuth(names={"cloud.test"}).authenticate({"host": host}, {"REMOTE_ADDR": "127.0.0.1"})

    @pytest.mark.parametrize(
        "host", ["evil.test", "evil.test:8778", "127.0.0.1.evil.test", "localhost.evil.test", "[evil", "a@b"]
    )
    def test_requests_to_an_unknown_host_name_are_refused_against_dns_rebinding(self, host):
        here = {"REMOTE_ADDR": "127.0.0.1"}
        with pytest.raises(Unauthorized, match="could have made that name"):
            NoAuth(names={"cloud.test"}).authenticate({"host": host}, here)
        assert NoAuth(names={"cloud.test"}, beyond_loopback=True).authenticate({"host": host}, here)

    @pytest.mark.parametrize("header", ["HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO"])
    def test_requests_through_a_proxy_on_this_machine_are_refused(self, header):
        through = {"REMOTE_ADDR": "127.0.0.1", header: "x"}
        with pytest.raises(Unauthorized, match="came through a proxy"):
            NoAuth().authenticate({}, through)
        assert NoAuth(beyond_loopback=True).authenticate({}, through)

    @pytest.mark.parametrize(
        "headers",
        [
            {"origin": "https://evil.test"},
            {"origin": "null"},
            {"origin": ""},
            {"origin": "http://["},
            {"origin": "http://127.0.0.1:8779"},
            {"origin": "http://127.0.0.1"},
            {"origin": "http://127.0.0.1:8778@evil.test"},
            {"origin": "https://evil.test", "sec-fetch-site": "same-origin"},
            {"origin": "http://127.0.0.1:8778", "sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        ],
    )
    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
    def test_changes_from_a_web_page_of_another_site_are_refused(self, headers, method):
        sent = {"host": "127.0.0.1:8778", **headers}
        for authenticator in (NoAuth(), NoAuth(beyond_loopback=True, origins={"https://console.test"})):
            with pytest.raises(Forbidden, match="may not change anything"):
                authenticator.authenticate(sent, {"REMOTE_ADDR": "127.0.0.1", "REQUEST_METHOD": method})

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"sec-fetch-site": "none"},
            {"sec-fetch-site": "same-origin"},
            {"origin": "http://127.0.0.1:8778", "sec-fetch-site": "same-origin"},
            {"origin": "https://127.0.0.1:8778"},
            {"origin": "https://console.test", "sec-fetch-site": "cross-site"},
        ],
    )
    def test_changes_from_programs_own_pages_and_allowed_origins_are_accepted(self, headers):
        sent = {"host": "127.0.0.1:8778", **headers}
        authenticator = NoAuth(origins={"https://console.test"})
        assert authenticator.authenticate(sent, {"REMOTE_ADDR": "127.0.0.1", "REQUEST_METHOD": "POST"})

    def test_read_requests_from_a_web_page_of_another_site_are_accepted(self):
        page = {"origin": "https://evil.test", "sec-fetch-site": "cross-site"}
        assert NoAuth().authenticate(page, {"REMOTE_ADDR": "127.0.0.1", "REQUEST_METHOD": "GET"})

    @pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "plane.example", ""])
    def test_mode_none_on_an_address_beyond_loopback_is_a_start_error(self, address):
        with pytest.raises(StartError, match="allow_none_beyond_loopback"):
            refuse_beyond_loopback(address)

    @pytest.mark.parametrize("address", ["127.0.0.1", "::1", "[::1]", "localhost"])
    def test_mode_none_on_loopback_may_start(self, address):
        refuse_beyond_loopback(address)


class TestPeersTestTokens:
    @pytest.mark.parametrize(
        ("headers", "user", "project", "roles"),
        [
            ({"x-auth-token": "admin"}, "admin", "admin", {"admin"}),
            ({"x-auth-token": "admin:p"}, "admin", "p", {"admin"}),
            ({"x-auth-token": "admin:p:q"}, "admin", "p:q", {"admin"}),
            ({"x-auth-token": "user"}, "user", "user", set()),
            ({"x-auth-token": "user:"}, "user", "user", set()),
            ({"x-auth-token": ""}, "", "", set()),
            ({"x-auth-token": "admin", "x-roles": "reader, member"}, "admin", "admin", {"reader", "member"}),
            ({"x-auth-token": "admin", "x-roles": ""}, "admin", "admin", set()),
            ({"x-auth-token": "u:p", "x-project-id": "other"}, "u", "other", set()),
        ],
    )
    def test_user_project_and_roles_are_read_from_the_token_and_headers(self, headers, user, project, roles):
        caller = TestTokens().authenticate(headers, {})
        assert (caller.user_id, caller.project_id, caller.roles) == (user, project, roles)
        assert not caller.system_scope

    def test_the_header_for_system_scope_is_read(self):
        headers = {"x-auth-token": "admin", "openstack-system-scope": "all"}
        assert TestTokens().authenticate(headers, {}).system_scope

    def test_no_token_is_refused(self):
        with pytest.raises(Unauthorized):
            TestTokens().authenticate({}, {})


def test_first_credentials_returns_the_password_in_the_credentials_file(identity, state):
    assert (
        first_credentials(state, "admin")[0]
        == json.loads((state / "credentials.json").read_text())["admin"]["password"]
    )
