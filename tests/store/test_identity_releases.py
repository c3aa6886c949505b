"""The statements of a release before the last passwords and invitations have the same results on the current schema.

Processes of both releases can run together: this one must not take what the older one writes for a valid invitation.
"""

from datetime import timedelta

import pytest
from sqlalchemy import text

from moorage.core.clock import VirtualClock
from moorage.core.ids import SeededIds
from moorage.db import migrations
from moorage.db.engine import open_engine
from moorage.identity.accounts.account_service import AccountService
from moorage.identity.accounts.invitation_service import InvitationService
from moorage.identity.embedded import IdentitySettings, open_or_create_identity
from tests.conftest import START

#: What the release before sent: it names each column, so new columns do not disturb it.
_INSERT = text(
    "INSERT INTO users (id, domain_id, name, password_hash, default_project_id, enabled, extra, epoch)"
    " VALUES ('old', 'default', 'old', '', NULL, 1, '{}', 0)"
)
_DISABLE = text("UPDATE users SET enabled = 0, epoch = epoch + 1 WHERE id = :id")
_ENABLE = text("UPDATE users SET enabled = 1 WHERE id = :id")
_DELETE = text("DELETE FROM users WHERE id = :id")
_REVISION = text("UPDATE revision SET value = value + 1")


@pytest.fixture
def clock():
    return VirtualClock(START)


@pytest.fixture
def engine(tmp_path):
    engine = open_engine(f"sqlite:///{tmp_path}/identity.db")
    migrations.upgrade(engine, "identity")
    yield engine
    engine.dispose()


@pytest.fixture
def identity(tmp_path, engine, clock):
    settings = IdentitySettings(bcrypt_rounds=4)
    return open_or_create_identity(tmp_path / "state", engine=engine, clock=clock, ids=SeededIds(1), settings=settings)


def older(engine, clock, *statements, **values):
    """Runs them in a transaction, as a process of the older release does; this one learns it within a second."""
    with engine.begin() as connection:
        for statement in (_REVISION, *statements):
            connection.execute(statement, values if ":id" in str(statement) else {})
    clock.sleep(2)


def test_the_migrations_of_identity_are_additive():
    since = [revision for revision in migrations.revisions("identity") if revision > "0001"]
    assert len(since) == 3
    assert all(migrations.is_additive("identity", revision) for revision in since)


def test_a_user_that_the_older_release_adds_is_read(engine, identity, clock):
    older(engine, clock, _INSERT)
    assert identity.accounts().users["old"].password_changed_at is None


@pytest.mark.parametrize(
    "statements", [(_DISABLE,), (_DISABLE, _ENABLE), (_DELETE,)], ids=["disabled", "and enabled", "deleted"]
)
def test_what_the_older_release_does_to_a_user_ends_the_invitation(engine, identity, clock, statements):
    invitations = InvitationService(identity)
    user = AccountService(identity, SeededIds(2)).create_user({"name": "alice"})
    invitations.invite(user.id, timedelta(days=1).total_seconds())
    assert invitations.invited_until(identity.accounts(), user) is not None
    older(engine, clock, *statements, id=user.id)
    accounts = identity.accounts()
    now = accounts.users.get(user.id)
    assert now is None or invitations.invited_until(accounts, now) is None
