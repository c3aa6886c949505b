"""Adds the physical network of a request's device, which a port with a device profile needs."""

import sqlalchemy as sa
from alembic import op

phase = "expand"


def upgrade() -> None:
    op.add_column("accelerator_requests", sa.Column("physical_network", sa.String(255)))


def downgrade() -> None:
    with op.batch_alter_table("accelerator_requests") as table:
        table.drop_column("physical_network")
