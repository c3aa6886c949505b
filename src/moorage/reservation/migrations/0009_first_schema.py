"""Creates the first schema: leases with reservations and events, hosts, floating IPs, holds, limits of projects."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid

#: In the order in which they are created.
_TABLES = (
    "leases",
    "reservations",
    "instance_reservations",
    "older_reservations",
    "computehost_reservations",
    "floatingip_reservations",
    "events",
    "steps",
    "computehosts",
    "computehost_resources",
    "resource_properties",
    "computehost_extra_capabilities",
    "computehost_allocations",
    "floatingips",
    "floatingip_allocations",
    "holds",
    "hold_allocations",
    "project_limits",
    "project_usage",
)


def upgrade() -> None:
    _create_leases()
    _create_instance_reservations()
    _create_other_reservations()
    _create_events()
    _create_hosts()
    _create_properties()
    _create_allocations()
    _create_floating_ips()
    _create_holds()
    _create_limits()


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.drop_table(table)


def _times() -> tuple[sa.Column[object], sa.Column[object]]:
    return sa.Column("created_at", UtcDateTime, nullable=False), sa.Column("updated_at", UtcDateTime)


def _reservation_id() -> sa.Column[str]:
    return sa.Column("reservation_id", Uuid(), sa.ForeignKey("reservations.id"), nullable=False, unique=True)


def _create_leases() -> None:
    op.create_table(
        "leases",
        sa.Column("id", Uuid(), primary_key=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("start_date", UtcDateTime, nullable=False),
        sa.Column("end_date", UtcDateTime, nullable=False),
        sa.Column("trust_id", sa.String(36)),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("degraded", sa.Boolean, nullable=False),
        *_times(),
        sa.Column("before_end_actions", Json),
        **TABLE_OPTIONS,
    )
    # Each order that a page of leases may have, of one project and of all.
    for key in ("created_at", "start_date", "end_date"):
        op.create_index(f"ix_leases_{key}_id", "leases", [key, "id"])
    for key in ("created_at", "start_date", "end_date"):
        op.create_index(f"ix_leases_project_id_{key}_id", "leases", ["project_id", key, "id"])
    op.create_index("ix_leases_name", "leases", ["name"])
    op.create_index("ix_leases_status_created_at_id", "leases", ["status", "created_at", "id"])
    op.create_table(
        "reservations",
        sa.Column("id", Uuid(), primary_key=True),
        sa.Column("lease_id", Uuid(), sa.ForeignKey("leases.id"), nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("resource_id", Uuid(), nullable=False),
        sa.Column("resource_type", sa.String(66), nullable=False),
        sa.Column("status", sa.String(13), nullable=False),
        sa.Column("missing_resources", sa.Boolean, nullable=False),
        sa.Column("resources_changed", sa.Boolean, nullable=False),
        *_times(),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_reservations_lease_id", "reservations", ["lease_id"])


def _create_instance_reservations() -> None:
    op.create_table(
        "instance_reservations",
        sa.Column("id", Uuid(), primary_key=True),
        _reservation_id(),
        sa.Column("vcpus", sa.Integer, nullable=False),
        sa.Column("memory_mb", sa.Integer, nullable=False),
        sa.Column("disk_gb", sa.Integer, nullable=False),
        sa.Column("amount", sa.Integer, nullable=False),
        sa.Column("affinity", sa.Boolean),
        sa.Column("resource_properties", sa.Text, nullable=False),
        sa.Column("flavor_id", sa.String(36)),
        sa.Column("aggregate_id", sa.Integer),
        sa.Column("server_group_id", sa.String(36)),
        *_times(),
        sa.Column("source", Json),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "older_reservations",
        sa.Column("reservation_id", Uuid(), sa.ForeignKey("reservations.id"), primary_key=True),
        sa.Column("generation", sa.String(16)),
        sa.Column("aggregate_id", sa.Integer),
        sa.Column("server_group_id", sa.String(36)),
        **TABLE_OPTIONS,
    )


def _create_other_reservations() -> None:
    op.create_table(
        "computehost_reservations",
        sa.Column("id", Uuid(), primary_key=True),
        _reservation_id(),
        sa.Column("min_hosts", sa.Integer, nullable=False),
        sa.Column("max_hosts", sa.Integer, nullable=False),
        sa.Column("hypervisor_properties", sa.Text, nullable=False),
        sa.Column("resource_properties", sa.Text, nullable=False),
        sa.Column("before_end", sa.String(36), nullable=False),
        *_times(),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "floatingip_reservations",
        sa.Column("id", Uuid(), primary_key=True),
        _reservation_id(),
        sa.Column("network_id", sa.String(255), nullable=False),
        sa.Column("amount", sa.Integer, nullable=False),
        sa.Column("required_floatingips", Json, nullable=False),
        *_times(),
        **TABLE_OPTIONS,
    )


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("id", Uuid(), primary_key=True),
        sa.Column("lease_id", Uuid(), sa.ForeignKey("leases.id"), nullable=False),
        sa.Column("event_type", sa.String(66), nullable=False),
        sa.Column("time", UtcDateTime, nullable=False),
        sa.Column("status", sa.String(13), nullable=False),
        sa.Column("claimed_by", sa.String(255)),
        sa.Column("claim_until", UtcDateTime),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("retry_at", UtcDateTime),
        sa.Column("last_error", sa.Text),
        *_times(),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_events_lease_id", "events", ["lease_id"])
    op.create_index("ix_events_status_time", "events", ["status", "time"])
    op.create_table(
        "steps",
        sa.Column("event_id", Uuid(), sa.ForeignKey("events.id"), primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("args", Json, nullable=False),
        sa.Column("state", sa.String(13), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("last_error", sa.Text),
        *_times(),
        **TABLE_OPTIONS,
    )


def _create_hosts() -> None:
    op.create_table(
        "computehosts",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("hypervisor_hostname", sa.String(255), nullable=False, unique=True),
        sa.Column("service_name", sa.String(255), nullable=False),
        sa.Column("hypervisor_type", sa.Text, nullable=False),
        sa.Column("hypervisor_version", sa.Integer, nullable=False),
        sa.Column("cpu_info", sa.Text, nullable=False),
        sa.Column("vcpus", sa.Integer, nullable=False),
        sa.Column("memory_mb", sa.Integer, nullable=False),
        sa.Column("local_gb", sa.Integer, nullable=False),
        sa.Column("availability_zone", sa.String(255), nullable=False),
        sa.Column("status", sa.String(13)),
        sa.Column("trust_id", sa.String(36)),
        sa.Column("reservable", sa.Boolean, nullable=False),
        sa.Column("ready", sa.Boolean, nullable=False),
        *_times(),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "computehost_resources",
        sa.Column(
            "computehost_id", sa.Integer, sa.ForeignKey("computehosts.id"), primary_key=True, autoincrement=False
        ),
        sa.Column("resource_class", sa.String(255), primary_key=True),
        sa.Column("capacity", sa.BigInteger, nullable=False),
        sa.Column("max_unit", sa.BigInteger, nullable=False),
        sa.Column("provider", sa.String(255)),
        sa.Column("above", Json),
        **TABLE_OPTIONS,
    )


def _create_properties() -> None:
    op.create_table(
        "resource_properties",
        sa.Column("id", Uuid(), primary_key=True),
        sa.Column("resource_type", sa.String(66), nullable=False),
        sa.Column("property_name", sa.String(255), nullable=False),
        sa.Column("private", sa.Boolean, nullable=False),
        *_times(),
        sa.UniqueConstraint("resource_type", "property_name"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "computehost_extra_capabilities",
        sa.Column("id", Uuid(), primary_key=True),
        sa.Column("computehost_id", sa.Integer, sa.ForeignKey("computehosts.id"), nullable=False),
        sa.Column("property_id", Uuid(), sa.ForeignKey("resource_properties.id"), nullable=False),
        sa.Column("capability_value", sa.Text, nullable=False),
        *_times(),
        sa.UniqueConstraint("computehost_id", "property_id"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_computehost_extra_capabilities_property_id", "computehost_extra_capabilities", ["property_id"])


def _create_allocations() -> None:
    op.create_table(
        "computehost_allocations",
        sa.Column("id", Uuid(), primary_key=True),
        sa.Column("compute_host_id", sa.Integer, sa.ForeignKey("computehosts.id"), nullable=False),
        sa.Column("reservation_id", Uuid(), sa.ForeignKey("reservations.id"), nullable=False),
        sa.Column("start_date", UtcDateTime, nullable=False),
        sa.Column("end_date", UtcDateTime, nullable=False),
        sa.Column("resources", Json, nullable=False),
        *_times(),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_computehost_allocations_reservation_id", "computehost_allocations", ["reservation_id"])
    op.create_index(
        "ix_computehost_allocations_compute_host_id_start_date_end_date",
        "computehost_allocations",
        ["compute_host_id", "start_date", "end_date"],
    )


def _create_floating_ips() -> None:
    op.create_table(
        "floatingips",
        sa.Column("id", Uuid(), primary_key=True),
        sa.Column("floating_network_id", sa.String(255), nullable=False),
        sa.Column("subnet_id", sa.String(255), nullable=False),
        sa.Column("floating_ip_address", sa.String(255), nullable=False),
        sa.Column("reservable", sa.Boolean, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"),
        *_times(),
        sa.UniqueConstraint("subnet_id", "floating_ip_address"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_floatingips_floating_network_id", "floatingips", ["floating_network_id"])
    op.create_table(
        "floatingip_allocations",
        sa.Column("id", Uuid(), primary_key=True),
        sa.Column("floatingip_id", Uuid(), sa.ForeignKey("floatingips.id"), nullable=False),
        sa.Column("reservation_id", Uuid(), sa.ForeignKey("reservations.id"), nullable=False),
        sa.Column("start_date", UtcDateTime, nullable=False),
        sa.Column("end_date", UtcDateTime, nullable=False),
        *_times(),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_floatingip_allocations_reservation_id", "floatingip_allocations", ["reservation_id"])
    op.create_index(
        "ix_floatingip_allocations_floatingip_id_end_date", "floatingip_allocations", ["floatingip_id", "end_date"]
    )


def _create_holds() -> None:
    op.create_table(
        "holds",
        sa.Column("id", Uuid(), primary_key=True),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("start_date", UtcDateTime, nullable=False),
        sa.Column("end_date", UtcDateTime, nullable=False),
        sa.Column("expires_at", UtcDateTime, nullable=False),
        sa.Column("requests", Json, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_holds_expires_at", "holds", ["expires_at"])
    op.create_index("ix_holds_project_id_expires_at", "holds", ["project_id", "expires_at"])
    op.create_table(
        "hold_allocations",
        sa.Column("id", Uuid(), primary_key=True),
        sa.Column("hold_id", Uuid(), sa.ForeignKey("holds.id"), nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("compute_host_id", sa.Integer, sa.ForeignKey("computehosts.id"), nullable=False),
        sa.Column("start_date", UtcDateTime, nullable=False),
        sa.Column("end_date", UtcDateTime, nullable=False),
        sa.Column("resources", Json, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_hold_allocations_hold_id", "hold_allocations", ["hold_id"])
    op.create_index("ix_hold_allocations_compute_host_id", "hold_allocations", ["compute_host_id"])


def _create_limits() -> None:
    op.create_table(
        "project_limits",
        sa.Column("project_id", sa.String(255), primary_key=True),
        sa.Column("limits", Json),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "project_usage",
        sa.Column("reservation_id", Uuid(), primary_key=True),
        sa.Column("lease_id", Uuid(), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("start_date", UtcDateTime, nullable=False),
        sa.Column("end_date", UtcDateTime, nullable=False),
        sa.Column("amounts", Json, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_project_usage_lease_id", "project_usage", ["lease_id"])
    op.create_index("ix_project_usage_project_id_end_date", "project_usage", ["project_id", "end_date"])
