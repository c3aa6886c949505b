"""Messages to callers about errors of a database."""

import sqlite3

import psycopg
import pytest
from sqlalchemy.exc import OperationalError

from moorage.core.errors import DamagedDatabase, Unavailable, message_for_tenants
from moorage.db.driver_connections import DriverConnections
from moorage.db.engine import open_engine
from moorage.db.errors import translate_error
from moorage.db.session import read
from moorage.wire.errors import status_of


def test_the_error_of_a_refused_connection_has_the_reason_without_the_address():
    words = 'connection failed: connection to server at "10.1.2.3", port 5432 failed: FATAL:  sorry, too many clients already'
    refused = translate_error(OperationalError("SELECT 1", {}, psycopg.OperationalError(words)))
    assert isinstance(refused, Unavailable)
    assert "sorry, too many clients already" in refused.message
    assert "10.1.2.3" not in refused.message


def test_a_damaged_file_is_named_to_operators_and_not_to_tenants(tmp_path):
    file = tmp_path / "placement.db"
    file.write_bytes(b"no database " * 1000)
    with pytest.raises(DamagedDatabase) as raised, read(open_engine(f"sqlite:///{file}")):
        pass
    assert str(file) in raised.value.message
    assert "moorage restore" in raised.value.message
    assert message_for_tenants(raised.value) == "the database of this service is damaged"
    assert status_of(raised.value) == 503


def test_a_driver_connection_names_a_damaged_file_too(tmp_path):
    connections = DriverConnections(open_engine(f"sqlite:///{tmp_path}/x.db"))
    (tmp_path / "garbage").write_bytes(b"no database " * 1000)
    with pytest.raises(sqlite3.DatabaseError) as raised:
        sqlite3.connect(tmp_path / "garbage").execute("SELECT * FROM sqlite_master")
    translated = connections.translated("SELECT 1", raised.value, lost=False)
    assert isinstance(translated, DamagedDatabase)
    assert f"{tmp_path}/x.db" in translated.message
