"""Tables of the accelerator service: reported devices, device profiles, accelerator requests, history, the order of
hosts' reports, and host jobs.
"""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, String, Table, Text, UniqueConstraint

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid, new_metadata
from moorage.jobs.tables import jobs_table, workers_table

metadata = new_metadata()

NUMBER = BigInteger().with_variant(Integer, "sqlite")


def _times() -> tuple[Column[object], Column[object]]:
    return Column("created_at", UtcDateTime, nullable=False), Column("updated_at", UtcDateTime)


devices = Table(
    "devices",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=True),  # the API's `device_id` of deployables
    Column("uuid", Uuid, nullable=False),
    Column("hostname", String(255), nullable=False),
    Column("address", String(64), nullable=False),
    Column("type", String(30), nullable=False),
    Column("vendor", String(255), nullable=False),
    Column("model", String(255), nullable=False),
    Column("status", String(16), nullable=False),
    Column("health", String(16), nullable=False),
    Column("health_since", UtcDateTime),  # NULL: since before the service stored it
    Column("std_board_info", Json, nullable=False),
    Column("vendor_board_info", Json, nullable=False),
    *_times(),
    UniqueConstraint("uuid"),
    UniqueConstraint("hostname", "address"),
    **TABLE_OPTIONS,
)

deployables = Table(
    "deployables",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=True),
    Column("uuid", Uuid, nullable=False),
    Column("device_id", NUMBER, ForeignKey("devices.id", ondelete="CASCADE"), nullable=False),
    Column("name", String(255), nullable=False),  # <host>_<card>[_R<n>], as in Placement
    Column("num_accelerators", Integer, nullable=False),
    Column("rp_uuid", Uuid),
    Column("driver_name", String(255), nullable=False),
    Column("bitstream_id", String(255)),
    Column("attributes", Json, nullable=False),  # [[key, value], ...]
    Column("handles", Json, nullable=False),  # {pci address: state}
    *_times(),
    UniqueConstraint("uuid"),
    UniqueConstraint("name"),
    Index(None, "device_id"),
    **TABLE_OPTIONS,
)

device_profiles = Table(
    "device_profiles",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=True),
    Column("uuid", Uuid, nullable=False),
    Column("name", String(255), nullable=False),
    Column("description", Text),
    Column("groups", Json, nullable=False),
    *_times(),
    UniqueConstraint("uuid"),
    UniqueConstraint("name"),
    **TABLE_OPTIONS,
)

accelerator_requests = Table(
    "accelerator_requests",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=True),
    Column("uuid", Uuid, nullable=False),
    Column("state", String(16), nullable=False),
    Column("hostname", String(255)),
    Column("device_rp_uuid", Uuid),
    Column("instance_uuid", Uuid),
    Column("project_id", String(255), nullable=False),
    Column("device_profile_name", String(255)),  # NULL: reported by the host
    Column("device_profile_group_id", Integer, nullable=False),
    Column("profile_group", Json),
    Column("attach_handle_uuid", Uuid),
    Column("pci_id", String(64)),
    *_times(),
    Column("physical_network", String(255)),  # of the device
    UniqueConstraint("uuid"),
    UniqueConstraint("hostname", "pci_id"),  # one holder per handle, even if a host reports otherwise
    Index(None, "instance_uuid"),
    Index(None, "project_id"),
    Index(None, "device_profile_name"),
    **TABLE_OPTIONS,
)

attributes = Table(
    "attributes",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=True),
    Column("uuid", Uuid, nullable=False),
    Column("deployable_id", NUMBER, ForeignKey("deployables.id", ondelete="CASCADE"), nullable=False),
    Column("key", String(255), nullable=False),
    Column("value", String(255), nullable=False),
    *_times(),
    UniqueConstraint("uuid"),
    Index(None, "deployable_id"),
    **TABLE_OPTIONS,
)

#: The device history as reported by hosts, see `device_history`. It has no foreign keys, so that records stay when the
#: devices, servers and projects in them are deleted.
history = Table(
    "history",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=True),
    Column("hostname", String(255), nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("event", String(16), nullable=False),
    Column("device", String(255), nullable=False),  # the card's address
    Column("deployable", String(255), nullable=False),
    Column("handle", String(255), nullable=False),
    Column("instance_uuid", Uuid),
    Column("project_id", String(255), nullable=False),
    Column("user_id", String(255), nullable=False),
    Column("image_id", String(255), nullable=False),
    Column("digest", String(255), nullable=False),
    Column("done", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    UniqueConstraint("hostname", "sequence"),  # a record counts once, even if it is reported repeatedly
    Index(None, "sequence"),
    Index(None, "at"),
    Index(None, "instance_uuid"),
    Index(None, "hostname", "device"),
    **TABLE_OPTIONS,
)

#: The order of each host's reports, see `service.report_order`.
host_reports = Table(
    "host_reports",
    metadata,
    Column("hostname", String(255), primary_key=True),
    Column("epoch", BigInteger, nullable=False),  # of the agent that counts: the last one that started and reported
    Column("number", BigInteger, nullable=False),  # of the next report
    Column("begun_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)

jobs = jobs_table(metadata)
workers = workers_table(metadata)
