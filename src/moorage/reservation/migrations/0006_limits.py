"""Add limits of projects and their usage. Existing leases count from their next change on."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None
phase = "expand"


def upgrade() -> None:
    op.create_table(
        "project_limits",
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("limits", Json()),
        sa.PrimaryKeyConstraint("project_id", name="pk_project_limits"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "project_usage",
        sa.Column("reservation_id", Uuid(), nullable=False),
        sa.Column("lease_id", Uuid(), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("start_date", UtcDateTime(), nullable=False),
        sa.Column("end_date", UtcDateTime(), nullable=False),
        sa.Column("amounts", Json(), nullable=False),
        sa.PrimaryKeyConstraint("reservation_id", name="pk_project_usage"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_project_usage_lease_id", "project_usage", ["lease_id"])
    op.create_index("ix_project_usage_project_id_end_date", "project_usage", ["project_id", "end_date"])


def downgrade() -> None:
    op.drop_table("project_usage")
    op.drop_table("project_limits")
