"""The reservation service's tables. Tables and columns of the peer keep its names; comments justify the others."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, String, Table, Text, UniqueConstraint

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid, new_metadata
from moorage.jobs.tables import workers_table

metadata = new_metadata()


def _times() -> tuple[Column[object], Column[object]]:
    return Column("created_at", UtcDateTime, nullable=False), Column("updated_at", UtcDateTime)


leases = Table(
    "leases",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", String(255), nullable=False),
    Column("user_id", String(255), nullable=False),
    Column("project_id", String(255), nullable=False),
    Column("start_date", UtcDateTime, nullable=False),
    Column("end_date", UtcDateTime, nullable=False),
    Column("trust_id", String(36)),
    Column("status", String(16), nullable=False),
    Column("degraded", Boolean, nullable=False),
    Column("before_end_actions", Json),  # [[kind, target]]; NULL: none
    *_times(),
    # Indexes for pages of leases, of one project or of all: a page is one index range in its order, so its cost
    # does not depend on the length of the list.
    *(Index(None, *of, key, "id") for of in ((), ("project_id",)) for key in ("created_at", "start_date", "end_date")),
    Index(None, "name"),
    Index(None, "status", "created_at", "id"),
    **TABLE_OPTIONS,
)

# Leases that were deleted, for a time. They are not in `leases`, so that no list contains them.
deleted_leases = Table(
    "deleted_leases",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", String(255), nullable=False),
    Column("user_id", String(255), nullable=False),
    Column("project_id", String(255), nullable=False),
    Column("start_date", UtcDateTime, nullable=False),
    Column("end_date", UtcDateTime, nullable=False),
    Column("deleted_at", UtcDateTime, nullable=False),
    Column("document", Json, nullable=False),  # {"lease": row, "reservations": [row], "events", "steps", "incidents"}
    Index(None, "deleted_at", "id"),
    Index(None, "project_id", "deleted_at", "id"),
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
    Column("source", Json),  # the flavor or resources requested; NULL: only the size above
    # Columns of an older system. Nothing reads or writes them, because `older_reservations` has their values;
    # migration 0099 may drop them at any time (R35).
    Column("aggregate_id", Integer),
    Column("server_group_id", String(36)),
    *_times(),
    **TABLE_OPTIONS,
)

# Reservations of whole hosts. The older system's column for the aggregate is not needed: the aggregate's name is the
# reservation's id.
computehost_reservations = Table(
    "computehost_reservations",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("reservation_id", Uuid, ForeignKey("reservations.id"), nullable=False, unique=True),
    Column("min_hosts", Integer, nullable=False),
    Column("max_hosts", Integer, nullable=False),
    Column("hypervisor_properties", Text, nullable=False),
    Column("resource_properties", Text, nullable=False),
    Column("before_end", String(36), nullable=False),
    *_times(),
    **TABLE_OPTIONS,
)

# Reservations of floating IPs. `required_floatingips`: [address], addresses that the reservation must contain.
floatingip_reservations = Table(
    "floatingip_reservations",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("reservation_id", Uuid, ForeignKey("reservations.id"), nullable=False, unique=True),
    Column("network_id", String(255), nullable=False),
    Column("amount", Integer, nullable=False),
    Column("required_floatingips", Json, nullable=False),
    *_times(),
    **TABLE_OPTIONS,
)

# Nova's objects of a reservation that an older system created (R25, R33). New reservations have a row only if
# `compat_server_groups` is set (A2).
older_reservations = Table(
    "older_reservations",
    metadata,
    Column("reservation_id", Uuid, ForeignKey("reservations.id"), primary_key=True),
    Column("generation", String(16)),  # NULL: not determined yet
    Column("aggregate_id", Integer),
    Column("server_group_id", String(36)),
    **TABLE_OPTIONS,
)

# Incidents of leases: their resources were lost, moved or restored. Shown in the timeline. The table has no foreign
# key, so that a program that does not know it can delete leases.
lease_incidents = Table(
    "lease_incidents",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("lease_id", Uuid, nullable=False, index=True),
    Column("kind", String(16), nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("reason", Text, nullable=False),
    **TABLE_OPTIONS,
)

# An event is also the claim on its work: the worker that claimed it knows `epoch`, and a write with an older epoch
# is refused.
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

# Journal of an event's steps: after a crash the next worker continues at the first step that is not done.
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

workers = workers_table(metadata)

# Registered hosts. Ids are decimal numbers, because stock clients treat any other text as a host's name.
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
    # Incremented by every change of the host's allocations or capacity: equal revisions mean that nothing changed.
    Column("revision", BigInteger, nullable=False, server_default="0"),
    *_times(),
    **TABLE_OPTIONS,
)

# The capacity of hosts, as last read from Placement: (total - reserved) * allocation_ratio. `resource_class` is a label
# (see `slot_demand`), because several providers of a host may have the same class.
computehost_resources = Table(
    "computehost_resources",
    metadata,
    Column("computehost_id", Integer, ForeignKey("computehosts.id"), primary_key=True, autoincrement=False),
    Column("resource_class", String(255), primary_key=True),
    Column("capacity", BigInteger, nullable=False),
    Column("max_unit", BigInteger, nullable=False),
    Column("provider", String(255)),  # its name; NULL: unknown, because the host was imported
    Column("above", Json),  # names of the provider's ancestors
    **TABLE_OPTIONS,
)

# The position in Placement's change log up to which `computehost_resources` follows it; one row with id 1. Processes
# lock it before they write capacities, so that an older reading never replaces a newer one.
placement_position = Table(
    "placement_position",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
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

# Addresses that may be reserved: outside the pools from which Neutron assigns addresses by itself.
floatingips = Table(
    "floatingips",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("floating_network_id", String(255), nullable=False, index=True),
    Column("subnet_id", String(255), nullable=False),
    Column("floating_ip_address", String(255), nullable=False),
    Column("reservable", Boolean, nullable=False),
    # Incremented by every change of the address's allocations. On a cluster that does not lock rows across nodes, two
    # transactions that allocate the same address write the same row, and one of them is rolled back.
    Column("revision", BigInteger, nullable=False, server_default="0"),
    *_times(),
    UniqueConstraint("subnet_id", "floating_ip_address"),
    **TABLE_OPTIONS,
)

# Allocations of addresses to reservations, like `computehost_allocations`. Deleted when the lease ends.
floatingip_allocations = Table(
    "floatingip_allocations",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("floatingip_id", Uuid, ForeignKey("floatingips.id"), nullable=False),
    Column("reservation_id", Uuid, ForeignKey("reservations.id"), nullable=False, index=True),
    Column("start_date", UtcDateTime, nullable=False),
    Column("end_date", UtcDateTime, nullable=False),
    *_times(),
    Index(None, "floatingip_id", "end_date"),
    **TABLE_OPTIONS,
)

# Offers that are kept free for a project until `expires_at`, and can become a lease. Expired holds count as absent.
holds = Table(
    "holds",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("user_id", String(255), nullable=False),
    Column("project_id", String(255), nullable=False),
    Column("start_date", UtcDateTime, nullable=False),
    Column("end_date", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False, index=True),
    Column("requests", Json, nullable=False),  # [reservation as in the request's body]
    Column("created_at", UtcDateTime, nullable=False),
    Index(None, "project_id", "expires_at"),
    **TABLE_OPTIONS,
)

# Like `computehost_allocations`: one row per slot of the reservation at `position` in `holds.requests`.
hold_allocations = Table(
    "hold_allocations",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("hold_id", Uuid, ForeignKey("holds.id"), nullable=False, index=True),
    Column("position", Integer, nullable=False),
    Column("compute_host_id", Integer, ForeignKey("computehosts.id"), nullable=False, index=True),
    Column("start_date", UtcDateTime, nullable=False),
    Column("end_date", UtcDateTime, nullable=False),
    Column("resources", Json, nullable=False),
    **TABLE_OPTIONS,
)

# Calendar feeds. `secret_hash`: SHA-256 of the secret in the feed's URL, in hexadecimal.
calendar_feeds = Table(
    "calendar_feeds",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", String(255), nullable=False),
    Column("user_id", String(255), nullable=False),
    Column("project_id", String(255), nullable=False),
    Column("secret_hash", String(64), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("read_at", UtcDateTime),  # approximately; NULL: never
    Index(None, "user_id", "created_at", "id"),
    Index(None, "created_at", "id"),
    **TABLE_OPTIONS,
)

# The limits of projects and users. Every request that takes capacity raises the `revision` of its project's and its
# user's row first, so that their checks run one after another. (On a cluster that does not lock rows across nodes, two
# such transactions write the same row, and one of them is rolled back.)
project_limits = Table(
    "project_limits",
    metadata,
    Column("project_id", String(255), primary_key=True),
    Column("limits", Json),  # {"now": {resource class: units}, "hours": {class: unit-hours}}; NULL: default
    Column("revision", BigInteger, nullable=False, server_default="0"),
    **TABLE_OPTIONS,
)

user_limits = Table(
    "user_limits",
    metadata,
    Column("user_id", String(255), primary_key=True),
    Column("limits", Json),  # as in `project_limits`
    Column("revision", BigInteger, nullable=False, server_default="0"),
    **TABLE_OPTIONS,
)

# Usage of present and past reservations. Kept when a lease is deleted, because its used hours still count.
project_usage = Table(
    "project_usage",
    metadata,
    Column("reservation_id", Uuid, primary_key=True),
    Column("lease_id", Uuid, nullable=False, index=True),
    Column("project_id", String(255), nullable=False),
    Column("start_date", UtcDateTime, nullable=False),
    Column("end_date", UtcDateTime, nullable=False),
    Column("amounts", Json, nullable=False),  # {resource class: units}
    Column("user_id", String(255)),  # NULL: written by a program that did not limit users
    Index(None, "project_id", "end_date"),
    Index(None, "user_id", "end_date"),
    **TABLE_OPTIONS,
)

# How long projects and users kept capacity by holds, for the limit on that time. The row of a hold that becomes a lease
# is deleted; the others are kept for a day.
hold_times = Table(
    "hold_times",
    metadata,
    Column("hold_id", Uuid, primary_key=True),
    Column("project_id", String(255), nullable=False),
    Column("user_id", String(255), nullable=False),
    Column("start_date", UtcDateTime, nullable=False),  # when the hold was made
    Column("end_date", UtcDateTime, nullable=False),  # when it expires, or was released
    Index(None, "project_id", "end_date"),
    Index(None, "user_id", "end_date"),
    **TABLE_OPTIONS,
)
