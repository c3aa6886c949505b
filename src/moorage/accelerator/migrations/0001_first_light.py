"""The first schema of the accelerator database."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid

revision = "0001"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _times() -> tuple[sa.Column[object], sa.Column[object]]:
    return sa.Column("created_at", UtcDateTime(), nullable=False), sa.Column("updated_at", UtcDateTime())


def upgrade() -> None:
    _create_devices()
    _create_profiles()
    _create_requests()


def downgrade() -> None:
    for table in ("accelerator_requests", "device_profiles", "deployables", "devices"):
        op.drop_table(table)


def _create_devices() -> None:
    op.create_table(
        "devices",
        sa.Column("id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("uuid", Uuid(), nullable=False),
        sa.Column("hostname", sa.String(255), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("type", sa.String(30), nullable=False),
        sa.Column("vendor", sa.String(255), nullable=False),
        sa.Column("model", sa.String(255), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("health", sa.String(16), nullable=False),
        sa.Column("std_board_info", Json(), nullable=False),
        sa.Column("vendor_board_info", Json(), nullable=False),
        *_times(),
        sa.PrimaryKeyConstraint("id", name="pk_devices"),
        sa.UniqueConstraint("uuid", name="uq_devices_uuid"),
        sa.UniqueConstraint("hostname", "address", name="uq_devices_hostname_address"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "deployables",
        sa.Column("id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("uuid", Uuid(), nullable=False),
        sa.Column("device_id", _NUMBER, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("num_accelerators", sa.Integer(), nullable=False),
        sa.Column("rp_uuid", Uuid()),
        sa.Column("driver_name", sa.String(255), nullable=False),
        sa.Column("bitstream_id", sa.String(255)),
        sa.Column("attributes", Json(), nullable=False),
        sa.Column("handles", Json(), nullable=False),
        *_times(),
        sa.PrimaryKeyConstraint("id", name="pk_deployables"),
        sa.UniqueConstraint("uuid", name="uq_deployables_uuid"),
        sa.UniqueConstraint("name", name="uq_deployables_name"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name="fk_deployables_device_id", ondelete="CASCADE"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_deployables_device_id", "deployables", ["device_id"])


def _create_profiles() -> None:
    op.create_table(
        "device_profiles",
        sa.Column("id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("uuid", Uuid(), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("description", sa.Text()),
        sa.Column("groups", Json(), nullable=False),
        *_times(),
        sa.PrimaryKeyConstraint("id", name="pk_device_profiles"),
        sa.UniqueConstraint("uuid", name="uq_device_profiles_uuid"),
        sa.UniqueConstraint("name", name="uq_device_profiles_name"),
        **TABLE_OPTIONS,
    )


def _create_requests() -> None:
    op.create_table(
        "accelerator_requests",
        sa.Column("id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("uuid", Uuid(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("hostname", sa.String(255), nullable=False),
        sa.Column("device_rp_uuid", Uuid(), nullable=False),
        sa.Column("instance_uuid", Uuid(), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("device_profile_group_id", sa.Integer(), nullable=False),
        sa.Column("attach_handle_uuid", Uuid(), nullable=False),
        sa.Column("pci_id", sa.String(64), nullable=False),
        *_times(),
        sa.PrimaryKeyConstraint("id", name="pk_accelerator_requests"),
        sa.UniqueConstraint("uuid", name="uq_accelerator_requests_uuid"),
        sa.UniqueConstraint("hostname", "pci_id", name="uq_accelerator_requests_hostname_pci_id"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_accelerator_requests_instance_uuid", "accelerator_requests", ["instance_uuid"])
    op.create_index("ix_accelerator_requests_project_id", "accelerator_requests", ["project_id"])
