"""Marks the addresses that hosts learned from DHCP servers."""

import sqlalchemy as sa
from alembic import op

phase = "expand"


def upgrade() -> None:
    op.add_column("addresses", sa.Column("is_learned", sa.Boolean, nullable=False, server_default=sa.false()))


def downgrade() -> None:
    with op.batch_alter_table("addresses") as table:
        table.drop_column("is_learned")
