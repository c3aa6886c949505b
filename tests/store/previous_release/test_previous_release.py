"""The statements of the previous release have the same results on the current schema.

So processes of both releases can run together. The databases are those of the previous release, upgraded; `record.py`
recorded them, and `release.json` names the commit.
"""

import gzip
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.db import migrations
from moorage.db.engine import open_engine

HERE = Path(__file__).parent
HEADS = json.loads((HERE / "release.json").read_text())["heads"]


def recorded_database(feature: str, path: Path) -> Path:
    """A database with the schema and rows of the previous release."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript("\n".join(recorded(feature)["before"]))
    connection.close()
    return path


def recorded(feature: str) -> dict:
    with gzip.open(HERE / f"{feature}.json.gz") as file:
        return json.load(file)


def answers(path: Path, day: list) -> Iterator[tuple[str, object]]:
    """Runs each recorded statement on the connection with its number; yields (statement, its rows or its row count)."""
    connections: dict[int, sqlite3.Connection] = {}
    for number, text in day:
        if number not in connections:
            connections[number] = sqlite3.connect(path, isolation_level=None, timeout=30)
        cursor = connections[number].execute(text)
        rows = cursor.fetchall()
        yield text, sorted(rows, key=repr) if cursor.description else cursor.rowcount
    for connection in connections.values():
        connection.close()


@pytest.mark.parametrize("feature", sorted(HEADS))
def test_every_statement_of_the_previous_release_has_the_same_result_on_the_current_schema(feature, tmp_path):
    day = recorded(feature)["day"]
    assert sum(text.lstrip()[:6].upper() in ("INSERT", "UPDATE", "SELECT") for _, text in day) > 10
    old, new = recorded_database(feature, tmp_path / "old.db"), recorded_database(feature, tmp_path / "new.db")
    engine = open_engine(f"sqlite:///{new}")
    assert migrations.current_revision(engine, feature) == HEADS[feature]
    migrations.upgrade(engine, feature)
    engine.dispose()
    for (text, then), (_, now) in zip(answers(old, day), answers(new, day), strict=True):
        assert now == then, text


@pytest.mark.parametrize("feature", sorted(HEADS))
def test_all_migrations_since_the_previous_release_are_additive(feature):
    since = [revision for revision in migrations.revisions(feature) if revision > HEADS[feature]]
    assert [revision for revision in since if not migrations.is_additive(feature, revision)] == []
