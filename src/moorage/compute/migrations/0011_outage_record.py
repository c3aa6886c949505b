"""Adds the record of outages, in which heartbeats of hosts could not be recorded."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime

phase = "expand"


def upgrade() -> None:
    record = op.create_table(
        "outage_record",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("written_at", UtcDateTime()),
        sa.Column("past", Json(), nullable=False),
        **TABLE_OPTIONS,
    )
    op.bulk_insert(record, [{"id": 1, "written_at": None, "past": []}])


def downgrade() -> None:
    op.drop_table("outage_record")
