"""``credentials.json``: the passwords of the users of the first start, for `moorage env` and the services of a plane.

Not here: the users themselves (`first_accounts`).
"""

from collections.abc import Mapping
from pathlib import Path

import orjson

from moorage.core.errors import StartError
from moorage.durable import write_durably

#: Projects and users of the first start; the first project of a user is its default.
FIRST_PROJECTS = ("admin", "demo", "service")
FIRST_USERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "admin": {"admin": ("admin",), "demo": ("admin",)},
    "demo": {"demo": ("member",)},
    "moorage": {"service": ("service", "admin")},
}

_FILE = "credentials.json"


def first_credentials(state: Path, user: str) -> tuple[str, str]:
    """(password, project) of `user` as written by the first start. Raises `StartError` if there is no entry."""
    path = state / _FILE
    try:
        note = orjson.loads(path.read_bytes())[user]
        return note["password"], note["project"]
    except (OSError, ValueError, KeyError) as error:
        raise StartError(
            f"{path} has no password of {user} ({type(error).__name__}); it is made together with the first users: "
            f'write {{"{user}": {{"password": ..., "project": ...}}}} into it, or give the password as an option'
        ) from error


def write_first_credentials(state: Path, passwords: Mapping[str, str]) -> None:
    notes = {name: {"password": passwords[name], "project": next(iter(roles))} for name, roles in FIRST_USERS.items()}
    write_durably(state / _FILE, orjson.dumps(notes, option=orjson.OPT_INDENT_2))


def replace_first_password(state: Path, user: str, password: str | None) -> None:
    """Write the new password of `user`, or delete the entry if only the user may know it (None). Does nothing without
    an entry.
    """
    path = state / _FILE
    try:
        notes = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return
    if user not in notes:
        return
    if password is None:
        del notes[user]
    else:
        notes[user]["password"] = password
    write_durably(path, orjson.dumps(notes, option=orjson.OPT_INDENT_2))
