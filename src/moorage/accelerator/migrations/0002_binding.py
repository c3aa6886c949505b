"""Accelerator requests that are not bound yet, the jobs for hosts that bind them, and attributes set by operators."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid
from moorage.jobs import initial_table as jobs

revision = "0002"
down_revision = "0001"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

#: Columns that are empty until the request is bound.
_OF_THE_BINDING = {
    "hostname": sa.String(255),
    "device_rp_uuid": Uuid(),
    "instance_uuid": Uuid(),
    "attach_handle_uuid": Uuid(),
    "pci_id": sa.String(64),
}


def upgrade() -> None:
    with op.batch_alter_table("accelerator_requests") as batch:
        batch.add_column(sa.Column("device_profile_name", sa.String(255)))
        batch.add_column(sa.Column("profile_group", Json()))
        for name, kind in _OF_THE_BINDING.items():
            batch.alter_column(name, existing_type=kind, nullable=True)
    jobs.create()
    op.create_table(
        "attributes",
        sa.Column("id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("uuid", Uuid(), nullable=False),
        sa.Column("deployable_id", _NUMBER, nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("value", sa.String(255), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime()),
        sa.PrimaryKeyConstraint("id", name="pk_attributes"),
        sa.UniqueConstraint("uuid", name="uq_attributes_uuid"),
        sa.ForeignKeyConstraint(
            ["deployable_id"], ["deployables.id"], name="fk_attributes_deployable_id", ondelete="CASCADE"
        ),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_attributes_deployable_id", "attributes", ["deployable_id"])


def downgrade() -> None:
    op.drop_table("attributes")
    jobs.drop()
    op.execute("DELETE FROM accelerator_requests WHERE device_profile_name IS NOT NULL")
    with op.batch_alter_table("accelerator_requests") as batch:
        for name, kind in _OF_THE_BINDING.items():
            batch.alter_column(name, existing_type=kind, nullable=False)
        batch.drop_column("profile_group")
        batch.drop_column("device_profile_name")
