"""The tables of jobs and of workers, which each service that has jobs or events puts into its own database."""

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text, UniqueConstraint

from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime


def jobs_table(metadata: MetaData, name: str = "jobs") -> Table:
    """A service calls this once in its ``tables.py``, with its own metadata.

    Two columns repeat another column while a job is open or claimed, and are NULL afterwards: `open_queue` keeps
    finished jobs out of a poll, and the unique `claimed_key` lets the database guarantee that no key has two claimed
    jobs. Partial indexes would do the same, but only two of the three databases have them.
    """
    return Table(
        name,
        metadata,
        # Two jobs may have the same creation time, above all in virtual time: `position` tells which is older.
        Column("position", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        Column("id", String(64), nullable=False),
        Column("queue", String(255), nullable=False),
        Column("open_queue", String(255)),
        Column("kind", String(64), nullable=False),
        Column("serial_key", String(255), nullable=False),
        Column("claimed_key", String(255)),
        Column("payload", Json, nullable=False),
        Column("state", String(16), nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("epoch", Integer, nullable=False),
        Column("lease_until", UtcDateTime),
        Column("worker", String(255)),
        Column("created_at", UtcDateTime, nullable=False),
        Column("finished_at", UtcDateTime),
        Column("result", Json),
        UniqueConstraint("id"),
        UniqueConstraint("claimed_key"),
        Index(None, "open_queue", "position"),
        Index(None, "serial_key", "state", "position"),
        Index(None, "finished_at"),
        **TABLE_OPTIONS,
    )


def workers_table(metadata: MetaData) -> Table:
    """The processes that claim jobs or events of the service: see `moorage.jobs.worker_watch`."""
    return Table(
        "workers",
        metadata,
        Column("id", String(36), primary_key=True),
        Column("name", Text, nullable=False),
        # The next three are a `moorage.jobs.worker_watch.ProcessIdentity`.
        Column("machine", String(255), nullable=False),
        Column("pid", BigInteger, nullable=False),
        Column("started", BigInteger, nullable=False),
        Column("heartbeats", BigInteger, nullable=False),
        Column("registered_at", UtcDateTime, nullable=False),
        **TABLE_OPTIONS,
    )
