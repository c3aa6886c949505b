"""Tables of identity. A record of `moorage.identity.model` is a row; its key columns are the primary key."""

from sqlalchemy import Boolean, Column, Integer, String, Table, UniqueConstraint

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, new_metadata

metadata = new_metadata()


def _id(name: str = "id", *, key: bool = False) -> Column[str]:
    return Column(name, String(64), primary_key=key, nullable=False)


def _name() -> Column[str]:
    return Column("name", String(255), nullable=False)


#: One row. Every write increments `value` first, which makes writers wait for each other.
revision = Table(
    "revision",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("value", Integer, nullable=False),
    **TABLE_OPTIONS,
)

#: The users file that was imported at the first start, with the SHA-256 of its content.
imports = Table(
    "imports",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("path", String(4096), nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("imported_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)

domains = Table(
    "domains",
    metadata,
    _id(key=True),
    _name(),
    Column("description", Json, nullable=False),
    Column("enabled", Boolean, nullable=False),
    UniqueConstraint("name"),
    **TABLE_OPTIONS,
)

projects = Table(
    "projects",
    metadata,
    _id(key=True),
    _id("domain_id"),
    _name(),
    Column("description", Json, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("tags", Json, nullable=False),
    Column("extra", Json, nullable=False),
    Column("epoch", Integer, nullable=False),
    UniqueConstraint("domain_id", "name"),
    **TABLE_OPTIONS,
)

users = Table(
    "users",
    metadata,
    _id(key=True),
    _id("domain_id"),
    _name(),
    Column("password_hash", String(128), nullable=False),
    Column("default_project_id", String(64)),
    Column("enabled", Boolean, nullable=False),
    Column("extra", Json, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("password_changed_at", UtcDateTime),
    Column("unlocks", Integer, nullable=False, server_default="0"),
    UniqueConstraint("domain_id", "name"),
    **TABLE_OPTIONS,
)

user_groups = Table(
    "user_groups",
    metadata,
    _id(key=True),
    _id("domain_id"),
    _name(),
    Column("description", Json, nullable=False),
    Column("extra", Json, nullable=False),
    UniqueConstraint("domain_id", "name"),
    **TABLE_OPTIONS,
)

memberships = Table("memberships", metadata, _id("user_id", key=True), _id("group_id", key=True), **TABLE_OPTIONS)

roles = Table(
    "roles",
    metadata,
    _id(key=True),
    _name(),
    Column("description", Json, nullable=False),
    UniqueConstraint("name"),
    **TABLE_OPTIONS,
)

implied_roles = Table(
    "implied_roles", metadata, _id("prior_id", key=True), _id("implied_id", key=True), **TABLE_OPTIONS
)

assignments = Table(
    "assignments",
    metadata,
    _id("role_id", key=True),
    Column("actor_kind", String(8), primary_key=True, nullable=False),
    _id("actor_id", key=True),
    Column("target_kind", String(8), primary_key=True, nullable=False),
    _id("target_id", key=True),
    Column("inherited", Boolean, primary_key=True, nullable=False),
    **TABLE_OPTIONS,
)

application_credentials = Table(
    "application_credentials",
    metadata,
    _id(key=True),
    _id("user_id"),
    _id("project_id"),
    _name(),
    Column("secret_hash", String(128), nullable=False),
    Column("role_ids", Json, nullable=False),
    Column("description", Json, nullable=False),
    Column("unrestricted", Boolean, nullable=False),
    Column("expires_at", UtcDateTime),
    UniqueConstraint("user_id", "name"),
    **TABLE_OPTIONS,
)

invitations = Table(
    "invitations",
    metadata,
    _id("user_id", key=True),
    Column("digest", String(64), nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)

regions = Table(
    "regions",
    metadata,
    Column("id", String(255), primary_key=True, nullable=False),
    Column("description", Json, nullable=False),
    Column("parent_region_id", String(255)),
    **TABLE_OPTIONS,
)

services = Table(
    "services",
    metadata,
    _id(key=True),
    Column("type", String(255), nullable=False),
    _name(),
    Column("enabled", Boolean, nullable=False),
    Column("extra", Json, nullable=False),
    **TABLE_OPTIONS,
)

endpoints = Table(
    "endpoints",
    metadata,
    _id(key=True),
    _id("service_id"),
    Column("interface", String(8), nullable=False),
    Column("url", Json, nullable=False),
    Column("region_id", String(255)),
    Column("enabled", Boolean, nullable=False),
    Column("extra", Json, nullable=False),
    **TABLE_OPTIONS,
)
