from datetime import timedelta

import pytest

from moorage.wire.transports import InProcessTransport
from tests.plane import URL


def test_the_root_lists_v3_without_a_token(wire):
    for path in ("", "/"):
        status, headers, document = wire.send("GET", path)
        assert status == 300
        (version,) = document["versions"]["values"]
        assert version["id"].startswith("v3.")
        assert version["status"] == "stable"
        assert version["links"] == [{"rel": "self", "href": f"{URL}/identity/v3/"}]
        assert headers["location"] == f"{URL}/identity/v3/"


@pytest.mark.parametrize("path", ["/v3", "/v3/"])
def test_v3_is_described_without_a_token(wire, path):
    status, _, document = wire.send("GET", path)
    assert status == 200
    assert document["version"]["links"][0]["href"] == f"{URL}/identity/v3/"


def test_a_password_gives_a_token_with_project_roles_and_catalogue(wire):
    status, headers, document = wire.log_in("demo", "demo")
    assert status == 201
    assert 100 < len(headers["x-subject-token"]) < 512
    token = document["token"]
    assert token["methods"] == ["password"]
    assert token["user"]["name"] == "demo"
    assert token["project"]["name"] == "demo"
    assert token["roles"] == [{"id": "member", "name": "member"}, {"id": "reader", "name": "reader"}]
    assert token["issued_at"] == "2026-03-01T09:30:00.000000Z"
    assert token["expires_at"] == "2026-03-01T10:30:00.000000Z"
    urls = {row["type"]: {point["interface"]: point["url"] for point in row["endpoints"]} for row in token["catalog"]}
    assert urls["compute"] == dict.fromkeys(("public", "internal", "admin"), f"{URL}/compute/v2.1")
    assert urls["identity"]["public"] == f"{URL}/identity/v3"
    assert urls["image"]["public"] == "http://glance.example:9292"
    assert {point["region_id"] for row in token["catalog"] for point in row["endpoints"]} == {"RegionOne"}


def test_the_catalogue_has_the_address_that_the_client_used(plane):
    other = InProcessTransport(plane.plane.app, "https://other.example")
    assert b"https://other.example/identity/v3/" in other.send("GET", "/identity/v3", {}).body


def test_a_login_accepts_the_ids_of_user_and_project(wire):
    _, _, first = wire.log_in("demo", "demo")
    user, project = first["token"]["user"]["id"], first["token"]["project"]["id"]
    status, _, document = wire.log_in("demo", user={"id": user}, scope={"project": {"id": project}})
    assert status == 201
    assert document["token"]["project"]["name"] == "demo"


def test_a_login_without_a_scope_gets_the_default_project(wire):
    assert wire.log_in("admin")[2]["token"]["project"]["name"] == "admin"


@pytest.mark.parametrize("scope", ["unscoped", {"unscoped": {}}])
def test_an_unscoped_token_has_no_project_no_roles_and_no_catalogue(wire, scope):
    token = wire.log_in("admin", scope=scope)[2]["token"]
    assert token.keys().isdisjoint({"project", "roles", "catalog"})


def test_an_unscoped_token_may_list_only_the_users_projects(wire):
    token = wire.token("admin", scope="unscoped")
    assert [row["name"] for row in wire.send("GET", "/v3/auth/projects", token=token)[2]["projects"]] == [
        "admin",
        "demo",
    ]
    assert wire.send("GET", "/v3/projects", token=token)[0] == 403
    assert wire.send("GET", "/v3/auth/catalog", token=token)[0] == 403


@pytest.mark.parametrize(
    "options",
    [
        {"password": "wrong"},
        {"password": "x" * 100},
        {"user": {"name": "nobody", "domain": {"id": "default"}}},
        {"user": {"id": "nobody"}},
        {"user": {"name": "demo", "domain": {"id": "other"}}},
        {"project": "admin"},
        {"project": "nowhere"},
        {"scope": {"project": {"name": "demo", "domain": {"name": "other"}}}},
        {"scope": {"system": {"all": True}}},
        {"scope": {"domain": {"id": "default"}}},
    ],
    ids=str,
)
def test_a_wrong_login_is_401_in_keystones_format(wire, options):
    status, headers, document = wire.log_in("demo", **options)
    assert status == 401
    assert document["error"]["code"] == 401
    assert document["error"]["title"] == "Unauthorized"
    assert headers["www-authenticate"].startswith("Keystone")


def test_an_unknown_user_and_a_wrong_password_get_the_same_answer(wire):
    wrong = wire.log_in("demo", password="wrong")[2]
    unknown = wire.log_in("demo", user={"name": "nobody", "domain": {"id": "default"}}, password="wrong")[2]
    assert wrong == unknown


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"auth": {}},
        {"auth": {"identity": {"methods": []}}},
        {"auth": {"identity": {"methods": ["password"]}}},
        {"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": "demo", "password": "geheim"}}}}},
        {"auth": {"identity": {"methods": ["token"], "token": {}}}},
        [],
    ],
    ids=str,
)
def test_a_malformed_login_is_400_and_repeats_no_password(wire, body):
    status, _, document = wire.send("POST", "/v3/auth/tokens", body)
    assert status == 400
    assert document["error"]["code"] == 400
    assert "geheim" not in document["error"]["message"]


def test_an_unsupported_authentication_method_is_401(wire):
    body = {"auth": {"identity": {"methods": ["totp"], "totp": {}}}}
    assert wire.send("POST", "/v3/auth/tokens", body)[0] == 401


def test_a_rescoped_token_expires_with_the_first_token(wire, clock):
    held = wire.token("admin", "admin")
    clock.sleep(600)
    auth = {
        "identity": {"methods": ["token"], "token": {"id": held}},
        "scope": {"project": {"name": "demo", "domain": {"id": "default"}}},
    }
    status, headers, document = wire.send("POST", "/v3/auth/tokens", {"auth": auth})
    assert status == 201
    assert document["token"]["project"]["name"] == "demo"
    assert document["token"]["methods"] == ["password", "token"]
    assert document["token"]["expires_at"] == "2026-03-01T10:30:00.000000Z"
    clock.sleep(3001)
    assert wire.send("GET", "/v3/projects", token=headers["x-subject-token"])[0] == 401


def test_a_token_can_be_rescoped_only_to_the_users_projects(wire):
    auth = {
        "identity": {"methods": ["token"], "token": {"id": wire.token("demo", "demo")}},
        "scope": {"project": {"name": "admin", "domain": {"id": "default"}}},
    }
    assert wire.send("POST", "/v3/auth/tokens", {"auth": auth})[0] == 401


def test_a_token_may_be_validated_with_itself(wire):
    token = wire.token("demo", "demo")
    status, headers, document = wire.send("GET", "/v3/auth/tokens", token=token, x_subject_token=token)
    assert status == 200
    assert headers["x-subject-token"] == token
    assert document["token"]["user"]["name"] == "demo"
    assert wire.send("HEAD", "/v3/auth/tokens", token=token, x_subject_token=token)[0] == 200


def test_nocatalog_omits_the_catalogue(wire):
    token = wire.token("demo", "demo")
    _, _, document = wire.send("GET", "/v3/auth/tokens?nocatalog", token=token, x_subject_token=token)
    assert "catalog" not in document["token"]


def test_only_services_and_admins_may_validate_other_tokens(wire):
    subject = wire.token("demo", "demo")
    for judge in (wire.token("moorage", "service"), wire.token("admin", "admin")):
        assert wire.send("GET", "/v3/auth/tokens", token=judge, x_subject_token=subject)[0] == 200
    admins = wire.token("admin", "admin")
    assert wire.send("GET", "/v3/auth/tokens", token=subject, x_subject_token=admins)[0] == 403


def test_validating_an_invalid_token_is_404(wire, clock):
    subject = wire.token("demo", "demo")
    clock.sleep(3601)
    judge = wire.token("moorage", "service")
    assert wire.send("GET", "/v3/auth/tokens", token=judge, x_subject_token=subject)[0] == 404
    assert wire.send("GET", "/v3/auth/tokens", token=judge, x_subject_token="nonsense")[0] == 404
    status, _, document = wire.send("GET", "/v3/auth/tokens?allow_expired=1", token=judge, x_subject_token=subject)
    assert status == 200
    assert document["token"]["expires_at"] == "2026-03-01T10:30:00.000000Z"


def test_only_services_may_validate_an_expired_token(wire, clock):
    subject = wire.token("demo", "demo")
    clock.sleep(3601)
    own = wire.token("demo", "demo")
    assert wire.send("GET", "/v3/auth/tokens?allow_expired=1", token=own, x_subject_token=subject)[0] == 404


def exchanged(wire, token, project="demo"):
    """Another token that was obtained with `token`."""
    auth = {
        "identity": {"methods": ["token"], "token": {"id": token}},
        "scope": {"project": {"name": project, "domain": {"id": "default"}}},
    }
    status, headers, document = wire.send("POST", "/v3/auth/tokens", {"auth": auth})
    assert status == 201, document
    return headers["x-subject-token"]


def is_good(wire, token):
    return wire.send("GET", "/v3/auth/projects", token=token)[0] == 200


def test_a_revoked_token_is_refused_by_every_route_at_once(wire):
    token, other = wire.token("demo", "demo"), wire.token("demo", "demo")
    assert wire.send("DELETE", "/v3/auth/tokens", token=token, x_subject_token=token)[0] == 204
    status, _, document = wire.send("GET", "/v3/auth/projects", token=token)
    assert (status, document["error"]["message"]) == (401, "the token was revoked")
    assert wire.send("GET", "/v3/auth/tokens", token=other, x_subject_token=token)[0] == 404
    assert wire.send("DELETE", "/v3/auth/tokens", token=other, x_subject_token=token)[0] == 404
    auth = {"auth": {"identity": {"methods": ["token"], "token": {"id": token}}}}
    assert wire.send("POST", "/v3/auth/tokens", auth)[0] == 401
    assert is_good(wire, other)


def test_a_revoked_token_stays_invalid_with_a_service_token(wire, clock):
    """A service token makes an expired token valid for another 48 hours."""
    token = wire.token("demo", "demo")
    wire.send("DELETE", "/v3/auth/tokens", token=token, x_subject_token=token)
    clock.sleep(47 * 3600)
    judge = wire.token("moorage", "service")
    answer = wire.send("GET", "/v3/auth/tokens?allow_expired=1", token=judge, x_subject_token=token)
    assert answer[0] == 404
    assert wire.send("GET", "/v3/auth/projects", token=token, x_service_token=judge)[0] == 401


def test_revoking_a_token_revokes_the_tokens_obtained_with_it(wire):
    first = wire.token("admin", scope="unscoped")
    second = exchanged(wire, first)
    third = exchanged(wire, second, "admin")
    _, _, document = wire.send("GET", "/v3/auth/tokens", token=third, x_subject_token=third)
    assert len(document["token"]["audit_ids"]) == 2
    wire.send("DELETE", "/v3/auth/tokens", token=first, x_subject_token=first)
    assert not any(is_good(wire, token) for token in (first, second, third))


def test_without_cascade_only_the_named_token_is_revoked(wire):
    first = wire.token("admin", scope="unscoped")
    second = exchanged(wire, first)
    third = exchanged(wire, second, "admin")
    wire.send("DELETE", "/v3/auth/tokens?cascade=false", token=first, x_subject_token=first)
    # In Keystone, too, such a revocation ends no other tokens.
    wire.send("DELETE", "/v3/auth/tokens", token=second, x_subject_token=second)
    assert [is_good(wire, token) for token in (first, second, third)] == [False, False, True]


def test_only_admins_may_revoke_other_tokens(wire):
    mine, foreign = wire.token("demo", "demo"), wire.token("admin", "admin")
    assert wire.send("DELETE", "/v3/auth/tokens", token=mine, x_subject_token=foreign)[0] == 403
    assert wire.send("DELETE", "/v3/auth/tokens", token=mine)[0] == 400
    assert is_good(wire, foreign)
    assert wire.send("DELETE", "/v3/auth/tokens", token=foreign, x_subject_token=mine)[0] == 204
    assert not is_good(wire, mine)


@pytest.mark.parametrize(
    "path", ["/v3/projects", "/v3/users", "/v3/auth/catalog", "/v3/auth/projects", "/v3/auth/tokens"]
)
def test_without_a_token_it_is_401(wire, path):
    assert wire.send("GET", path)[0] == 401
    assert wire.send("GET", path, token="moor1.e30.AAAA")[0] == 401


def test_an_expired_token_is_401(wire, clock):
    token = wire.token("admin", "admin")
    assert wire.send("GET", "/v3/projects", token=token)[0] == 200
    clock.sleep(timedelta(hours=1).total_seconds())
    assert wire.send("GET", "/v3/projects", token=token)[0] == 401


def test_an_unknown_route_is_404(wire):
    assert wire.send("GET", "/v3/trusts", token=wire.token("admin"))[0] == 404
    assert wire.send("PUT", "/v3/projects", token=wire.token("admin"))[0] == 405


def test_the_catalogue_route_returns_the_catalogue_of_the_token(wire):
    _, _, document = wire.send("GET", "/v3/auth/catalog", token=wire.token("demo", "demo"))
    assert {row["type"]: row["name"] for row in document["catalog"]} == {
        "identity": "keystone",
        "placement": "placement",
        "compute": "nova",
        "accelerator": "cyborg",
        "reservation": "blazar",
        "image": "glance",
        "network": "neutron",
    }


def test_admins_list_projects_and_users_by_name(wire):
    token = wire.token("admin", "admin")
    _, _, document = wire.send("GET", "/v3/projects", token=token)
    assert [row["name"] for row in document["projects"]] == ["admin", "demo", "service"]
    (demo,) = wire.send("GET", "/v3/projects?name=demo", token=token)[2]["projects"]
    assert wire.send("GET", f"/v3/projects/{demo['id']}", token=token)[2]["project"] == demo
    assert wire.send("GET", "/v3/projects?name=demo&domain_id=other", token=token)[2]["projects"] == []
    assert wire.send("GET", "/v3/projects/demo", token=token)[0] == 404
    (user,) = wire.send("GET", "/v3/users?name=demo", token=token)[2]["users"]
    assert wire.send("GET", f"/v3/users/{user['id']}", token=token)[2]["user"]["name"] == "demo"
    assert wire.send("GET", "/v3/users/demo", token=token)[0] == 404
    assert "password" not in str(user).replace("password_expires_at", "")
    assert len(wire.send("GET", "/v3/roles", token=token)[2]["roles"]) == 5
    assert wire.send("GET", "/v3/roles?name=admin", token=token)[2]["roles"][0]["id"] == "admin"
    assert wire.send("GET", "/v3/roles/admin", token=token)[0] == 200
    assert wire.send("GET", "/v3/roles/king", token=token)[0] == 404
    assert wire.send("GET", "/v3/domains", token=token)[2]["domains"][0]["id"] == "default"
    assert wire.send("GET", "/v3/domains?name=other", token=token)[2]["domains"] == []


def test_members_may_list_only_themselves(wire):
    token = wire.token("demo", "demo")
    admin = wire.token("admin", "admin")
    for path in ("/v3/projects", "/v3/users", "/v3/roles", "/v3/domains"):
        assert wire.send("GET", path, token=token)[0] == 403
    projects = {row["name"]: row["id"] for row in wire.send("GET", "/v3/projects", token=admin)[2]["projects"]}
    users = {row["name"]: row["id"] for row in wire.send("GET", "/v3/users", token=admin)[2]["users"]}
    assert wire.send("GET", f"/v3/projects/{projects['demo']}", token=token)[0] == 200
    assert wire.send("GET", f"/v3/projects/{projects['admin']}", token=token)[0] == 404
    assert wire.send("GET", f"/v3/users/{users['demo']}", token=token)[0] == 200
    assert wire.send("GET", f"/v3/users/{users['admin']}", token=token)[0] == 404
    assert wire.send("GET", f"/v3/users/{users['demo']}/projects", token=token)[2]["projects"][0]["name"] == "demo"
    assert wire.send("GET", f"/v3/users/{users['admin']}/projects", token=token)[0] == 404
    assert wire.send("GET", "/v3/domains/default", token=token)[0] == 200
    assert wire.send("GET", "/v3/domains/other", token=token)[0] == 404


def test_every_policy_rule_of_the_routes_is_defined():
    from moorage.identity.api.routes import API, RULES

    assert {route.rule for route in API.routes if route.rule} <= set(RULES.rules)
