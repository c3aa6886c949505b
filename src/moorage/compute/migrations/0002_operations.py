"""Servers that are shelved or deleted softly, moves of servers between hosts, and what a host can do."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid

revision = "0002"
down_revision = "0001"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    with op.batch_alter_table("servers") as batch:
        batch.add_column(sa.Column("parked_at", UtcDateTime()))
        batch.add_column(sa.Column("parked_image_id", sa.String(255)))
    with op.batch_alter_table("hosts") as batch:
        batch.add_column(sa.Column("capabilities", Json()))
    op.create_table(
        "moves",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("server_id", Uuid(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("step", sa.String(32)),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.Column("source_host", sa.String(255), nullable=False),
        sa.Column("dest_host", sa.String(255)),
        sa.Column("wanted_host", sa.String(255)),
        sa.Column("old_state", sa.String(32), nullable=False),
        sa.Column("old_flavor", Json(), nullable=False),
        sa.Column("new_flavor", Json(), nullable=False),
        sa.Column("old_placed", Json()),
        sa.Column("new_placed", Json()),
        sa.Column("details", Json(), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_moves")),
        sa.UniqueConstraint("id", name=op.f("uq_moves_id")),
        sa.ForeignKeyConstraint(
            ["server_id"], ["servers.id"], name=op.f("fk_moves_server_id_servers"), ondelete="CASCADE"
        ),
        **TABLE_OPTIONS,
    )
    op.create_index(op.f("ix_moves_server_id"), "moves", ["server_id"])
    op.create_index(op.f("ix_moves_source_host_is_open"), "moves", ["source_host", "is_open"])


def downgrade() -> None:
    op.drop_table("moves")
    with op.batch_alter_table("hosts") as batch:
        batch.drop_column("capabilities")
    with op.batch_alter_table("servers") as batch:
        batch.drop_column("parked_image_id")
        batch.drop_column("parked_at")
