"""Identity mode `keystone` for our services, with tokens of a real Keystone."""

import contextlib

import pytest

from moorage.core.clock import AdjustableClock, SystemClock
from moorage.core.errors import NotFound, StartError, Unauthorized
from moorage.identity.authentication.keystone import KeystoneTokens, parse_host_users
from moorage.identity.authentication.membership import KeystoneMembership
from moorage.identity.client import PasswordTokens
from moorage.wire.client import ServiceClient
from moorage.wire.transports import SocketTransport
from moorage.wiring.plane import build_plane
from tests.plane import InProcessPlane
from tests.system.keystone.real import PASSWORD, real_keystone
from tests.system.planes import write_config

pytestmark = [pytest.mark.slow, pytest.mark.keystone]

#: The microversion of a route that the first microversion does not have.
VERSION = {"/placement/reshaper": "1.30"}
#: {rule: (method, path, body, status for a caller who may use the route)}.
ROUTES = {
    "reader": ("GET", "/compute/v2.1/flavors", None, 200),
    "member": ("POST", "/image/v2/images", {"name": "kelp"}, 201),
    "admin": ("GET", "/compute/v2.1/os-migrations", None, 200),
    "admin or service": ("GET", "/placement/resource_providers", None, 200),
    "service": ("POST", "/placement/reshaper", {}, 400),  # the body is validated only after the caller was allowed
}


class RecordingTokens(KeystoneTokens):
    """Remembers the last authenticated caller."""

    caller = None

    def authenticate(self, headers, environ):
        self.caller = super().authenticate(headers, environ)
        return self.caller


@pytest.fixture(scope="module")
def keystone(tmp_path_factory):
    with real_keystone(tmp_path_factory.mktemp("keystone")) as keystone:
        yield keystone


@pytest.fixture(scope="module")
def tokens(keystone):
    return RecordingTokens(
        auth_url=f"{keystone.url}/v3",
        username="moorage",
        password=PASSWORD,
        hosts=parse_host_users("agent-{host}", "default", "here"),
        more={"token_cache_time": -1},
    )


@pytest.fixture(scope="module")
def plane(tokens, tmp_path_factory):
    with InProcessPlane(tmp_path_factory.mktemp("plane"), "placement,image,compute", authenticator=tokens) as plane:
        yield plane


@pytest.fixture
def ask(plane, tokens):
    """``ask("reader", x_auth_token=token)``: the status, and the caller that the service saw."""

    def ask(rule="reader", **headers):
        tokens.caller = None
        method, path, body, _ = ROUTES[rule]
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        seen = plane.send(method, path, body, who=None, roles=None, version=VERSION.get(path), headers=sent)
        return seen.status, tokens.caller

    return ask


def test_a_token_authenticates_its_user_project_and_roles(keystone, ask):
    status, caller = ask(x_auth_token=keystone.token("alice", "red"))
    assert status == 200
    assert (caller.user_name, caller.project_name, caller.project_id) == ("alice", "red", keystone.projects["red"])
    assert caller.roles == {"member", "reader"}
    assert not caller.system_scope


@pytest.mark.parametrize(
    ("user", "project", "may"),
    [
        ("admin", "admin", {"reader", "member", "admin", "admin or service"}),
        ("alice", "red", {"reader", "member"}),
        ("reader", "red", {"reader"}),
        ("nova", "service", {"reader", "member", "admin or service", "service"}),
        ("moorage", "service", set(ROUTES)),
    ],
)
def test_each_rule_allows_the_roles_that_it_names(keystone, ask, user, project, may):
    token = keystone.token(user, project)
    wanted = {rule: good if rule in may else 403 for rule, (_, _, _, good) in ROUTES.items()}
    assert {rule: ask(rule, x_auth_token=token)[0] for rule in ROUTES} == wanted


def test_a_hosts_user_may_act_for_its_host_only_and_has_no_roles(keystone, plane, ask):
    keystone.user("agent-compute-1", "service", "service")
    token = keystone.token("agent-compute-1", "service")
    assert {rule: ask(rule, x_auth_token=token)[0] for rule in ROUTES} == dict.fromkeys(ROUTES, 403)
    assert ask(x_auth_token=token)[1].host == "compute-1"

    def listed(name):
        path = f"/placement/resource_providers?name={name}"
        return plane.send("GET", path, who=None, roles=None, headers={"x-auth-token": token}).status

    assert (listed("compute-1"), listed("compute-2")) == (200, 403)
    path = "/compute/agent/v1/hosts/{}/servers"
    statuses = [
        plane.send("GET", path.format(host), who=None, roles=None, headers={"x-auth-token": token}).status
        for host in ("compute-1", "compute-2")
    ]
    assert statuses == [200, 403]


def test_an_agent_does_not_start_if_its_user_could_act_for_every_host(keystone, plane, tmp_path):
    keystone.user("everywhere", "service", "service")
    config = write_config(
        tmp_path,
        plane={"services": "agent"},
        identity={
            "mode": "keystone",
            "keystone_url": keystone.url,
            "username": "everywhere",
            "password": PASSWORD,
            "project": "service",
        },
        endpoints={name: f"http://127.0.0.1:9/{name}" for name in ("placement", "compute", "accelerator", "image")},
    )
    with contextlib.ExitStack() as stack, pytest.raises(StartError, match="may act for every host"):
        agent = build_plane(config)
        stack.callback(agent.stop)
        agent.prepare()


def test_a_system_scoped_token_has_no_roles_in_projects(keystone, ask):
    token = keystone.token("admin", None, system={"all": True})
    for rule in ROUTES:
        status, caller = ask(rule, x_auth_token=token)
        assert (status, caller.system_scope) == (403, True)


def test_invalid_tokens_are_refused(keystone, ask):
    assert ask() == (401, None)
    for token in ("", "nonsense", "moor1.e30.AAAA", keystone.token("alice", "red")[:-4] + "AAAA"):
        assert ask(x_auth_token=token) == (401, None)


def test_a_revoked_token_is_refused(keystone, ask):
    token = keystone.fresh_token("alice", "red")
    assert ask(x_auth_token=token)[0] == 200
    keystone.revoke(token)
    assert ask(x_auth_token=token)[0] == 401


def test_an_expired_token_is_refused_unless_a_service_token_comes_with_it(keystone, ask):
    expired = keystone.expired(keystone.token("alice", "red"))
    assert ask(x_auth_token=expired)[0] == 401
    assert ask(x_auth_token=expired, x_service_token=keystone.token("admin", "admin"))[0] == 401
    status, caller = ask(x_auth_token=expired, x_service_token=keystone.token("nova", "service"))
    assert (status, caller.user_name, caller.roles) == (200, "alice", {"member", "reader"})


@pytest.mark.parametrize("path", ["/placement/", "/compute/", "/image/healthcheck"])
def test_public_routes_need_no_token(plane, path):
    assert plane.send("GET", path, who=None, roles=None).status in (200, 300)


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


def test_identity_headers_of_the_caller_are_removed(keystone, ask):
    assert ask("admin", **SPOOFED) == (401, None)
    status, caller = ask(x_auth_token=keystone.token("alice", "red"), **SPOOFED)
    assert (status, caller.user_name, caller.project_name) == (200, "alice", "red")
    assert (caller.roles, caller.system_scope, caller.by_service) == ({"member", "reader"}, False, False)


def test_identity_headers_are_not_trusted_without_the_middleware(tokens):
    environ = {f"HTTP_{name.upper()}": value for name, value in SPOOFED.items()}
    with pytest.raises(Unauthorized, match="without keystonemiddleware"):
        tokens.authenticate({}, environ)


def test_a_service_token_must_be_valid_and_of_a_service_user(keystone, ask):
    alice = keystone.token("alice", "red")
    assert ask(x_auth_token=alice, x_service_token="nonsense")[0] == 401
    assert ask(x_auth_token=alice, x_service_token=keystone.token("reader", "red"))[0] == 401
    status, caller = ask(x_auth_token=alice, x_service_token=keystone.token("nova", "service"))
    assert (status, caller.user_name, caller.by_service) == (200, "alice", True)


def test_our_services_get_their_own_tokens_from_keystone(keystone, plane, tokens):
    """`PasswordTokens` logs in to Keystone, whose catalogue has Keystone's own URL."""
    ours = PasswordTokens(
        SocketTransport(keystone.url), username="moorage", password=PASSWORD, project="service", clock=SystemClock()
    )
    http = ServiceClient(plane.transport("/placement"), service_type="placement", credentials=ours)
    http.get("/resource_providers")
    assert tokens.caller.user_name == "moorage"
    assert ours.endpoint("identity") == f"{keystone.url}/v3"
    with pytest.raises(NotFound, match="it has identity"):
        ours.endpoint("placement")
    wrong = PasswordTokens(
        SocketTransport(keystone.url), username="moorage", password="wrong", project="service", clock=SystemClock()
    )
    with pytest.raises(Unauthorized, match="moorage in project service"):
        wrong.headers()


def test_a_revoked_token_of_our_services_is_renewed(keystone, plane, tokens):
    ours = PasswordTokens(
        SocketTransport(keystone.url), username="moorage", password=PASSWORD, project="service", clock=AdjustableClock()
    )
    http = ServiceClient(plane.transport("/placement"), service_type="placement", credentials=ours)
    first = ours.headers()["x-auth-token"]
    keystone.revoke(first)
    http.get("/resource_providers")
    assert tokens.caller.user_name == "moorage"
    assert ours.headers()["x-auth-token"] != first


def test_the_present_roles_of_a_user_are_those_in_keystone(keystone):
    keystone.project("feeds")
    keystone.user("zoe", "feeds", "reader")
    transport = SocketTransport(keystone.url)
    of_services = PasswordTokens(
        transport, username="moorage", password=PASSWORD, project="service", clock=SystemClock()
    )
    membership = KeystoneMembership(ServiceClient(transport, service_type="identity", credentials=of_services))
    (user,) = (each["id"] for each in keystone._get("users") if each["name"] == "zoe")
    project = keystone.projects["feeds"]

    def change(what, **values):
        body = {what.partition("/")[0].removesuffix("s"): values}
        answer = keystone.http.patch(f"/v3/{what}", json=body, headers=keystone._headers)
        assert answer.status_code == 200, answer.text

    found = membership.caller_now(user, project)
    assert (found.user_name, found.project_id, found.roles) == ("zoe", project, {"reader"})
    assert membership.caller_now(user, keystone.projects["red"]) is None
    assert membership.caller_now("nobody", project) is None
    for what in (f"users/{user}", f"projects/{project}"):
        change(what, enabled=False)
        assert membership.caller_now(user, project) is None
        change(what, enabled=True)
        assert membership.caller_now(user, project) is not None
    path = f"/v3/projects/{project}/users/{user}/roles/{keystone.roles['reader']}"
    assert keystone.http.delete(path, headers=keystone._headers).status_code == 204
    assert membership.caller_now(user, project) is None
