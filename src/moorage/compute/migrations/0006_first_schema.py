"""Creates the first schema: flavors, hosts, aggregates, quotas, keypairs, servers with everything of theirs, jobs."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid
from moorage.jobs import initial_table as jobs

_NAME = sa.String(255)
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
#: In the order in which they are created.
_TABLES = (
    "flavors",
    "flavor_access",
    "hosts",
    "build_failures",
    "aggregates",
    "aggregate_hosts",
    "quotas",
    "quota_locks",
    "keypairs",
    "servers",
    "consoles",
    "actions",
    "action_events",
    "moves",
    "server_groups",
    "server_group_members",
)


def upgrade() -> None:
    _create_flavors()
    _create_hosts()
    _create_aggregates()
    _create_quotas()
    _create_keypairs()
    _create_servers()
    _create_consoles()
    _create_actions()
    _create_moves()
    _create_server_groups()
    jobs.create()


def downgrade() -> None:
    jobs.drop()
    for table in reversed(_TABLES):
        op.drop_table(table)


def _create_flavors() -> None:
    op.create_table(
        "flavors",
        sa.Column("id", _NAME, primary_key=True),
        sa.Column("name", _NAME, nullable=False, unique=True),
        sa.Column("vcpus", sa.Integer, nullable=False),
        sa.Column("ram_mb", sa.Integer, nullable=False),
        sa.Column("disk_gb", sa.Integer, nullable=False),
        sa.Column("ephemeral_gb", sa.Integer, nullable=False),
        sa.Column("swap_mb", sa.Integer, nullable=False),
        sa.Column("rxtx_factor", sa.Float, nullable=False),
        sa.Column("is_public", sa.Boolean, nullable=False),
        sa.Column("description", sa.Text),
        sa.Column("extra_specs", Json, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "flavor_access",
        sa.Column("flavor_id", _NAME, sa.ForeignKey("flavors.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("project_id", _NAME, primary_key=True),
        **TABLE_OPTIONS,
    )


def _create_hosts() -> None:
    op.create_table(
        "hosts",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("name", _NAME, nullable=False, unique=True),
        sa.Column("service_uuid", Uuid(), nullable=False, unique=True),
        sa.Column("provider_uuid", Uuid(), nullable=False, unique=True),
        sa.Column("hypervisor_type", _NAME, nullable=False),
        sa.Column("hypervisor_version", sa.Integer, nullable=False),
        sa.Column("host_ip", _NAME, nullable=False),
        sa.Column("vcpus", sa.Integer, nullable=False),
        sa.Column("memory_mb", sa.Integer, nullable=False),
        sa.Column("local_gb", sa.Integer, nullable=False),
        sa.Column("devices", sa.Integer, nullable=False),
        sa.Column("cpu_info", Json, nullable=False),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        sa.Column("disabled_reason", _NAME),
        sa.Column("forced_down", sa.Boolean, nullable=False),
        sa.Column("heartbeat_at", UtcDateTime, nullable=False),
        sa.Column("capabilities", Json),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "build_failures",
        sa.Column("host", _NAME, primary_key=True),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("failed_at", UtcDateTime, nullable=False),
        **TABLE_OPTIONS,
    )


def _create_aggregates() -> None:
    op.create_table(
        "aggregates",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("uuid", Uuid(), nullable=False, unique=True),
        sa.Column("name", _NAME, nullable=False, unique=True),
        sa.Column("metadata", Json, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("updated_at", UtcDateTime),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "aggregate_hosts",
        sa.Column("aggregate_id", _NUMBER, sa.ForeignKey("aggregates.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("host", _NAME, primary_key=True),
        **TABLE_OPTIONS,
    )


def _create_quotas() -> None:
    op.create_table(
        "quotas",
        sa.Column("project_id", _NAME, primary_key=True),
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("units", sa.BigInteger, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "quota_locks",
        sa.Column("project_id", _NAME, primary_key=True),
        sa.Column("used", Json),
        **TABLE_OPTIONS,
    )


def _create_keypairs() -> None:
    op.create_table(
        "keypairs",
        sa.Column("user_id", _NAME, primary_key=True),
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("public_key", sa.Text, nullable=False),
        sa.Column("fingerprint", _NAME, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        **TABLE_OPTIONS,
    )


def _create_servers() -> None:
    op.create_table(
        "servers",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("id", Uuid(), nullable=False, unique=True),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("project_id", _NAME, nullable=False),
        sa.Column("user_id", _NAME, nullable=False),
        sa.Column("image_id", _NAME),
        sa.Column("flavor_id", _NAME, nullable=False),
        sa.Column("flavor", Json, nullable=False),
        sa.Column("vm_state", sa.String(32), nullable=False),
        sa.Column("task_state", sa.String(32)),
        sa.Column("power_state", sa.Integer, nullable=False),
        sa.Column("host", _NAME),
        sa.Column("wanted_zone", _NAME),
        sa.Column("wanted_host", _NAME),
        sa.Column("metadata", Json, nullable=False),
        sa.Column("tags", Json, nullable=False),
        sa.Column("description", sa.Text),
        sa.Column("hostname", _NAME, nullable=False),
        sa.Column("key_name", _NAME),
        sa.Column("user_data", Json),
        sa.Column("config_drive", sa.Boolean, nullable=False),
        sa.Column("reservation_id", sa.String(32), nullable=False),
        sa.Column("launch_index", sa.Integer, nullable=False),
        sa.Column("scheduler_hints", Json, nullable=False),
        sa.Column("locked_by", sa.String(16)),
        sa.Column("locked_reason", _NAME),
        sa.Column("fault", Json),
        sa.Column("placed", Json),
        sa.Column("devices", Json, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.Column("launched_at", UtcDateTime),
        sa.Column("deleted_at", UtcDateTime),
        sa.Column("parked_at", UtcDateTime),
        sa.Column("parked_image_id", _NAME),
        sa.Column("access_ipv4", sa.String(64)),
        sa.Column("access_ipv6", sa.String(64)),
        sa.Column("disk_config", sa.String(16)),
        sa.Column("image_properties", Json),
        sa.Column("key_data", sa.Text),
        sa.Column("counted", Json),
        sa.Column("is_counted", sa.Boolean, nullable=False, server_default=sa.false()),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_servers_flavor_id", "servers", ["flavor_id"])
    op.create_index("ix_servers_host_vm_state", "servers", ["host", "vm_state"])
    op.create_index("ix_servers_project_id_vm_state", "servers", ["project_id", "vm_state"])
    op.create_index("ix_servers_project_id_is_counted", "servers", ["project_id", "is_counted"])


def _create_consoles() -> None:
    op.create_table(
        "consoles",
        sa.Column("server_id", Uuid(), sa.ForeignKey("servers.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("text", Json, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        **TABLE_OPTIONS,
    )


def _create_actions() -> None:
    op.create_table(
        "actions",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("id", Uuid(), nullable=False, unique=True),
        sa.Column("server_id", Uuid(), sa.ForeignKey("servers.id", ondelete="CASCADE"), nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("user_id", _NAME, nullable=False),
        sa.Column("project_id", _NAME, nullable=False),
        sa.Column("started_at", UtcDateTime, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.Column("message", sa.Text),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_actions_server_id", "actions", ["server_id"])
    op.create_table(
        "action_events",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("action_id", Uuid(), sa.ForeignKey("actions.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("host", _NAME),
        sa.Column("started_at", UtcDateTime, nullable=False),
        sa.Column("finished_at", UtcDateTime),
        sa.Column("result", sa.String(16)),
        sa.Column("details", sa.Text),
        sa.UniqueConstraint("action_id", "name"),
        **TABLE_OPTIONS,
    )


def _create_moves() -> None:
    op.create_table(
        "moves",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("id", Uuid(), nullable=False, unique=True),
        sa.Column("server_id", Uuid(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("step", sa.String(32)),
        sa.Column("is_open", sa.Boolean, nullable=False),
        sa.Column("source_host", _NAME, nullable=False),
        sa.Column("dest_host", _NAME),
        sa.Column("wanted_host", _NAME),
        sa.Column("old_state", sa.String(32), nullable=False),
        sa.Column("old_flavor", Json, nullable=False),
        sa.Column("new_flavor", Json, nullable=False),
        sa.Column("old_placed", Json),
        sa.Column("new_placed", Json),
        sa.Column("details", Json, nullable=False),
        sa.Column("user_id", _NAME, nullable=False),
        sa.Column("project_id", _NAME, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.ForeignKeyConstraint(
            ["server_id"], ["servers.id"], name=op.f("fk_moves_server_id_servers"), ondelete="CASCADE"
        ),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_moves_server_id", "moves", ["server_id"])
    op.create_index("ix_moves_source_host_is_open", "moves", ["source_host", "is_open"])


def _create_server_groups() -> None:
    op.create_table(
        "server_groups",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("id", Uuid(), nullable=False, unique=True),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("project_id", _NAME, nullable=False),
        sa.Column("user_id", _NAME, nullable=False),
        sa.Column("policy", sa.String(32), nullable=False),
        sa.Column("rules", Json, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_server_groups_project_id", "server_groups", ["project_id"])
    op.create_table(
        "server_group_members",
        sa.Column("server_id", Uuid(), primary_key=True),
        sa.Column("group_id", Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["server_id"], ["servers.id"], name=op.f("fk_server_group_members_server_id_servers"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["group_id"], ["server_groups.id"], name=op.f("fk_server_group_members_group_id_server_groups"),
            ondelete="CASCADE",
        ),
        **TABLE_OPTIONS,
    )  # fmt: skip
    op.create_index("ix_server_group_members_group_id", "server_group_members", ["group_id"])
