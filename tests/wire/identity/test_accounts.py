"""Writes of domains, projects, users, groups, roles and the catalogue, as a client sees them."""

import pytest

from moorage.identity.embedded import EmbeddedIdentity
from tests.plane import InProcessPlane
from tests.wire.identity.conftest import Wire


class Admin:
    """Requests of an administrator."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.token = wire.token("admin", "admin")

    def send(self, method, path, body=None):
        status, _, document = self.wire.send(method, f"/v3{path}", body, token=self.token)
        return status, document

    def make(self, kind, **given):
        status, document = self.send("POST", f"/{kind}s", {kind: given})
        assert status == 201, document
        return document[kind]

    def change(self, kind, record, **given):
        return self.send("PATCH", f"/{kind}s/{record['id']}", {kind: given})

    def delete(self, kind, record):
        return self.send("DELETE", f"/{kind}s/{record['id']}")[0]

    def member(self, name="alice", project="demo"):
        """A user with the role member in the project."""
        (row,) = self.send("GET", f"/projects?name={project}")[1]["projects"]
        user = self.make("user", name=name, password="of-alice", default_project_id=row["id"], email="a@example.org")
        assert self.send("PUT", f"/projects/{row['id']}/users/{user['id']}/roles/member")[0] == 204
        return user, row

    def sign_in(self, name="alice", project="demo"):
        return self.wire.log_in(name, project, password="of-alice")


@pytest.fixture
def admin(wire):
    return Admin(wire)


def is_good(wire, token):
    return wire.send("GET", "/v3/auth/projects", token=token)[0] == 200


def test_a_new_user_signs_in_and_its_attributes_are_kept(admin):
    user, project = admin.member()
    shown = admin.send("GET", f"/users/{user['id']}")[1]["user"]
    assert shown == user
    assert (shown["email"], shown["enabled"], shown["default_project_id"]) == ("a@example.org", True, project["id"])
    assert "of-alice" not in str(shown)
    status, _, document = admin.sign_in()
    assert status == 201
    assert {role["name"] for role in document["token"]["roles"]} == {"member", "reader"}


def test_a_project_shows_its_domain_as_its_only_parent_and_nothing_below(admin):
    """The answers are those of Keystone 30 for a project without a parent."""
    domain = admin.make("domain", name="elsewhere")
    project = admin.make("project", name="fields", domain_id=domain["id"])

    def shown(query):
        status, document = admin.send("GET", f"/projects/{project['id']}?{query}")
        added = {name: value for name, value in document.get("project", {}).items() if name not in project}
        return status, added

    assert shown("parents_as_ids") == (200, {"parents": {domain["id"]: None}})
    assert shown("parents_as_ids=False&subtree_as_ids=True") == (
        200,
        {"parents": {domain["id"]: None}, "subtree": None},
    )
    assert shown("parents_as_list&subtree_as_list") == (200, {"parents": [], "subtree": []})
    assert shown("") == (200, {})
    for name in ("parents", "subtree"):
        assert shown(f"{name}_as_list&{name}_as_ids")[0] == 400


@pytest.mark.parametrize("kind", ["domain", "project", "user", "group", "role"])
def test_a_name_is_unique_in_its_domain(admin, kind):
    first = admin.make(kind, name="one")
    assert admin.send("POST", f"/{kind}s", {kind: {"name": "one"}})[0] == 409
    second = admin.make(kind, name="two")
    assert admin.change(kind, second, name="one")[0] == 409
    assert admin.change(kind, first, name="one")[0] == 200
    if kind in ("project", "user", "group"):
        domain = admin.make("domain", name="elsewhere")
        assert admin.make(kind, name="one", domain_id=domain["id"])["domain_id"] == domain["id"]
        assert admin.send("POST", f"/{kind}s", {kind: {"name": "three", "domain_id": "nowhere"}})[0] == 404
        assert admin.change(kind, first, domain_id=domain["id"])[0] == 400


def test_users_of_other_domains_sign_in_with_their_domain(admin, wire):
    domain = admin.make("domain", name="elsewhere")
    user = admin.make("user", name="demo", password="another", domain_id=domain["id"])
    project = admin.make("project", name="demo", domain_id=domain["id"])
    admin.send("PUT", f"/projects/{project['id']}/users/{user['id']}/roles/reader")
    scope = {"project": {"name": "demo", "domain": {"name": "elsewhere"}}}
    who = {"name": "demo", "domain": {"name": "elsewhere"}}
    status, _, document = wire.log_in("demo", password="another", user=who, scope=scope)
    assert status == 201
    assert document["token"]["project"]["id"] == project["id"]
    assert document["token"]["user"]["domain"] == {"id": domain["id"], "name": "elsewhere"}
    assert wire.log_in("demo", password="another", scope=scope)[0] == 401
    assert admin.delete("domain", domain) == 403, "it is enabled"
    assert admin.change("domain", domain, enabled=False)[0] == 200
    assert wire.log_in("demo", password="another", user=who | {"domain": {"name": "elsewhere"}}, scope=scope)[0] == 401
    assert admin.delete("domain", domain) == 204
    assert admin.send("GET", f"/users/{user['id']}")[0] == 404
    assert admin.send("GET", f"/projects/{project['id']}")[0] == 404
    assert wire.log_in("demo")[0] == 201, "the user of the same name in the domain default"


def test_roles_of_groups_and_inherited_roles_count_at_once_and_end_at_once(admin, wire):
    user, _ = admin.member()
    token = wire.token("alice", "demo", password="of-alice")
    project, group = admin.make("project", name="wheat"), admin.make("group", name="friends")
    grants = (f"/projects/{project['id']}/groups/{group['id']}/roles/reader",
              f"/OS-INHERIT/domains/default/groups/{group['id']}/roles/reader/inherited_to_projects")  # fmt: skip

    def projects():
        return [row["name"] for row in wire.send("GET", "/v3/auth/projects", token=token)[2]["projects"]]

    for grant, found in zip(grants, (["demo", "wheat"], ["admin", "demo", "service", "wheat"]), strict=True):
        assert admin.send("PUT", grant)[0] == 204
        assert projects() == ["demo"]
        assert admin.send("PUT", f"/groups/{group['id']}/users/{user['id']}")[0] == 204
        assert projects() == found
        assert admin.send("HEAD", grant)[0] == 204
        assert admin.send("DELETE", f"/groups/{group['id']}/users/{user['id']}")[0] == 204
        assert projects() == ["demo"]
        assert admin.send("DELETE", grant)[0] == 204
        assert admin.send("HEAD", grant)[0] == 404


def test_a_role_on_a_domain_or_the_system_is_listed_and_gives_no_rights(admin, wire):
    user, _ = admin.member()
    for target in ("domains/default", "system"):
        assert admin.send("PUT", f"/{target}/users/{user['id']}/roles/admin")[0] == 204
    rows = admin.send("GET", f"/role_assignments?user.id={user['id']}")[1]["role_assignments"]
    assert [row["scope"] for row in rows if row["role"]["id"] == "admin"] == [
        {"domain": {"id": "default"}},
        {"system": {"all": True}},
    ]
    token = wire.token("alice", "demo", password="of-alice")
    assert wire.send("GET", "/v3/users", token=token)[0] == 403
    for scope in ({"system": {"all": True}}, {"domain": {"id": "default"}}):
        status, _, document = wire.log_in("alice", password="of-alice", scope=scope)
        assert status == 401
        assert "tokens for projects only" in document["error"]["message"]


def test_an_implied_role_counts_and_no_role_implies_admin(admin, wire):
    user, _ = admin.member()
    pilot = admin.make("role", name="pilot")
    assert admin.send("PUT", f"/roles/member/implies/{pilot['id']}")[0] == 201
    token = wire.token("alice", "demo", password="of-alice")
    _, _, document = wire.send("GET", "/v3/auth/tokens", token=token, x_subject_token=token)
    assert {"id": pilot["id"], "name": "pilot"} in document["token"]["roles"]
    assert admin.send("PUT", f"/roles/{pilot['id']}/implies/admin")[0] == 403
    assert admin.send("PUT", f"/roles/{pilot['id']}/implies/member")[0] == 409
    rows = admin.send("GET", f"/role_assignments?effective&user.id={user['id']}")[1]["role_assignments"]
    assert {row["role"]["id"] for row in rows} == {"member", "reader", pilot["id"]}
    assert admin.send("DELETE", f"/roles/member/implies/{pilot['id']}")[0] == 204
    assert admin.send("DELETE", "/roles/admin/implies/member")[0] == 403


def test_disabling_and_deleting_end_tokens_at_once(admin, wire):
    user, project = admin.member()
    token = wire.token("alice", "demo", password="of-alice")
    admin.change("user", user, enabled=False)
    assert not is_good(wire, token)
    assert admin.sign_in()[0] == 401
    admin.change("user", user, enabled=True)
    assert not is_good(wire, token)
    token = wire.token("alice", "demo", password="of-alice")
    admin.change("project", project, enabled=False)
    assert not is_good(wire, token)
    assert admin.sign_in()[0] == 401
    admin.change("project", project, enabled=True)
    token = wire.token("alice", "demo", password="of-alice")
    assert admin.delete("user", user) == 204
    assert not is_good(wire, token)
    again = admin.make("user", name="alice", password="of-alice")
    assert again["id"] != user["id"]
    assert admin.sign_in()[0] == 401, "the new user has no roles of the old one"


def test_what_the_plane_needs_cannot_be_taken_from_it(admin, wire, passwords):
    (service,) = admin.send("GET", "/users?name=moorage")[1]["users"]
    assert admin.delete("user", service) == 403
    assert admin.change("user", service, enabled=False)[0] == 403
    assert admin.change("user", service, name="other")[0] == 403
    for role in ("admin", "member", "reader", "service", "manager"):
        assert admin.send("DELETE", f"/roles/{role}")[0] == 403
        assert admin.send("PATCH", f"/roles/{role}", {"role": {"name": "x"}})[0] == 403
    assert admin.send("DELETE", "/domains/default")[0] == 403
    assert admin.send("PATCH", "/domains/default", {"domain": {"enabled": False}})[0] == 403
    assert admin.send("DELETE", "/services/compute")[0] == 403
    assert admin.send("DELETE", "/endpoints/compute-public")[0] == 403
    assert admin.send("DELETE", "/regions/RegionOne")[0] == 403
    assert wire.log_in("moorage")[0] == 201


def test_the_project_and_the_roles_with_which_the_services_log_in_stay(admin, wire):
    (service,) = admin.send("GET", "/users?name=moorage")[1]["users"]
    (project,) = admin.send("GET", "/projects?name=service")[1]["projects"]
    for change in ({"enabled": False}, {"name": "another"}):
        status, document = admin.change("project", project, **change)
        assert (status, "log in to the project service" in document["error"]["message"]) == (403, True)
    assert admin.delete("project", project) == 403
    for role in ("admin", "service"):
        status, document = admin.send("DELETE", f"/projects/{project['id']}/users/{service['id']}/roles/{role}")
        assert (status, f"with the role {role}" in document["error"]["message"]) == (403, True)
    assert admin.change("project", project, description="of the services")[0] == 200
    for where in (admin.make("project", name="other"), project):
        other = f"/projects/{where['id']}/users/{service['id']}/roles/member"
        assert [admin.send(method, other)[0] for method in ("PUT", "DELETE")] == [204, 204], "they do not need it"
    assert wire.log_in("moorage")[0] == 201


def test_an_administrator_sets_the_password_of_the_services_for_their_next_start(admin, plane, wire):
    from moorage.identity.first_start.first_credentials import first_credentials

    (service,) = admin.send("GET", "/users?name=moorage")[1]["users"]
    assert admin.change("user", service, password="new-and-long")[0] == 200
    assert first_credentials(plane.config.state, "moorage") == ("new-and-long", "service")
    assert wire.log_in("moorage", password="new-and-long")[0] == 201


def test_services_and_endpoints_are_added_to_the_catalogue_of_tokens(admin, wire):
    service = admin.make("service", type="weather", name="clouds")
    region = admin.make("region", id="north")
    url = "https://weather.example/$(project_id)s"
    endpoint = admin.make("endpoint", service_id=service["id"], interface="public", url=url, region_id="north")
    token = wire.log_in("demo", "demo")[2]["token"]
    (row,) = [row for row in token["catalog"] if row["type"] == "weather"]
    assert row["endpoints"][0]["url"] == f"https://weather.example/{token['project']['id']}"
    assert admin.delete("region", region) == 403, "it has an endpoint"
    admin.change("endpoint", endpoint, enabled=False)
    (row,) = [row for row in wire.log_in("demo", "demo")[2]["token"]["catalog"] if row["type"] == "weather"]
    assert row["endpoints"] == []
    assert admin.delete("service", service) == 204
    assert admin.send("GET", f"/endpoints/{endpoint['id']}")[0] == 404
    assert "weather" not in {row["type"] for row in wire.log_in("demo", "demo")[2]["token"]["catalog"]}


def test_changes_survive_a_restart(admin, plane, wire, passwords):
    admin.member()
    plane.restart()
    assert Wire(plane.transport(), passwords).log_in("alice", "demo", password="of-alice")[0] == 201


def test_another_process_sees_a_new_user_within_a_second(admin, plane, clock, passwords):
    there = plane.beside("there", "identity", authenticator=None)
    admin.member()
    clock.sleep(1)
    assert Wire(there.transport(), passwords).log_in("alice", "demo", password="of-alice")[0] == 201


def test_ids_and_names_are_checked_in_the_words_of_keystone(admin):
    assert admin.send("GET", "/groups/none") == (
        404,
        {"error": {"code": 404, "message": "Could not find group: none.", "title": "Not Found"}},
    )
    status, document = admin.send("POST", "/users", {"user": {"name": "x", "options": {"lock_password": True}}})
    assert status == 400, document
    assert admin.send("POST", "/projects", {"project": {"name": "x", "parent_id": "demo"}})[0] == 400
    big = {"name": "x", "note": "y" * 20_000}
    assert admin.send("POST", "/users", {"user": big})[0] == 400


def test_two_processes_that_create_the_same_name_at_once_make_one(plane, clock):
    """The second decision sees the first one's row, although its process has not read it yet."""
    there: InProcessPlane = plane.beside("there", "identity", authenticator=None)
    services = [each.plane.built["identity"] for each in (plane, there)]
    services[0].people.create_user({"name": "alice"})
    identity: EmbeddedIdentity = services[1].identity
    assert identity.database._known[1].user_named("alice") is None
    with pytest.raises(Exception, match="not possible to have two"):
        services[1].people.create_user({"name": "alice"})
