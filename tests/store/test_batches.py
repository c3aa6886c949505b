"""`StatementPipeline`: rows as one JSON parameter, atomic transactions, and lost connections.

On all three databases, because each has its own protocol and statements.
"""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from moorage.db.engine import dialect_name
from moorage.db.session import StatementPipeline
from moorage.db.statements import Statement, delete, insert, update
from tests.databases import Schema
from tests.migrated import engine_with
from tests.store.conftest import on_every_database, on_postgresql

KEYS = {"id": "int"}
FIELDS = {"name": "text", "amount": "int", "ratio": "float", "at": "time"}
INSERT = insert("things", {**KEYS, **FIELDS}, returning="id, name")
UPDATE = update("things", KEYS, {"name": "text", "amount": "int"})
DELETE = delete("things", {"id": "int", "amount": "int"})
ALL = Statement("SELECT id, name, amount, ratio FROM things ORDER BY id", returns_rows=True)
LOOK_UP = Statement(
    "SELECT found.name FROM {rows} {found}", KEYS, returns_rows=True, lookups={"found": ("things", "found.id = v.id")}
)
AT = "2026-03-01 09:30:00.123456"


def thing(number, **fields):
    return {"id": number, "name": f"thing {number}", "amount": number * 10, "ratio": 1.5, "at": AT} | fields


def create_things(engine):
    types = {
        "postgresql": ("timestamp", "float8"),
        "mariadb": ("datetime(6)", "double"),
        "sqlite": ("datetime", "float"),
    }
    time, ratio = types[dialect_name(engine)]
    with engine.begin() as connection:
        connection.execute(
            text(
                f"CREATE TABLE things (id integer NOT NULL PRIMARY KEY, name varchar(255) UNIQUE, amount integer, "
                f"ratio {ratio}, at {time})"
            )
        )


THINGS = Schema("things", create_things)


@pytest.fixture
def engine(kind):
    with engine_with(THINGS, kind) as engine:
        yield engine


@pytest.fixture
def batches(engine):
    batches = StatementPipeline(engine)
    yield batches
    batches.close()


def all_things(batches):
    with batches.transaction() as transaction:
        return [tuple(row) for row in transaction.send((ALL, None))[0]]


def write(batches, *commands):
    with batches.transaction() as transaction:
        transaction.commit(*commands)


@on_every_database
def test_inserted_rows_read_back_the_same(batches):
    odd = "quotes ' \" ` back\\slash %s %% \u00fc \U0001f6a2 new\nline ; -- {rows}"
    with batches.transaction() as transaction:
        (made,) = transaction.send((INSERT, [thing(1), thing(2, name=odd, amount=None), thing(3, amount=2**31 - 1)]))
        transaction.commit()
    assert sorted(tuple(row) for row in made) == [(1, "thing 1"), (2, odd), (3, "thing 3")]
    assert all_things(batches) == [(1, "thing 1", 10, 1.5), (2, odd, None, 1.5), (3, "thing 3", 2**31 - 1, 1.5)]


@on_every_database
def test_many_rows_are_updated_and_deleted_by_their_keys_in_one_transaction(batches):
    write(batches, (INSERT, [thing(number) for number in range(300)]))
    write(
        batches,
        (UPDATE, [{"id": number, "name": f"other {number}", "amount": 7} for number in range(0, 300, 3)]),
        (DELETE, [{"id": number, "amount": number * 10} for number in range(1, 300, 3)]),
        (DELETE, [{"id": 2, "amount": 19}]),  # both keys must match, so nothing is deleted
    )
    rows = {number: (name, amount) for number, name, amount, _ in all_things(batches)}
    assert rows == {
        number: (f"other {number}", 7) if number % 3 == 0 else (f"thing {number}", number * 10)
        for number in range(300)
        if number % 3 != 1
    }


@on_every_database
def test_a_statement_without_rows_is_not_sent_to_the_database(batches, monkeypatch):
    sent = []
    start = batches.start
    monkeypatch.setattr(batches, "start", lambda commands, **how: sent.append(len(commands)) or start(commands, **how))
    with batches.transaction() as transaction:
        answers = transaction.send((INSERT, []), (ALL, None), (INSERT, []))
    assert [list(rows) for rows in answers] == [[], [], []]
    assert sent == [1]


@on_every_database
def test_a_transaction_without_commit_changes_nothing(batches):
    with pytest.raises(RuntimeError, match="no"), batches.transaction() as transaction:
        transaction.send((INSERT, [thing(1)]))
        raise RuntimeError("no")
    with batches.transaction() as transaction:
        transaction.send((INSERT, [thing(2)]))
    assert all_things(batches) == []


@on_every_database
def test_one_invalid_row_rolls_back_the_whole_transaction(batches):
    write(batches, (INSERT, [thing(1)]))
    with pytest.raises(IntegrityError), batches.transaction() as transaction:
        transaction.send((INSERT, [thing(2)]))
        transaction.commit((UPDATE, [{"id": 1, "name": "thing 2", "amount": 0}]), (INSERT, [thing(3)]))
    assert all_things(batches) == [(1, "thing 1", 10, 1.5)]
    write(batches, (INSERT, [thing(2)]))
    assert len(all_things(batches)) == 2, "the next transaction must work"


@on_every_database
def test_a_connection_lost_while_idle_is_replaced_without_an_error(batches):
    write(batches, (INSERT, [thing(1)]))
    link = batches._connection
    link.driver_connection.close()
    with batches.transaction() as transaction:
        transaction.send((INSERT, [thing(2)]))
        transaction.commit((INSERT, [thing(3)]))
    assert batches._connection is not link
    assert [row[0] for row in all_things(batches)] == [1, 2, 3]


@on_every_database
def test_disposing_the_engine_closes_the_connection_and_the_next_write_opens_another(engine, batches):
    write(batches, (INSERT, [thing(1)]))
    engine.dispose()
    assert batches._connection is None
    write(batches, (INSERT, [thing(2)]))
    assert len(all_things(batches)) == 2


@on_postgresql  # only PostgreSQL has deferred checks
def test_a_constraint_that_fails_at_the_commit_raises_an_integrity_error(engine, batches):
    """In a transaction that is sent as a whole, and in one that is sent in several parts."""
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE things ADD CONSTRAINT late UNIQUE (amount) DEFERRABLE INITIALLY DEFERRED"))
    write(batches, (INSERT, [thing(1)]))
    with pytest.raises(IntegrityError):
        write(batches, (INSERT, [thing(2, amount=10)]))
    with pytest.raises(IntegrityError), batches.transaction() as transaction:
        transaction.send((INSERT, [thing(2, amount=10)]))
        transaction.commit()
    assert [row[0] for row in all_things(batches)] == [1]


@on_postgresql  # only PostgreSQL has pipelines
def test_a_transaction_that_is_sent_as_a_whole_needs_no_begin_and_no_commit(batches):
    """PostgreSQL runs a pipeline as one transaction. This saves two of nine messages."""
    write(batches, (INSERT, [thing(1)]))
    pg, statements = batches._connection._pg, []

    class RecordingConnection:
        def __getattr__(self, name):
            return getattr(pg, name)

        def send_query_params(self, statement, parameters):
            statements.append(statement)
            pg.send_query_params(statement, parameters)

    batches._connection._pg = RecordingConnection()
    write(batches, (INSERT, [thing(2)]), (UPDATE, [{"id": 2, "name": "two", "amount": 7}]))
    assert statements == []
    with batches.transaction() as transaction:
        transaction.send((INSERT, [thing(3)]))
        transaction.commit((INSERT, [thing(4)]))
    assert statements == [b"BEGIN", b"COMMIT"]
    assert [row[0] for row in all_things(batches)] == [1, 2, 3, 4]


@on_postgresql  # only PostgreSQL keeps plans
def test_a_query_plan_made_for_an_empty_table_is_replaced_when_the_table_has_grown(engine, batches):
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE things")
    one = (UPDATE, [{"id": 1, "name": "other", "amount": 7}])
    for _ in range(10):  # PostgreSQL keeps a plan from the sixth execution on
        write(batches, one)
    write(batches, (INSERT, [thing(number) for number in range(2000)]))
    plan = f"EXPLAIN EXECUTE {UPDATE.prepared_for('postgresql').name.decode()}('[]')"
    seen = "\n".join(row[0] for row in batches._connection.driver_connection.execute(plan))
    assert "Seq Scan on things found" in seen  # the plan reads the whole table
    for _ in range(32):
        write(batches, one)
    seen = "\n".join(row[0] for row in batches._connection.driver_connection.execute(plan))
    assert "Index Scan using things_pkey on things found" in seen
    assert "Seq Scan" not in seen


@on_postgresql  # the other databases know how many rows a JSON document has
@pytest.mark.parametrize("command", [UPDATE, DELETE, LOOK_UP])
def test_updates_deletes_and_lookups_use_the_primary_key_in_a_large_table(engine, batches, command):
    """PostgreSQL assumes 100 rows in each JSON document, so it might read all 2,000 rows of the table to join them."""
    write(batches, (INSERT, [thing(number) for number in range(2000)]))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE things")
        connection.exec_driver_sql("SET plan_cache_mode = force_generic_plan")
        connection.exec_driver_sql(f"PREPARE one AS {command.prepared_for('postgresql').text}")
        seen = "\n".join(connection.exec_driver_sql("EXPLAIN EXECUTE one('[]')").scalars())
    assert "Index Scan using things_pkey on things found" in seen
    assert "Seq Scan" not in seen
