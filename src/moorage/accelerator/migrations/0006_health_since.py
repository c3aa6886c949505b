"""Adds the time since which a device has had its health."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import UtcDateTime

phase = "expand"


def upgrade() -> None:
    op.add_column("devices", sa.Column("health_since", UtcDateTime))


def downgrade() -> None:
    op.drop_column("devices", "health_since")
