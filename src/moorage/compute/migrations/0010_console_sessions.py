"""Adds the table of serial consoles that people asked for."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, UtcDateTime, Uuid

phase = "expand"


def upgrade() -> None:
    op.create_table(
        "console_sessions",
        sa.Column("id", Uuid(), primary_key=True),
        sa.Column("token_hash", sa.String(64), nullable=False, unique=True),
        sa.Column("server_id", Uuid(), sa.ForeignKey("servers.id", ondelete="CASCADE"), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        **TABLE_OPTIONS,
    )
    for column in ("server_id", "project_id", "expires_at"):
        op.create_index(f"ix_console_sessions_{column}", "console_sessions", [column])


def downgrade() -> None:
    op.drop_table("console_sessions")
