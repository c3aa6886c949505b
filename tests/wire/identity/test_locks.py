"""What administrators see of users beside Keystone's API, and how they end the wait after failed logins."""

from datetime import timedelta

import pytest

from moorage.identity.tokens.throttle import FREE_FAILURES, FREE_FAILURES_OF_ADDRESS
from tests.conftest import START
from tests.wire.identity.conftest import Wire
from tests.wire.identity.test_accounts import Admin
from tests.wire.identity.test_failed_logins import ELSEWHERE, HERE, log_in
from tests.wire.identity.test_passwords import change


@pytest.fixture
def admin(wire):
    return Admin(wire)


def shown(wire, admin, name):
    status, _, document = wire.send("GET", "/moorage/v1/users", token=admin.token)
    assert status == 200
    return next(row for row in document["users"] if row["name"] == name)


def unlock(wire, token, user_id):
    return wire.send("DELETE", f"/moorage/v1/users/{user_id}/lock", token=token)[0]


def test_an_administrator_sees_the_lock_of_a_user_and_clears_it(wire, admin, passwords):
    for _ in range(FREE_FAILURES):
        log_in(wire, "demo", "wrong")
    demo = shown(wire, admin, "demo")
    assert demo["failed_logins"] == FREE_FAILURES
    assert demo["locked_until"] == (START + timedelta(seconds=1)).isoformat()
    assert demo["addresses"] == [HERE]
    assert shown(wire, admin, "admin")["locked_until"] is None
    assert log_in(wire, "demo", passwords["demo"])[0] == 429
    assert unlock(wire, admin.token, demo["id"]) == 204
    assert log_in(wire, "demo", "wrong")[0] == 401, "all attempts are free again"
    assert log_in(wire, "demo", passwords["demo"])[0] == 201
    assert shown(wire, admin, "demo")["failed_logins"] == 0


def test_an_unlocked_user_need_not_wait_for_the_failures_of_others_at_the_same_address(wire, admin, passwords):
    for number in range(FREE_FAILURES_OF_ADDRESS - 1):
        log_in(wire, f"nobody-{number}", "wrong")
    log_in(wire, "demo", "wrong")
    demo = shown(wire, admin, "demo")
    assert demo["locked_until"] is not None
    assert log_in(wire, "demo", passwords["demo"])[0] == 429
    unlock(wire, admin.token, demo["id"])
    assert log_in(wire, "demo", passwords["demo"])[0] == 201


def test_clearing_the_lock_of_one_user_leaves_those_of_others(wire, admin):
    for name, address in (("demo", HERE), ("admin", ELSEWHERE)):
        for _ in range(FREE_FAILURES):
            log_in(wire, name, "wrong", address)
    unlock(wire, admin.token, shown(wire, admin, "demo")["id"])
    assert shown(wire, admin, "demo")["locked_until"] is None
    assert shown(wire, admin, "admin")["locked_until"] is not None


def test_a_wait_that_is_over_and_forgotten_failures_are_not_shown(wire, admin, clock):
    for _ in range(FREE_FAILURES):
        log_in(wire, "demo", "wrong")
    clock.sleep(2)
    assert (shown(wire, admin, "demo")["locked_until"], shown(wire, admin, "demo")["failed_logins"]) == (None, 5)
    clock.sleep(900)
    assert shown(wire, admin, "demo")["failed_logins"] == 0


def test_a_member_and_a_manager_neither_see_nor_clear_locks(wire, admin):
    user, project = admin.member()
    admin.send("PUT", f"/projects/{project['id']}/users/{user['id']}/roles/manager")
    token = wire.token("alice", "demo", password="of-alice")
    assert wire.send("GET", "/moorage/v1/users", token=token)[0] == 403
    assert unlock(wire, token, user["id"]) == 403
    assert wire.send("GET", "/moorage/v1/users")[0] == 401
    assert unlock(wire, admin.token, "nobody") == 404


def test_direct_and_other_roles_are_shown_apart(wire, admin):
    user, project = admin.member()
    group = admin.make("group", name="operators")
    admin.send("PUT", f"/groups/{group['id']}/users/{user['id']}")
    admin.send("PUT", f"/projects/{project['id']}/groups/{group['id']}/roles/admin")
    (seen,) = shown(wire, admin, "alice")["projects"]
    assert seen == {
        "id": project["id"],
        "name": "demo",
        "roles": ["member"],
        "is_service": False,
        "indirect_roles": ["admin"],
    }


def test_the_time_of_the_last_change_of_a_password_is_shown(wire, admin, clock):
    user, _ = admin.member()
    assert shown(wire, admin, "alice")["password_changed_at"] == START.isoformat()
    clock.sleep(60)
    admin.change("user", user, email="b@example.org")
    assert shown(wire, admin, "alice")["password_changed_at"] == START.isoformat()
    assert change(wire, user["id"], "of-alice", "a new one")[0] == 204
    assert shown(wire, admin, "alice")["password_changed_at"] == (START + timedelta(seconds=60)).isoformat()
    clock.sleep(60)
    admin.change("user", user, password="of-alice")
    assert shown(wire, admin, "alice")["password_changed_at"] == (START + timedelta(seconds=120)).isoformat()
    unset = admin.make("user", name="bob")
    assert (unset["enabled"], shown(wire, admin, "bob")["password_changed_at"]) == (True, None)
    assert not shown(wire, admin, "bob")["has_password"]


class TestProcesses:
    """Two identity processes with one database, each of which counts failures for itself."""

    @pytest.fixture
    def there(self, plane, passwords):
        return Wire(plane.beside("there", "identity", authenticator=None).transport(), passwords)

    def make_wait(self, wire, clock):
        """Until the next login has to wait for 4 s."""
        for _ in range(FREE_FAILURES):
            assert log_in(wire, "demo", "wrong")[0] == 401
        for seconds in (1, 2):
            clock.sleep(seconds)
            assert log_in(wire, "demo", "wrong")[0] == 401

    def test_an_unlock_reaches_the_other_one_within_a_second(self, wire, there, admin, passwords, clock):
        self.make_wait(there, clock)
        assert unlock(wire, admin.token, shown(wire, admin, "demo")["id"]) == 204
        clock.sleep(1)
        assert log_in(there, "demo", passwords["demo"])[0] == 201

    def test_without_an_unlock_the_wait_goes_on(self, there, passwords, clock):
        self.make_wait(there, clock)
        clock.sleep(1)
        assert log_in(there, "demo", passwords["demo"])[0] == 429

    def test_the_other_one_also_shows_no_failures_and_has_all_attempts_again(self, wire, there, admin, clock):
        self.make_wait(there, clock)
        unlock(wire, admin.token, shown(wire, admin, "demo")["id"])
        clock.sleep(1)
        its = Admin(there)
        assert shown(there, its, "demo")["failed_logins"] == 0
        assert [log_in(there, "demo", "wrong")[0] for _ in range(FREE_FAILURES)] == [401] * FREE_FAILURES
        assert shown(there, its, "demo")["failed_logins"] == FREE_FAILURES, "an unlock counts once"
        assert log_in(there, "demo", "wrong")[0] == 429

    def test_a_password_chosen_with_a_link_ends_the_wait_there_too(self, wire, there, admin, clock):
        self.make_wait(there, clock)
        path = f"/moorage/v1/users/{shown(wire, admin, 'demo')['id']}/invitation"
        token = wire.send("POST", path, {"expires_s": 60}, token=admin.token)[2]["token"]
        chosen = {"token": token, "password": "chosen"}
        assert wire.send("POST", "/moorage/v1/invitations/password", chosen)[0] == 200
        clock.sleep(1)
        assert log_in(there, "demo", "chosen")[0] == 201

    def test_an_unlock_ends_no_token_and_shows_in_no_user(self, wire, admin):
        token = wire.token("demo", "demo")
        demo = shown(wire, admin, "demo")["id"]
        assert unlock(wire, admin.token, demo) == 204
        assert wire.send("GET", "/v3/auth/tokens", token=token, x_subject_token=token)[0] == 200
        assert "unlocks" not in wire.send("GET", f"/v3/users/{demo}", token=admin.token)[2]["user"]

    def test_an_unknown_user_cannot_be_unlocked(self, wire, admin):
        assert unlock(wire, admin.token, "0e2a6bcd1f7c4b0f9d7e6a1d6c5b4a30") == 404
