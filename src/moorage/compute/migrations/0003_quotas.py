"""Limits of projects; and of a server its addresses elsewhere, how its disk is partitioned, its image's properties."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "quotas",
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("units", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "name", name=op.f("pk_quotas")),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "quota_locks",
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("project_id", name=op.f("pk_quota_locks")),
        **TABLE_OPTIONS,
    )
    with op.batch_alter_table("servers") as batch:
        batch.add_column(sa.Column("access_ipv4", sa.String(64)))
        batch.add_column(sa.Column("access_ipv6", sa.String(64)))
        batch.add_column(sa.Column("disk_config", sa.String(16)))
        batch.add_column(sa.Column("image_properties", Json()))


def downgrade() -> None:
    with op.batch_alter_table("servers") as batch:
        for column in ("image_properties", "disk_config", "access_ipv6", "access_ipv4"):
            batch.drop_column(column)
    op.drop_table("quota_locks")
    op.drop_table("quotas")
