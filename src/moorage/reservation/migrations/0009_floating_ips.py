"""Add registered addresses, reservations of floating IPs, and the allocations of addresses by period."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None
phase = "expand"


def upgrade() -> None:
    op.create_table(
        "floatingips",
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("floating_network_id", sa.String(255), nullable=False),
        sa.Column("subnet_id", sa.String(255), nullable=False),
        sa.Column("floating_ip_address", sa.String(255), nullable=False),
        sa.Column("reservable", sa.Boolean(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime()),
        sa.PrimaryKeyConstraint("id", name="pk_floatingips"),
        sa.UniqueConstraint("subnet_id", "floating_ip_address", name="uq_floatingips_subnet_id_floating_ip_address"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_floatingips_floating_network_id", "floatingips", ["floating_network_id"])
    op.create_table(
        "floatingip_reservations",
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("reservation_id", Uuid(), nullable=False),
        sa.Column("network_id", sa.String(255), nullable=False),
        sa.Column("amount", sa.Integer(), nullable=False),
        sa.Column("required_floatingips", Json(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime()),
        sa.PrimaryKeyConstraint("id", name="pk_floatingip_reservations"),
        sa.UniqueConstraint("reservation_id", name="uq_floatingip_reservations_reservation_id"),
        sa.ForeignKeyConstraint(
            ["reservation_id"], ["reservations.id"], name="fk_floatingip_reservations_reservation_id"
        ),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "floatingip_allocations",
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("floatingip_id", Uuid(), nullable=False),
        sa.Column("reservation_id", Uuid(), nullable=False),
        sa.Column("start_date", UtcDateTime(), nullable=False),
        sa.Column("end_date", UtcDateTime(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime()),
        sa.PrimaryKeyConstraint("id", name="pk_floatingip_allocations"),
        sa.ForeignKeyConstraint(["floatingip_id"], ["floatingips.id"], name="fk_floatingip_allocations_floatingip_id"),
        sa.ForeignKeyConstraint(
            ["reservation_id"], ["reservations.id"], name="fk_floatingip_allocations_reservation_id"
        ),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_floatingip_allocations_reservation_id", "floatingip_allocations", ["reservation_id"])
    op.create_index(
        "ix_floatingip_allocations_floatingip_id_end_date", "floatingip_allocations", ["floatingip_id", "end_date"]
    )


def downgrade() -> None:
    for name in ("floatingip_allocations", "floatingip_reservations", "floatingips"):
        op.drop_table(name)
