"""Creates the first schema: devices, device profiles, accelerator requests, the device history and jobs for hosts."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid
from moorage.jobs import initial_table as jobs

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
#: In the order in which they are created.
_TABLES = ("devices", "deployables", "attributes", "device_profiles", "accelerator_requests", "history")


def upgrade() -> None:
    _create_devices()
    _create_profiles()
    _create_requests()
    _create_history()
    jobs.create()


def downgrade() -> None:
    jobs.drop()
    for table in reversed(_TABLES):
        op.drop_table(table)


def _times() -> tuple[sa.Column[object], sa.Column[object]]:
    return sa.Column("created_at", UtcDateTime, nullable=False), sa.Column("updated_at", UtcDateTime)


def _create_devices() -> None:
    op.create_table(
        "devices",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("uuid", Uuid(), nullable=False, unique=True),
        sa.Column("hostname", sa.String(255), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("type", sa.String(30), nullable=False),
        sa.Column("vendor", sa.String(255), nullable=False),
        sa.Column("model", sa.String(255), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("health", sa.String(16), nullable=False),
        sa.Column("std_board_info", Json, nullable=False),
        sa.Column("vendor_board_info", Json, nullable=False),
        *_times(),
        sa.UniqueConstraint("hostname", "address"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "deployables",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("uuid", Uuid(), nullable=False, unique=True),
        sa.Column("device_id", _NUMBER, sa.ForeignKey("devices.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", sa.String(255), nullable=False, unique=True),
        sa.Column("num_accelerators", sa.Integer, nullable=False),
        sa.Column("rp_uuid", Uuid()),
        sa.Column("driver_name", sa.String(255), nullable=False),
        sa.Column("bitstream_id", sa.String(255)),
        sa.Column("attributes", Json, nullable=False),
        sa.Column("handles", Json, nullable=False),
        *_times(),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_deployables_device_id", "deployables", ["device_id"])
    op.create_table(
        "attributes",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("uuid", Uuid(), nullable=False, unique=True),
        sa.Column("deployable_id", _NUMBER, sa.ForeignKey("deployables.id", ondelete="CASCADE"), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("value", sa.String(255), nullable=False),
        *_times(),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_attributes_deployable_id", "attributes", ["deployable_id"])


def _create_profiles() -> None:
    op.create_table(
        "device_profiles",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("uuid", Uuid(), nullable=False, unique=True),
        sa.Column("name", sa.String(255), nullable=False, unique=True),
        sa.Column("description", sa.Text),
        sa.Column("groups", Json, nullable=False),
        *_times(),
        **TABLE_OPTIONS,
    )


def _create_requests() -> None:
    op.create_table(
        "accelerator_requests",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("uuid", Uuid(), nullable=False, unique=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("hostname", sa.String(255)),
        sa.Column("device_rp_uuid", Uuid()),
        sa.Column("instance_uuid", Uuid()),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("device_profile_group_id", sa.Integer, nullable=False),
        sa.Column("attach_handle_uuid", Uuid()),
        sa.Column("pci_id", sa.String(64)),
        *_times(),
        sa.Column("device_profile_name", sa.String(255)),
        sa.Column("profile_group", Json),
        sa.UniqueConstraint("hostname", "pci_id"),
        **TABLE_OPTIONS,
    )
    for column in ("instance_uuid", "project_id", "device_profile_name"):
        op.create_index(f"ix_accelerator_requests_{column}", "accelerator_requests", [column])


def _create_history() -> None:
    op.create_table(
        "history",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("hostname", sa.String(255), nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("at", UtcDateTime, nullable=False),
        sa.Column("event", sa.String(16), nullable=False),
        sa.Column("device", sa.String(255), nullable=False),
        sa.Column("deployable", sa.String(255), nullable=False),
        sa.Column("handle", sa.String(255), nullable=False),
        sa.Column("instance_uuid", Uuid()),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("image_id", sa.String(255), nullable=False),
        sa.Column("digest", sa.String(255), nullable=False),
        sa.Column("done", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.UniqueConstraint("hostname", "sequence"),
        **TABLE_OPTIONS,
    )
    for column in ("sequence", "at", "instance_uuid"):
        op.create_index(f"ix_history_{column}", "history", [column])
    op.create_index("ix_history_hostname_device", "history", ["hostname", "device"])
