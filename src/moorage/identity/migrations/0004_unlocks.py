"""Adds how often a user was unlocked, by which each process learns that it has to forget the user's failed logins."""

import sqlalchemy as sa
from alembic import op

phase = "expand"


def upgrade() -> None:
    op.add_column("users", sa.Column("unlocks", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("users", "unlocks")
