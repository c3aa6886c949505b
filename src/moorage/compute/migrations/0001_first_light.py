"""The first schema of the compute database."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid

revision = "0001"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_flavors()
    _create_hosts()
    _create_aggregates()
    _create_jobs()
    _create_keypairs()
    _create_servers()
    _create_actions()
    _create_consoles()


def downgrade() -> None:
    op.drop_table("action_events")
    op.drop_table("flavor_access")
    op.drop_table("consoles")
    op.drop_table("aggregate_hosts")
    op.drop_table("actions")
    op.drop_table("servers")
    op.drop_table("keypairs")
    op.drop_table("jobs")
    op.drop_table("hosts")
    op.drop_table("flavors")
    op.drop_table("aggregates")


def _create_flavors() -> None:
    op.create_table(
        "flavors",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("ram_mb", sa.Integer(), nullable=False),
        sa.Column("disk_gb", sa.Integer(), nullable=False),
        sa.Column("ephemeral_gb", sa.Integer(), nullable=False),
        sa.Column("swap_mb", sa.Integer(), nullable=False),
        sa.Column("rxtx_factor", sa.Float(), nullable=False),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("extra_specs", Json(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_flavors")),
        sa.UniqueConstraint("name", name=op.f("uq_flavors_name")),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "flavor_access",
        sa.Column("flavor_id", sa.String(length=255), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ["flavor_id"], ["flavors.id"], name=op.f("fk_flavor_access_flavor_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("flavor_id", "project_id", name=op.f("pk_flavor_access")),
        **TABLE_OPTIONS,
    )


def _create_hosts() -> None:
    op.create_table(
        "hosts",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("service_uuid", Uuid(), nullable=False),
        sa.Column("provider_uuid", Uuid(), nullable=False),
        sa.Column("hypervisor_type", sa.String(length=255), nullable=False),
        sa.Column("hypervisor_version", sa.Integer(), nullable=False),
        sa.Column("host_ip", sa.String(length=255), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("local_gb", sa.Integer(), nullable=False),
        sa.Column("devices", sa.Integer(), nullable=False),
        sa.Column("cpu_info", Json(), nullable=False),
        sa.Column("is_enabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", sa.String(length=255), nullable=True),
        sa.Column("forced_down", sa.Boolean(), nullable=False),
        sa.Column("heartbeat_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_hosts")),
        sa.UniqueConstraint("name", name=op.f("uq_hosts_name")),
        sa.UniqueConstraint("provider_uuid", name=op.f("uq_hosts_provider_uuid")),
        sa.UniqueConstraint("service_uuid", name=op.f("uq_hosts_service_uuid")),
        **TABLE_OPTIONS,
    )


def _create_aggregates() -> None:
    op.create_table(
        "aggregates",
        sa.Column("id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("uuid", Uuid(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("metadata", Json(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_aggregates")),
        sa.UniqueConstraint("name", name=op.f("uq_aggregates_name")),
        sa.UniqueConstraint("uuid", name=op.f("uq_aggregates_uuid")),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "aggregate_hosts",
        sa.Column("aggregate_id", _NUMBER, nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ["aggregate_id"], ["aggregates.id"], name=op.f("fk_aggregate_hosts_aggregate_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("aggregate_id", "host", name=op.f("pk_aggregate_hosts")),
        **TABLE_OPTIONS,
    )


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("position", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("open_queue", sa.String(length=255), nullable=True),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("serial_key", sa.String(length=255), nullable=False),
        sa.Column("claimed_key", sa.String(length=255), nullable=True),
        sa.Column("payload", Json(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("lease_until", UtcDateTime(), nullable=True),
        sa.Column("worker", sa.String(length=255), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.Column("result", Json(), nullable=True),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_jobs")),
        sa.UniqueConstraint("claimed_key", name=op.f("uq_jobs_claimed_key")),
        sa.UniqueConstraint("id", name=op.f("uq_jobs_id")),
        **TABLE_OPTIONS,
    )
    op.create_index(op.f("ix_jobs_finished_at"), "jobs", ["finished_at"], unique=False)
    op.create_index(op.f("ix_jobs_open_queue_position"), "jobs", ["open_queue", "position"], unique=False)
    op.create_index(
        op.f("ix_jobs_serial_key_state_position"), "jobs", ["serial_key", "state", "position"], unique=False
    )


def _create_keypairs() -> None:
    op.create_table(
        "keypairs",
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.String(length=255), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", "name", name=op.f("pk_keypairs")),
        **TABLE_OPTIONS,
    )


def _create_servers() -> None:
    op.create_table(
        "servers",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("image_id", sa.String(length=255), nullable=True),
        sa.Column("flavor_id", sa.String(length=255), nullable=False),
        sa.Column("flavor", Json(), nullable=False),
        sa.Column("vm_state", sa.String(length=32), nullable=False),
        sa.Column("task_state", sa.String(length=32), nullable=True),
        sa.Column("power_state", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.Column("wanted_zone", sa.String(length=255), nullable=True),
        sa.Column("wanted_host", sa.String(length=255), nullable=True),
        sa.Column("metadata", Json(), nullable=False),
        sa.Column("tags", Json(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("hostname", sa.String(length=255), nullable=False),
        sa.Column("key_name", sa.String(length=255), nullable=True),
        sa.Column("user_data", Json(), nullable=True),
        sa.Column("config_drive", sa.Boolean(), nullable=False),
        sa.Column("reservation_id", sa.String(length=32), nullable=False),
        sa.Column("launch_index", sa.Integer(), nullable=False),
        sa.Column("scheduler_hints", Json(), nullable=False),
        sa.Column("locked_by", sa.String(length=16), nullable=True),
        sa.Column("locked_reason", sa.String(length=255), nullable=True),
        sa.Column("fault", Json(), nullable=True),
        sa.Column("placed", Json(), nullable=True),
        sa.Column("devices", Json(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("launched_at", UtcDateTime(), nullable=True),
        sa.Column("deleted_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_servers")),
        sa.UniqueConstraint("id", name=op.f("uq_servers_id")),
        **TABLE_OPTIONS,
    )
    op.create_index(op.f("ix_servers_flavor_id"), "servers", ["flavor_id"], unique=False)
    op.create_index(op.f("ix_servers_host_vm_state"), "servers", ["host", "vm_state"], unique=False)
    op.create_index(op.f("ix_servers_project_id_vm_state"), "servers", ["project_id", "vm_state"], unique=False)


def _create_actions() -> None:
    op.create_table(
        "actions",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("id", Uuid(), nullable=False),
        sa.Column("server_id", Uuid(), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("message", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["server_id"], ["servers.id"], name=op.f("fk_actions_server_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_actions")),
        sa.UniqueConstraint("id", name=op.f("uq_actions_id")),
        **TABLE_OPTIONS,
    )
    op.create_index(op.f("ix_actions_server_id"), "actions", ["server_id"], unique=False)
    op.create_table(
        "action_events",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("action_id", Uuid(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.Column("result", sa.String(length=16), nullable=True),
        sa.Column("details", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["action_id"], ["actions.id"], name=op.f("fk_action_events_action_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_action_events")),
        sa.UniqueConstraint("action_id", "name", name=op.f("uq_action_events_action_id_name")),
        **TABLE_OPTIONS,
    )


def _create_consoles() -> None:
    op.create_table(
        "consoles",
        sa.Column("server_id", Uuid(), nullable=False),
        sa.Column("text", Json(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["server_id"], ["servers.id"], name=op.f("fk_consoles_server_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("server_id", name=op.f("pk_consoles")),
        **TABLE_OPTIONS,
    )
