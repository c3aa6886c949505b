"""Opens the identity service of a state directory without a plane, with passwords that are quick to check."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from moorage.config import Config
from moorage.core.clock import Clock
from moorage.core.ids import Ids
from moorage.db.engine import open_engine
from moorage.db.migrations import upgrade
from moorage.identity.embedded import EmbeddedIdentity, IdentitySettings, open_or_create_identity
from moorage.identity.model import Accounts, Change
from tests.migrated import create_migrated

#: These passwords take 4 ms to create and 1 ms to check; with the service's default it is 0.3 s and 70 ms.
QUICK = IdentitySettings(bcrypt_rounds=4)


def open_people(
    state: Path, *, clock: Clock, ids: Ids, settings: IdentitySettings = QUICK, **options: Any
) -> EmbeddedIdentity:
    """The service with a SQLite database in `state`; an existing one is opened again."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    create_migrated("identity", state / "identity.db")
    engine = open_engine(f"sqlite:///{state / 'identity.db'}")
    return open_or_create_identity(state, engine=engine, clock=clock, ids=ids, settings=settings, **options)


def change_user(identity: EmbeddedIdentity, name: str, **values: Any) -> None:
    """Replaces fields of a user in the database."""

    def decide(accounts: Accounts) -> tuple[None, Change]:
        user = accounts.user_named(name)
        assert user is not None
        return None, Change(changed=(replace(user, **values),))

    identity.database.change(decide)


def create_first_people(config: Config, clock: Clock, ids: Ids) -> None:
    """Writes what the first start of a plane would write about users."""
    url = config.database_url("identity")
    if url.startswith("sqlite:///"):
        create_migrated("identity", Path(url.removeprefix("sqlite:///")))
    engine = open_engine(url)
    upgrade(engine, "identity")
    try:
        users_file = Path(config.identity.users_file) if config.identity.users_file else None
        open_or_create_identity(
            config.state, engine=engine, clock=clock, ids=ids, settings=QUICK, users_file=users_file
        )
    finally:
        engine.dispose()
