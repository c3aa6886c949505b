"""First light: providers, inventories, traits, classes, consumers, allocations and the log of changes."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, UtcDateTime, Uuid

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _names("resource_classes")
    _names("traits")
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
    op.create_table(
        "inventories",
        sa.Column("provider_id", sa.Integer, sa.ForeignKey("providers.id"), primary_key=True, autoincrement=False),
        sa.Column("class_id", sa.Integer, sa.ForeignKey("resource_classes.id"), primary_key=True, autoincrement=False),
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
    _links()
    _holders()
    op.create_table(
        "change_sequence",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("last", sa.BigInteger, nullable=False),
        sa.Column("trimmed", sa.BigInteger, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "changes",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("provider_id", sa.Integer, primary_key=True, autoincrement=False),
        **TABLE_OPTIONS,
    )


def downgrade() -> None:
    for table in (
        "changes",
        "change_sequence",
        "allocations",
        "consumers",
        "provider_aggregates",
        "provider_traits",
        "inventories",
        "providers",
        "traits",
        "resource_classes",
    ):
        op.drop_table(table)


def _names(table: str) -> None:
    op.create_table(
        table,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(255), nullable=False, unique=True),
        sa.Column("standard", sa.Boolean, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        **TABLE_OPTIONS,
    )


def _links() -> None:
    """What hangs on a provider beside its inventories."""
    op.create_table(
        "provider_traits",
        sa.Column("provider_id", sa.Integer, sa.ForeignKey("providers.id"), primary_key=True, autoincrement=False),
        sa.Column("trait_id", sa.Integer, sa.ForeignKey("traits.id"), primary_key=True, autoincrement=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_provider_traits_trait_id", "provider_traits", ["trait_id"])
    op.create_table(
        "provider_aggregates",
        sa.Column("provider_id", sa.Integer, sa.ForeignKey("providers.id"), primary_key=True, autoincrement=False),
        sa.Column("aggregate", Uuid(), primary_key=True),
        **TABLE_OPTIONS,
    )


def _holders() -> None:
    """Consumers and their allocations."""
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
        sa.Column("consumer_id", sa.Integer, sa.ForeignKey("consumers.id"), primary_key=True, autoincrement=False),
        sa.Column("provider_id", sa.Integer, sa.ForeignKey("providers.id"), primary_key=True, autoincrement=False),
        sa.Column("class_id", sa.Integer, sa.ForeignKey("resource_classes.id"), primary_key=True, autoincrement=False),
        sa.Column("used", sa.Integer, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_allocations_provider_id_class_id", "allocations", ["provider_id", "class_id"])
    op.create_index("ix_allocations_class_id", "allocations", ["class_id"])
