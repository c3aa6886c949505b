"""A database with OpenStack Placement's schema and with rows as its API writes them, which tests then corrupt."""

from datetime import UTC, datetime

from sqlalchemy import Column, Connection, MetaData, String, Table, create_engine, insert

from moorage.placement.importing import placement_db

THEN = datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC).replace(tzinfo=None)  # the peer writes times without a zone
VERSION = Table("alembic_version", MetaData(), Column("version_num", String(32)))

SOUND = {
    "resource_classes": [{"id": 0, "name": "VCPU"}, {"id": 10000, "name": "CUSTOM_GOLD"}],
    "traits": [{"id": 1, "name": "CUSTOM_A"}],
    "resource_providers": [
        {"id": 1, "uuid": "p1", "name": "root", "generation": 5, "root_provider_id": 1, "parent_provider_id": None},
        {"id": 2, "uuid": "p2", "name": "child", "generation": 6, "root_provider_id": 1, "parent_provider_id": 1},
    ],
    "inventories": [
        {
            "id": 1, "resource_provider_id": 1, "resource_class_id": 0, "total": 8, "reserved": 1, "min_unit": 1,
            "max_unit": 8, "step_size": 1, "allocation_ratio": 2.0,
        }
    ],
    "placement_aggregates": [{"id": 1, "uuid": "g1"}],
    "resource_provider_aggregates": [{"resource_provider_id": 1, "aggregate_id": 1}],
    "resource_provider_traits": [{"resource_provider_id": 2, "trait_id": 1}],
    "projects": [{"id": 1, "external_id": "alpha"}],
    "users": [{"id": 1, "external_id": "ann"}],
    "consumer_types": [{"id": 1, "name": "INSTANCE"}],
    "consumers": [{"id": 1, "uuid": "c1", "project_id": 1, "user_id": 1, "generation": 3, "consumer_type_id": 1}],
    "allocations": [
        {"id": 1, "resource_provider_id": 1, "consumer_id": "c1", "resource_class_id": 0, "used": 2},
    ],
}  # fmt: skip


class Source:
    """A database with the peer's schema, the rows of `SOUND`, and the rows that tests add."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = create_engine(url)
        placement_db._metadata.create_all(self._engine)
        VERSION.create(self._engine)
        with self._engine.begin() as connection:
            connection.exec_driver_sql("CREATE INDEX allocations_consumer_id_idx ON allocations (consumer_id)")
            connection.execute(insert(VERSION).values(version_num=placement_db.REVISIONS[-1]))
            for table, rows in SOUND.items():
                self._insert(connection, table, rows)

    def add(self, table: str, *rows: dict) -> None:
        with self._engine.begin() as connection:
            self._insert(connection, table, list(rows))

    def update(self, table: str, row_id: int, **values: object) -> None:
        its = placement_db._metadata.tables[table]
        with self._engine.begin() as connection:
            connection.execute(its.update().where(its.c.id == row_id).values(**values))

    def set_revision(self, *revisions: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(VERSION.delete())
            for revision in revisions:
                connection.execute(insert(VERSION).values(version_num=revision))

    def _insert(self, connection: Connection, table: str, rows: list[dict]) -> None:
        connection.execute(
            insert(placement_db._metadata.tables[table]),
            [{"created_at": THEN, "updated_at": None} | row for row in rows],
        )
