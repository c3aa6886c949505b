"""Server groups and their members; builds that failed on a host."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid

revision = "0004"
down_revision = "0003"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "server_groups",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("policy", sa.String(32), nullable=False),
        sa.Column("rules", Json(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_server_groups")),
        sa.UniqueConstraint("id", name=op.f("uq_server_groups_id")),
        **TABLE_OPTIONS,
    )
    op.create_index(op.f("ix_server_groups_project_id"), "server_groups", ["project_id"])
    op.create_table(
        "server_group_members",
        sa.Column("server_id", Uuid(), nullable=False),
        sa.Column("group_id", Uuid(), nullable=False),
        sa.PrimaryKeyConstraint("server_id", name=op.f("pk_server_group_members")),
        sa.ForeignKeyConstraint(
            ["server_id"], ["servers.id"], name=op.f("fk_server_group_members_server_id_servers"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["server_groups.id"],
            name=op.f("fk_server_group_members_group_id_server_groups"),
            ondelete="CASCADE",
        ),
        **TABLE_OPTIONS,
    )
    op.create_index(op.f("ix_server_group_members_group_id"), "server_group_members", ["group_id"])
    op.create_table(
        "build_failures",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("failed_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("host", name=op.f("pk_build_failures")),
        **TABLE_OPTIONS,
    )


def downgrade() -> None:
    op.drop_table("build_failures")
    op.drop_table("server_group_members")
    op.drop_table("server_groups")
