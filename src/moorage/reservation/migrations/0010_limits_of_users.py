"""Adds the limits of users, the time that holds lasted, and revisions that serialise checks on every database."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid

phase = "expand"


def upgrade() -> None:
    op.create_table(
        "user_limits",
        sa.Column("user_id", sa.String(255), primary_key=True),
        sa.Column("limits", Json),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "hold_times",
        sa.Column("hold_id", Uuid(), primary_key=True),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("start_date", UtcDateTime, nullable=False),
        sa.Column("end_date", UtcDateTime, nullable=False),
        **TABLE_OPTIONS,
    )
    for owner in ("project_id", "user_id"):
        op.create_index(f"ix_hold_times_{owner}_end_date", "hold_times", [owner, "end_date"])
    op.add_column("project_limits", sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("project_usage", sa.Column("user_id", sa.String(255)))
    op.create_index("ix_project_usage_user_id_end_date", "project_usage", ["user_id", "end_date"])


def downgrade() -> None:
    op.drop_index("ix_project_usage_user_id_end_date", "project_usage")
    op.drop_column("project_usage", "user_id")
    op.drop_column("project_limits", "revision")
    op.drop_table("hold_times")
    op.drop_table("user_limits")
