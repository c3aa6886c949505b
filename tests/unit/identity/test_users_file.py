import textwrap
from pathlib import Path

import pytest

from moorage.core.errors import StartError
from moorage.identity.first_start.users_file import parse_accounts, read_users_file
from moorage.identity.tokens.passwords import hash_password, password_matches

HASH = hash_password("secret", 4)


def text(**changes: str) -> str:
    parts = {"project": "demo", "password": HASH, "roles": "{demo: [member]}", "more": ""} | changes
    return textwrap.dedent(
        """\
        projects:
          {project}: {{id: p1}}
        users:
          alice:
            id: u1
            password: {password}
            roles: {roles}
        {more}"""
    ).format(**parts)


def write(path: Path, content: str) -> Path:
    path.write_text(content)
    path.chmod(0o600)
    return path


def test_users_with_roles_in_projects_are_read_from_the_users_file():
    accounts = parse_accounts(text(), "users.yaml")
    alice = accounts.user_named("alice")
    assert alice is accounts.users["u1"]
    assert alice.roles == {"p1": frozenset({"member"})}
    assert accounts.default_project(alice).name == "demo"
    assert HASH not in repr(alice)


@pytest.mark.parametrize(
    ("content", "place", "words"),
    [
        ("projects: {", ":1", "not valid YAML"),
        ("- 1\n", ":1", "object"),
        ("", ":1", "object"),
        ("users: {}\n", ":1", "projects"),
        (text(password="secret"), ":6", "bcrypt"),
        (text(roles="{nowhere: [member]}"), ":7", "there is no project nowhere; the projects are demo"),
        (text(roles="{demo: []}"), ":7", "demo"),
        (text(roles="{demo: [Member]}"), ":7", "Member"),
        (text(more="  bob:\n    id: u1\n    password: $P\n    roles: {}\n".replace("$P", HASH)), ":5", "appears twice"),
        (
            text(more="  alice:\n    id: u2\n    password: $P\n    roles: {}\n".replace("$P", HASH)),
            ":8",
            "alice appears twice",
        ),
        (text(more="  no:\n    id: u2\n"), ":8", "must be a string"),
        (text(more="    default_project: other\n"), ":8", "default_project"),
        (text(more="    nickname: al\n"), ":4", "nickname"),
        (text(project="demo: {id: p1}\n  spare"), ":2", "appears twice"),
        (text().replace("id: u1", "id: 7"), ":5", "7"),
        (text().replace("id: u1", "id: ../x"), ":5", "../x"),
    ],
)
def test_an_invalid_users_file_is_a_start_error_with_the_line(content, place, words):
    with pytest.raises(StartError) as refused:
        parse_accounts(content, "/etc/users.yaml")
    assert refused.value.message.startswith(f"/etc/users.yaml{place}:")
    assert words in refused.value.message


def test_the_error_for_a_plain_text_password_does_not_contain_it():
    with pytest.raises(StartError) as refused:
        parse_accounts(text(password="topsecret"), "users.yaml")
    assert "topsecret" not in refused.value.message


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_users_file_that_other_users_can_write_is_a_start_error_with_the_remedy(tmp_path, mode):
    path = write(tmp_path / "users.yaml", text())
    path.chmod(mode)
    with pytest.raises(StartError, match="chmod go-w"):
        read_users_file(path)


def test_a_missing_users_file_is_a_start_error(tmp_path):
    with pytest.raises(StartError, match="cannot be read"):
        read_users_file(tmp_path / "users.yaml")


def test_only_the_correct_password_matches():
    alice = parse_accounts(text(), "users.yaml").user_named("alice")
    assert password_matches(alice, "secret", 4)
    for wrong in ("Secret", "", "secret\0", "secret" + "x" * 80):
        assert not password_matches(alice, wrong, 4)
    assert not password_matches(None, "nobody", 4)


def test_no_password_matches_a_disabled_user():
    assert not password_matches(
        parse_accounts(text(more="    enabled: false\n"), "users.yaml").user_named("alice"), "secret", 4
    )


def test_password_hashes_of_htpasswd_are_accepted():
    assert password_matches(
        parse_accounts(text(password=HASH.replace("$2b$", "$2y$")), "users.yaml").user_named("alice"), "secret", 4
    )
