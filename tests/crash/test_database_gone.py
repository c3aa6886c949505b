"""Issue 3: "Disk full and database gone: writes are refused with 503 and a reason, reads go on, all resumes by itself."

Here the database is gone: killed, cut off, hanging, locked, without free connections, or read only. The server's
timeouts are shortened, so that tests of a hanging database do not take a minute.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

import pytest

from tests.conftest import DATABASES
from tests.crash.databases import DatabaseServer
from tests.crash.processes import DEADLINE_S, Server
from tests.crash.wire import Answer, Client
from tests.transport.proxy import Line

pytestmark = pytest.mark.slow

#: psycopg waits at least 2 s for a connection.
BOUNDS = {"CONNECT_TIMEOUT_S": 2, "ANSWER_TIMEOUT_S": 2, "LOCK_TIMEOUT_S": 1}
#: The maximum time of a request: the timeout of an answer plus the timeout of a connection.
LONGEST_S = 5.5
#: Time limit for answers from memory; generous, because other tests use the machine, too.
FROM_MEMORY_S = 1.0

HOST = "00000000-0000-4000-8000-000000000001"
CONSUMER = "00000000-0000-4000-8000-0000000000c1"
READS = (
    "/resource_providers",
    f"/resource_providers/{HOST}",
    f"/resource_providers/{HOST}/inventories",
    f"/resource_providers/{HOST}/usages",
    "/allocation_candidates?resources=VCPU:1",
)


@dataclass
class Place:
    database: DatabaseServer
    line: Line
    server: Server
    client: Client
    writes: int = 0

    def write(self) -> Answer:
        self.writes += 1
        return self.client.send("PUT", f"/traits/CUSTOM_{self.writes}")

    def claim(self) -> Answer:
        consumer = f"00000000-0000-4000-8000-{self.writes:012d}"
        self.writes += 1
        body = {
            "allocations": {HOST: {"resources": {"VCPU": 1}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        return self.client.send("PUT", f"/allocations/{consumer}", body)

    def wait_until_writable(self) -> None:
        """Waits until the service accepts writes again by itself, and its reads are current."""
        deadline = time.monotonic() + DEADLINE_S
        while (answer := self.claim()).status != 204:
            assert answer.status == 503, answer
            assert time.monotonic() < deadline, "it does not write again"
        while self.healthcheck() != 200 or any(self.is_stale(path) for path in READS):
            assert time.monotonic() < deadline, "it does not read again"

    def is_stale(self, path: str) -> bool:
        answer = self.client.send("GET", path)
        assert answer.status == 200, answer
        return "x-moorage-as-of" in answer.headers

    def healthcheck(self) -> int:
        return self.client.send("GET", "/healthcheck").status


@pytest.fixture(scope="module", params=DATABASES[1:])
def running(request, tmp_path_factory, private_server) -> Iterator[Place]:
    place = tmp_path_factory.mktemp("gone")
    database = private_server(request.param)
    with (
        contextlib.closing(Line(database.url)) as line,
        Server(place / "server", line.url, bounds=BOUNDS, memory_s=60) as server,
    ):
        server.start()
        server.wait()
        client = Client(server.url)
        for method, path, body in (
            ("POST", "/resource_providers", {"name": "host", "uuid": HOST}),
            (
                "PUT",
                f"/resource_providers/{HOST}/inventories",
                {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 100_000}}},
            ),
        ):
            assert client.send(method, path, body).status == 200
        yield Place(database, line, server, client)
        client.close()


@pytest.fixture
def place(running) -> Iterator[Place]:
    running.wait_until_writable()
    yield running
    assert running.server.died(0.0) is None, "the process must have lived through it"


def assert_refused(answer: Answer, reason: str = "the database does not answer") -> None:
    assert answer.status == 503, answer
    assert reason in answer.reason
    assert int(answer.headers["retry-after"]) > 0


def timed(ask: Callable[[], Answer]) -> tuple[Answer, float]:
    began = time.monotonic()
    return ask(), time.monotonic() - began


def assert_stale_reads_are_answered(place: Place) -> None:
    for path in READS:
        answer, took_s = timed(lambda path=path: place.client.send("GET", path))
        assert answer.status == 200, (path, answer)
        assert answer.headers["warning"].startswith("110 ")
        assert int(answer.headers["age"]) <= 60
        assert datetime.fromisoformat(answer.headers["x-moorage-as-of"]).tzinfo is not None
        assert took_s < FROM_MEMORY_S
    # Data that is not in memory gets 503.
    assert_refused(place.client.send("GET", f"/allocations/{CONSUMER}"))


def test_writes_are_refused_and_reads_answered_while_the_database_is_killed(place):
    place.database.kill()
    try:
        for ask in (place.write, place.claim):
            answer, took_s = timed(ask)
            assert_refused(answer)
            assert took_s < FROM_MEMORY_S
        assert_stale_reads_are_answered(place)
        assert place.healthcheck() == 503
    finally:
        place.database.start()
        place.database.wait()
    place.wait_until_writable()


def test_no_request_fails_after_a_restart_of_the_database(place):
    place.database.stop()
    place.database.start()
    place.database.wait()
    assert place.claim().status == 204
    assert place.write().status == 201


def test_writes_are_refused_and_reads_answered_while_the_connection_is_cut(place):
    place.line.cut()
    assert_refused(place.claim())
    assert_stale_reads_are_answered(place)
    place.line.mend()
    assert place.claim().status == 204


@pytest.fixture(params=["the line swallows", "the database stands still"])
def hanging(request, place) -> Iterator[Place]:
    if request.param == "the line swallows":
        place.line.swallow()
        yield place
        place.line.cut()
        place.line.mend()
    else:
        place.database.stall()
        yield place
        place.database.go_on()
    place.wait_until_writable()


def test_no_request_takes_longer_than_the_timeouts_while_the_database_hangs(hanging):
    """Sends eight requests at once, one per thread of the server: none takes longer than the timeouts."""

    def ask(number: int) -> tuple[Answer, float]:
        client = Client(hanging.server.url)
        path = f"/resource_providers/{HOST}/usages"
        answer, took_s = timed(
            lambda: client.send("GET", path) if number % 2 else client.send("PUT", f"/traits/CUSTOM_H{number}")
        )
        client.close()
        return answer, took_s

    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(ask, range(8)))
    for number, (answer, took_s) in enumerate(answers):
        assert took_s < LONGEST_S
        if number % 2:
            assert answer.status == 200
            assert "x-moorage-as-of" in answer.headers
        else:
            assert_refused(answer)
    answer, took_s = timed(hanging.claim)
    assert_refused(answer)
    assert took_s < LONGEST_S


def test_writes_are_refused_in_time_while_another_session_locks_the_change_sequence(place):
    with place.database.connect() as holder:
        cursor = holder.cursor()
        cursor.execute("BEGIN")
        cursor.execute("SELECT last FROM change_sequence FOR UPDATE")
        for ask in (place.claim, place.write):
            answer, took_s = timed(ask)
            assert_refused(answer, "the database aborted this transaction because of another one")
            assert took_s < LONGEST_S
        for path in READS:
            answer = place.client.send("GET", path)
            assert (answer.status, answer.headers.get("x-moorage-as-of")) == (200, None)
    assert place.claim().status == 204


def test_writes_are_refused_in_time_while_another_process_locks_the_sqlite_file(tmp_path):
    """An operator typed ``BEGIN IMMEDIATE`` into a shell and left."""
    path = tmp_path / "placement.db"
    with Server(tmp_path / "server", f"sqlite:///{path}", bounds=BOUNDS) as server:
        server.start()
        server.wait()
        client = Client(server.url)
        assert client.send("POST", "/resource_providers", {"name": "host", "uuid": HOST}).status == 200
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            for method, path, body in (
                ("POST", "/resource_providers", {"name": "other"}),
                ("PUT", "/traits/CUSTOM_OTHER", None),
            ):
                answer, took_s = timed(lambda request=(method, path, body): client.send(*request))
                assert_refused(answer, "locked by another writer")
                assert took_s < LONGEST_S
            for path in READS:
                answer = client.send("GET", path)
                assert (answer.status, answer.headers.get("x-moorage-as-of")) == (200, None)
            holder.execute("ROLLBACK")
        assert client.send("PUT", "/traits/CUSTOM_OTHER").status == 201
        client.close()


def test_writes_are_refused_and_reads_answered_while_the_database_accepts_no_connection(place):
    with contextlib.ExitStack() as others:

        def take_what_is_left():
            with contextlib.suppress(Exception):  # the error differs between the drivers
                while True:
                    others.enter_context(contextlib.closing(place.database.connect()))

        take_what_is_left()
        place.line.cut()  # the server loses its connections, so that `take_what_is_left` gets them
        place.line.mend()
        take_what_is_left()
        deadline = time.monotonic() + DEADLINE_S
        while (answer := place.claim()).status == 204:  # the database releases the lost connections one by one
            assert time.monotonic() < deadline
            place.line.cut()
            place.line.mend()
            take_what_is_left()
        assert_refused(answer, "accepts no more connections")
        assert_stale_reads_and_refusals_give_the_reason(place, "accepts no more connections")
    place.wait_until_writable()


def assert_stale_reads_and_refusals_give_the_reason(place: Place, reason: str) -> None:
    for path in READS:
        assert "x-moorage-as-of" in place.client.send("GET", path).headers
    assert_refused(place.client.send("GET", f"/allocations/{CONSUMER}"), reason)


def test_writes_are_refused_and_reads_answered_while_the_database_is_read_only(place):
    on, off = {
        "postgresql": ("ALTER SYSTEM SET default_transaction_read_only = on", "ALTER SYSTEM RESET ALL"),
        "mariadb": ("SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"),
    }[place.database.kind]
    if place.database.kind == "mariadb":
        pytest.skip("the superuser that the tests are is exempt from read_only")
    place.database.execute(on)
    place.database.execute("SELECT pg_reload_conf()")
    try:
        deadline = time.monotonic() + DEADLINE_S
        while (answer := place.claim()).status == 204:
            assert time.monotonic() < deadline
        assert_refused(answer, "is read-only")
        for path in READS:
            answer = place.client.send("GET", path)
            assert (answer.status, answer.headers.get("x-moorage-as-of")) == (200, None)
    finally:
        with place.database.connect() as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(off)
            connection.execute("SELECT pg_reload_conf()")
    place.wait_until_writable()
