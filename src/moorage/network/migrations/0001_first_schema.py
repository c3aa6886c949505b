"""Creates the first schema: networks, subnets, ports and their addresses."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_networks()
    _create_ports()


def downgrade() -> None:
    for table in ("addresses", "ports", "subnets", "networks"):
        op.drop_table(table)


def _number_and_id() -> tuple[sa.Column[object], sa.Column[object]]:
    return (
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("id", Uuid(), nullable=False, unique=True),
    )


def _times() -> tuple[sa.Column[object], sa.Column[object]]:
    return sa.Column("created_at", UtcDateTime, nullable=False), sa.Column("updated_at", UtcDateTime, nullable=False)


def _create_networks() -> None:
    op.create_table(
        "networks",
        *_number_and_id(),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("physical_network", sa.String(64), nullable=False),
        sa.Column("segmentation_id", sa.Integer, nullable=False),
        sa.Column("is_shared", sa.Boolean, nullable=False),
        sa.Column("is_configured", sa.Boolean, nullable=False),
        sa.Column("description", sa.String(255), nullable=False),
        *_times(),
        sa.UniqueConstraint("kind", "physical_network", "segmentation_id"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "subnets",
        *_number_and_id(),
        sa.Column("network_id", Uuid(), sa.ForeignKey("networks.id", ondelete="CASCADE"), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("cidr", sa.String(64), nullable=False),
        sa.Column("gateway", sa.String(64)),
        sa.Column("dns", Json, nullable=False),
        sa.Column("pools", Json, nullable=False),
        *_times(),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_subnets_network_id", "subnets", ["network_id"])


def _create_ports() -> None:
    op.create_table(
        "ports",
        *_number_and_id(),
        sa.Column("network_id", Uuid(), sa.ForeignKey("networks.id"), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("description", sa.String(255), nullable=False),
        sa.Column("mac", sa.String(17), nullable=False, unique=True),
        sa.Column("device_id", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("is_for_server", sa.Boolean, nullable=False),
        *_times(),
        **TABLE_OPTIONS,
    )
    for column in ("network_id", "project_id", "device_id"):
        op.create_index(f"ix_ports_{column}", "ports", [column])
    op.create_table(
        "addresses",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("network_id", Uuid(), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("subnet_id", Uuid(), sa.ForeignKey("subnets.id"), nullable=False),
        sa.Column("port_id", Uuid(), sa.ForeignKey("ports.id", ondelete="CASCADE"), nullable=False),
        sa.UniqueConstraint("network_id", "address"),
        **TABLE_OPTIONS,
    )
    for column in ("port_id", "subnet_id"):
        op.create_index(f"ix_addresses_{column}", "addresses", [column])
