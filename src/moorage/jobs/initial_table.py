"""The jobs table as it was first released, for the migrations of the services that have jobs.

    from moorage.jobs import initial_table as jobs

    def upgrade() -> None:
        jobs.create()

    def downgrade() -> None:
        jobs.drop()

This module never changes again. Add a migration step of its own for each later change of `moorage.jobs.tables`.
"""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime


def create(name: str = "jobs") -> None:
    op.create_table(
        name,
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("queue", sa.String(255), nullable=False),
        sa.Column("open_queue", sa.String(255)),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("serial_key", sa.String(255), nullable=False),
        sa.Column("claimed_key", sa.String(255)),
        sa.Column("payload", Json(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("lease_until", UtcDateTime()),
        sa.Column("worker", sa.String(255)),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime()),
        sa.Column("result", Json()),
        sa.PrimaryKeyConstraint("position", name=f"pk_{name}"),
        sa.UniqueConstraint("id", name=f"uq_{name}_id"),
        sa.UniqueConstraint("claimed_key", name=f"uq_{name}_claimed_key"),
        **TABLE_OPTIONS,
    )
    op.create_index(f"ix_{name}_open_queue_position", name, ["open_queue", "position"])
    op.create_index(f"ix_{name}_serial_key_state_position", name, ["serial_key", "state", "position"])
    op.create_index(f"ix_{name}_finished_at", name, ["finished_at"])


def drop(name: str = "jobs") -> None:
    op.drop_table(name)
