"""Adds a row for each project with ports, whose lock makes requests against its quota wait for each other."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS

phase = "expand"


def upgrade() -> None:
    op.create_table("quota_locks", sa.Column("project_id", sa.String(255), primary_key=True), **TABLE_OPTIONS)


def downgrade() -> None:
    op.drop_table("quota_locks")
