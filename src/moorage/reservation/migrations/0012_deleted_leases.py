"""Adds the archive of deleted leases."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid

phase = "expand"


def upgrade() -> None:
    op.create_table(
        "deleted_leases",
        sa.Column("id", Uuid(), primary_key=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("start_date", UtcDateTime, nullable=False),
        sa.Column("end_date", UtcDateTime, nullable=False),
        sa.Column("deleted_at", UtcDateTime, nullable=False),
        sa.Column("document", Json, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_deleted_leases_deleted_at_id", "deleted_leases", ["deleted_at", "id"])
    op.create_index("ix_deleted_leases_project_id_deleted_at_id", "deleted_leases", ["project_id", "deleted_at", "id"])


def downgrade() -> None:
    op.drop_table("deleted_leases")
