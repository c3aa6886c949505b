"""The row that every writer takes first also says whether one process alone may write, and until when.

See docs/evidence/decisions/0013. Processes of an older version ignore the lease: stop them first.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("change_sequence") as batch:
        batch.add_column(sa.Column("lease_holder", sa.String(40)))
        batch.add_column(sa.Column("lease_ms", sa.Integer, nullable=False, server_default="0"))
        batch.add_column(sa.Column("lease_version", sa.BigInteger, nullable=False, server_default="0"))
        batch.add_column(sa.Column("lease_visitor", sa.String(40)))


def downgrade() -> None:
    with op.batch_alter_table("change_sequence") as batch:
        for column in ("lease_visitor", "lease_version", "lease_ms", "lease_holder"):
            batch.drop_column(column)
