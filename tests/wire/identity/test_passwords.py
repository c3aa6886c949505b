"""Users change their own passwords; the effects on the users file and on tokens."""

import json

import pytest

from moorage.identity.tokens.throttle import FREE_FAILURES
from tests.plane import InProcessPlane


def user_of(wire, name):
    return wire.log_in(name)[2]["token"]["user"]["id"]


def change(wire, user_id, original, new, **headers):
    body = {"user": {"original_password": original, "password": new}}
    return wire.send("POST", f"/v3/users/{user_id}/password", body, **headers)


def test_changing_a_password_invalidates_the_users_tokens(wire, passwords):
    token, others = wire.token("demo", "demo"), wire.token("admin", "admin")
    user = user_of(wire, "demo")
    assert change(wire, user, passwords["demo"], "a new one", token=token)[::2] == (204, None)
    assert wire.send("GET", "/v3/auth/projects", token=token)[0] == 401
    assert wire.send("GET", "/v3/auth/projects", token=others)[0] == 200
    assert wire.log_in("demo")[0] == 401
    assert wire.log_in("demo", password="a new one")[0] == 201


def test_a_password_is_changed_with_the_old_one_without_a_token(wire, passwords):
    """As in Keystone, where a user with an expired password cannot get a token."""
    assert change(wire, user_of(wire, "demo"), passwords["demo"], "a new one")[0] == 204


def test_another_process_accepts_the_new_password_within_a_second(plane, wire, passwords, clock):
    there = InProcessPlane(plane.directory, "identity", cloud=plane.cloud, authenticator=None)
    token = wire.token("demo", "demo")
    change(wire, user_of(wire, "demo"), passwords["demo"], "a new one")
    clock.sleep(1)
    answer = there.transport().send("GET", "/identity/v3/auth/projects", {"x-auth-token": token})
    assert answer.status == 401
    there.stop()


def test_a_wrong_password_and_an_unknown_user_get_the_same_answer_and_must_wait(wire):
    wrong, unknown = user_of(wire, "demo"), "nobody"
    answers = [change(wire, user, "wrong", "a new one") for user in (wrong, unknown)]
    assert [answer[0] for answer in answers] == [401, 401]
    assert answers[0][2] == answers[1][2]
    for user in (wrong, unknown):
        for _ in range(FREE_FAILURES - 1):
            change(wire, user, "wrong", "a new one")
        assert change(wire, user, "wrong", "a new one")[0] == 429


@pytest.mark.parametrize("new", ["", "x" * 73, "\N{SNOWMAN}" * 25], ids=["none", "long", "long in bytes"])
def test_a_password_that_bcrypt_would_truncate_is_refused(wire, passwords, new):
    status, _, document = change(wire, user_of(wire, "demo"), passwords["demo"], new)
    assert status == 400
    assert "1 to 72 bytes" in document["error"]["message"]
    assert wire.log_in("demo")[0] == 201


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"user": {}},
        {"user": {"password": "geheim"}},
        {"user": {"password": "geheim", "original_password": 1}},
    ],
    ids=str,
)
def test_a_malformed_change_is_400_and_repeats_no_password(wire, body):
    status, _, document = wire.send("POST", "/v3/users/x/password", body)
    assert status == 400
    assert "geheim" not in json.dumps(document)


def test_the_password_of_the_services_user_cannot_be_changed(wire, passwords):
    """The services read it from a file or the configuration, so a change would lock all of them out."""
    status, _, document = change(wire, user_of(wire, "moorage"), passwords["moorage"], "a new one")
    assert status == 403
    assert "administrator" in document["error"]["message"]
    assert wire.log_in("moorage")[0] == 201


def test_changing_a_password_deletes_the_stored_first_password(wire, passwords, plane):
    change(wire, user_of(wire, "demo"), passwords["demo"], "a new one")
    path = plane.config.state / "credentials.json"
    assert set(json.loads(path.read_text())) == {"admin", "moorage"}
    assert path.stat().st_mode & 0o777 == 0o600
    assert "a new one" not in path.read_text()
