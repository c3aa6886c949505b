import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import event

from moorage.core.errors import StartError, Unauthorized
from moorage.core.ids import SeededIds
from moorage.identity.accounts.account_service import AccountService
from moorage.identity.accounts.role_service import RoleService
from moorage.identity.embedded import IdentitySettings
from moorage.identity.first_start.first_credentials import first_credentials
from moorage.identity.model import Assignment
from moorage.identity.tokens.passwords import hash_password, password_matches
from tests.people import open_people


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def start(state, clock, seed=1, *, token_lifetime=timedelta(hours=1), **options):
    settings = IdentitySettings(token_lifetime, bcrypt_rounds=4)
    return open_people(state, clock=clock, ids=SeededIds(seed), settings=settings, **options)


def services_of(identity):
    return AccountService(identity, SeededIds(9)), RoleService(identity, SeededIds(9))


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
    for name in ("credentials.json", "token.key"):
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
    before = (state / "credentials.json").read_text()
    assert start(state, clock, seed=2).identify(token).user.id == held.user.id
    assert (state / "credentials.json").read_text() == before


def test_concurrent_first_starts_use_the_same_users_and_key(state, clock):
    with ThreadPoolExecutor(4) as pool:
        identities = list(pool.map(lambda seed: start(state, clock, seed=seed), range(4)))
    token, _ = log_in(identities[0], state)
    assert len({identity.identify(token).user.id for identity in identities}) == 1


USERS = """\
projects: {play: {id: p1}, spare: {id: p2, enabled: false}}
users:
  alice: {id: u1, password: '%s', default_project: play, roles: {play: [admin, pilot], spare: [reader]}}
  bob: {id: u2, password: '%s', roles: {}, enabled: false}
"""


@pytest.fixture
def users_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(USERS % (hash_password("of-alice", 4), hash_password("of-bob", 4)))
    path.chmod(0o600)
    return path


def test_the_first_start_imports_the_users_file_and_does_not_change_it(state, users_file, clock, caplog):
    before = users_file.read_text()
    accounts = start(state, clock, users_file=users_file).accounts()
    assert "was imported into the database and is not read again" in caplog.text
    alice, bob = accounts.users["u1"], accounts.users["u2"]
    assert (alice.name, alice.roles) == ("alice", {"p1": {"admin", "pilot"}, "p2": {"reader"}})
    assert accounts.default_project(alice).id == "p1"
    assert (bob.enabled, accounts.projects["p2"].enabled) == (False, False)
    assert accounts.roles["pilot"].name == "pilot"
    assert password_matches(alice, "of-alice", 4)
    assert users_file.read_text() == before
    assert not (state / "credentials.json").exists()
    with pytest.raises(StartError, match="no password of moorage"):
        first_credentials(state, "moorage")


def test_a_users_file_that_changes_after_its_import_has_no_effect_and_is_reported_once(
    state, users_file, clock, caplog
):
    identity = start(state, clock, users_file=users_file)
    users_file.write_text(users_file.read_text().replace("alice", "alicia"))
    caplog.clear()
    for _ in range(3):
        clock.sleep(1)
        assert identity.accounts().users["u1"].name == "alice"
    (record,) = caplog.records
    assert "the users file was changed" in record.message
    caplog.clear()
    again = start(state, clock, users_file=users_file)
    clock.sleep(1)
    assert again.accounts().users["u1"].name == "alice"
    assert [record.message[:30] for record in caplog.records] == ["the users file was changed, bu"]


def test_an_invalid_users_file_stops_the_first_start_and_leaves_nothing(state, users_file, clock):
    users_file.write_text("nonsense")
    with pytest.raises(StartError, match=r"mine\.yaml:1"):
        start(state, clock, users_file=users_file)
    users_file.unlink()
    assert start(state, clock, users_file=users_file).accounts().user_named("admin")


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
    _, roles = services_of(identity)
    token, held = log_in(identity, state, "admin")
    admin, project = held.user.id, held.project.id
    roles.grant(Assignment("reader", "user", admin, "project", project))
    roles.revoke(Assignment("admin", "user", admin, "project", project))
    assert identity.identify(token).roles == {"reader"}
    roles.revoke(Assignment("reader", "user", admin, "project", project))
    with pytest.raises(Unauthorized, match="no role"):
        identity.identify(token)


@pytest.mark.parametrize(
    "change",
    [
        lambda people, user: people.update_user(user, {"password": "new"}),
        lambda people, user: people.update_user(user, {"enabled": False}),
        lambda people, user: (
            people.update_user(user, {"enabled": False}) and people.update_user(user, {"enabled": True})
        ),
        lambda people, user: people.delete_user(user),
    ],
    ids=["new password", "disabled", "disabled and enabled", "deleted"],
)
def test_tokens_end_at_once_with_their_user(state, clock, change):
    """A user who was disabled and enabled again needs a new token."""
    identity = start(state, clock)
    token, held = log_in(identity, state)
    change(services_of(identity)[0], held.user.id)
    with pytest.raises(Unauthorized, match="was deleted, is or was disabled, or has a new password"):
        identity.identify(token)


def test_tokens_end_at_once_with_their_project(state, clock):
    identity = start(state, clock)
    people, _ = services_of(identity)
    token, held = log_in(identity, state)
    people.update_project(held.project.id, {"enabled": False})
    with pytest.raises(Unauthorized, match="project"):
        identity.identify(token)
    people.update_project(held.project.id, {"enabled": True})
    with pytest.raises(Unauthorized, match="project"):
        identity.identify(token)
    token, _ = log_in(identity, state)
    people.delete_project(held.project.id)
    with pytest.raises(Unauthorized):
        identity.identify(token)


def test_tokens_of_before_the_database_are_still_accepted(state, clock):
    """Their fingerprint is that of the password alone."""
    identity = start(state, clock)
    _, held = log_in(identity, state)
    assert held.claims.fingerprint == hashlib.sha256(held.user.password_hash.encode()).hexdigest()[:12]


def test_another_process_sees_a_change_within_a_second_and_reads_only_then(state, clock):
    here, there = start(state, clock), start(state, clock)
    statements = []
    event.listen(there.database._engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    token, held = log_in(here, state)
    services_of(here)[0].update_user(held.user.id, {"enabled": False})
    for _ in range(5):
        assert there.identify(token)
    assert statements == []
    clock.sleep(1)
    with pytest.raises(Unauthorized):
        there.identify(token)
    statements.clear()
    for _ in range(100):
        with pytest.raises(Unauthorized):
            there.identify(token)
        clock.sleep(0.1)
    assert len([sql for sql in statements if sql.startswith("SELECT")]) <= 10


def test_a_token_of_a_new_user_is_valid_at_once_in_another_process(state, clock):
    """Scripts create a user, log in and go on with the next service, all within a second."""
    here, there = start(state, clock), start(state, clock, seed=2)
    people, roles = services_of(here)
    project = next(iter(here.accounts().projects.values()))
    clock.sleep(0.3)
    user = people.create_user({"name": "eve", "password": "of-eve-the-first"})
    member = next(role for role in here.accounts().roles.values() if role.name == "member")
    roles.grant(Assignment(member.id, "user", user.id, "project", project.id))
    user = here.accounts().users[user.id]
    token, _ = here.issue_token(user, project, ("password",))
    assert there.identify(token).user.name == "eve"


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
