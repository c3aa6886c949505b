"""Two processes as operators run them: one answers without asking, and is never behind what the other has acknowledged."""

import contextlib
import threading
import time

import pytest

from moorage.core.clock import SystemClock
from moorage.db.engine import open_engine
from moorage.db.transactions import write
from moorage.placement.forest import change_documents
from moorage.placement.store import change_log, name_store
from tests.conftest import DATABASES
from tests.crash.wire import Client
from tests.servers import temporary_database
from tests.system.placement.processes import HOST, PATIENCE_S, URL, Process, told
from tests.system.planes import PLACEMENT
from tests.transport.proxy import Line

pytestmark = pytest.mark.slow

#: Its lease, half a second, which another process waits for to its end, and something for a busy machine.
BOUND_S = 2.0


@contextlib.contextmanager
def always_reading(process):
    """So that it renews whenever it may."""
    ends = threading.Event()

    def read():
        client = Client(process.url)
        while not ends.wait(0.02):
            client.get(URL)
        client.close()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


@pytest.fixture(params=DATABASES[1:])
def database_url(request):
    with temporary_database(request.param, PLACEMENT) as url:
        yield url


@pytest.fixture
def process(database_url, tmp_path):
    """Start another process: `process("name", lease_s=0)`."""
    with contextlib.ExitStack() as stack:

        def start(name, **options):
            made = Process(tmp_path / name, database_url, **options)
            return stack.enter_context(made).start()

        yield start


@pytest.fixture
def holder(process):
    """The only process, with the host; it reads without asking."""
    holder = process("holder")
    assert holder.client.send("POST", "/resource_providers", {"name": "first", "uuid": HOST}).status == 200
    holder.reads_without_asking()
    return holder


def test_what_it_has_written_itself_is_read_without_asking(holder):
    before = holder.counted('reads_total{exact_by="database"}')
    for number in range(20):
        holder.rename(f"own {number}")
        assert holder.name() == f"own {number}"
    holder.client.send("PUT", "/traits/CUSTOM_GOLD")
    assert holder.client.send("GET", "/traits/CUSTOM_GOLD").status == 204
    # Perhaps a renewal came too late once; each of these would have asked without the lease.
    assert holder.counted('reads_total{exact_by="database"}') - before < 20


def test_who_comes_and_writes_is_seen_at_once(holder, process):
    """It shows itself, so it waits for nobody, or not for long; from then on both ask."""
    with always_reading(holder):
        other = process("other")
        for number in range(50):
            assert other.rename(f"other {number}") < BOUND_S
            assert holder.name() == f"other {number}"
            holder.rename(f"holder {number}")
            assert other.name() == f"holder {number}"
        before = holder.counted('reads_total{exact_by="lease"}')
        time.sleep(1.0)
        holder.name()
        assert holder.counted('reads_total{exact_by="lease"}') == before
        other.stop()
        holder.reads_without_asking()
        assert holder.name() == "holder 49"


def test_a_writer_who_shows_himself_only_by_writing_waits_for_the_end_of_the_lease(holder, process):
    """Twice: the second time while the holder hangs, from before the write until after it."""
    other = process("other", lease_s=0)
    with always_reading(holder):
        holder.reads_without_asking()  # who is not read for a while lets go of the lease
        assert other.rename("waited") < BOUND_S
        assert holder.name() == "waited"
        assert other.counted("lease_waits_total") == 1
        assert other.rename("did not wait") < 0.5
        assert other.counted("lease_waits_total") == 1
        assert holder.name() == "did not wait"
    holder.reads_without_asking()
    with holder.stopped():
        before = [holder.ask() for _ in range(3)]
        assert other.rename("while it hung") < BOUND_S
        assert other.counted("lease_waits_total") == 2
        after = [holder.ask() for _ in range(3)]
    assert {told(connection) for connection in after} == {"while it hung"}
    assert {told(connection) for connection in before} <= {"did not wait", "while it hung"}
    assert holder.name() == "while it hung"


def test_a_stop_that_is_shorter_than_the_lease_costs_nobody_anything(holder):
    for _ in range(3):
        with holder.stopped():
            connection = holder.ask()
            time.sleep(0.3)
        assert told(connection) == "first"
    holder.rename("second")
    assert holder.name() == "second"


def test_whoever_writes_without_serving_is_seen(holder, database_url):
    """As an import does, and whatever else goes through the log."""
    engine = open_engine(database_url)
    with always_reading(holder):
        with write(engine) as connection:
            began = time.monotonic()
            log = change_log.ChangeLogWriter(connection, SystemClock().now())
            waited_s = time.monotonic() - began
            name_store.add_names(connection, name_store.TRAITS, ["CUSTOM_LATE"], SystemClock().now(), standard=False)
            log.add((change_documents.NAMES,))
        assert holder.client.send("GET", "/traits/CUSTOM_LATE").status == 204
    engine.dispose()
    assert 0.4 < waited_s < BOUND_S


def test_without_its_database_it_is_exact_until_the_lease_is_over_and_says_so_then(database_url, tmp_path):
    with (
        contextlib.closing(Line(database_url)) as line,
        Process(tmp_path / "cut off", line.url, memory_s=60) as process,
    ):
        client = process.start().client
        assert client.send("POST", "/resource_providers", {"name": "first", "uuid": HOST}).status == 200
        line.cut()
        began = time.monotonic()
        while "x-moorage-as-of" not in (answer := client.send("GET", URL)).headers:
            assert answer.status == 200
            assert time.monotonic() - began < BOUND_S
        line.mend()
        began = time.monotonic()
        while "x-moorage-as-of" in (answer := client.send("GET", URL)).headers:
            assert time.monotonic() - began < PATIENCE_S
        client.close()


def test_who_is_killed_with_the_lease_delays_nobody_beyond_its_end(holder, process):
    other = process("other", lease_s=0)
    holder.reads_without_asking()
    holder.kill()
    assert other.rename("after the kill") < BOUND_S
    assert other.counted("lease_waits_total") == 1
    assert other.rename("again") < 0.5
    assert other.counted('reads_total{exact_by="lease"}') == 0, "it was told never to have one"


def test_a_killed_process_is_back_within_two_seconds(holder):
    holder.kill()
    began = time.monotonic()
    holder.start()
    started_s = time.monotonic() - began
    assert holder.name() == "first"
    assert holder.rename("back") < BOUND_S
    assert holder.name() == "back"
    print(f"serving after {started_s:.1f} s")


def test_who_ends_gives_the_lease_back(holder, process):
    other = process("other", lease_s=0)
    holder.reads_without_asking()
    holder.stop()
    assert other.rename("after the end") < BOUND_S
    assert other.counted("lease_waits_total") == 0
