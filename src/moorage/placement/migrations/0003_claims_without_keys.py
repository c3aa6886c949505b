"""Allocations refer to their consumer, provider and class without foreign keys; providers are updated in place.

Nine checks of foreign keys were half of what the database did for a claim of three classes (PostgreSQL 15: 170 of
330 us in a group of 50). They guarded nothing that could happen: there is one writer at a time, and it decides on the
exact state. The peer's table has none either. `moorage audit` looks for rows that refer to nothing.

PostgreSQL writes a new version of a row beside the old one and leaves the indexes alone, if the page has room for it.
"""

from alembic import op

from moorage.db.engine import dialect_name

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_KEYS = {"consumer_id": "consumers", "provider_id": "providers", "class_id": "resource_classes"}


def upgrade() -> None:
    with op.batch_alter_table("allocations") as batch:
        for column in _KEYS:
            batch.drop_constraint(f"fk_allocations_{column}", type_="foreignkey")
        batch.drop_index("ix_allocations_class_id")
    if dialect_name(op.get_bind()) == "postgresql":
        op.execute("ALTER TABLE providers SET (fillfactor = 60)")


def downgrade() -> None:
    if dialect_name(op.get_bind()) == "postgresql":
        op.execute("ALTER TABLE providers RESET (fillfactor)")
    with op.batch_alter_table("allocations") as batch:
        batch.create_index("ix_allocations_class_id", ["class_id"])
        for column, table in _KEYS.items():
            batch.create_foreign_key(f"fk_allocations_{column}", table, [column], ["id"])
