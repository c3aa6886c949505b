"""Tables of the compute database. JSON documents are always read and written as a whole."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid, new_metadata
from moorage.jobs.tables import jobs_table, workers_table

metadata = new_metadata()

_NAME = String(255)
#: SQLite autoincrements only a column of exactly the type INTEGER.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")

flavors = Table(
    "flavors",
    metadata,
    Column("id", _NAME, primary_key=True),
    Column("name", _NAME, nullable=False, unique=True),
    Column("vcpus", Integer, nullable=False),
    Column("ram_mb", Integer, nullable=False),
    Column("disk_gb", Integer, nullable=False),
    Column("ephemeral_gb", Integer, nullable=False),
    Column("swap_mb", Integer, nullable=False),
    Column("rxtx_factor", Float, nullable=False),
    Column("is_public", Boolean, nullable=False),
    Column("description", Text),
    Column("extra_specs", Json, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)

#: Projects that may use a private flavor.
flavor_access = Table(
    "flavor_access",
    metadata,
    Column("flavor_id", _NAME, ForeignKey("flavors.id", ondelete="CASCADE"), nullable=False),
    Column("project_id", _NAME, nullable=False),
    PrimaryKeyConstraint("flavor_id", "project_id"),
    **TABLE_OPTIONS,
)

servers = Table(
    "servers",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("id", Uuid, nullable=False, unique=True),
    Column("name", _NAME, nullable=False),
    Column("project_id", _NAME, nullable=False),
    Column("user_id", _NAME, nullable=False),
    Column("image_id", _NAME),
    Column("flavor_id", _NAME, nullable=False),
    Column("flavor", Json, nullable=False),  # model.Flavor, as it was
    Column("vm_state", String(32), nullable=False),
    Column("task_state", String(32)),
    Column("power_state", Integer, nullable=False),
    Column("host", _NAME),
    Column("wanted_zone", _NAME),
    Column("wanted_host", _NAME),
    Column("metadata", Json, nullable=False),
    Column("tags", Json, nullable=False),
    Column("description", Text),
    Column("hostname", _NAME, nullable=False),
    Column("key_name", _NAME),
    Column("user_data", Json),
    Column("config_drive", Boolean, nullable=False),
    Column("reservation_id", String(32), nullable=False),
    Column("launch_index", Integer, nullable=False),
    Column("scheduler_hints", Json, nullable=False),
    Column("locked_by", String(16)),
    Column("locked_reason", _NAME),
    Column("fault", Json),  # {"code", "message", "details", "created_at"}
    Column("placed", Json),  # {"mappings", "allocations"} as in model.Placed
    Column("devices", Json, nullable=False),
    Column("parked_at", UtcDateTime),
    Column("parked_image_id", _NAME),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("launched_at", UtcDateTime),
    Column("deleted_at", UtcDateTime),
    Column("access_ipv4", String(64)),
    Column("access_ipv6", String(64)),
    Column("disk_config", String(16)),
    Column("image_properties", Json),  # NULL: created without an image
    Column("key_data", Text),
    Column("interfaces", Json),  # [model.NetworkInterface, ...]; NULL: none
    Column("counted", Json),  # {limit: units}: this server's part of its project's `used`
    # Whether `counted` is current: see `quota_store`.
    Column("is_counted", Boolean, nullable=False, server_default=false()),
    Index(None, "project_id", "vm_state"),
    Index(None, "project_id", "is_counted"),
    Index(None, "host", "vm_state"),
    Index(None, "flavor_id"),
    **TABLE_OPTIONS,
)

consoles = Table(
    "consoles",
    metadata,
    Column("server_id", Uuid, ForeignKey("servers.id", ondelete="CASCADE"), primary_key=True),
    Column("text", Json, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)

#: Serial consoles that people asked for, until the console ends: see `console_store`.
console_sessions = Table(
    "console_sessions",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("token_hash", String(64), nullable=False, unique=True),
    Column("server_id", Uuid, ForeignKey("servers.id", ondelete="CASCADE"), nullable=False),
    Column("host", _NAME, nullable=False),
    Column("user_id", _NAME, nullable=False),
    Column("project_id", _NAME, nullable=False),  # of the person's token
    Column("request_id", String(64), nullable=False),
    Column("is_open", Boolean, nullable=False),  # the token has been used
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Index(None, "server_id"),
    Index(None, "project_id"),
    Index(None, "expires_at"),
    **TABLE_OPTIONS,
)

actions = Table(
    "actions",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("id", Uuid, nullable=False, unique=True),
    Column("server_id", Uuid, ForeignKey("servers.id", ondelete="CASCADE"), nullable=False),
    Column("request_id", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("user_id", _NAME, nullable=False),
    Column("project_id", _NAME, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("message", Text),
    Index(None, "server_id"),
    **TABLE_OPTIONS,
)

action_events = Table(
    "action_events",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("action_id", Uuid, ForeignKey("actions.id", ondelete="CASCADE"), nullable=False),
    Column("name", String(64), nullable=False),
    Column("host", _NAME),
    Column("started_at", UtcDateTime, nullable=False),
    Column("finished_at", UtcDateTime),
    Column("result", String(16)),
    Column("details", Text),
    UniqueConstraint("action_id", "name"),
    **TABLE_OPTIONS,
)

hosts = Table(
    "hosts",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("name", _NAME, nullable=False, unique=True),
    Column("service_uuid", Uuid, nullable=False, unique=True),
    Column("provider_uuid", Uuid, nullable=False, unique=True),
    Column("hypervisor_type", _NAME, nullable=False),
    Column("hypervisor_version", Integer, nullable=False),
    Column("host_ip", _NAME, nullable=False),
    Column("vcpus", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("local_gb", Integer, nullable=False),
    Column("devices", Integer, nullable=False),
    Column("cpu_info", Json, nullable=False),
    Column("is_enabled", Boolean, nullable=False),
    Column("disabled_reason", _NAME),
    Column("forced_down", Boolean, nullable=False),
    Column("heartbeat_at", UtcDateTime, nullable=False),
    Column("capabilities", Json),
    **TABLE_OPTIONS,
)

#: model.OutageRecord, in the only row. `past` has pairs of times in ISO 8601.
outage_record = Table(
    "outage_record",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("written_at", UtcDateTime),
    Column("past", Json, nullable=False),
    **TABLE_OPTIONS,
)

#: model.Move: a server on its way from one host to another.
moves = Table(
    "moves",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("id", Uuid, nullable=False, unique=True),
    Column("server_id", Uuid, ForeignKey("servers.id", ondelete="CASCADE"), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("status", String(32), nullable=False),
    Column("step", String(32)),
    Column("is_open", Boolean, nullable=False),
    Column("source_host", _NAME, nullable=False),
    Column("dest_host", _NAME),
    Column("wanted_host", _NAME),
    Column("old_state", String(32), nullable=False),
    Column("old_flavor", Json, nullable=False),
    Column("new_flavor", Json, nullable=False),
    Column("old_placed", Json),
    Column("new_placed", Json),
    Column("details", Json, nullable=False),
    Column("user_id", _NAME, nullable=False),
    Column("project_id", _NAME, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Index(None, "server_id"),
    Index(None, "source_host", "is_open"),
    **TABLE_OPTIONS,
)

aggregates = Table(
    "aggregates",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("uuid", Uuid, nullable=False, unique=True),
    Column("name", _NAME, nullable=False, unique=True),
    Column("metadata", Json, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime),
    **TABLE_OPTIONS,
)

aggregate_hosts = Table(
    "aggregate_hosts",
    metadata,
    Column("aggregate_id", _NUMBER, ForeignKey("aggregates.id", ondelete="CASCADE"), nullable=False),
    Column("host", _NAME, nullable=False),
    PrimaryKeyConstraint("aggregate_id", "host"),
    **TABLE_OPTIONS,
)

#: Limits that were set; those of the empty project apply to all projects without limits of their own.
quotas = Table(
    "quotas",
    metadata,
    Column("project_id", _NAME, nullable=False),
    Column("name", _NAME, nullable=False),
    Column("units", BigInteger, nullable=False),
    PrimaryKeyConstraint("project_id", "name"),
    **TABLE_OPTIONS,
)

#: One row for each project that has requested something limited; its lock protects counting and adding.
quota_locks = Table(
    "quota_locks",
    metadata,
    Column("project_id", _NAME, primary_key=True),
    Column("used", Json),  # {limit: units}: the sum of `counted` of its servers; NULL: nothing counted yet
    Column("taken", BigInteger, nullable=False, server_default="0"),  # see `moorage.db.upserts`
    **TABLE_OPTIONS,
)

keypairs = Table(
    "keypairs",
    metadata,
    Column("user_id", _NAME, nullable=False),
    Column("name", _NAME, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("public_key", Text, nullable=False),
    Column("fingerprint", _NAME, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    PrimaryKeyConstraint("user_id", "name"),
    **TABLE_OPTIONS,
)

jobs = jobs_table(metadata)
workers = workers_table(metadata)

server_groups = Table(
    "server_groups",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("id", Uuid, nullable=False, unique=True),
    Column("name", _NAME, nullable=False),
    Column("project_id", _NAME, nullable=False),
    Column("user_id", _NAME, nullable=False),
    Column("policy", String(32), nullable=False),
    Column("rules", Json, nullable=False),  # {"max_server_per_host": 2}
    Column("created_at", UtcDateTime, nullable=False),
    Index(None, "project_id"),
    **TABLE_OPTIONS,
)

#: A server is in at most one group, for its whole life.
server_group_members = Table(
    "server_group_members",
    metadata,
    Column("server_id", Uuid, ForeignKey("servers.id", ondelete="CASCADE"), primary_key=True),
    Column("group_id", Uuid, ForeignKey("server_groups.id", ondelete="CASCADE"), nullable=False),
    Index(None, "group_id"),
    **TABLE_OPTIONS,
)

#: Number of failed builds on a host since the last successful one; no row for zero.
build_failures = Table(
    "build_failures",
    metadata,
    Column("host", _NAME, primary_key=True),
    Column("count", Integer, nullable=False),
    Column("failed_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)
