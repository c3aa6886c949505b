"""Application credentials: who may make one, what it can do, and when it ends."""

import pytest

from moorage.identity.tokens.throttle import FREE_FAILURES


@pytest.fixture
def users(wire):
    """{name: id}"""
    token = wire.token("admin", "admin")
    return {row["name"]: row["id"] for row in wire.send("GET", "/v3/users", token=token)[2]["users"]}


def make(wire, user_id, token, **given):
    body = {"application_credential": {"name": "one"} | given}
    status, headers, document = wire.send("POST", f"/v3/users/{user_id}/application_credentials", body, token=token)
    if status == 201:
        assert headers["cache-control"] == "no-store"
        return document["application_credential"]
    return status


def log_in(wire, credential, secret=None, **more):
    given = {"id": credential["id"], "secret": secret or credential["secret"]}
    auth = {"identity": {"methods": ["application_credential"], "application_credential": given}} | more
    return wire.send("POST", "/v3/auth/tokens", {"auth": auth})


def test_a_credential_logs_in_with_its_roles_in_its_project(wire, users):
    made = make(wire, users["admin"], wire.token("admin", "admin"), roles=[{"name": "reader"}], description="backup")
    assert (made["user_id"], made["unrestricted"], made["description"]) == (users["admin"], False, "backup")
    status, headers, document = log_in(wire, made)
    token = document["token"]
    assert status == 201
    assert token["methods"] == ["application_credential"]
    assert token["application_credential"] == {"id": made["id"], "name": "one", "restricted": True}
    assert [role["name"] for role in token["roles"]] == ["reader"]
    assert token["project"]["name"] == "admin"
    assert wire.send("GET", "/v3/users", token=headers["x-subject-token"])[0] == 403, "it is no administrator"
    assert wire.send("GET", "/v3/auth/projects", token=headers["x-subject-token"])[0] == 200


def test_a_credential_is_also_named_by_its_user(wire, users):
    made = make(wire, users["demo"], wire.token("demo", "demo"))
    given = {"name": "one", "secret": made["secret"], "user": {"name": "demo", "domain": {"id": "default"}}}
    auth = {"identity": {"methods": ["application_credential"], "application_credential": given}}
    assert wire.send("POST", "/v3/auth/tokens", {"auth": auth})[0] == 201
    given["user"] = {"id": users["admin"]}
    assert wire.send("POST", "/v3/auth/tokens", {"auth": auth})[0] == 401


def test_the_secret_is_shown_once_and_stored_as_a_hash(wire, users, plane):
    token = wire.token("demo", "demo")
    made = make(wire, users["demo"], token, secret="chosen")
    assert made["secret"] == "chosen"
    path = f"/v3/users/{users['demo']}/application_credentials"
    for shown in (wire.send("GET", path, token=token)[2], wire.send("GET", f"{path}/{made['id']}", token=token)[2]):
        assert "chosen" not in str(shown)
        assert "secret" not in str(shown)
    assert plane.plane.built["identity"].identity.accounts().credentials[made["id"]].secret_hash.startswith("$2b$")
    assert log_in(wire, made)[0] == 201


def test_only_the_user_makes_credentials_and_only_the_user_and_admins_see_them(wire, users):
    demo, admin = wire.token("demo", "demo"), wire.token("admin", "admin")
    assert make(wire, users["demo"], admin) == 403
    assert make(wire, users["admin"], demo) == 403
    made = make(wire, users["demo"], demo)
    path = f"/v3/users/{users['demo']}/application_credentials/{made['id']}"
    assert wire.send("GET", path, token=admin)[0] == 200
    foreign = make(wire, users["admin"], admin)
    for method in ("GET", "DELETE"):
        path = f"/v3/users/{users['admin']}/application_credentials/{foreign['id']}"
        assert wire.send(method, path, token=demo)[0] == 404
        path = f"/v3/users/{users['demo']}/application_credentials/{foreign['id']}"
        assert wire.send(method, path, token=demo)[0] == 404
    assert wire.send("GET", f"/v3/users/{users['admin']}/application_credentials", token=demo)[0] == 404


def test_a_credential_gets_no_role_that_its_token_lacks(wire, users):
    demo = wire.token("demo", "demo")
    assert make(wire, users["demo"], demo, roles=[{"name": "admin"}]) == 400
    assert make(wire, users["demo"], demo, roles=[{"id": "service"}]) == 400
    assert make(wire, users["demo"], demo, roles=[{"id": "reader"}])["roles"][0]["name"] == "reader"


def test_a_restricted_credential_makes_and_deletes_none(wire, users):
    first = make(wire, users["demo"], wire.token("demo", "demo"))
    token = log_in(wire, first)[1]["x-subject-token"]
    assert make(wire, users["demo"], token, name="two") == 403
    path = f"/v3/users/{users['demo']}/application_credentials/{first['id']}"
    assert wire.send("DELETE", path, token=token)[0] == 403
    free = make(wire, users["demo"], wire.token("demo", "demo"), name="free", unrestricted=True)
    token = log_in(wire, free)[1]["x-subject-token"]
    assert make(wire, users["demo"], token, name="two")["name"] == "two"
    assert wire.send("DELETE", path, token=token)[0] == 204


def test_a_token_of_a_credential_is_for_no_other_project(wire, users):
    made = make(wire, users["admin"], wire.token("admin", "admin"))
    token = log_in(wire, made)[1]["x-subject-token"]
    for scope in ({"project": {"name": "demo", "domain": {"id": "default"}}}, "unscoped"):
        auth = {"identity": {"methods": ["token"], "token": {"id": token}}, "scope": scope}
        assert wire.send("POST", "/v3/auth/tokens", {"auth": auth})[0] == (401 if scope != "unscoped" else 201)
        assert log_in(wire, made, scope=scope)[0] == 401
    auth = {"identity": {"methods": ["token"], "token": {"id": token}}}
    status, headers, document = wire.send("POST", "/v3/auth/tokens", {"auth": auth})
    assert (status, document["token"]["application_credential"]["id"]) == (201, made["id"])
    path = f"/v3/users/{users['admin']}/application_credentials/{made['id']}"
    assert wire.send("DELETE", path, token=wire.token("admin"))[0] == 204
    assert wire.send("GET", "/v3/auth/projects", token=headers["x-subject-token"])[0] == 401


def test_a_credential_ends_with_its_expiry_its_deletion_its_roles_and_its_user(wire, users, clock):
    token, admin = wire.token("demo", "demo"), wire.token("admin", "admin")
    made = make(wire, users["demo"], token, expires_at="2026-03-01T10:00:00Z")
    lent = log_in(wire, made)
    assert lent[2]["token"]["expires_at"] == "2026-03-01T10:00:00.000000Z"
    clock.sleep(1801)
    assert wire.send("GET", "/v3/auth/projects", token=lent[1]["x-subject-token"])[0] == 401
    assert log_in(wire, made)[0] == 401
    assert make(wire, users["demo"], token, name="late", expires_at="2026-03-01T10:00:00Z") == 400
    other = make(wire, users["demo"], token, name="other")
    lent = log_in(wire, other)[1]["x-subject-token"]
    path = f"/v3/users/{users['demo']}/application_credentials/{other['id']}"
    assert wire.send("DELETE", path, token=token)[0] == 204
    assert wire.send("GET", "/v3/auth/projects", token=lent)[0] == 401
    assert log_in(wire, other)[0] == 401
    third = make(wire, users["demo"], token, name="third")
    lent = log_in(wire, third)[1]["x-subject-token"]
    wire.send("PATCH", f"/v3/users/{users['demo']}", {"user": {"enabled": False}}, token=admin)
    assert wire.send("GET", "/v3/auth/projects", token=lent)[0] == 401
    assert log_in(wire, third)[0] == 401
    wire.send("PATCH", f"/v3/users/{users['demo']}", {"user": {"enabled": True}}, token=admin)
    assert log_in(wire, third)[0] == 201
    (project,) = wire.send("GET", "/v3/projects?name=demo", token=admin)[2]["projects"]
    grant = f"/v3/projects/{project['id']}/users/{users['demo']}/roles/member"
    assert wire.send("DELETE", grant, token=admin)[0] == 204
    assert log_in(wire, third)[0] == 401


def test_a_wrong_secret_must_wait_and_tells_nothing(wire, users):
    made = make(wire, users["demo"], wire.token("demo", "demo"))
    wrong, unknown = log_in(wire, made, "wrong"), log_in(wire, {"id": "nobody"}, "wrong")
    assert (wrong[0], wrong[2]) == (unknown[0], unknown[2])
    assert wrong[0] == 401
    for _ in range(FREE_FAILURES - 1):
        log_in(wire, made, "wrong")
    assert log_in(wire, made)[0] == 429


def test_access_rules_are_refused_because_nobody_would_enforce_them(wire, users):
    token = wire.token("demo", "demo")
    assert make(wire, users["demo"], token, access_rules=[{"path": "/x", "method": "GET", "service": "compute"}]) == 400
