"""The table of workers as it was first released, for the migrations of the services that have jobs or events.

This module never changes again. Add a migration step of its own for each later change of `moorage.jobs.tables`.
"""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, UtcDateTime


def create() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("machine", sa.String(255), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("started", sa.BigInteger(), nullable=False),
        sa.Column("heartbeats", sa.BigInteger(), nullable=False),
        sa.Column("registered_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
        **TABLE_OPTIONS,
    )


def drop() -> None:
    op.drop_table("workers")
