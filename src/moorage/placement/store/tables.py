"""Placement's tables: providers and their inventories, consumers and their allocations, and the change log.

Names of projects, users, consumer types and aggregates are columns and not tables of their own: they are only ever
compared for equality.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import mysql

from moorage.db.types import TABLE_OPTIONS, UtcDateTime, Uuid, new_metadata

metadata = new_metadata()

resource_classes = Table(
    "resource_classes",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(255), nullable=False),
    Column("standard", Boolean, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    UniqueConstraint("name"),
    sqlite_autoincrement=True,
    **TABLE_OPTIONS,
)

traits = Table(
    "traits",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(255), nullable=False),
    Column("standard", Boolean, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    UniqueConstraint("name"),
    sqlite_autoincrement=True,
    **TABLE_OPTIONS,
)

#: `generation` is the peer's, with the peer's gaps: it does not move on DELETE /allocations, nor on PUT aggregates
#: before 1.19 (measured on 16.0.0). `revision` is ours: every write that changes what a provider offers or holds
#: moves it, so an equal revision means that a picture of the provider is exact. Ids never come back (SQLite must be
#: told): the id of a deleted provider with the revision of its successor would be no picture of anything.
providers = Table(
    "providers",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", Uuid(), nullable=False),
    Column("name", String(200), nullable=False),
    Column("parent_id", Integer, ForeignKey("providers.id")),
    Column(
        "root_id", Integer, nullable=False
    ),  # its own id on a root; no foreign key, for it is known after the insert
    Column("generation", Integer, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    UniqueConstraint("uuid"),
    UniqueConstraint("name"),
    Index(None, "root_id"),
    Index(None, "parent_id"),
    sqlite_autoincrement=True,
    **TABLE_OPTIONS,
)

#: What a provider offers has no foreign keys, nor have the allocations below: their checks were most of what loading a host
#: cost the database, and there is one writer at a time, who decides on the exact state (`moorage.placement.sync.committer`).
inventories = Table(
    "inventories",
    metadata,
    Column("provider_id", Integer, nullable=False, autoincrement=False),
    Column("class_id", Integer, nullable=False, autoincrement=False),
    Column("total", Integer, nullable=False),
    Column("reserved", Integer, nullable=False),
    Column("min_unit", Integer, nullable=False),
    Column("max_unit", Integer, nullable=False),
    Column("step_size", Integer, nullable=False),
    Column("allocation_ratio", Double, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    PrimaryKeyConstraint("provider_id", "class_id"),
    Index(None, "class_id"),
    **TABLE_OPTIONS,
)

provider_traits = Table(
    "provider_traits",
    metadata,
    Column("provider_id", Integer, nullable=False, autoincrement=False),
    Column("trait_id", Integer, nullable=False, autoincrement=False),
    PrimaryKeyConstraint("provider_id", "trait_id"),
    Index(None, "trait_id"),
    **TABLE_OPTIONS,
)

provider_aggregates = Table(
    "provider_aggregates",
    metadata,
    Column("provider_id", Integer, nullable=False, autoincrement=False),
    Column("aggregate", Uuid(), nullable=False),
    PrimaryKeyConstraint("provider_id", "aggregate"),
    **TABLE_OPTIONS,
)

consumers = Table(
    "consumers",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", Uuid(), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("project_id", String(255), nullable=False),
    Column("user_id", String(255), nullable=False),
    Column("consumer_type", String(255)),  # NULL: written before 1.38, shown as "unknown"
    UniqueConstraint("uuid"),
    Index(None, "project_id", "user_id"),
    sqlite_autoincrement=True,
    **TABLE_OPTIONS,
)

#: The peer's table has no foreign keys either.
allocations = Table(
    "allocations",
    metadata,
    Column("consumer_id", Integer, nullable=False, autoincrement=False),
    Column("provider_id", Integer, nullable=False, autoincrement=False),
    Column("class_id", Integer, nullable=False, autoincrement=False),
    Column("used", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    PrimaryKeyConstraint("consumer_id", "provider_id", "class_id"),
    Index(None, "provider_id", "class_id"),
    **TABLE_OPTIONS,
)

#: One row. A writer first takes the next number from it, and keeps the row locked until the commit: so the
#: order of numbers is the order of commits, and a reader that has seen number n has seen everything before n.
#: An auto-increment column would not do: it hands out 7 and 8, and 8 may become visible first.
#: `lease_...` is `moorage.placement.store.writer_lease.LeaseRow`; kept here, because no writer can bypass this row.
change_sequence = Table(
    "change_sequence",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("last", BigInteger, nullable=False),
    Column("lease_holder", String(40)),
    Column("lease_ms", Integer, nullable=False, server_default="0"),
    Column("lease_version", BigInteger, nullable=False, server_default="0"),
    Column("lease_visitor", String(40)),
    **TABLE_OPTIONS,
)

#: One row: the start of the retained log. Not in `change_sequence`, whose row every writer waits for.
change_retention = Table(
    "change_retention",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    #: Every entry from this number on is there. Before it only what states as of a later time rest on.
    Column("first", BigInteger, nullable=False),
    #: States are known as of this time and later; NULL: as of any time.
    Column("since", UtcDateTime),
    **TABLE_OPTIONS,
)

#: Each change for two kinds of readers: `provider_id` is for other Moorage processes (which provider to read again; 0: names
#: of classes or traits; -1: everything; NULL: nothing), `kind`, `subject` and `document` are for everybody else.
#: `subject` is the uuid of a provider or consumer, `document` its state in JSON; NULL: it was deleted.
changes = Table(
    "changes",
    metadata,
    Column("sequence", BigInteger, nullable=False, autoincrement=False),
    Column("position", Integer, nullable=False, autoincrement=False),  # 0, 1, ... within a sequence
    Column("provider_id", Integer),
    Column("at", UtcDateTime, nullable=False),
    Column("kind", String(16), nullable=False),  # provider, usages, consumer, names, everything
    Column("subject", Uuid()),
    Column("document", Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")),
    PrimaryKeyConstraint("sequence", "position"),
    # By kind, too: a provider that is claimed of all the time has few whole states among very many usages.
    Index(None, "subject", "kind", "sequence"),
    **TABLE_OPTIONS,
)
