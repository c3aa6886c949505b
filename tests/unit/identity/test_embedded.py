import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import yaml

from moorage.core.errors import StartError, Unauthorized
from moorage.core.ids import SeededIds
from moorage.identity.embedded import IdentitySettings, first_credentials, open_or_create_identity
from moorage.identity.users import hash_password


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def start(state, clock, seed=1, *, token_lifetime=timedelta(hours=1), **options):
    settings = IdentitySettings(token_lifetime, bcrypt_rounds=4)
    return open_or_create_identity(state, clock=clock, ids=SeededIds(seed), settings=settings, **options)


def edit(state, change):
    path = state / "users.yaml"
    document = yaml.safe_load(path.read_text())
    change(document)
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def log_in(identity, state, name="demo"):
    accounts = identity.accounts()
    user = identity.check_password(accounts.user_named(name), first_credentials(state, name)[0], named=name, address="")
    return identity.issue_token(user, accounts.default_project(user), ("password",))


def test_the_first_start_creates_three_users_with_different_passwords(state, clock):
    identity = start(state, clock)
    accounts = identity.accounts()
    roles = {
        user.name: {accounts.projects[project].name: set(held) for project, held in user.roles.items()}
        for user in accounts.users.values()
    }
    assert roles == {
        "admin": {"admin": {"admin"}, "demo": {"admin"}},
        "demo": {"demo": {"member"}},
        "moorage": {"service": {"service", "admin"}},
    }
    notes = json.loads((state / "credentials.json").read_text())
    assert {name: note["project"] for name, note in notes.items()} == {
        "admin": "admin",
        "demo": "demo",
        "moorage": "service",
    }
    assert len({note["password"] for note in notes.values()}) == 3
    assert all(len(note["password"]) == 32 for note in notes.values())
    for name in notes:
        assert log_in(identity, state, name)


def test_the_files_of_users_and_keys_are_readable_only_by_their_owner(state, clock):
    os.umask(0)
    try:
        start(state, clock)
    finally:
        os.umask(0o022)
    for name in ("users.yaml", "credentials.json", "token.key"):
        assert (state / name).stat().st_mode & 0o777 == 0o600
    assert state.stat().st_mode & 0o777 == 0o700


def test_the_same_random_bytes_give_the_same_passwords(tmp_path, clock):
    def bytes_of(count):
        return bytes(count)

    for name in ("a", "b"):
        start(tmp_path / name, clock, random_bytes=bytes_of)
    assert (tmp_path / "a/credentials.json").read_text() == (tmp_path / "b/credentials.json").read_text()


def test_the_second_start_uses_the_users_and_the_key_of_the_first(state, clock):
    token, held = log_in(start(state, clock), state)
    before = (state / "users.yaml").read_text()
    assert start(state, clock, seed=2).identify(token).user.id == held.user.id
    assert (state / "users.yaml").read_text() == before


def test_concurrent_first_starts_use_the_same_users_and_key(state, clock):
    with ThreadPoolExecutor(4) as pool:
        identities = list(pool.map(lambda seed: start(state, clock, seed=seed), range(4)))
    token, _ = log_in(identities[0], state)
    assert len({identity.identify(token).user.id for identity in identities}) == 1


def test_a_configured_users_file_is_used_and_not_changed(state, tmp_path, clock):
    start(state, clock)
    elsewhere = tmp_path / "mine.yaml"
    elsewhere.write_text((state / "users.yaml").read_text().replace("demo", "play"))
    elsewhere.chmod(0o600)
    text = elsewhere.read_text()
    identity = start(tmp_path / "other", clock, users_file=elsewhere)
    assert identity.accounts().project_named("play")
    assert elsewhere.read_text() == text
    assert not (tmp_path / "other/credentials.json").exists()
    with pytest.raises(StartError, match="no password of moorage"):
        first_credentials(tmp_path / "other", "moorage")


def test_a_key_file_that_other_users_can_read_is_a_start_error(state, clock):
    start(state, clock)
    (state / "token.key").chmod(0o640)
    with pytest.raises(StartError, match="chmod 0600"):
        start(state, clock)


def test_a_key_file_of_a_wrong_size_is_a_start_error(state, clock):
    start(state, clock)
    (state / "token.key").write_bytes(b"short")
    with pytest.raises(StartError, match="5 bytes"):
        start(state, clock)


def test_a_removed_role_is_also_removed_from_existing_tokens(state, clock):
    identity = start(state, clock)
    token, _ = log_in(identity, state, "admin")
    edit(state, lambda document: document["users"]["admin"]["roles"].update(admin=["reader"]))
    clock.sleep(1)
    assert identity.identify(token).roles == {"reader"}
    edit(state, lambda document: document["users"]["admin"].update(roles={"demo": ["admin"]}, default_project="demo"))
    clock.sleep(1)
    with pytest.raises(Unauthorized, match="no role"):
        identity.identify(token)


@pytest.mark.parametrize(
    "change",
    [
        lambda users: users["demo"].update(password=hash_password("new", 4)),
        lambda users: users["demo"].update(enabled=False),
        lambda users: users.pop("demo"),
    ],
    ids=["new password", "disabled", "removed"],
)
def test_tokens_are_invalid_after_their_user_is_deleted_disabled_or_gets_a_new_password(state, clock, change):
    identity = start(state, clock)
    token, _ = log_in(identity, state)
    edit(state, lambda document: change(document["users"]))
    clock.sleep(1)
    with pytest.raises(Unauthorized, match="was deleted, is disabled or has a new password"):
        identity.identify(token)


def test_tokens_are_invalid_after_their_project_is_disabled(state, clock):
    identity = start(state, clock)
    token, _ = log_in(identity, state)
    edit(state, lambda document: document["projects"]["demo"].update(enabled=False))
    clock.sleep(1)
    with pytest.raises(Unauthorized, match="project"):
        identity.identify(token)


def test_tokens_expire_after_the_configured_lifetime(state, clock):
    identity = start(state, clock, token_lifetime=timedelta(minutes=5))
    token, held = log_in(identity, state)
    assert held.claims.expires_at - clock.now() == timedelta(minutes=5)
    clock.sleep(300)
    with pytest.raises(Unauthorized, match="expired"):
        identity.identify(token)


def test_generated_passwords_contain_no_hyphen_that_a_command_line_could_read_as_an_option(state, clock):
    start(state, clock, random_bytes=lambda size: b"\xfb\xef" * (size // 2))
    assert "-" not in first_credentials(state, "demo")[0]
