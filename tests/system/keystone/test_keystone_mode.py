"""Our `keystone` mode in front of our own services, with tokens of a real Keystone."""

import json

import pytest

from moorage.core.clock import AdjustableClock, SystemClock
from moorage.core.errors import NotFound, Unauthorized
from moorage.core.ids import RandomIds
from moorage.identity.client import PasswordTokens
from moorage.identity.keystone import KeystoneTokens
from moorage.identity.policy import RuleTable, admin, anyone, member, service
from moorage.wire.app import ServiceApi, Surroundings, build, mount
from moorage.wire.call import Reply, Route
from moorage.wire.client import ServiceClient
from moorage.wire.transports import InProcessTransport, SocketTransport
from tests.system.keystone.real import PASSWORD, real_keystone

pytestmark = [pytest.mark.slow, pytest.mark.keystone]


@pytest.fixture(scope="module")
def keystone(tmp_path_factory):
    with real_keystone(tmp_path_factory.mktemp("keystone")) as keystone:
        yield keystone


def who(call):
    caller = call.caller
    return Reply(
        body={
            "user": caller.user_name,
            "project": caller.project_name,
            "project_id": caller.project_id,
            "roles": sorted(caller.roles),
            "system": caller.system_scope,
        }
    )


API = ServiceApi(
    name="probe",
    error_shape=lambda problem: Reply(problem.status, {"message": problem.message}),
    routes=(
        Route("GET", "/", who, None),
        Route("GET", "/who", who, "who"),
        Route("GET", "/admin", who, "admin"),
        Route("GET", "/member", who, "member"),
        Route("GET", "/service", who, "service"),
    ),
)
RULES = RuleTable({"who": anyone, "admin": admin, "member": member, "service": service})


@pytest.fixture(scope="module")
def authenticator(keystone):
    return KeystoneTokens(
        auth_url=f"{keystone.url}/v3", username="moorage", password=PASSWORD, more={"token_cache_time": -1}
    )


@pytest.fixture(scope="module")
def app(authenticator):
    return authenticator.around(mount({"/probe": build(API, None, Surroundings(authenticator, RULES, RandomIds()))}))


@pytest.fixture
def ask(app):
    transport = InProcessTransport(app)

    def ask(path="/who", **headers):
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = transport.send("GET", f"/probe{path}", sent)
        return answer.status, json.loads(answer.body)

    return ask


def test_a_token_of_keystone_is_its_user_in_its_project(keystone, ask):
    status, caller = ask(x_auth_token=keystone.token("alice", "red"))
    assert status == 200
    assert caller == {
        "user": "alice",
        "project": "red",
        "project_id": keystone.projects["red"],
        "roles": ["member", "reader"],
        "system": False,
    }


@pytest.mark.parametrize(
    ("user", "project", "may"),
    [
        ("admin", "admin", {"admin": 200, "member": 200, "service": 403}),
        ("alice", "red", {"admin": 403, "member": 200, "service": 403}),
        ("reader", "red", {"admin": 403, "member": 403, "service": 403}),
        ("nova", "service", {"admin": 403, "member": 200, "service": 200}),
        ("moorage", "service", {"admin": 200, "member": 200, "service": 200}),
    ],
)
def test_roles_open_what_the_rules_say(keystone, ask, user, project, may):
    token = keystone.token(user, project)
    assert {path: ask(f"/{path}", x_auth_token=token)[0] for path in may} == may


def test_a_token_of_the_whole_system_has_no_roles_in_projects(keystone, ask):
    token = keystone.token("admin", None, system={"all": True})
    status, caller = ask(x_auth_token=token)
    assert (status, caller["system"]) == (200, True)
    assert ask("/admin", x_auth_token=token)[0] == 403


def test_wrong_tokens_are_refused(keystone, ask):
    assert ask()[0] == 401
    for token in ("", "nonsense", "moor1.e30.AAAA", keystone.token("alice", "red")[:-4] + "AAAA"):
        status, document = ask(x_auth_token=token)
        assert status == 401
        assert document["message"]


def test_a_revoked_token_is_refused(keystone, ask):
    token = keystone.fresh_token("alice", "red")
    assert ask(x_auth_token=token)[0] == 200
    keystone.revoke(token)
    assert ask(x_auth_token=token)[0] == 401


def test_an_expired_token_is_refused_unless_a_service_carries_it(keystone, ask):
    expired = keystone.expired(keystone.token("alice", "red"))
    assert ask(x_auth_token=expired)[0] == 401
    assert ask(x_auth_token=expired, x_service_token=keystone.token("admin", "admin"))[0] == 401
    status, caller = ask(x_auth_token=expired, x_service_token=keystone.token("nova", "service"))
    assert (status, caller["user"], caller["roles"]) == (200, "alice", ["member", "reader"])


def test_public_routes_need_no_token(ask):
    assert ask("/")[0] == 200
    assert ask("/healthcheck")[0] == 200


SPOOFED = {
    "x_identity_status": "Confirmed",
    "x_user_id": "evil",
    "x_user_name": "evil",
    "x_project_id": "evil",
    "x_project_name": "evil",
    "x_roles": "admin",
    "x_service_identity_status": "Confirmed",
    "x_service_roles": "service",
    "openstack_system_scope": "all",
}


def test_spoofed_identity_headers_are_cleared(keystone, ask):
    assert ask("/admin", **SPOOFED)[0] == 401
    status, caller = ask(x_auth_token=keystone.token("alice", "red"), **SPOOFED)
    assert (status, caller["user"], caller["project"], caller["roles"]) == (200, "alice", "red", ["member", "reader"])
    assert not caller["system"]


def test_without_the_middleware_nobody_is_believed(authenticator):
    app = build(API, None, Surroundings(authenticator, RULES, RandomIds()))
    headers = {name.replace("_", "-"): value for name, value in SPOOFED.items()}
    assert InProcessTransport(app).send("GET", "/who", headers).status == 401


def test_a_service_token_must_be_in_force_and_of_a_service(keystone, ask):
    alice = keystone.token("alice", "red")
    assert ask(x_auth_token=alice, x_service_token="nonsense")[0] == 401
    assert ask(x_auth_token=alice, x_service_token=keystone.token("reader", "red"))[0] == 401
    status, caller = ask(x_auth_token=alice, x_service_token=keystone.token("nova", "service"))
    assert (status, caller["user"]) == (200, "alice")


def test_our_own_tokens_come_from_keystone_too(keystone, app):
    """The client side: `PasswordTokens` logs in, and the catalogue leads back to Keystone."""
    tokens = PasswordTokens(
        SocketTransport(keystone.url), username="moorage", password=PASSWORD, project="service", clock=SystemClock()
    )
    http = ServiceClient(InProcessTransport(app, "http://plane/probe"), service_type="probe", credentials=tokens)
    assert http.get("/who")["user"] == "moorage"
    assert tokens.endpoint("identity") == f"{keystone.url}/v3"
    with pytest.raises(NotFound, match="it has identity"):
        tokens.endpoint("placement")
    wrong = PasswordTokens(
        SocketTransport(keystone.url), username="moorage", password="wrong", project="service", clock=SystemClock()
    )
    with pytest.raises(Unauthorized, match="moorage in project service"):
        wrong.headers()


def test_a_revoked_token_of_ours_is_renewed(keystone, app):
    tokens = PasswordTokens(
        SocketTransport(keystone.url), username="moorage", password=PASSWORD, project="service", clock=AdjustableClock()
    )
    http = ServiceClient(InProcessTransport(app, "http://plane/probe"), service_type="probe", credentials=tokens)
    first = tokens.headers()["x-auth-token"]
    keystone.revoke(first)
    assert http.get("/who")["user"] == "moorage"
    assert tokens.headers()["x-auth-token"] != first
