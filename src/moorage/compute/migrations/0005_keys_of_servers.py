"""A server keeps the public key that its guest gets: the keypair may be deleted meanwhile."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    with op.batch_alter_table("servers") as batch:
        batch.add_column(sa.Column("key_data", sa.Text()))


def downgrade() -> None:
    with op.batch_alter_table("servers") as batch:
        batch.drop_column("key_data")
