"""Capacity of providers below a host's own: which provider a row is of, and which are above that."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import Json

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None
phase = "expand"


def upgrade() -> None:
    op.add_column("computehost_resources", sa.Column("provider", sa.String(255)))
    op.add_column("computehost_resources", sa.Column("above", Json()))


def downgrade() -> None:
    with op.batch_alter_table("computehost_resources") as batch:
        batch.drop_column("above")
        batch.drop_column("provider")
