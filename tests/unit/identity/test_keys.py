"""Rotation of the signing key: which tokens are valid during and after it."""

from datetime import timedelta

import pytest

from moorage.core.clock import VirtualClock
from moorage.core.errors import StartError, Unauthorized
from moorage.core.ids import SeededIds
from moorage.identity.embedded import IdentitySettings
from moorage.identity.first_start.first_credentials import first_credentials
from moorage.identity.model import SERVICE_TOKEN_GRACE
from moorage.identity.tokens.keys import rotate_key
from tests.conftest import START
from tests.people import open_people

HOUR = timedelta(hours=1)


class SteppingClock(VirtualClock):
    """Calls `at` for each second of a sleep."""

    def __init__(self):
        super().__init__(START)
        self.at = lambda: None

    def sleep(self, seconds):
        for _ in range(int(seconds)):
            super().sleep(1)
            self.at()


@pytest.fixture
def clock():
    return SteppingClock()


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def start(state, clock):
    return lambda: open_people(state, clock=clock, ids=SeededIds(1), settings=IdentitySettings(HOUR, bcrypt_rounds=4))


@pytest.fixture
def change(state, clock):
    chance = SeededIds(7)

    def change(**options):
        return rotate_key(state, clock, lambda count: (chance.uuid() * 2).encode()[:count], lifetime=HOUR, **options)

    return change


def log_in(identity, state, name="demo"):
    accounts = identity.accounts()
    user = identity.check_password(accounts.user_named(name), first_credentials(state, name)[0], named=name, address="")
    return identity.issue_token(user, accounts.default_project(user), ("password",))[0]


def is_valid(identity, token, **options):
    try:
        identity.identify(token, **options)
    except Unauthorized:
        return False
    return True


def test_after_a_rotation_the_new_key_signs_and_older_tokens_stay_valid_until_they_expire(start, state, change, clock):
    running = start()
    old = log_in(running, state)
    before = (state / "token.key").read_bytes()
    done = change()
    clock.sleep(1)
    new = log_in(running, state)
    assert (state / "token.key").read_bytes() != before
    for identity in (running, start()):
        assert is_valid(identity, old)
        assert is_valid(identity, new)
    clock.sleep(3600)
    assert not is_valid(start(), old)
    assert is_valid(start(), old, grace=SERVICE_TOKEN_GRACE)
    clock.sleep((done.until - clock.now()).total_seconds())
    assert not is_valid(start(), old, grace=SERVICE_TOKEN_GRACE * 2)
    for name in ("token.key", "token.key.others"):
        assert (state / name).stat().st_mode & 0o777 == 0o600


def test_during_a_rotation_every_process_accepts_the_tokens_of_every_other(start, state, change, clock):
    """The processes read the key files at different times; in each second another one issues the token."""
    processes = [start() for _ in range(3)]
    refused = []

    def ask():
        first, *rest = processes
        token = log_in(first, state)
        refused.extend(one for one in rest if not is_valid(one, token))
        processes.append(processes.pop(0))

    clock.at = ask
    change()
    clock.sleep(5)
    assert refused == []


def test_several_rotations_keep_each_previous_key_until_its_tokens_have_expired(start, state, change, clock):
    running = start()
    tokens = []
    for _ in range(3):
        tokens.append(log_in(running, state))
        change()
        clock.sleep(1)
    assert all(is_valid(running, token) for token in tokens)
    clock.sleep(60 * 3600)
    change()
    assert len((state / "token.key.others").read_text().splitlines()) == 1


def test_a_rotation_with_at_once_invalidates_all_tokens(start, state, change, clock):
    running = start()
    older = log_in(running, state)
    change()
    clock.sleep(1)
    old = log_in(running, state)
    assert change(at_once=True).until is None
    clock.sleep(1)
    assert not is_valid(running, older)
    assert not is_valid(running, old)
    assert is_valid(running, log_in(running, state))


def test_removing_the_key_file_also_invalidates_tokens_of_previous_keys(start, state, change):
    token = log_in(start(), state)
    change()
    (state / "token.key").unlink()
    assert not is_valid(start(), token)


def test_an_interrupted_rotation_keeps_the_key_and_can_be_repeated(start, state, change, clock):
    running = start()
    token = log_in(running, state)
    before = (state / "token.key").read_bytes()

    def die():
        raise KeyboardInterrupt

    clock.at = die
    with pytest.raises(KeyboardInterrupt):
        change()
    clock.at = lambda: None
    assert (state / "token.key").read_bytes() == before
    change()
    clock.sleep(1)
    assert is_valid(running, token)
    assert is_valid(start(), token)


@pytest.mark.parametrize("text", ["nonsense\n", "17 !!\n", "17 c2hvcnQ=\n", "99999999999999999 eA==\n"])
def test_an_invalid_file_of_previous_keys_is_a_start_error_with_the_line(start, state, text):
    start()
    (state / "token.key.others").touch(0o600)
    (state / "token.key.others").write_text(text)
    with pytest.raises(StartError, match=r"token\.key\.others:1"):
        start()


def test_a_rotation_before_the_first_start_is_refused(change, state):
    state.mkdir()
    with pytest.raises(StartError, match="first start"):
        change()
