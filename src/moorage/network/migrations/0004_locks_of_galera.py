"""Adds a number to the rows that lock a project: raising it makes the lock reach all nodes of a Galera cluster."""

import sqlalchemy as sa
from alembic import op

phase = "expand"


def upgrade() -> None:
    op.add_column("quota_locks", sa.Column("taken", sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    with op.batch_alter_table("quota_locks") as table:
        table.drop_column("taken")
