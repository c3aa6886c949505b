"""Drop the two columns of an older system, whose values `older_reservations` has. Refuses while one of its leases lives.

Gated: run by `moorage reservation finish-upgrade`, not by a start.
"""

import sqlalchemy as sa
from alembic import op

from moorage.core.errors import StartError

revision = "0099"
down_revision = None
branch_labels = None
depends_on = None

#: Also rows that a process of before 0002 wrote meanwhile; not those that only have a server group as older ones have.
_LIVING = """
    SELECT COUNT(*) FROM reservations r
    JOIN instance_reservations i ON i.reservation_id = r.id
    LEFT JOIN older_reservations o ON o.reservation_id = r.id
    WHERE r.status <> 'deleted'
      AND ((o.reservation_id IS NOT NULL AND COALESCE(o.generation, '') <> 'pure') OR i.aggregate_id IS NOT NULL OR i.server_group_id IS NOT NULL)
"""


#: {ordinary migration: (table, column) that it added}. Shows which ones ran in a database that records only this
#: migration.
_TRACES = {
    "0007": ("computehost_resources", "provider"),
    "0006": ("project_limits", "project_id"),
    "0005": ("computehost_reservations", "id"),
    "0004": ("holds", "id"),
}


def stood_at(connection: sa.Connection) -> str:
    """The last ordinary migration that ran here, among those that existed when this one was recorded in its place."""
    there = sa.inspect(connection)
    tables = set(there.get_table_names())
    for ordinary, (table, column) in _TRACES.items():
        if table in tables and column in {each["name"] for each in there.get_columns(table)}:
            return ordinary
    is_sorted = "ix_leases_name" in {index["name"] for index in there.get_indexes("leases")}
    return "0003" if is_sorted else "0002"


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
