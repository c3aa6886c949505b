"""Adds invitations, with which users choose a password. An older release ignores them."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, UtcDateTime

phase = "expand"


def upgrade() -> None:
    op.create_table(
        "invitations",
        sa.Column("user_id", sa.String(64), primary_key=True, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("expires_at", UtcDateTime, nullable=False),
        **TABLE_OPTIONS,
    )


def downgrade() -> None:
    op.drop_table("invitations")
