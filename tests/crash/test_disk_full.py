"""Issue 3: "Disk full and database gone: writes are refused with 503 and a reason, reads go on, all resumes by itself."

Here the disk below the database is full, to the last byte. What was refused must not be there at all.
"""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conftest import DATABASES
from tests.crash.campaign import SHARED, World
from tests.crash.databases import DatabaseServer, database_server
from tests.crash.disks import NoMount, SmallDisk
from tests.crash.load import Load
from tests.crash.processes import DEADLINE_S, Server
from tests.crash.wire import Client

pytestmark = pytest.mark.slow

READS = (
    "/resource_providers",
    f"/resource_providers/{SHARED[0]}/inventories",
    "/allocation_candidates?resources=VCPU:1",
)
#: So that each fits on a small disk, and soon has to ask for more of it.
SIZES_MB = {"sqlite": 8, "postgresql": 80, "mariadb": 140}
SETTINGS = {"postgresql": {"max_connections": 20}, "mariadb": {"innodb_log_file_size": "8M", "max_connections": 20}}

SMALL_WRITES_THAT_FIT = 1_000


@dataclass
class Place:
    disk: SmallDisk
    server: Server
    world: World
    client: Client
    database: DatabaseServer | None
    fitted: list[str] = field(default_factory=list)  #: providers that the world knows nothing of

    def load_until_refused(self) -> None:
        """All clients have had a 503."""
        load = Load(self.world.url, self.world.tenants, lambda _: None)
        load.join()
        self.world.note(load)

    def is_writable_again(self) -> bool:
        """By itself; what had fitted before is taken away."""
        is_back = self.world.first_write(time.perf_counter(), lambda: self.server.died(0.0) is not None, DEADLINE_S)
        gone = [self.client.send("DELETE", f"/resource_providers/{uuid}").status for uuid in self.fitted]
        return is_back and set(gone) <= {204}

    def load(self, requests: int) -> None:
        enough = threading.Event()
        load = Load(self.world.url, self.world.tenants, lambda number: number >= requests and enough.set())
        assert enough.wait(DEADLINE_S)
        load.stop()
        load.join()
        self.world.note(load)

    def refusal(self) -> str:
        """Of a write that needs room: a small one may still fit into what the database had taken before."""
        for number in range(SMALL_WRITES_THAT_FIT):
            answer = self.client.send("POST", "/resource_providers", {"name": f"{number:0200}"})
            if answer.status != 200:
                break
            self.fitted.append(answer.body["uuid"])
        assert answer.status == 503, answer
        assert int(answer.headers["retry-after"]) > 0
        return answer.reason


@pytest.fixture
def disk(request, tmp_path) -> Iterator[SmallDisk]:
    # Not below pytest's directory, which other users than this one cannot enter.
    place = Path("/var/tmp") / f"moorage-disk-{tmp_path.name}-{time.time_ns()}"
    try:
        with SmallDisk(place, SIZES_MB[request.param]) as disk:
            yield disk
    except NoMount as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")
    finally:
        place.rmdir()


def started(disk: SmallDisk, tmp_path: Path, url: str, database: DatabaseServer | None) -> Iterator[Place]:
    with Server(tmp_path / "server", url) as server:
        server.start()
        server.wait()
        world = World(server.url, url, seed=1)
        world.set_up()
        client = Client(server.url)
        yield Place(disk, server, world, client, database)
        client.close()
        assert server.died(0.0) is None, "the process must have lived through it"


@pytest.fixture
def place(disk, request, tmp_path) -> Iterator[Place]:
    kind = request.node.callspec.params["disk"]
    if kind == "sqlite":
        yield from started(disk, tmp_path, f"sqlite:///{disk.place}/placement.db", None)
        return
    wal_elsewhere = request.node.originalname != "test_a_full_disk_below_the_write_ahead_log_too"
    with database_server(kind, place=disk.place, wal_elsewhere=wal_elsewhere, **SETTINGS[kind]) as database:
        yield from started(disk, tmp_path, database.url, database)


@pytest.mark.parametrize("disk", DATABASES, indirect=True)
def test_a_full_disk(place):
    place.load(50)
    place.disk.fill()
    place.load_until_refused()
    reason = place.refusal()
    assert "the disk of the database" in reason
    assert "make room there" in reason
    for path in READS:
        answer = place.client.send("GET", path)
        assert (answer.status, answer.headers.get("x-moorage-as-of")) == (200, None), answer
    place.disk.make_room()
    assert place.is_writable_again()
    place.world.check()
    assert place.world.summary.unanswered["carried out"] == 0, "it was refused, and done"
    place.load(50)
    place.world.check()


@pytest.mark.parametrize("disk", DATABASES[1:2], indirect=True)
def test_a_full_disk_below_the_write_ahead_log_too(place):
    """PostgreSQL panics where its write-ahead log cannot grow, and recovers again and again, or ends: for us the
    database is full or gone by turns.
    """
    place.load(50)
    place.disk.fill()
    place.load_until_refused()
    assert place.refusal()
    for path in READS:
        assert place.client.send("GET", path).status == 200
    place.disk.make_room()
    if place.database.has_ended():
        place.database.start()
    assert place.is_writable_again()
    place.world.check()
    place.load(50)
    place.world.check()
