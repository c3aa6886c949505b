"""What a project's servers count against its limits is kept. Those that are there are counted by the next requests."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import Json

revision = "0006"
down_revision = "0005"
phase = "expand"


def upgrade() -> None:
    with op.batch_alter_table("servers") as batch:
        batch.add_column(sa.Column("counted", Json()))
        batch.add_column(sa.Column("is_counted", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.execute("UPDATE servers SET is_counted = true WHERE vm_state = 'deleted'")
    op.create_index(op.f("ix_servers_project_id_is_counted"), "servers", ["project_id", "is_counted"])
    with op.batch_alter_table("quota_locks") as batch:
        batch.add_column(sa.Column("used", Json()))


def downgrade() -> None:
    with op.batch_alter_table("quota_locks") as batch:
        batch.drop_column("used")
    op.drop_index(op.f("ix_servers_project_id_is_counted"), "servers")
    with op.batch_alter_table("servers") as batch:
        batch.drop_column("is_counted")
        batch.drop_column("counted")
