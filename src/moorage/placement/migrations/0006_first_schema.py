"""Creates the first schema: providers with inventories and traits, consumers with allocations, and the change log.

Inventories, traits, aggregates and allocations have no foreign keys: see `moorage.placement.store.tables`.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from moorage.db.engine import dialect_name
from moorage.db.types import TABLE_OPTIONS, UtcDateTime, Uuid

#: In the order in which they are created.
_TABLES = (
    "resource_classes",
    "traits",
    "providers",
    "inventories",
    "provider_traits",
    "provider_aggregates",
    "consumers",
    "allocations",
    "change_sequence",
    "changes",
    "change_retention",
)


def upgrade() -> None:
    _create_names("resource_classes")
    _create_names("traits")
    _create_providers()
    _create_offers()
    _create_consumers()
    _create_change_log()


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.drop_table(table)


def _create_names(table: str) -> None:
    op.create_table(
        table,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(255), nullable=False, unique=True),
        sa.Column("standard", sa.Boolean, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )


def _create_providers() -> None:
    op.create_table(
        "providers",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("uuid", Uuid(), nullable=False, unique=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("parent_id", sa.Integer, sa.ForeignKey("providers.id")),
        sa.Column("root_id", sa.Integer, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("ix_providers_root_id", "providers", ["root_id"])
    op.create_index("ix_providers_parent_id", "providers", ["parent_id"])
    if dialect_name(op.get_bind()) == "postgresql":
        # Free space on each page for the next version of its rows: an update then leaves the indexes alone.
        op.execute("ALTER TABLE providers SET (fillfactor = 60)")


def _create_offers() -> None:
    op.create_table(
        "inventories",
        sa.Column("provider_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("class_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("reserved", sa.Integer, nullable=False),
        sa.Column("min_unit", sa.Integer, nullable=False),
        sa.Column("max_unit", sa.Integer, nullable=False),
        sa.Column("step_size", sa.Integer, nullable=False),
        sa.Column("allocation_ratio", sa.Double, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_inventories_class_id", "inventories", ["class_id"])
    op.create_table(
        "provider_traits",
        sa.Column("provider_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("trait_id", sa.Integer, primary_key=True, autoincrement=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_provider_traits_trait_id", "provider_traits", ["trait_id"])
    op.create_table(
        "provider_aggregates",
        sa.Column("provider_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("aggregate", Uuid(), primary_key=True),
        **TABLE_OPTIONS,
    )


def _create_consumers() -> None:
    op.create_table(
        "consumers",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("uuid", Uuid(), nullable=False, unique=True),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("consumer_type", sa.String(255)),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("ix_consumers_project_id_user_id", "consumers", ["project_id", "user_id"])
    op.create_table(
        "allocations",
        sa.Column("consumer_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("provider_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("class_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("used", sa.Integer, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_allocations_provider_id_class_id", "allocations", ["provider_id", "class_id"])


def _create_change_log() -> None:
    op.create_table(
        "change_sequence",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("last", sa.BigInteger, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "changes",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("provider_id", sa.Integer),
        sa.Column("at", UtcDateTime, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("subject", Uuid()),
        sa.Column("document", sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_changes_subject_kind_sequence", "changes", ["subject", "kind", "sequence"])
    op.create_table(
        "change_retention",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("first", sa.BigInteger, nullable=False),
        sa.Column("since", UtcDateTime),
        **TABLE_OPTIONS,
    )
