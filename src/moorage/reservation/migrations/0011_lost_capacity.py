"""Creates the tables of lost capacity: the position in Placement's change log, and the incidents of leases."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, UtcDateTime, Uuid

phase = "expand"


def upgrade() -> None:
    op.create_table(
        "placement_position",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "lease_incidents",
        sa.Column("id", Uuid, primary_key=True),
        sa.Column("lease_id", Uuid, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("at", UtcDateTime, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_lease_incidents_lease_id", "lease_incidents", ["lease_id"])


def downgrade() -> None:
    op.drop_table("lease_incidents")
    op.drop_table("placement_position")
