"""Fills upstream's database directly, since its API loads about 20 hosts per second and 10,000 are needed.

The loading speed is measured over HTTP with the first hosts of a cloud; this adds the rest. The answers to the
candidate queries, which must equal ours, show that the contents match what the API would have written.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    Table,
    bindparam,
    create_engine,
    insert,
    make_url,
    select,
    update,
)

from bench.cloud import Cloud, Provider

_DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mysql+pymysql", "sqlite": "sqlite"}
_BATCH = 5000

Row = dict[str, object]


def fill(url: str, cloud: Cloud, first_host: int) -> None:
    """Writes the hosts from `first_host` on, and the servers of all hosts."""
    engine = create_engine(make_url(url).set(drivername=_DRIVERS[url.partition(":")[0]]))
    tables = _Tables(engine)
    with engine.begin() as connection:
        providers = [one for host in range(first_host, cloud.hosts) for one in cloud.providers(host)]
        _providers(connection, tables, providers)
        _contents(connection, tables, providers)
        _servers(connection, tables, cloud)
    engine.dispose()


class _Tables:
    def __init__(self, engine: Engine) -> None:
        metadata = MetaData()
        metadata.reflect(engine)
        self._all = metadata.tables

    def __getitem__(self, name: str) -> Table:
        return self._all[name]


def _providers(connection: Connection, tables: _Tables, providers: Sequence[Provider]) -> None:
    """Writes providers without root and parent, which refer to generated IDs, and then sets these."""
    table = tables["resource_providers"]
    _insert(connection, table, ({"uuid": one.uuid, "name": one.name, "generation": 3} for one in providers))
    ids = _ids(connection, table, table.c.uuid)
    roots: dict[str, str] = {}
    for one in providers:
        roots[one.uuid] = roots[one.parent] if one.parent else one.uuid
    roots_alone = update(table).where(table.c.root_provider_id.is_(None)).values(root_provider_id=table.c.id)
    connection.execute(roots_alone)
    children = [
        {"child": ids[one.uuid], "root": ids[roots[one.uuid]], "parent": ids[one.parent]}
        for one in providers
        if one.parent
    ]
    if children:
        its_tree = {"root_provider_id": bindparam("root"), "parent_provider_id": bindparam("parent")}
        connection.execute(update(table).where(table.c.id == bindparam("child")).values(its_tree), children)


def _contents(connection: Connection, tables: _Tables, providers: Sequence[Provider]) -> None:
    ids = _ids(connection, tables["resource_providers"], tables["resource_providers"].c.uuid)
    classes = _ids(connection, tables["resource_classes"], tables["resource_classes"].c.name)
    traits = _ids(connection, tables["traits"], tables["traits"].c.name)
    aggregates = _ids(connection, tables["placement_aggregates"], tables["placement_aggregates"].c.uuid)
    _insert(
        connection,
        tables["inventories"],
        (
            {"resource_provider_id": ids[one.uuid], "resource_class_id": classes[name], **inventory}
            for one in providers
            for name, inventory in one.inventories.items()
        ),
    )
    _insert(
        connection,
        tables["resource_provider_traits"],
        ({"resource_provider_id": ids[one.uuid], "trait_id": traits[name]} for one in providers for name in one.traits),
    )
    _insert(
        connection,
        tables["resource_provider_aggregates"],
        (
            {"resource_provider_id": ids[one.uuid], "aggregate_id": aggregates[name]}
            for one in providers
            for name in one.aggregates
        ),
    )


def _servers(connection: Connection, tables: _Tables, cloud: Cloud) -> None:
    servers = [one for host in range(cloud.hosts) for one in cloud.servers(host)]
    ids = _ids(connection, tables["resource_providers"], tables["resource_providers"].c.uuid)
    classes = _ids(connection, tables["resource_classes"], tables["resource_classes"].c.name)
    projects = _ids(connection, tables["projects"], tables["projects"].c.external_id)
    users = _ids(connection, tables["users"], tables["users"].c.external_id)
    kind = _ids(connection, tables["consumer_types"], tables["consumer_types"].c.name)["INSTANCE"]
    _insert(
        connection,
        tables["consumers"],
        (
            {"uuid": uuid, "generation": 1, "consumer_type_id": kind,
             "project_id": projects[body["project_id"]], "user_id": users[body["user_id"]]}
            for uuid, body in servers
        ),
    )  # fmt: skip
    _insert(
        connection,
        tables["allocations"],
        (
            {"resource_provider_id": ids[provider], "consumer_id": uuid, "resource_class_id": classes[name],
             "used": amount}
            for uuid, body in servers
            for provider, held in body["allocations"].items()
            for name, amount in held["resources"].items()
        ),
    )  # fmt: skip


def _ids(connection: Connection, table: Table, name: Column[str]) -> dict[object, int]:
    return {row[0]: row[1] for row in connection.execute(select(name, table.c.id))}


def _insert(connection: Connection, table: Table, rows: Iterable[Row]) -> None:
    now = datetime.now(UTC).replace(tzinfo=None)
    remaining = ({**row, "created_at": now, "updated_at": now} for row in rows)
    while batch := list(islice(remaining, _BATCH)):
        connection.execute(insert(table), batch)
