"""Add holds, and a revision of each host that changes with its allocations."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None
phase = "expand"


def upgrade() -> None:
    with op.batch_alter_table("computehosts") as batch:
        batch.add_column(sa.Column("revision", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "holds",
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("start_date", UtcDateTime(), nullable=False),
        sa.Column("end_date", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.Column("requests", Json(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_holds"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_holds_expires_at", "holds", ["expires_at"])
    op.create_index("ix_holds_project_id_expires_at", "holds", ["project_id", "expires_at"])
    op.create_table(
        "hold_allocations",
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("hold_id", Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("compute_host_id", sa.Integer(), nullable=False),
        sa.Column("start_date", UtcDateTime(), nullable=False),
        sa.Column("end_date", UtcDateTime(), nullable=False),
        sa.Column("resources", Json(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_hold_allocations"),
        sa.ForeignKeyConstraint(["hold_id"], ["holds.id"], name="fk_hold_allocations_hold_id"),
        sa.ForeignKeyConstraint(["compute_host_id"], ["computehosts.id"], name="fk_hold_allocations_compute_host_id"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_hold_allocations_hold_id", "hold_allocations", ["hold_id"])
    op.create_index("ix_hold_allocations_compute_host_id", "hold_allocations", ["compute_host_id"])


def downgrade() -> None:
    op.drop_table("hold_allocations")
    op.drop_table("holds")
    with op.batch_alter_table("computehosts") as batch:
        batch.drop_column("revision")
