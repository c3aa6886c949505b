"""Placement's tables: providers and their inventories, consumers and their allocations, and the change log.

Names of projects, users, consumer types and aggregates are columns and not tables, because they are only compared for
equality.
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

#: Ids of classes and traits never come back: a process that reads the changes of others identifies them by id.
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

#: `generation` is the peer's, with the peer's gaps: DELETE /allocations does not increase it, nor does PUT aggregates
#: before 1.19 (measured on 16.0.0). `revision` is Moorage's: the number of the last change of the provider (0: it was
#: imported; an older program wrote the number of its changes). Ids are never reused (SQLite needs an option for that),
#: because claims that follow in the log name them. On PostgreSQL the migration sets a fillfactor, so that an update of
#: a row does not change the indexes.
providers = Table(
    "providers",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", Uuid(), nullable=False),
    Column("name", String(200), nullable=False),
    Column("parent_id", Integer, ForeignKey("providers.id")),
    # A root has its own id; no foreign key, because the id is known only after the insertion.
    Column("root_id", Integer, nullable=False),
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

#: Inventories, traits, aggregates and allocations have no foreign keys, because checking them took most of the
#: database's time. They are not needed: there is one writer at a time, which decides on the exact state
#: (`sync.committer`).
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

#: One row. A writer first takes the next number from it, and keeps the row locked until the commit. So the order of
#: numbers is the order of commits, and a reader that has read number n has read all changes before n. With an
#: auto-increment column, change 8 could become visible before change 7.
change_sequence = Table(
    "change_sequence",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("last", BigInteger, nullable=False),
    **TABLE_OPTIONS,
)

#: One row: the start of the retained log. Not in `change_sequence`, because every writer waits for that row.
change_retention = Table(
    "change_retention",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    #: All entries from this number on are retained; before it, only entries on which later states depend.
    Column("first", BigInteger, nullable=False),
    #: Past states are known from this time on; NULL: all.
    Column("since", UtcDateTime),
    **TABLE_OPTIONS,
)

#: The change log. It has two kinds of readers: `provider_id` is for other Moorage processes (the provider to read
#: again; 0: names of classes or traits; -1: everything; NULL: nothing), `kind`, `subject` and `document` are for all
#: others. `subject` is the uuid of a provider or consumer, `document` its state in JSON; NULL: it was deleted.
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
    # With the kind, because a busy provider has few complete states among very many usages.
    Index(None, "subject", "kind", "sequence"),
    **TABLE_OPTIONS,
)
