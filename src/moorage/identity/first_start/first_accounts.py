"""What an empty database of identity is filled with: the content of the users file if there is one, else first users.

The users file is imported once and not read again; `RetiredFile` reports a later change of it.
"""

import base64
import hashlib
import logging
from pathlib import Path

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.core.ids import Ids
from moorage.db.session import in_transaction, read
from moorage.identity.first_start.first_credentials import FIRST_PROJECTS, FIRST_USERS, write_first_credentials
from moorage.identity.first_start.users_file import parse_accounts, read_users_file, records_of
from moorage.identity.model import (
    DOMAIN_ID,
    DOMAIN_NAME,
    STANDARD_ROLES,
    AccountDomain,
    Accounts,
    Change,
    Project,
    Role,
    User,
)
from moorage.identity.store.account_store import next_revision, read_accounts, read_import, record_import, write_change
from moorage.identity.tokens.keys import RandomBytes
from moorage.identity.tokens.passwords import hash_password

log = logging.getLogger(__name__)


def fill_empty_database(
    engine: Engine, state: Path, users_file: Path, clock: Clock, ids: Ids, random_bytes: RandomBytes, *, rounds: int
) -> None:
    """Does nothing if the database has a user. Several processes may call it at once.

    After a crash in between, the next call does everything again: the passwords are written before the users. Raises
    `StartError` for an invalid users file.
    """
    with read(engine) as connection:
        if read_accounts(connection).users:
            return
    text = read_users_file(users_file) if users_file.exists() else None
    if text is None:
        passwords = {name: _random_password(random_bytes(24)) for name in FIRST_USERS}
        first = _first_accounts(passwords, ids, rounds)
        write_first_credentials(state, passwords)
    else:
        first = parse_accounts(text, str(users_file))
    now = clock.now()

    def work(connection: Connection) -> bool:
        next_revision(connection)
        if read_accounts(connection).users:
            return False  # another process was quicker
        write_change(connection, _with_standard_records(records_of(first)))
        if text is not None:
            record_import(connection, str(users_file), _digest(text), now)
        return True

    if in_transaction(engine, work) and text is not None:
        log.warning(
            "the users file was imported into the database and is not read again; change users with `moorage user` or "
            "the Identity API",
            extra={"file": str(users_file), "users": len(first.users), "projects": len(first.projects)},
        )


class RetiredFile:
    """Reports changes of the users file since its import, each once."""

    def __init__(self, engine: Engine, users_file: Path) -> None:
        with read(engine) as connection:
            imported = read_import(connection)
        self._path = Path(imported[0]) if imported else users_file
        self._reported = imported[1] if imported else ""
        self._seen: tuple[int, int] | None = None

    def report_change(self) -> None:
        """Not thread-safe. Reads the file only if its time or size has changed."""
        try:
            status = self._path.stat()
            if (status.st_mtime_ns, status.st_size) == self._seen:
                return
            self._seen = (status.st_mtime_ns, status.st_size)
            digest = hashlib.sha256(self._path.read_bytes()).hexdigest()
        except OSError:
            return  # it was removed, as it may be
        if digest != self._reported:
            self._reported = digest
            log.error(
                "the users file was changed, but users are in the database: the change has no effect; make it with "
                "`moorage user` or the Identity API, and remove the file",
                extra={"file": str(self._path)},
            )


def _first_accounts(passwords: dict[str, str], ids: Ids, rounds: int) -> Accounts:
    projects = {name: Project(_id_without_dashes(ids), name) for name in FIRST_PROJECTS}
    users = [
        User(
            id=_id_without_dashes(ids),
            name=name,
            password_hash=hash_password(passwords[name], rounds),
            default_project_id=projects[next(iter(roles))].id,
            roles={projects[project].id: frozenset(names) for project, names in roles.items()},
        )
        for name, roles in FIRST_USERS.items()
    ]
    return Accounts({user.id: user for user in users}, {project.id: project for project in projects.values()})


def _with_standard_records(change: Change) -> Change:
    known = {record.id for record in change.added if isinstance(record, Role)}
    roles = [Role(name, name) for name in STANDARD_ROLES if name not in known]
    domain = AccountDomain(DOMAIN_ID, DOMAIN_NAME, "The default domain")
    return Change(added=(domain, *roles, *change.added))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _id_without_dashes(ids: Ids) -> str:
    """Keystone's ids are UUIDs without dashes."""
    return ids.uuid().replace("-", "")


def _random_password(raw: bytes) -> str:
    """Contains no dashes, because a command line takes a value that begins with a dash for an option."""
    return base64.b64encode(raw, altchars=b"_.").rstrip(b"=").decode()
