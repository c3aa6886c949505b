"""SQLite does not reuse ids of classes and traits either, as PostgreSQL and MariaDB do not.

A process that reads the changes of others identifies names by id; it would take a reused id for the old name.
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None
phase = "expand"

_TABLES = ("resource_classes", "traits")


def upgrade() -> None:
    _made_anew(sqlite_autoincrement=True)


def downgrade() -> None:
    _made_anew()


def _made_anew(**how: bool) -> None:
    if op.get_bind().dialect.name == "sqlite":
        for table in _TABLES:
            with op.batch_alter_table(table, recreate="always", table_kwargs=how):
                pass
