"""The tables of the first release. The shape is written out: later changes of `tables` must not change this one."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_leases()
    _create_events()
    _create_hosts()


def downgrade() -> None:
    for name in (
        "computehost_allocations",
        "computehost_extra_capabilities",
        "resource_properties",
        "computehost_resources",
        "computehosts",
        "steps",
        "events",
        "instance_reservations",
        "reservations",
        "leases",
    ):
        op.drop_table(name)


def _times() -> tuple[sa.Column[object], sa.Column[object]]:
    return sa.Column("created_at", UtcDateTime(), nullable=False), sa.Column("updated_at", UtcDateTime())


def _create_leases() -> None:
    op.create_table(
        "leases",
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("start_date", UtcDateTime(), nullable=False),
        sa.Column("end_date", UtcDateTime(), nullable=False),
        sa.Column("trust_id", sa.String(36)),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("degraded", sa.Boolean(), nullable=False),
        *_times(),
        sa.PrimaryKeyConstraint("id", name="pk_leases"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_leases_project_id", "leases", ["project_id"])
    op.create_table(
        "reservations",
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("lease_id", Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("resource_id", Uuid(), nullable=False),
        sa.Column("resource_type", sa.String(66), nullable=False),
        sa.Column("status", sa.String(13), nullable=False),
        sa.Column("missing_resources", sa.Boolean(), nullable=False),
        sa.Column("resources_changed", sa.Boolean(), nullable=False),
        *_times(),
        sa.PrimaryKeyConstraint("id", name="pk_reservations"),
        sa.ForeignKeyConstraint(["lease_id"], ["leases.id"], name="fk_reservations_lease_id"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_reservations_lease_id", "reservations", ["lease_id"])
    op.create_table(
        "instance_reservations",
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("reservation_id", Uuid(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("disk_gb", sa.Integer(), nullable=False),
        sa.Column("amount", sa.Integer(), nullable=False),
        sa.Column("affinity", sa.Boolean()),
        sa.Column("resource_properties", sa.Text(), nullable=False),
        sa.Column("flavor_id", sa.String(36)),
        sa.Column("aggregate_id", sa.Integer()),
        sa.Column("server_group_id", sa.String(36)),
        *_times(),
        sa.PrimaryKeyConstraint("id", name="pk_instance_reservations"),
        sa.UniqueConstraint("reservation_id", name="uq_instance_reservations_reservation_id"),
        sa.ForeignKeyConstraint(
            ["reservation_id"], ["reservations.id"], name="fk_instance_reservations_reservation_id"
        ),
        **TABLE_OPTIONS,
    )


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("lease_id", Uuid(), nullable=False),
        sa.Column("event_type", sa.String(66), nullable=False),
        sa.Column("time", UtcDateTime(), nullable=False),
        sa.Column("status", sa.String(13), nullable=False),
        sa.Column("claimed_by", sa.String(255)),
        sa.Column("claim_until", UtcDateTime()),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("retry_at", UtcDateTime()),
        sa.Column("last_error", sa.Text()),
        *_times(),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sa.ForeignKeyConstraint(["lease_id"], ["leases.id"], name="fk_events_lease_id"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_events_lease_id", "events", ["lease_id"])
    op.create_index("ix_events_status_time", "events", ["status", "time"])
    op.create_table(
        "steps",
        sa.Column("event_id", Uuid(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("args", Json(), nullable=False),
        sa.Column("state", sa.String(13), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.Text()),
        *_times(),
        sa.PrimaryKeyConstraint("event_id", "seq", name="pk_steps"),
        sa.ForeignKeyConstraint(["event_id"], ["events.id"], name="fk_steps_event_id"),
        **TABLE_OPTIONS,
    )


def _create_hosts() -> None:
    op.create_table(
        "computehosts",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=True),
        sa.Column("hypervisor_hostname", sa.String(255), nullable=False),
        sa.Column("service_name", sa.String(255), nullable=False),
        sa.Column("hypervisor_type", sa.Text(), nullable=False),
        sa.Column("hypervisor_version", sa.Integer(), nullable=False),
        sa.Column("cpu_info", sa.Text(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("local_gb", sa.Integer(), nullable=False),
        sa.Column("availability_zone", sa.String(255), nullable=False),
        sa.Column("status", sa.String(13)),
        sa.Column("trust_id", sa.String(36)),
        sa.Column("reservable", sa.Boolean(), nullable=False),
        sa.Column("ready", sa.Boolean(), nullable=False),
        *_times(),
        sa.PrimaryKeyConstraint("id", name="pk_computehosts"),
        sa.UniqueConstraint("hypervisor_hostname", name="uq_computehosts_hypervisor_hostname"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "computehost_resources",
        sa.Column("computehost_id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("resource_class", sa.String(255), nullable=False),
        sa.Column("capacity", sa.BigInteger(), nullable=False),
        sa.Column("max_unit", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("computehost_id", "resource_class", name="pk_computehost_resources"),
        sa.ForeignKeyConstraint(
            ["computehost_id"], ["computehosts.id"], name="fk_computehost_resources_computehost_id"
        ),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "resource_properties",
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("resource_type", sa.String(66), nullable=False),
        sa.Column("property_name", sa.String(255), nullable=False),
        sa.Column("private", sa.Boolean(), nullable=False),
        *_times(),
        sa.PrimaryKeyConstraint("id", name="pk_resource_properties"),
        sa.UniqueConstraint(
            "resource_type", "property_name", name="uq_resource_properties_resource_type_property_name"
        ),
        **TABLE_OPTIONS,
    )
    _create_capabilities()
    _create_allocations()


def _create_capabilities() -> None:
    op.create_table(
        "computehost_extra_capabilities",
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("computehost_id", sa.Integer(), nullable=False),
        sa.Column("property_id", Uuid(), nullable=False),
        sa.Column("capability_value", sa.Text(), nullable=False),
        *_times(),
        sa.PrimaryKeyConstraint("id", name="pk_computehost_extra_capabilities"),
        sa.UniqueConstraint(
            "computehost_id", "property_id", name="uq_computehost_extra_capabilities_computehost_id_property_id"
        ),
        sa.ForeignKeyConstraint(
            ["computehost_id"], ["computehosts.id"], name="fk_computehost_extra_capabilities_computehost_id"
        ),
        sa.ForeignKeyConstraint(
            ["property_id"], ["resource_properties.id"], name="fk_computehost_extra_capabilities_property_id"
        ),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_computehost_extra_capabilities_property_id", "computehost_extra_capabilities", ["property_id"])


def _create_allocations() -> None:
    op.create_table(
        "computehost_allocations",
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("compute_host_id", sa.Integer(), nullable=False),
        sa.Column("reservation_id", Uuid(), nullable=False),
        sa.Column("start_date", UtcDateTime(), nullable=False),
        sa.Column("end_date", UtcDateTime(), nullable=False),
        sa.Column("resources", Json(), nullable=False),
        *_times(),
        sa.PrimaryKeyConstraint("id", name="pk_computehost_allocations"),
        sa.ForeignKeyConstraint(
            ["compute_host_id"], ["computehosts.id"], name="fk_computehost_allocations_compute_host_id"
        ),
        sa.ForeignKeyConstraint(
            ["reservation_id"], ["reservations.id"], name="fk_computehost_allocations_reservation_id"
        ),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_computehost_allocations_reservation_id", "computehost_allocations", ["reservation_id"])
    op.create_index(
        "ix_computehost_allocations_compute_host_id_start_date_end_date",
        "computehost_allocations",
        ["compute_host_id", "start_date", "end_date"],
    )
