"""Add the actions that leases request before their end."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import Json

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None
phase = "expand"


def upgrade() -> None:
    op.add_column("leases", sa.Column("before_end_actions", Json()))


def downgrade() -> None:
    with op.batch_alter_table("leases") as batch:
        batch.drop_column("before_end_actions")
