"""Revoked tokens: which processes refuse them, and for how long they are stored."""

import os
from datetime import timedelta

import pytest

from moorage.core.errors import Unauthorized
from moorage.core.ids import SeededIds
from moorage.identity.first_start.first_credentials import first_credentials
from moorage.identity.tokens import revocations
from tests.people import open_people


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def start(state, clock):
    """Another process with the same state directory."""
    return lambda: open_people(state, clock=clock, ids=SeededIds(1))


def log_in(identity, state, name="demo"):
    accounts = identity.accounts()
    user = identity.check_password(accounts.user_named(name), first_credentials(state, name)[0], named=name, address="")
    return identity.issue_token(user, accounts.default_project(user), ("password",))


def is_valid(identity, token):
    try:
        identity.identify(token)
    except Unauthorized as error:
        if error.error_code != "identity.token_revoked":
            raise
        return False
    return True


def lines(state):
    return (state / "revoked_tokens").read_text().splitlines()


def test_a_revoked_token_is_refused_after_a_restart(start, state):
    identity = start()
    token, held = log_in(identity, state)
    identity.revoke_token(held, with_descendants=True)
    assert not is_valid(identity, token)
    assert not is_valid(start(), token)
    assert (state / "revoked_tokens").stat().st_mode & 0o777 == 0o600


def test_another_process_refuses_a_revoked_token_within_a_second_and_checks_the_file_once(
    start, state, clock, monkeypatch
):
    here, there = start(), start()
    token, held = log_in(here, state)
    looks = []
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda path, *a, **k: looks.append(path) or real(path, *a, **k))
    here.revoke_token(held, with_descendants=True)
    looks.clear()
    for _ in range(100):
        assert is_valid(there, token)
    assert looks == []
    clock.sleep(1)
    assert not is_valid(there, token)
    assert len(looks) <= 4


def test_a_clock_that_is_set_back_does_not_delay_a_revocation(start, state, clock):
    here, there = start(), start()
    token, held = log_in(here, state)
    here.revoke_token(held, with_descendants=True)
    clock._now -= timedelta(seconds=50)
    assert not is_valid(there, token)


def test_revocations_are_deleted_after_their_token_has_expired(start, state, clock):
    identity = start()
    for _ in range(120):
        identity.revoke_token(log_in(identity, state)[1], with_descendants=False)
    clock.sleep(50 * 3600)
    identity.revoke_token(log_in(identity, state)[1], with_descendants=False)
    assert len(lines(state)) == 1


def test_many_revocations_of_one_user_become_one_that_covers_all_its_tokens(start, state, clock, monkeypatch):
    monkeypatch.setattr(revocations, "MAX_LINES_PER_USER", 20)
    identity = start()
    others, _ = log_in(identity, state, "admin")
    old, first = log_in(identity, state)
    identity.revoke_token(first, with_descendants=False)
    kept, _ = log_in(identity, state)
    for _ in range(50):
        clock.sleep(1)
        identity.revoke_token(log_in(identity, state)[1], with_descendants=False)
        assert len(lines(state)) <= 21
    assert not is_valid(identity, old)
    assert not is_valid(identity, kept)
    assert is_valid(identity, others)
    assert is_valid(identity, log_in(identity, state)[0])


def test_a_partly_written_line_in_the_file_hides_no_other_revocation(start, state, caplog):
    identity = start()
    (first, one), (second, two) = log_in(identity, state), log_in(identity, state)
    identity.revoke_token(one, with_descendants=False)
    with (state / "revoked_tokens").open("a") as file:
        file.write("token 17")
    identity.revoke_token(two, with_descendants=False)
    again = start()
    assert not is_valid(again, first)
    assert not is_valid(again, second)
    assert "a line of the revoked tokens cannot be read" in caplog.messages


def test_if_the_file_becomes_unreadable_known_revocations_stay_in_force(start, state, clock):
    identity = start()
    token, held = log_in(identity, state)
    identity.revoke_token(held, with_descendants=True)
    (state / "revoked_tokens").unlink()
    (state / "revoked_tokens").mkdir()
    clock.sleep(1)
    assert not is_valid(identity, token)
