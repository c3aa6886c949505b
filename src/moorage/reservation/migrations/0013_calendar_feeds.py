"""Adds calendar feeds."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, UtcDateTime, Uuid

phase = "expand"


def upgrade() -> None:
    op.create_table(
        "calendar_feeds",
        sa.Column("id", Uuid(), primary_key=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("secret_hash", sa.String(64), nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("read_at", UtcDateTime),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_calendar_feeds_user_id_created_at_id", "calendar_feeds", ["user_id", "created_at", "id"])
    op.create_index("ix_calendar_feeds_created_at_id", "calendar_feeds", ["created_at", "id"])


def downgrade() -> None:
    op.drop_table("calendar_feeds")
