"""Watching changes over real sockets: a killed server, two processes on one database, watchers that do not read."""

import itertools
import json
import signal
import socket
import subprocess
import threading
from urllib.parse import urlsplit

import httpx
import pytest

from moorage.core.clock import SystemClock
from moorage.core.errors import RemoteError
from moorage.core.ids import SeededIds
from moorage.db.session import write
from moorage.placement.client.change_log import follow_changes
from moorage.placement.forest.change_entries import Filter
from moorage.placement.store import change_store
from moorage.wire.client import ServiceClient
from tests.ports import free_port
from tests.servers import temporary_database
from tests.system import planes
from tests.system.planes import MOORAGE, PlaneProcess, until, write_config

pytestmark = pytest.mark.slow

DATABASES = [
    pytest.param("postgresql", marks=pytest.mark.postgresql),
    pytest.param("mariadb", marks=pytest.mark.mariadb),
]


def process(directory, database="", **placement):
    write_config(
        directory,
        plane={"services": "placement", "log_file": "moorage.log"},
        server={"port": free_port(), "threads": 6},
        identity={"mode": "none"},
        database={"placement": database},
        placement=placement,
    )
    return PlaneProcess(directory / "moorage.conf")


def client(plane):
    return ServiceClient(plane.transport("/placement"), service_type="placement", version="1.39")


def create(plane, name):
    return client(plane).request("POST", "/resource_providers", json={"name": name})["uuid"]


class Watcher:
    """Follows the changes in its own thread, as a client would, and reconnects after the server has died."""

    def __init__(self, plane, since="0", **wanted):
        self.entries, self.failure = [], None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(client(plane), since, Filter(**wanted)), daemon=True)
        self._thread.start()

    def _run(self, http, since, wanted):
        try:
            for entry in follow_changes(http, self, since, wanted):
                self.entries.append(entry)
        except RemoteError as error:
            self.failure = error
        except StopIteration:
            pass

    def sleep(self, seconds):
        if self._stopping.wait(seconds):
            raise StopIteration

    def now(self):
        return SystemClock().now()

    @property
    def names(self):
        return [entry["document"]["name"] for entry in self.entries if entry["kind"] == "provider"]

    def sees(self, count):
        until(lambda: len(self.names) >= count or self.failure)
        assert self.failure is None
        return self.names


def is_in_order(entries):
    places = [(entry["sequence"], entry["position"]) for entry in entries]
    return all(before < after for before, after in itertools.pairwise(places))


def test_a_watcher_sees_every_event_once_although_the_server_is_killed_and_restarted(tmp_path):
    """No event is lost or repeated, and all are in order, including those of writes while the watcher was
    disconnected.
    """
    with process(tmp_path / "plane") as plane:
        watcher = Watcher(plane)
        names = []
        for life in range(3):
            for number in range(10):
                names.append(f"host-{life}-{number}")
                create(plane, names[-1])
            watcher.sees(len(names) - 5)
            plane.kill()
            plane.start()
        assert watcher.sees(len(names)) == names
        assert is_in_order(watcher.entries)


def test_a_server_with_connected_watchers_stops_within_seconds(tmp_path):
    with process(tmp_path / "plane", watchers=3) as plane:
        create(plane, "host")
        watchers = [Watcher(plane) for _ in range(3)]
        for watcher in watchers:
            watcher.sees(1)
        assert plane.stop(signal.SIGTERM) == 0, "in less than the 10 s that the wait allows"
        plane.start()
        create(plane, "another")
        for watcher in watchers:
            assert watcher.sees(2) == ["host", "another"]


@pytest.mark.parametrize("kind", DATABASES)
def test_watchers_of_one_process_see_the_commits_of_another_one(tmp_path, kind):
    """Two processes write at the same time; each watcher sees the same entries in the same order."""
    with (
        temporary_database(kind) as database,
        process(tmp_path / "one", database) as one,
        process(tmp_path / "two", database) as two,
    ):
        watchers = [Watcher(one), Watcher(two)]

        def fill(plane, name):
            for number in range(25):
                create(plane, f"{name}-{number}")

        writers = [threading.Thread(target=fill, args=pair) for pair in ((one, "one"), (two, "two"))]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        seen = [watcher.sees(50) for watcher in watchers]
        assert seen[0] == seen[1]
        assert sorted(seen[0]) == sorted(f"{name}-{number}" for name in ("one", "two") for number in range(25))
        assert all(is_in_order(watcher.entries) for watcher in watchers)


def test_a_watcher_that_asks_for_deleted_entries_gets_410_with_the_oldest_number(tmp_path):
    with process(tmp_path / "plane") as plane:
        create(plane, "host")
        last = client(plane).get("/moorage/v1/changes?limit=1000")["last"]
        forget_before(plane, last)
        watcher = Watcher(plane, since="0")
        until(lambda: watcher.failure)
        assert watcher.failure.status == 410
        assert f"the oldest retained one is {last}" in str(watcher.failure)


def forget_before(plane, number):
    """Deletes old entries as the retention task would do after a week."""
    from moorage.db.engine import open_engine

    engine = open_engine(f"sqlite:///{plane.state}/placement.db")
    with write(engine) as connection:
        change_store.delete_entries(connection, [], change_store.Retention(number, SystemClock().now()))
    engine.dispose()


def test_watchers_that_do_not_read_delay_no_other_request(tmp_path):
    """More watchers than the server has threads, and more data than any buffer can hold."""
    with process(tmp_path / "plane", watchers=2) as plane:
        fill(plane, 60)
        silent = [connected(plane, "/placement/moorage/v1/events?since=0") for _ in range(12)]
        for number in range(20):
            create(plane, f"meanwhile-{number}")
        answers = [httpx.get(f"{plane.url}/placement/resource_providers?name=meanwhile-{n}") for n in range(20)]
        assert {answer.status_code for answer in answers} == {200}
        for connection in silent:
            connection.close()


def fill(plane, providers):
    """Creates this number of providers with about 30 kB each."""
    ids = SeededIds(5)
    for number in range(providers):
        uuid = create(plane, f"host-{number}")
        aggregates = [ids.uuid() for _ in range(800)]
        body = {"aggregates": aggregates, "resource_provider_generation": 0}
        client(plane).request("PUT", f"/resource_providers/{uuid}/aggregates", json=body)


def connected(plane, path):
    """A connection on which a request was sent and nothing is read."""
    url = urlsplit(plane.url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((url.hostname, url.port))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode())
    return connection


def test_a_watcher_reads_a_long_log_in_several_answers(tmp_path):
    """The watcher gets many answers, none longer than the limit."""
    with process(tmp_path / "plane") as plane:
        fill(plane, 60)
        watcher = Watcher(plane)
        until(lambda: len(watcher.entries) >= 121)
        assert is_in_order(watcher.entries)
        listed = json.loads(httpx.get(f"{plane.url}/placement/moorage/v1/changes?since=0&limit=1000").content)
        assert len(listed["changes"]) < 121, "one page has a bound, too"
        assert watcher.entries[: len(listed["changes"])] == listed["changes"]


# --- the command line ---------------------------------------------------------------------------------------------


def moorage(plane, *words):
    done = planes.moorage(*words, "--config", plane.config)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    """A plane with a host, on which a consumer had three units and then two."""
    with process(tmp_path_factory.mktemp("used") / "plane") as plane:
        http = client(plane)
        host = create(plane, "host")
        offered = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}}
        http.request("PUT", f"/resource_providers/{host}/inventories", json=offered)
        for generation, amount in ((None, 3), (1, 2)):
            body = {
                "allocations": {host: {"resources": {"VCPU": amount}}},
                "project_id": "red",
                "user_id": "alice",
                "consumer_generation": generation,
                "consumer_type": "INSTANCE",
            }
            http.request("PUT", f"/allocations/{CONSUMER}", json=body)
        yield plane, host


CONSUMER = "00000000-0000-4000-8000-00000000000a"


def test_the_events_command_prints_lines_or_json(used):
    plane, host = used
    code, out, _ = moorage(plane, "events")
    assert code == 0
    lines = out.splitlines()
    assert "host, generation 1: VCPU 0/8" in lines[2]
    assert lines[-2].endswith("generation 3: VCPU 2")
    assert lines[-1].endswith(f"{CONSUMER}  INSTANCE of red: VCPU 2 of {host}")
    code, out, _ = moorage(plane, "events", "--json", "--kind", "consumer", "--subject", CONSUMER)
    held = [json.loads(line)["document"]["allocations"][host]["VCPU"] for line in out.splitlines()]
    assert held == [3, 2]


def test_the_events_command_follows_changes_until_ctrl_c(used):
    plane, host = used
    command = [MOORAGE, "events", "--follow", "--since", "0", "--subject", host, "--config", plane.config]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        first = [following.stdout.readline() for _ in range(4)]
        http = client(plane)
        generation = http.get(f"/resource_providers/{host}")["generation"]
        body = {"resource_provider_generation": generation, "traits": ["HW_CPU_X86_AVX2"]}
        http.request("PUT", f"/resource_providers/{host}/traits", json=body)
        assert f"generation {generation + 1}: VCPU 2/8" in following.stdout.readline()
        following.send_signal(signal.SIGINT)
        rest, errors = following.communicate(timeout=10)
    assert (following.returncode, rest, errors) == (0, "", "")
    assert [line.split()[2] for line in first] == ["provider", "provider", "usages", "usages"]


def test_the_history_command_shows_the_state_at_a_time_and_the_list_of_changes(used):
    plane, host = used
    entries = [
        json.loads(line)
        for line in moorage(plane, "history", "consumer", CONSUMER, "--changes", "--json")[1].splitlines()
    ]
    code, out, _ = moorage(plane, "history", "consumer", CONSUMER, "--at", entries[0]["at"])
    assert code == 0
    assert f"INSTANCE of red: VCPU 3 of {host}" in out
    assert f"VCPU 2 of {host}" in moorage(plane, "history", "consumer", CONSUMER)[1]
    listed = moorage(plane, "history", "provider", host, "--changes", "--until", entries[0]["at"])[1]
    assert [line.split()[2] for line in listed.splitlines()] == ["provider", "provider"]
    state = json.loads(moorage(plane, "history", "provider", host, "--json", "--at", entries[0]["at"])[1])
    assert state["state"]["usages"] == {"VCPU": 3}


def test_a_history_that_cannot_be_shown_is_explained_in_one_line(used):
    plane, host = used
    for words, part in (
        (("history", "provider", CONSUMER), "There was no provider"),
        (("history", "provider", host, "--at", "noon"), "is not a time"),
        (("events", "--since", "999999"), "There is no change 999999 yet"),
    ):
        code, out, errors = moorage(plane, *words)
        assert (code, out) == (1, "")
        assert part in errors
        assert len(errors.splitlines()) == 1, errors
    assert moorage(plane, "history", "provider", host, "--since", "2026-03-01T00:00:00Z")[0] == 2
