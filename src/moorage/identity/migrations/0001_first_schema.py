"""Creates the first schema: domains, projects, users, groups, roles, application credentials and the catalogue."""

import sqlalchemy as sa
from alembic import op

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime

#: In the order in which they are created.
_TABLES = (
    "revision", "imports", "domains", "projects", "users", "user_groups", "memberships", "roles", "implied_roles",
    "assignments", "application_credentials", "regions", "services", "endpoints",
)  # fmt: skip


def upgrade() -> None:
    _create_bookkeeping()
    _create_people()
    _create_roles()
    _create_catalogue()


def downgrade() -> None:
    for name in reversed(_TABLES):
        op.drop_table(name)


def _id(name: str = "id", *, key: bool = False) -> "sa.Column[str]":
    return sa.Column(name, sa.String(64), primary_key=key, nullable=False)


def _name() -> "sa.Column[str]":
    return sa.Column("name", sa.String(255), nullable=False)


def _json(name: str) -> "sa.Column[object]":
    return sa.Column(name, Json(), nullable=False)


def _enabled() -> "sa.Column[bool]":
    return sa.Column("enabled", sa.Boolean(), nullable=False)


def _create_bookkeeping() -> None:
    revision = op.create_table(
        "revision",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("value", sa.Integer(), nullable=False),
        **TABLE_OPTIONS,
    )
    op.execute(revision.insert().values(id=1, value=0))
    op.create_table(
        "imports",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("path", sa.String(4096), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("imported_at", UtcDateTime(), nullable=False),
        **TABLE_OPTIONS,
    )


def _create_people() -> None:
    op.create_table(
        "domains",
        _id(key=True), _name(), _json("description"), _enabled(),
        sa.UniqueConstraint("name"),
        **TABLE_OPTIONS,
    )  # fmt: skip
    op.create_table(
        "projects",
        _id(key=True), _id("domain_id"), _name(), _json("description"), _enabled(), _json("tags"), _json("extra"),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.UniqueConstraint("domain_id", "name"),
        **TABLE_OPTIONS,
    )  # fmt: skip
    op.create_table(
        "users",
        _id(key=True), _id("domain_id"), _name(),
        sa.Column("password_hash", sa.String(128), nullable=False),
        sa.Column("default_project_id", sa.String(64)),
        _enabled(), _json("extra"),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.UniqueConstraint("domain_id", "name"),
        **TABLE_OPTIONS,
    )  # fmt: skip
    op.create_table(
        "user_groups",
        _id(key=True), _id("domain_id"), _name(), _json("description"), _json("extra"),
        sa.UniqueConstraint("domain_id", "name"),
        **TABLE_OPTIONS,
    )  # fmt: skip
    op.create_table("memberships", _id("user_id", key=True), _id("group_id", key=True), **TABLE_OPTIONS)


def _create_roles() -> None:
    op.create_table("roles", _id(key=True), _name(), _json("description"), sa.UniqueConstraint("name"), **TABLE_OPTIONS)
    op.create_table("implied_roles", _id("prior_id", key=True), _id("implied_id", key=True), **TABLE_OPTIONS)
    op.create_table(
        "assignments",
        _id("role_id", key=True),
        sa.Column("actor_kind", sa.String(8), primary_key=True, nullable=False),
        _id("actor_id", key=True),
        sa.Column("target_kind", sa.String(8), primary_key=True, nullable=False),
        _id("target_id", key=True),
        sa.Column("inherited", sa.Boolean(), primary_key=True, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "application_credentials",
        _id(key=True), _id("user_id"), _id("project_id"), _name(),
        sa.Column("secret_hash", sa.String(128), nullable=False),
        _json("role_ids"), _json("description"),
        sa.Column("unrestricted", sa.Boolean(), nullable=False),
        sa.Column("expires_at", UtcDateTime()),
        sa.UniqueConstraint("user_id", "name"),
        **TABLE_OPTIONS,
    )  # fmt: skip


def _create_catalogue() -> None:
    op.create_table(
        "regions",
        sa.Column("id", sa.String(255), primary_key=True, nullable=False),
        _json("description"),
        sa.Column("parent_region_id", sa.String(255)),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "services",
        _id(key=True),
        sa.Column("type", sa.String(255), nullable=False),
        _name(), _enabled(), _json("extra"),
        **TABLE_OPTIONS,
    )  # fmt: skip
    op.create_table(
        "endpoints",
        _id(key=True), _id("service_id"),
        sa.Column("interface", sa.String(8), nullable=False),
        _json("url"),
        sa.Column("region_id", sa.String(255)),
        _enabled(), _json("extra"),
        **TABLE_OPTIONS,
    )  # fmt: skip
