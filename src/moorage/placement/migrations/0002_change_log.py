"""The change log also records states: documents, times, and the start of the retained log.

Drops the old entries: they only told the processes of that time which providers to read again, and show nothing to
clients. Writes the present state once, as the beginning of the history.
"""

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from moorage.core.clock import SystemClock
from moorage.db.types import TABLE_OPTIONS, UtcDateTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

#: Documents in memory at once.
BATCH = 1_000


def upgrade() -> None:
    connection = op.get_bind()
    op.drop_table("changes")
    op.create_table(
        "changes",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("provider_id", sa.Integer),
        sa.Column("at", UtcDateTime, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("subject", sa.String(36)),
        sa.Column("document", sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_changes_subject_kind_sequence", "changes", ["subject", "kind", "sequence"])
    op.create_table(
        "change_retention",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("first", sa.BigInteger, nullable=False),
        sa.Column("since", UtcDateTime),
        **TABLE_OPTIONS,
    )
    with op.batch_alter_table("change_sequence") as batch:
        batch.drop_column("trimmed")
    _begin_history(connection)


def downgrade() -> None:
    connection = op.get_bind()
    first = connection.execute(sa.text("SELECT first FROM change_retention WHERE id = 1")).scalar()
    with op.batch_alter_table("change_sequence") as batch:
        batch.add_column(sa.Column("trimmed", sa.BigInteger, nullable=False, server_default="0"))
    with op.batch_alter_table("change_sequence") as batch:
        batch.alter_column("trimmed", existing_type=sa.BigInteger, existing_nullable=False, server_default=None)
    connection.execute(sa.text("UPDATE change_sequence SET trimmed = :first"), {"first": first or 0})
    op.create_table(
        "changes_0001",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("provider_id", sa.Integer, primary_key=True, autoincrement=False),
        **TABLE_OPTIONS,
    )
    connection.execute(
        sa.text(
            "INSERT INTO changes_0001 (sequence, provider_id) "
            "SELECT DISTINCT sequence, provider_id FROM changes WHERE provider_id IS NOT NULL"
        )
    )
    op.drop_table("change_retention")
    op.drop_table("changes")
    op.rename_table("changes_0001", "changes")
    if connection.dialect.name == "postgresql":
        op.execute('ALTER INDEX "pk_changes_0001" RENAME TO "pk_changes"')


def _begin_history(connection: sa.Connection) -> None:
    """Writes one entry for each existing provider and consumer, under a change number of their own."""
    last = connection.execute(sa.text("SELECT last FROM change_sequence WHERE id = 1")).scalar()
    if last is None:  # never started: the first start makes both rows
        return
    now, number = SystemClock().now(), last + 1
    batch: list[dict[str, Any]] = []
    for position, (kind, subject, document) in enumerate(_present(connection)):
        batch.append(
            {
                "sequence": number,
                "position": position,
                "at": now,
                "kind": kind,
                "subject": subject,
                "document": document,
            }
        )
        if len(batch) == BATCH:
            connection.execute(sa.insert(_CHANGES), batch)
            batch = []
    if batch:
        connection.execute(sa.insert(_CHANGES), batch)
    connection.execute(sa.text("UPDATE change_sequence SET last = :last"), {"last": number})
    connection.execute(sa.insert(_RETENTION), {"id": 1, "first": number, "since": now})


_CHANGES = sa.table(
    "changes",
    *(sa.column(name) for name in ("sequence", "position", "kind", "subject", "document")),
    sa.column("at", UtcDateTime),
)
_RETENTION = sa.table("change_retention", sa.column("id"), sa.column("first"), sa.column("since", UtcDateTime))


def _present(connection: sa.Connection) -> Iterator[tuple[str, str, str]]:
    """(kind, subject, document) of each provider, then of each consumer."""
    uuids = {row.id: row.uuid for row in connection.execute(sa.text("SELECT id, uuid FROM providers"))}
    yield from _providers(connection, uuids)
    yield from _consumers(connection, uuids)


def _providers(connection: sa.Connection, uuids: dict[int, str]) -> Iterator[tuple[str, str, str]]:
    inventories: dict[int, dict[str, dict[str, Any]]] = {}
    for offered in connection.execute(
        sa.text("SELECT i.*, c.name FROM inventories i JOIN resource_classes c ON c.id = i.class_id")
    ).mappings():
        inventories.setdefault(offered["provider_id"], {})[offered["name"]] = {key: offered[key] for key in _INVENTORY}
    usages: dict[int, dict[str, int]] = {}
    for provider, name, used in connection.execute(
        sa.text(
            "SELECT a.provider_id, c.name, SUM(a.used) FROM allocations a "
            "JOIN resource_classes c ON c.id = a.class_id GROUP BY a.provider_id, c.name"
        )
    ):
        usages.setdefault(provider, {})[name] = int(used)
    traits = _lists(
        connection, "SELECT p.provider_id, t.name FROM provider_traits p JOIN traits t ON t.id = p.trait_id"
    )
    aggregates = _lists(connection, "SELECT provider_id, aggregate FROM provider_aggregates")
    for row in connection.execute(
        sa.text("SELECT id, uuid, name, generation, parent_id, root_id FROM providers ORDER BY id")
    ):
        document = {
            "uuid": row.uuid,
            "name": row.name,
            "generation": row.generation,
            "parent_provider_uuid": uuids.get(row.parent_id),
            "root_provider_uuid": uuids[row.root_id],
            "inventories": inventories.get(row.id, {}),
            "traits": sorted(traits.get(row.id, ())),
            "aggregates": sorted(aggregates.get(row.id, ())),
            "usages": usages.get(row.id, {}),
        }
        yield "provider", row.uuid, json.dumps(document)


_INVENTORY = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


def _lists(connection: sa.Connection, query: str) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for provider, name in connection.execute(sa.text(query)):
        found.setdefault(provider, []).append(name)
    return found


def _consumers(connection: sa.Connection, uuids: dict[int, str]) -> Iterator[tuple[str, str, str]]:
    """Page by page: there may be millions, and a cursor that stays open lets MariaDB insert nothing meanwhile."""
    page = sa.text("SELECT * FROM consumers WHERE id > :after ORDER BY id LIMIT :most")
    held = sa.text(
        "SELECT a.consumer_id, a.provider_id, c.name, a.used FROM allocations a "
        "JOIN resource_classes c ON c.id = a.class_id WHERE a.consumer_id BETWEEN :first AND :last"
    )
    after = 0
    while consumers := connection.execute(page, {"after": after, "most": BATCH}).all():
        allocations: dict[int, dict[str, dict[str, int]]] = {}
        after = consumers[-1].id
        for consumer, provider, name, used in connection.execute(held, {"first": consumers[0].id, "last": after}):
            allocations.setdefault(consumer, {}).setdefault(uuids[provider], {})[name] = used
        for row in consumers:
            document = {
                "generation": row.generation,
                "project_id": row.project_id,
                "user_id": row.user_id,
                "consumer_type": row.consumer_type,
                "allocations": allocations.get(row.id, {}),
            }
            yield "consumer", row.uuid, json.dumps(document)
