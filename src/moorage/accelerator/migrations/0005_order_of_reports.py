"""Creates the table with the epoch of each host's agent and the number of the next report."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, UtcDateTime

phase = "expand"


def upgrade() -> None:
    op.create_table(
        "host_reports",
        sa.Column("hostname", sa.String(255), primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("begun_at", UtcDateTime, nullable=False),
        **TABLE_OPTIONS,
    )


def downgrade() -> None:
    op.drop_table("host_reports")
