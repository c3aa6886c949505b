"""The device history: programming, attachments, cleaning, quarantine and release, with requester and time."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, UtcDateTime, Uuid

revision = "0004"
down_revision = "0003"
phase = "expand"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "history",
        sa.Column("id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("hostname", sa.String(255), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("event", sa.String(16), nullable=False),
        sa.Column("device", sa.String(255), nullable=False),
        sa.Column("deployable", sa.String(255), nullable=False),
        sa.Column("handle", sa.String(255), nullable=False),
        sa.Column("instance_uuid", Uuid()),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("image_id", sa.String(255), nullable=False),
        sa.Column("digest", sa.String(255), nullable=False),
        sa.Column("done", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_history"),
        sa.UniqueConstraint("hostname", "sequence", name="uq_history_hostname_sequence"),
        **TABLE_OPTIONS,
    )
    for column in ("sequence", "at", "instance_uuid"):
        op.create_index(f"ix_history_{column}", "history", [column])
    op.create_index("ix_history_hostname_device", "history", ["hostname", "device"])


def downgrade() -> None:
    op.drop_table("history")
