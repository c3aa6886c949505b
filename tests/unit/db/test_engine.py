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
def test_a_url_needs_no_driver(url, driver, name):
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
def test_a_url_that_cannot_be_used_says_what_can(url, words):
    with pytest.raises(StartError, match=words):
        open_engine(url)


def test_a_password_does_not_show_in_the_engine():
    assert "geheim" not in repr(open_engine("postgresql://a:geheim@db/x"))


def test_a_malformed_url_does_not_show_its_password():
    with pytest.raises(StartError) as caught:
        open_engine("postgresql//a:geheim@db/x")
    assert "geheim" not in str(caught.value)


def test_sqlite_makes_its_directory_and_has_the_settings_of_the_house(tmp_path):
    engine = open_engine(f"sqlite:///{tmp_path}/deep/er/moorage.sqlite")
    with engine.connect() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 10000}
    engine.dispose()


def test_threads_may_open_a_fresh_file_at_once(tmp_path):
    """The switch to the write-ahead log is refused while another connection opens; it is repeated."""
    failures = []
    for number in range(15):
        together = threading.Barrier(6)

        def start(url=f"sqlite:///{tmp_path}/{number}.sqlite", together=together):
            engine = open_engine(url)
            together.wait()
            try:
                with engine.connect():
                    pass
            except Exception as error:  # noqa: BLE001 - the test checks it
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
def test_a_driver_that_is_not_installed_is_named_with_the_remedy(url, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    for opened in (open_engine, open_read_only_engine):
        with pytest.raises(StartError, match=re.escape(f"pip install '{extra}'")):
            opened(url)
