"""Tables of the network service."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, String, Table, UniqueConstraint, false

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid, new_metadata

metadata = new_metadata()

NUMBER = BigInteger().with_variant(Integer, "sqlite")


def _times() -> tuple[Column[object], Column[object]]:
    return Column("created_at", UtcDateTime, nullable=False), Column("updated_at", UtcDateTime, nullable=False)


networks = Table(
    "networks",
    metadata,
    Column("number", NUMBER, primary_key=True, autoincrement=True),
    Column("id", Uuid, nullable=False),
    Column("name", String(255), nullable=False),
    Column("project_id", String(255), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("physical_network", String(64), nullable=False),
    Column("segmentation_id", Integer, nullable=False),  # 0: none, so that the constraint below counts it
    Column("is_shared", Boolean, nullable=False),
    Column("is_configured", Boolean, nullable=False),
    Column("description", String(255), nullable=False),
    *_times(),
    UniqueConstraint("id"),
    UniqueConstraint("kind", "physical_network", "segmentation_id"),
    **TABLE_OPTIONS,
)

subnets = Table(
    "subnets",
    metadata,
    Column("number", NUMBER, primary_key=True, autoincrement=True),
    Column("id", Uuid, nullable=False),
    Column("network_id", Uuid, ForeignKey("networks.id", ondelete="CASCADE"), nullable=False),
    Column("project_id", String(255), nullable=False),
    Column("name", String(255), nullable=False),
    Column("cidr", String(64), nullable=False),
    Column("gateway", String(64)),
    Column("dns", Json, nullable=False),  # [address, ...]
    Column("pools", Json, nullable=False),  # [[first, last], ...]
    *_times(),
    UniqueConstraint("id"),
    Index(None, "network_id"),
    **TABLE_OPTIONS,
)

ports = Table(
    "ports",
    metadata,
    Column("number", NUMBER, primary_key=True, autoincrement=True),
    Column("id", Uuid, nullable=False),
    Column("network_id", Uuid, ForeignKey("networks.id"), nullable=False),
    Column("project_id", String(255), nullable=False),
    Column("name", String(255), nullable=False),
    Column("description", String(255), nullable=False),
    Column("mac", String(17), nullable=False),
    Column("device_id", String(255), nullable=False),
    Column("host", String(255), nullable=False),
    Column("is_for_server", Boolean, nullable=False),
    *_times(),
    UniqueConstraint("id"),
    UniqueConstraint("mac"),
    Index(None, "network_id"),
    Index(None, "project_id"),
    Index(None, "device_id"),
    **TABLE_OPTIONS,
)

#: Projects with ports. The lock of a row keeps two requests from counting the same ports against the quota.
quota_locks = Table(
    "quota_locks",
    metadata,
    Column("project_id", String(255), primary_key=True),
    Column("taken", BigInteger, nullable=False, server_default="0"),  # see `moorage.db.upserts`
    **TABLE_OPTIONS,
)

#: The addresses of ports: those that we gave them, and those that hosts learned. The constraint keeps two ports from
#: having the same one, whatever a program does.
addresses = Table(
    "addresses",
    metadata,
    Column("number", NUMBER, primary_key=True, autoincrement=True),
    Column("network_id", Uuid, nullable=False),
    Column("address", String(64), nullable=False),
    Column("subnet_id", Uuid, ForeignKey("subnets.id"), nullable=False),
    Column("port_id", Uuid, ForeignKey("ports.id", ondelete="CASCADE"), nullable=False),
    Column("is_learned", Boolean, nullable=False, server_default=false()),
    UniqueConstraint("network_id", "address"),
    Index(None, "port_id"),
    Index(None, "subnet_id"),
    **TABLE_OPTIONS,
)
