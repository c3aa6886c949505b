import re
import sys
import threading

import pytest

from moorage.core.errors import StartError
from moorage.db.engine import dialect_name, open_engine, open_read_only_engine


@pytest.mark.parametrize(
    ("url", "driver", "name"),
    [
        ("postgresql://a@db/x", "postgresql+psycopg", "postgresql"),
        ("postgres://a@db/x", "postgresql+psycopg", "postgresql"),
        ("mysql://a@db/x", "mysql+pymysql", "mariadb"),
        ("mariadb://a@db/x", "mariadb+pymysql", "mariadb"),
        ("mysql+pymysql://a@db/x", "mysql+pymysql", "mariadb"),
    ],
)
def test_a_database_url_without_a_driver_gets_the_default_driver(url, driver, name):
    engine = open_engine(url)
    assert engine.url.drivername == driver
    assert dialect_name(engine) == name


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("oracle://a@db/x", "names 'oracle'; use sqlite:///FILE"),
        ("no url", "cannot be read"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
    ],
)
def test_an_unusable_database_url_is_a_start_error_with_advice(url, words):
    with pytest.raises(StartError, match=words):
        open_engine(url)


def test_the_repr_of_an_engine_does_not_show_the_password():
    assert "geheim" not in repr(open_engine("postgresql://a:geheim@db/x"))


def test_the_error_of_a_malformed_database_url_does_not_show_the_password():
    with pytest.raises(StartError) as caught:
        open_engine("postgresql//a:geheim@db/x")
    assert "geheim" not in str(caught.value)


def test_an_sqlite_engine_creates_its_directory_and_sets_the_pragmas(tmp_path):
    engine = open_engine(f"sqlite:///{tmp_path}/deep/er/moorage.sqlite")
    with engine.connect() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 10000}
    engine.dispose()


def test_threads_can_open_a_new_sqlite_file_concurrently(tmp_path):
    """SQLite refuses to switch to the write-ahead log while another connection does so; the engine repeats it."""
    failures = []
    for number in range(15):
        together = threading.Barrier(6)

        def start(url=f"sqlite:///{tmp_path}/{number}.sqlite", together=together):
            engine = open_engine(url)
            together.wait()
            try:
                with engine.connect():
                    pass
            except Exception as error:  # noqa: BLE001 - the end of a thread: the test compares its error
                failures.append(error)
            engine.dispose()

        threads = [threading.Thread(target=start) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("mysql://root@db/x", "pymysql", "moorage[mysql]"), ("postgresql://root@db/x", "psycopg", "moorage[postgres]")],
)
def test_a_missing_database_driver_is_a_start_error_that_names_the_extra(url, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    for opened in (open_engine, open_read_only_engine):
        with pytest.raises(StartError, match=re.escape(f"pip install '{extra}'")):
            opened(url)
