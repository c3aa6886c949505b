"""The reservation service's tables. Names are the peer's where it has the table; what is ours says why it exists."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, String, Table, Text, UniqueConstraint

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid, new_metadata

metadata = new_metadata()


def _times() -> tuple[Column[object], Column[object]]:
    return Column("created_at", UtcDateTime, nullable=False), Column("updated_at", UtcDateTime)


leases = Table(
    "leases",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", String(255), nullable=False),
    Column("user_id", String(255), nullable=False),
    Column("project_id", String(255), nullable=False, index=True),
    Column("start_date", UtcDateTime, nullable=False),
    Column("end_date", UtcDateTime, nullable=False),
    Column("trust_id", String(36)),
    Column("status", String(16), nullable=False),
    Column("degraded", Boolean, nullable=False),
    *_times(),
    **TABLE_OPTIONS,
)

reservations = Table(
    "reservations",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("lease_id", Uuid, ForeignKey("leases.id"), nullable=False, index=True),
    Column("position", Integer, nullable=False),  # the order in which the lease named them
    Column("resource_id", Uuid, nullable=False),
    Column("resource_type", String(66), nullable=False),
    Column("status", String(13), nullable=False),
    Column("missing_resources", Boolean, nullable=False),
    Column("resources_changed", Boolean, nullable=False),
    *_times(),
    **TABLE_OPTIONS,
)

instance_reservations = Table(
    "instance_reservations",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("reservation_id", Uuid, ForeignKey("reservations.id"), nullable=False, unique=True),
    Column("vcpus", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("disk_gb", Integer, nullable=False),
    Column("amount", Integer, nullable=False),
    # NULL: no policy, true: affinity, false: anti-affinity (R14, R35).
    Column("affinity", Boolean, nullable=True),
    Column("resource_properties", Text, nullable=False),
    Column("flavor_id", String(36)),
    # An older system's. Nothing reads or writes them: their values are in `older_reservations`, so that
    # migration 0003 may drop them at any time (R35).
    Column("aggregate_id", Integer),
    Column("server_group_id", String(36)),
    *_times(),
    **TABLE_OPTIONS,
)

# What a reservation of an older system has in Nova (R25, R33). New ones have no row here (R10).
older_reservations = Table(
    "older_reservations",
    metadata,
    Column("reservation_id", Uuid, ForeignKey("reservations.id"), primary_key=True),
    Column("generation", String(16)),  # NULL: not told apart yet
    Column("aggregate_id", Integer),
    Column("server_group_id", String(36)),
    **TABLE_OPTIONS,
)

# An event is also the claim on its work: whoever holds it holds `epoch`, and a write with an older epoch is refused.
events = Table(
    "events",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("lease_id", Uuid, ForeignKey("leases.id"), nullable=False, index=True),
    Column("event_type", String(66), nullable=False),
    Column("time", UtcDateTime, nullable=False),
    Column("status", String(13), nullable=False),
    Column("claimed_by", String(255)),
    Column("claim_until", UtcDateTime),
    Column("attempt", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("retry_at", UtcDateTime),
    Column("last_error", Text),
    *_times(),
    Index(None, "status", "time"),
    **TABLE_OPTIONS,
)

# What an event has done so far: after a crash the next worker goes on at the first step that is not done.
steps = Table(
    "steps",
    metadata,
    Column("event_id", Uuid, ForeignKey("events.id"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(32), nullable=False),
    Column("args", Json, nullable=False),
    Column("state", String(13), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("last_error", Text),
    *_times(),
    **TABLE_OPTIONS,
)

# Stock clients take a host id that is not a decimal number for a host's name: so numbers, given as text.
computehosts = Table(
    "computehosts",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("hypervisor_hostname", String(255), nullable=False, unique=True),
    Column("service_name", String(255), nullable=False),
    Column("hypervisor_type", Text, nullable=False),
    Column("hypervisor_version", Integer, nullable=False),
    Column("cpu_info", Text, nullable=False),
    Column("vcpus", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("local_gb", Integer, nullable=False),
    Column("availability_zone", String(255), nullable=False),
    Column("status", String(13)),
    Column("trust_id", String(36)),
    Column("reservable", Boolean, nullable=False),
    Column("ready", Boolean, nullable=False),  # false while it is being registered or removed
    *_times(),
    **TABLE_OPTIONS,
)

# The capacity that may be given out, as Placement last said: (total - reserved) * allocation_ratio.
computehost_resources = Table(
    "computehost_resources",
    metadata,
    Column("computehost_id", Integer, ForeignKey("computehosts.id"), primary_key=True, autoincrement=False),
    Column("resource_class", String(255), primary_key=True),
    Column("capacity", BigInteger, nullable=False),
    Column("max_unit", BigInteger, nullable=False),
    **TABLE_OPTIONS,
)

resource_properties = Table(
    "resource_properties",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("resource_type", String(66), nullable=False),
    Column("property_name", String(255), nullable=False),
    Column("private", Boolean, nullable=False),
    *_times(),
    UniqueConstraint("resource_type", "property_name"),
    **TABLE_OPTIONS,
)

computehost_extra_capabilities = Table(
    "computehost_extra_capabilities",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("computehost_id", Integer, ForeignKey("computehosts.id"), nullable=False),
    Column("property_id", Uuid, ForeignKey("resource_properties.id"), nullable=False, index=True),
    Column("capability_value", Text, nullable=False),
    *_times(),
    UniqueConstraint("computehost_id", "property_id"),
    **TABLE_OPTIONS,
)

# One row per slot. Period and size are repeated here so that admission reads one index range and joins nothing.
computehost_allocations = Table(
    "computehost_allocations",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("compute_host_id", Integer, ForeignKey("computehosts.id"), nullable=False),
    Column("reservation_id", Uuid, ForeignKey("reservations.id"), nullable=False, index=True),
    Column("start_date", UtcDateTime, nullable=False),
    Column("end_date", UtcDateTime, nullable=False),
    Column("resources", Json, nullable=False),  # {resource class: amount}
    *_times(),
    Index(None, "compute_host_id", "start_date", "end_date"),
    **TABLE_OPTIONS,
)
