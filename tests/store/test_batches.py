"""Batches: rows as one JSON parameter, all or nothing, and a connection that died meanwhile.

On all three databases: each has its own protocol and statements.
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


def kept(batches):
    with batches.transaction() as transaction:
        return [tuple(row) for row in transaction.send((ALL, None))[0]]


def write(batches, *commands):
    with batches.transaction() as transaction:
        transaction.commit(*commands)


@on_every_database
def test_rows_come_back_as_they_went(batches):
    odd = "quotes ' \" ` back\\slash %s %% \u00fc \U0001f6a2 new\nline ; -- {rows}"
    with batches.transaction() as transaction:
        (made,) = transaction.send((INSERT, [thing(1), thing(2, name=odd, amount=None), thing(3, amount=2**31 - 1)]))
        transaction.commit()
    assert sorted(tuple(row) for row in made) == [(1, "thing 1"), (2, odd), (3, "thing 3")]
    assert kept(batches) == [(1, "thing 1", 10, 1.5), (2, odd, None, 1.5), (3, "thing 3", 2**31 - 1, 1.5)]


@on_every_database
def test_many_rows_are_changed_and_deleted_by_their_keys(batches):
    write(batches, (INSERT, [thing(number) for number in range(300)]))
    write(
        batches,
        (UPDATE, [{"id": number, "name": f"other {number}", "amount": 7} for number in range(0, 300, 3)]),
        (DELETE, [{"id": number, "amount": number * 10} for number in range(1, 300, 3)]),
        (DELETE, [{"id": 2, "amount": 19}]),  # both keys count: nothing goes
    )
    rows = {number: (name, amount) for number, name, amount, _ in kept(batches)}
    assert rows == {
        number: (f"other {number}", 7) if number % 3 == 0 else (f"thing {number}", number * 10)
        for number in range(300)
        if number % 3 != 1
    }


@on_every_database
def test_a_command_without_rows_is_not_sent(batches, monkeypatch):
    sent = []
    start = batches.start
    monkeypatch.setattr(batches, "start", lambda commands, **how: sent.append(len(commands)) or start(commands, **how))
    with batches.transaction() as transaction:
        answers = transaction.send((INSERT, []), (ALL, None), (INSERT, []))
    assert [list(rows) for rows in answers] == [[], [], []]
    assert sent == [1]


@on_every_database
def test_who_leaves_without_commit_leaves_no_trace(batches):
    with pytest.raises(RuntimeError, match="no"), batches.transaction() as transaction:
        transaction.send((INSERT, [thing(1)]))
        raise RuntimeError("no")
    with batches.transaction() as transaction:
        transaction.send((INSERT, [thing(2)]))
    assert kept(batches) == []


@on_every_database
def test_one_bad_row_takes_the_whole_transaction_along(batches):
    write(batches, (INSERT, [thing(1)]))
    with pytest.raises(IntegrityError), batches.transaction() as transaction:
        transaction.send((INSERT, [thing(2)]))
        transaction.commit((UPDATE, [{"id": 1, "name": "thing 2", "amount": 0}]), (INSERT, [thing(3)]))
    assert kept(batches) == [(1, "thing 1", 10, 1.5)]
    write(batches, (INSERT, [thing(2)]))
    assert len(kept(batches)) == 2, "and it goes on"


@on_every_database
def test_a_connection_that_died_while_idle_costs_nothing_but_a_new_one(batches):
    write(batches, (INSERT, [thing(1)]))
    link = batches._connection
    link.driver_connection.close()
    with batches.transaction() as transaction:
        transaction.send((INSERT, [thing(2)]))
        transaction.commit((INSERT, [thing(3)]))
    assert batches._connection is not link
    assert [row[0] for row in kept(batches)] == [1, 2, 3]


@on_every_database
def test_the_connection_goes_with_the_engine_and_comes_again(engine, batches):
    write(batches, (INSERT, [thing(1)]))
    engine.dispose()
    assert batches._connection is None
    write(batches, (INSERT, [thing(2)]))
    assert len(kept(batches)) == 2


@on_postgresql  # the others check at once
def test_a_commit_that_is_refused_is_an_error(engine, batches):
    """By a deferred check, in a transaction that is sent at once and in one of several parts."""
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE things ADD CONSTRAINT late UNIQUE (amount) DEFERRABLE INITIALLY DEFERRED"))
    write(batches, (INSERT, [thing(1)]))
    with pytest.raises(IntegrityError):
        write(batches, (INSERT, [thing(2, amount=10)]))
    with pytest.raises(IntegrityError), batches.transaction() as transaction:
        transaction.send((INSERT, [thing(2, amount=10)]))
        transaction.commit()
    assert [row[0] for row in kept(batches)] == [1]


@on_postgresql  # the others have no pipelines
def test_a_transaction_of_one_part_is_one_pipeline_without_words_around_it(batches):
    """PostgreSQL needs no BEGIN and no COMMIT there: two messages fewer of nine."""
    write(batches, (INSERT, [thing(1)]))
    pg, words = batches._connection._pg, []

    class Watching:
        def __getattr__(self, name):
            return getattr(pg, name)

        def send_query_params(self, statement, parameters):
            words.append(statement)
            pg.send_query_params(statement, parameters)

    batches._connection._pg = Watching()
    write(batches, (INSERT, [thing(2)]), (UPDATE, [{"id": 2, "name": "two", "amount": 7}]))
    assert words == []
    with batches.transaction() as transaction:
        transaction.send((INSERT, [thing(3)]))
        transaction.commit((INSERT, [thing(4)]))
    assert words == [b"BEGIN", b"COMMIT"]
    assert [row[0] for row in kept(batches)] == [1, 2, 3, 4]


@on_postgresql  # the others look at the tables each time
def test_a_plan_that_was_made_for_an_empty_table_does_not_stay(engine, batches):
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE things")
    one = (UPDATE, [{"id": 1, "name": "other", "amount": 7}])
    for _ in range(10):  # PostgreSQL keeps a plan from the sixth time on
        write(batches, one)
    write(batches, (INSERT, [thing(number) for number in range(2000)]))
    plan = f"EXPLAIN EXECUTE {UPDATE.prepared_for('postgresql').name.decode()}('[]')"
    seen = "\n".join(row[0] for row in batches._connection.driver_connection.execute(plan))
    assert "Seq Scan on things found" in seen  # all of the table is looked at
    for _ in range(32):
        write(batches, one)
    seen = "\n".join(row[0] for row in batches._connection.driver_connection.execute(plan))
    assert "Index Scan using things_pkey on things found" in seen
    assert "Seq Scan" not in seen


@on_postgresql  # the others know how many rows a document has
@pytest.mark.parametrize("command", [UPDATE, DELETE, LOOK_UP])
def test_rows_are_looked_up_by_their_keys_in_a_table_of_any_size(engine, batches, command):
    """PostgreSQL takes each document for 100 rows, and would read all 2,000 rows of the table to join them."""
    write(batches, (INSERT, [thing(number) for number in range(2000)]))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE things")
        connection.exec_driver_sql("SET plan_cache_mode = force_generic_plan")
        connection.exec_driver_sql(f"PREPARE one AS {command.prepared_for('postgresql').text}")
        seen = "\n".join(connection.exec_driver_sql("EXPLAIN EXECUTE one('[]')").scalars())
    assert "Index Scan using things_pkey on things found" in seen
    assert "Seq Scan" not in seen
