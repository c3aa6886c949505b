"""Adds the network interfaces of a server: NULL for a server without any."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import Json

phase = "expand"


def upgrade() -> None:
    op.add_column("servers", sa.Column("interfaces", Json))


def downgrade() -> None:
    with op.batch_alter_table("servers") as table:
        table.drop_column("interfaces")
