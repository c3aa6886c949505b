"""Processes of placement as operators run them, on one database: each one shows every write that another
acknowledged.
"""

import contextlib
import time

import pytest

from moorage.core.clock import SystemClock
from moorage.db.engine import open_engine
from moorage.db.session import write
from moorage.placement.forest import change_entries
from moorage.placement.store import change_store, name_store
from tests.conftest import DATABASES
from tests.servers import temporary_database
from tests.system.placement.processes import HOST, PATIENCE_S, URL, Process, told
from tests.system.planes import PLACEMENT
from tests.transport.proxy import Line

pytestmark = pytest.mark.slow

#: Enough for a busy machine. No process waits for one that hangs or is dead.
BOUND_S = 2.0


@pytest.fixture(params=DATABASES[1:])
def database_url(request):
    with temporary_database(request.param, PLACEMENT) as url:
        yield url


@pytest.fixture
def process(database_url, tmp_path):
    """A function that starts another process: `process("name")`."""
    with contextlib.ExitStack() as stack:

        def start(name):
            return stack.enter_context(Process(tmp_path / name, database_url)).start()

        yield start


@pytest.fixture
def first(process):
    """The first process; it has created the host."""
    first = process("first")
    assert first.client.send("POST", "/resource_providers", {"name": "first", "uuid": HOST}).status == 200
    assert first.name() == "first"
    return first


def test_each_process_reads_at_once_what_the_other_one_has_written(first, process):
    other = process("other")
    for number in range(50):
        assert other.rename(f"other {number}") < BOUND_S
        assert first.name() == f"other {number}"
        first.rename(f"first {number}")
        assert other.name() == f"first {number}"
    other.stop()
    assert first.name() == "first 49"


def test_a_process_that_hung_during_another_ones_write_answers_with_the_new_data(first, process):
    """Reads that reached it before the write may show either name; reads sent after it, while it hung, show the new
    one.
    """
    other = process("other")
    with first.stopped():
        before = [first.ask() for _ in range(3)]
        assert other.rename("while it hung") < BOUND_S
        after = [first.ask() for _ in range(3)]
    assert {told(connection) for connection in after} == {"while it hung"}
    assert {told(connection) for connection in before} <= {"first", "while it hung"}
    assert first.name() == "while it hung"


def test_a_write_by_another_program_is_read_at_once(first, database_url):
    """For example an import, or any other program that writes through the change log."""
    engine = open_engine(database_url)
    with write(engine) as connection:
        log = change_store.ChangeLogWriter(connection, SystemClock().now())
        name_store.add_names(connection, name_store.TRAITS, ["CUSTOM_LATE"], SystemClock().now(), standard=False)
        log.add((change_entries.NAMES,))
    assert first.client.send("GET", "/traits/CUSTOM_LATE").status == 204
    engine.dispose()


def test_without_its_database_a_process_answers_with_the_age_of_its_data(database_url, tmp_path):
    with (
        contextlib.closing(Line(database_url)) as line,
        Process(tmp_path / "cut off", line.url, memory_s=60) as process,
    ):
        client = process.start().client
        assert client.send("POST", "/resource_providers", {"name": "first", "uuid": HOST}).status == 200
        line.cut()
        assert "x-moorage-as-of" in client.send("GET", URL).headers
        line.mend()
        began = time.monotonic()
        while "x-moorage-as-of" in client.send("GET", URL).headers:
            assert time.monotonic() - began < PATIENCE_S
        client.close()


def test_a_killed_process_delays_no_other_process(first, process):
    other = process("other")
    first.kill()
    assert other.rename("after the kill") < BOUND_S
    assert other.name() == "after the kill"


def test_a_killed_process_serves_again_within_two_seconds(first):
    first.kill()
    began = time.monotonic()
    first.start()
    started_s = time.monotonic() - began
    assert first.name() == "first"
    assert first.rename("back") < BOUND_S
    assert first.name() == "back"
    print(f"serving after {started_s:.1f} s")
