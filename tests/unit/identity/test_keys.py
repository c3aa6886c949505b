"""Which tokens are valid while the signing key changes."""

from datetime import timedelta

import pytest

from moorage.core.clock import VirtualClock
from moorage.core.errors import StartError, Unauthorized
from moorage.core.ids import SeededIds
from moorage.identity.embedded import IdentitySettings, first_credentials, open_or_create_identity
from moorage.identity.keys import rotate_key
from moorage.identity.model import SERVICE_TOKEN_GRACE
from tests.conftest import START

HOUR = timedelta(hours=1)


class Passing(VirtualClock):
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
    return Passing()


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def start(state, clock):
    return lambda: open_or_create_identity(
        state, clock=clock, ids=SeededIds(1), settings=IdentitySettings(HOUR, bcrypt_rounds=4)
    )


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


def is_good(identity, token, **options):
    try:
        identity.identify(token, **options)
    except Unauthorized:
        return False
    return True


def test_a_new_key_signs_and_tokens_of_the_one_before_stay_good_to_their_end(start, state, change, clock):
    running = start()
    old = log_in(running, state)
    before = (state / "token.key").read_bytes()
    done = change()
    clock.sleep(1)
    new = log_in(running, state)
    assert (state / "token.key").read_bytes() != before
    for identity in (running, start()):
        assert is_good(identity, old)
        assert is_good(identity, new)
    clock.sleep(3600)
    assert not is_good(start(), old)
    assert is_good(start(), old, grace=SERVICE_TOKEN_GRACE)
    clock.sleep((done.until - clock.now()).total_seconds())
    assert not is_good(start(), old, grace=SERVICE_TOKEN_GRACE * 2)
    for name in ("token.key", "token.key.others"):
        assert (state / name).stat().st_mode & 0o777 == 0o600


def test_no_process_refuses_a_token_that_another_gives_while_the_key_changes(start, state, change, clock):
    """They read the files at different moments; each second another one is first."""
    processes = [start() for _ in range(3)]
    refused = []

    def ask():
        first, *rest = processes
        token = log_in(first, state)
        refused.extend(one for one in rest if not is_good(one, token))
        processes.append(processes.pop(0))

    clock.at = ask
    change()
    clock.sleep(5)
    assert refused == []


def test_a_key_in_use_twice_before_stays_for_its_tokens(start, state, change, clock):
    running = start()
    tokens = []
    for _ in range(3):
        tokens.append(log_in(running, state))
        change()
        clock.sleep(1)
    assert all(is_good(running, token) for token in tokens)
    clock.sleep(60 * 3600)
    change()
    assert len((state / "token.key.others").read_text().splitlines()) == 1


def test_at_once_ends_all_tokens(start, state, change, clock):
    running = start()
    older = log_in(running, state)
    change()
    clock.sleep(1)
    old = log_in(running, state)
    assert change(at_once=True).until is None
    clock.sleep(1)
    assert not is_good(running, older)
    assert not is_good(running, old)
    assert is_good(running, log_in(running, state))


def test_who_removes_the_key_ends_the_ones_before_it_too(start, state, change):
    token = log_in(start(), state)
    change()
    (state / "token.key").unlink()
    assert not is_good(start(), token)


def test_a_kill_in_the_middle_changes_nothing_that_counts(start, state, change, clock):
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
    assert is_good(running, token)
    assert is_good(start(), token)


@pytest.mark.parametrize("text", ["nonsense\n", "17 !!\n", "17 c2hvcnQ=\n", "99999999999999999 eA==\n"])
def test_a_file_of_keys_that_cannot_be_read_is_named_with_its_line(start, state, text):
    start()
    (state / "token.key.others").touch(0o600)
    (state / "token.key.others").write_text(text)
    with pytest.raises(StartError, match=r"token\.key\.others:1"):
        start()


def test_without_a_plane_there_is_no_key_to_change(change, state):
    state.mkdir()
    with pytest.raises(StartError, match="first start"):
        change()
