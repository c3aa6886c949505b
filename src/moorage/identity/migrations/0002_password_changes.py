"""Adds since when a user has the present password; null if unknown, as after a change by an older release."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import UtcDateTime

phase = "expand"


def upgrade() -> None:
    op.add_column("users", sa.Column("password_changed_at", UtcDateTime))


def downgrade() -> None:
    op.drop_column("users", "password_changed_at")
