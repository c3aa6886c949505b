"""Add a table for reservations of an older system, and make `affinity` nullable in every database."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Uuid

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None
phase = "expand"


def upgrade() -> None:
    # Null in our own databases already; in one that was made to an older system's measure it was not.
    with op.batch_alter_table("instance_reservations") as batch:
        batch.alter_column("affinity", existing_type=sa.Boolean(), nullable=True)
    op.create_table(
        "older_reservations",
        sa.Column("reservation_id", Uuid(), nullable=False),
        sa.Column("generation", sa.String(16)),
        sa.Column("aggregate_id", sa.Integer()),
        sa.Column("server_group_id", sa.String(36)),
        sa.PrimaryKeyConstraint("reservation_id", name="pk_older_reservations"),
        sa.ForeignKeyConstraint(["reservation_id"], ["reservations.id"], name="fk_older_reservations_reservation_id"),
        **TABLE_OPTIONS,
    )
    op.execute(
        "INSERT INTO older_reservations (reservation_id, aggregate_id, server_group_id) "
        "SELECT reservation_id, aggregate_id, server_group_id FROM instance_reservations "
        "WHERE aggregate_id IS NOT NULL OR server_group_id IS NOT NULL"
    )


def downgrade() -> None:
    op.drop_table("older_reservations")
