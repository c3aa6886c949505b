"""`moorage user` and `moorage project`, over the routes of a plane."""

import json

import pytest
from click.testing import CliRunner

from moorage.cli.commands import people
from moorage.core.errors import MoorageError
from moorage.identity.tokens.throttle import FREE_FAILURES
from moorage.wire.client import ServiceClient
from tests.wire.identity.test_accounts import Admin, is_good


class LoggedIn:
    """The credentials of a user who signed in."""

    def __init__(self, token):
        self._token = token

    def headers(self, *, renew=False):
        return {"x-auth-token": self._token}


@pytest.fixture
def admin(wire):
    return Admin(wire)


@pytest.fixture
def run(plane, wire, monkeypatch):
    """Runs a command with the rights of `who`: (user, project)."""

    def invoke(group, *words, who=("admin", "admin"), stdin=None):
        client = ServiceClient(
            plane.transport("/identity"), service_type="identity", credentials=LoggedIn(wire.token(*who))
        )
        monkeypatch.setattr(people, "accounts_client", lambda path: client)
        monkeypatch.setattr(people, "dashboard_url", lambda path: "https://lab.example/ui")
        done = CliRunner(catch_exceptions=False).invoke(group, words, input=stdin)
        assert done.exit_code == 0, done.output
        return done.output

    return invoke


def test_users_and_projects_are_listed(run, admin):
    user, project = admin.member()
    (line,) = [line.split() for line in run(people.user, "list").splitlines() if "alice" in line]
    assert line == [user["id"], "alice", "default", "yes"]
    assert user in json.loads(run(people.user, "list", "--json"))["users"]
    (line,) = [line.split() for line in run(people.project, "list").splitlines() if project["id"] in line]
    assert line == [project["id"], "demo", "default", "yes"]


def test_a_new_user_of_a_new_project_can_sign_in(run, admin, wire):
    assert run(people.project, "add", "physics", "--description", "the lab") == "physics is created.\n"
    told = run(
        people.user, "add", "bob", "--project", "physics", "--email", "bob@example.org", stdin="a long password\n"
    )
    assert told == "bob is created, with member in physics.\n"
    status, _, document = wire.log_in("bob", "physics", password="a long password")
    assert status == 201
    assert "member" in {role["name"] for role in document["token"]["roles"]}


def test_a_user_without_a_project_is_told_so(run, wire):
    assert run(people.user, "add", "bob", stdin="a long password\n") == "bob is created. It has no project yet.\n"


def test_an_unknown_project_or_role_and_a_missing_password_create_nobody(run, admin):
    admin.member()
    for words, stdin, error in (
        (("bob", "--project", "chemistry"), "x\n", "there is no project chemistry; `moorage project list` shows all"),
        (("bob", "--project", "demo", "--role", "chief"), "x\n", "there is no role chief; `openstack role list`"),
        (("bob", "--project", "demo"), "\n", "no password on standard input"),
        (("alice", "--project", "demo"), "a long password\n", "alice"),
    ):
        with pytest.raises(MoorageError, match=error):
            run(people.user, "add", *words, stdin=stdin)
    assert "bob" not in run(people.user, "list")


def test_a_role_without_a_project_is_an_error_of_usage(run):
    with pytest.raises(AssertionError, match="--role needs --project"):
        run(people.user, "add", "bob", "--role", "reader", stdin="x\n")


def test_a_disabled_user_cannot_sign_in_until_it_is_enabled(run, admin, wire):
    user, _ = admin.member()
    token = wire.token("alice", "demo", password="of-alice")
    assert run(people.user, "disable", "alice") == "alice is disabled.\n"
    assert not is_good(wire, token)
    assert admin.sign_in()[0] == 401
    assert " no" in run(people.user, "list")
    run(people.user, "enable", user["id"])
    assert admin.sign_in()[0] == 201
    assert not is_good(wire, token)


def test_a_password_is_read_from_standard_input_and_never_printed(run, admin, wire):
    admin.member()
    token = wire.token("alice", "demo", password="of-alice")
    assert run(people.user, "set-password", "alice", stdin=" n3w pass \n") == "alice has a new password.\n"
    assert admin.sign_in()[0] == 401
    assert wire.log_in("alice", "demo", password=" n3w pass ")[0] == 201
    assert not is_good(wire, token)


def test_a_missing_password_changes_nothing(run, admin):
    admin.member()
    with pytest.raises(MoorageError, match="no password on standard input"):
        run(people.user, "set-password", "alice", stdin="\n")
    assert admin.sign_in()[0] == 201


def test_an_unknown_name_and_one_of_several_users_are_refused(run, admin):
    user, _ = admin.member()
    other = admin.make("user", name="alice", domain_id=admin.make("domain", name="lab")["id"])
    with pytest.raises(MoorageError, match="there is no user bob; `moorage user list`"):
        run(people.user, "disable", "bob")
    with pytest.raises(MoorageError, match="several users are called alice") as refused:
        run(people.user, "disable", "alice")
    assert user["id"] in refused.value.message
    assert other["id"] in refused.value.message
    assert admin.sign_in()[0] == 201
    run(people.user, "disable", other["id"])
    assert admin.sign_in()[0] == 201


def test_members_may_not_use_the_commands(run, admin):
    admin.member()
    for words in (
        ("list",),
        ("add", "mallory"),
        ("disable", "admin"),
        ("set-password", "admin"),
        ("unlock", "admin"),
        ("invite", "admin"),
    ):
        with pytest.raises(MoorageError, match="not authorized"):
            run(people.user, *words, who=("demo", "demo"), stdin="x\n")


def test_a_user_who_must_wait_is_unlocked(run, admin):
    admin.member()
    for _ in range(FREE_FAILURES):
        admin.wire.log_in("alice", "demo", password="wrong")
    assert admin.sign_in()[0] == 429
    assert run(people.user, "unlock", "alice") == "alice need not wait.\n"
    assert admin.sign_in()[0] == 201


def accept(wire, link, password):
    page, _, token = link.partition("#")
    assert page == "https://lab.example/ui/invitation"
    return wire.send("POST", "/moorage/v1/invitations/password", {"token": token, "password": password})[0]


def test_an_invited_user_is_created_and_chooses_the_password(run, admin, wire, clock):
    link, told = run(people.user, "invite", "bob", "--project", "demo").splitlines()
    assert told == "Send it to bob only. It works once, until 2026-03-04 09:30 UTC."
    assert accept(wire, link, "of-bob") == 200
    status, _, document = wire.log_in("bob", "demo", password="of-bob")
    assert status == 201
    assert "member" in {role["name"] for role in document["token"]["roles"]}


def test_an_existing_user_gets_a_new_link_that_ends_the_earlier_one(run, admin, wire):
    user, _ = admin.member()
    earlier, _ = run(people.user, "invite", "alice").splitlines()
    found = json.loads(run(people.user, "invite", user["id"], "--hours", "1", "--json"))
    assert found["expires_at"].startswith("2026-03-01T10:30:00")
    assert accept(wire, earlier, "of-bob") == 401
    assert accept(wire, found["link"], "of-bob") == 200
    assert wire.log_in("alice", "demo", password="of-bob")[0] == 201


def test_an_invitation_to_an_unknown_project_creates_nobody(run):
    with pytest.raises(MoorageError, match="there is no project chemistry"):
        run(people.user, "invite", "bob", "--project", "chemistry")
    assert "bob" not in run(people.user, "list")


def test_the_user_of_the_services_stays_enabled(run):
    with pytest.raises(MoorageError, match="services"):
        run(people.user, "disable", "moorage")
