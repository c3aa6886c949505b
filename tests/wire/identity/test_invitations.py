"""Links with which users choose a password: who makes and uses them, and when they end."""

import hashlib
import json
import logging
import sqlite3
from datetime import timedelta

import pytest

from moorage.identity.model import MAX_INVITATION_S
from moorage.identity.tokens.throttle import FREE_FAILURES
from tests.conftest import START
from tests.plane import InProcessPlane
from tests.wire.identity.test_accounts import Admin, is_good
from tests.wire.identity.test_failed_logins import ELSEWHERE, HERE, log_in
from tests.wire.identity.test_locks import shown
from tests.wire.identity.test_passwords import change

HOUR_S = 3600
NEW = "chosen by alice"


@pytest.fixture
def admin(wire):
    return Admin(wire)


@pytest.fixture
def alice(admin):
    """A member without a password."""
    project = admin.send("GET", "/projects?name=demo")[1]["projects"][0]["id"]
    user = admin.make("user", name="alice", default_project_id=project)
    admin.send("PUT", f"/projects/{project}/users/{user['id']}/roles/member")
    return user


def invite(admin, user, expires_s=HOUR_S, token=None):
    path = f"/moorage/v1/users/{user['id']}/invitation"
    status, _, document = admin.wire.send("POST", path, {"expires_s": expires_s}, token=token or admin.token)
    return status, document


def link(admin, user, **options):
    status, document = invite(admin, user, **options)
    assert status == 201, document
    return document["token"]


def accept(wire, token, password=NEW, address=HERE):
    body = {"token": token, "password": password}
    return wire.send("POST", "/moorage/v1/invitations/password", body, x_forwarded_for=address)


def test_an_invited_user_chooses_a_password_and_signs_in(admin, alice, wire):
    assert wire.log_in("alice", password=NEW)[0] == 401
    token = link(admin, alice)
    assert shown(wire, admin, "alice")["invited_until"] == (START + timedelta(seconds=HOUR_S)).isoformat()
    assert accept(wire, token)[::2] == (200, {"user": {"id": alice["id"], "name": "alice"}})
    assert wire.log_in("alice", password=NEW)[0] == 201
    seen = shown(wire, admin, "alice")
    assert (seen["invited_until"], seen["password_changed_at"]) == (None, START.isoformat())


def test_a_link_is_used_once(admin, alice, wire):
    token = link(admin, alice)
    assert accept(wire, token)[0] == 200
    assert accept(wire, token, "another")[0] == 401
    assert wire.log_in("alice", password=NEW)[0] == 201


def test_a_refused_password_does_not_use_the_link_up(admin, alice, wire):
    token = link(admin, alice)
    for password in ("", "x" * 73):
        status, _, document = accept(wire, token, password)
        assert status == 400
        assert "1 to 72 bytes" in document["error"]["message"]
    assert accept(wire, token)[0] == 200


def _use_up(admin, user, token, clock):
    accept(admin.wire, token, "another")


def _replace(admin, user, token, clock):
    link(admin, user)


def _withdraw(admin, user, token, clock):
    path = f"/moorage/v1/users/{user['id']}/invitation"
    assert admin.wire.send("DELETE", path, token=admin.token)[0] == 204
    assert admin.wire.send("DELETE", path, token=admin.token)[0] == 404


def _expire(admin, user, token, clock):
    clock.sleep(HOUR_S)
    admin.token = admin.wire.token("admin", "admin")


def _disable(admin, user, token, clock):
    assert admin.change("user", user, enabled=False)[0] == 200


def _disable_and_enable(admin, user, token, clock):
    _disable(admin, user, token, clock)
    assert admin.change("user", user, enabled=True)[0] == 200


def _set_password(admin, user, token, clock):
    assert admin.change("user", user, password="of-admin")[0] == 200


def _change_password(admin, user, token, clock):
    _set_password(admin, user, token, clock)
    assert change(admin.wire, user["id"], "of-admin", "of-alice")[0] == 204


def _delete(admin, user, token, clock):
    assert admin.delete("user", user) == 204


@pytest.mark.parametrize(
    "end",
    [
        _use_up,
        _replace,
        _withdraw,
        _expire,
        _disable,
        _disable_and_enable,
        _set_password,
        _change_password,
        _delete,
    ],
    ids=lambda end: end.__name__,
)
def test_a_link_ends_and_all_links_that_ended_get_one_answer(admin, alice, wire, clock, end):
    token = link(admin, alice)
    end(admin, alice, token, clock)
    refused = accept(wire, token)
    assert refused[0] == 401
    assert refused[2] == accept(wire, "never-made", address=ELSEWHERE)[2]
    assert wire.log_in("alice", password=NEW)[0] == 401


def test_the_links_of_a_disabled_domain_end(admin, wire):
    domain = admin.make("domain", name="elsewhere")
    user = admin.make("user", name="bob", domain_id=domain["id"])
    token = link(admin, user)
    admin.change("domain", domain, enabled=False)
    assert accept(wire, token)[0] == 401
    assert invite(admin, user)[0] == 409
    admin.change("domain", domain, enabled=True)
    assert accept(wire, token)[0] == 401


def test_nobody_is_invited_to_be_disabled_or_the_services(admin, alice):
    admin.change("user", alice, enabled=False)
    assert invite(admin, alice)[0] == 409
    services = next(row for row in admin.send("GET", "/users")[1]["users"] if row["name"] == "moorage")
    assert invite(admin, services)[0] == 403
    assert invite(admin, {"id": "nobody"})[0] == 404


@pytest.mark.parametrize("expires_s", [0, -1, MAX_INVITATION_S + 1, "60", None, 1.5], ids=str)
def test_the_lifetime_of_a_link_is_limited(admin, alice, expires_s):
    assert invite(admin, alice, expires_s=expires_s)[0] == 400


def test_members_and_managers_invite_nobody(admin, alice, wire):
    member, project = admin.member("bob")
    admin.send("PUT", f"/projects/{project['id']}/users/{member['id']}/roles/manager")
    token = wire.token("bob", "demo", password="of-alice")
    assert invite(admin, alice, token=token)[0] == 403
    assert invite(admin, member, token=token)[0] == 403
    path = f"/moorage/v1/users/{alice['id']}/invitation"
    valid = link(admin, alice)
    assert wire.send("DELETE", path, token=token)[0] == 403
    assert accept(wire, valid)[0] == 200


def test_a_link_for_a_user_with_a_password_ends_the_password_and_all_tokens(admin, wire):
    user, _ = admin.member()
    token = wire.token("alice", "demo", password="of-alice")
    chosen = link(admin, user)
    assert admin.sign_in()[0] == 201, "the link alone changes nothing"
    assert accept(wire, chosen)[0] == 200
    assert not is_good(wire, token)
    assert admin.sign_in()[0] == 401


def test_a_link_ends_the_wait_after_failed_logins(admin, wire):
    user, _ = admin.member()
    for _ in range(FREE_FAILURES):
        log_in(wire, "alice", "wrong")
    assert log_in(wire, "alice", "of-alice")[0] == 429
    assert accept(wire, link(admin, user))[0] == 200
    assert log_in(wire, "alice", NEW)[0] == 201


def test_guessing_links_must_wait_as_guessing_passwords(admin, alice, wire, clock):
    token = link(admin, alice)
    assert [accept(wire, f"guess-{at}")[0] for at in range(FREE_FAILURES)] == [401] * FREE_FAILURES
    status, headers, _ = accept(wire, token)
    assert (status, headers["retry-after"]) == (429, "1")
    assert accept(wire, token, address=ELSEWHERE)[0] == 200, "others need not wait"


def test_a_wrong_link_writes_nothing_and_hashes_nothing(admin, alice, wire, monkeypatch):
    """Else strangers could keep the writers of the database waiting, and the processors busy."""
    link(admin, alice)
    monkeypatch.setattr("bcrypt.hashpw", lambda *given: pytest.fail("a password was hashed"))
    monkeypatch.setattr(
        "moorage.identity.store.account_database.next_revision", lambda *given: pytest.fail("a change began")
    )
    assert accept(wire, "guess")[0] == 401


def test_of_two_users_of_one_link_the_second_is_refused(admin, alice, wire, monkeypatch):
    """Both have passed the first check; the second decides again on what the first has written."""
    from moorage.identity.accounts.invitation_service import InvitationService

    token, real, raced = link(admin, alice), InvitationService._invited, []

    def invited(self, accounts, digest):
        found = real(self, accounts, digest)
        if not raced:
            raced.append(found)
            assert accept(wire, token, address=ELSEWHERE)[0] == 200
        return found

    monkeypatch.setattr(InvitationService, "_invited", invited)
    assert accept(wire, token, "of a thief")[0] == 401
    assert wire.log_in("alice", password=NEW)[0] == 201


def test_another_process_knows_a_link_within_a_second_and_that_it_was_used(plane, admin, alice, wire, clock):
    there = InProcessPlane(plane.directory, "identity", cloud=plane.cloud, authenticator=None)
    elsewhere = type(wire)(there.transport(), {})
    token = link(admin, alice)
    clock.sleep(1)
    assert accept(elsewhere, token)[0] == 200
    clock.sleep(1)
    assert accept(wire, token)[0] == 401
    there.stop()


def test_neither_logs_nor_the_database_nor_the_trail_have_the_token_or_the_password(tmp_path, clock, ids, caplog):
    caplog.set_level(logging.DEBUG)
    options = {"trail": {"path": str(tmp_path / "trail.jsonl")}}
    with InProcessPlane(tmp_path, "identity", clock=clock, ids=ids, authenticator=None, **options) as plane:
        from moorage.identity.first_start.first_credentials import first_credentials
        from tests.wire.identity.conftest import Wire

        wire = Wire(plane.transport(), {"admin": first_credentials(plane.config.state, "admin")[0]})
        admin = Admin(wire)
        user = admin.make("user", name="alice")
        token = link(admin, user)
        assert accept(wire, token, "x" * 73)[0] == 400
        assert accept(wire, token)[0] == 200
        kept = link(admin, user)
    trail = (tmp_path / "trail.jsonl").read_text()
    entries = [json.loads(line) for line in trail.splitlines()]
    accepted = [row for row in entries if row["route"] == "POST /moorage/v1/invitations/password"]
    assert [row["outcome"] for row in accepted if row["outcome"] != "pending"] == ["failure", "success"]
    assert accepted[-1]["initiator"]["name"] == "alice"
    database = b"".join(path.read_bytes() for path in plane.config.state.glob("identity.db*"))
    for secret in (token, kept, NEW):
        assert secret not in caplog.text
        assert secret not in trail
        assert secret.encode() not in database
    rows = sqlite3.connect(plane.config.state / "identity.db").execute("SELECT digest FROM invitations").fetchall()
    assert rows == [(hashlib.sha256(kept.encode()).hexdigest(),)]


@pytest.mark.parametrize("body", [None, {}, {"token": 1, "password": "geheim"}, {"token": "", "password": "geheim"}])
def test_a_malformed_request_is_400_and_repeats_no_password(wire, body):
    status, _, document = wire.send("POST", "/moorage/v1/invitations/password", body)
    assert status == 400
    assert "geheim" not in json.dumps(document)
