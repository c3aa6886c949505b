"""Drops the two columns of an older system, whose values `older_reservations` has. Refuses while one of its leases
lives.

Gated: run by `moorage reservation finish-upgrade`, not by a start.
"""

import sqlalchemy as sa
from alembic import op

from moorage.core.errors import StartError

#: Reservations that only have a server group, as older ones have, are not an older system's.
_LIVING = """
    SELECT COUNT(*) FROM reservations r
    JOIN older_reservations o ON o.reservation_id = r.id
    WHERE r.status <> 'deleted' AND COALESCE(o.generation, '') <> 'pure'
"""


def upgrade() -> None:
    living = op.get_bind().execute(sa.text(_LIVING)).scalar_one()
    if living:
        raise StartError(
            f"{living} reservation(s) of an older system are not over; end or delete their leases, then run this again"
        )
    with op.batch_alter_table("instance_reservations") as batch:
        batch.drop_column("aggregate_id")
        batch.drop_column("server_group_id")


def downgrade() -> None:
    with op.batch_alter_table("instance_reservations") as batch:
        batch.add_column(sa.Column("aggregate_id", sa.Integer()))
        batch.add_column(sa.Column("server_group_id", sa.String(36)))
