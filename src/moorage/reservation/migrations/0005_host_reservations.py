"""Add host reservations, and the resources that a flavor or a resource list requests."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None
phase = "expand"


def upgrade() -> None:
    op.create_table(
        "computehost_reservations",
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("reservation_id", Uuid(), nullable=False),
        sa.Column("min_hosts", sa.Integer(), nullable=False),
        sa.Column("max_hosts", sa.Integer(), nullable=False),
        sa.Column("hypervisor_properties", sa.Text(), nullable=False),
        sa.Column("resource_properties", sa.Text(), nullable=False),
        sa.Column("before_end", sa.String(36), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime()),
        sa.PrimaryKeyConstraint("id", name="pk_computehost_reservations"),
        sa.UniqueConstraint("reservation_id", name="uq_computehost_reservations_reservation_id"),
        sa.ForeignKeyConstraint(
            ["reservation_id"], ["reservations.id"], name="fk_computehost_reservations_reservation_id"
        ),
        **TABLE_OPTIONS,
    )
    op.add_column("instance_reservations", sa.Column("source", Json()))


def downgrade() -> None:
    with op.batch_alter_table("instance_reservations") as batch:
        batch.drop_column("source")
    op.drop_table("computehost_reservations")
