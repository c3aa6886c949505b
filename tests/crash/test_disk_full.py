"""Issue 3: "Disk full and database gone: writes are refused with 503 and a reason, reads go on, all resumes by itself."

Here the disk below the database is full, to the last byte. A refused write must leave nothing behind.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conftest import DATABASES
from tests.crash.campaign import SHARED, World
from tests.crash.databases import DatabaseServer, database_server
from tests.crash.disks import NoMount, SmallDisk
from tests.crash.load import Load
from tests.crash.processes import DEADLINE_S, Server
from tests.crash.wire import Answer, Client

pytestmark = pytest.mark.slow

READS = (
    "/resource_providers",
    f"/resource_providers/{SHARED[0]}/inventories",
    "/allocation_candidates?resources=VCPU:1",
)
#: Small enough to fill quickly; each database needs more space after a few writes.
SIZES_MB = {"sqlite": 8, "postgresql": 80, "mariadb": 140}
SETTINGS = {"postgresql": {"max_connections": 20}, "mariadb": {"innodb_log_file_size": "8M", "max_connections": 20}}

SMALL_WRITES_THAT_FIT = 1_000

#: With this many, a provider's entry in the change log needs its own pages in InnoDB.
MANY_AGGREGATES = [f"a99e9a7e-0000-4000-8000-{number:012d}" for number in range(500)]


@dataclass
class Place:
    disk: SmallDisk
    server: Server
    world: World
    client: Client
    database: DatabaseServer | None
    fitted: list[str] = field(default_factory=list)  #: providers created on the full disk

    def load_until_refused(self) -> None:
        """Sends random requests until each client has got a 503."""
        load = Load(self.world.url, self.world.tenants, lambda _: None)
        load.join()
        self.world.note(load)

    def is_writable_again(self) -> bool:
        """Whether the service accepts writes again by itself. Also deletes the providers in `fitted`."""
        is_back = self.world.first_write(time.perf_counter(), lambda: self.server.died(0.0) is not None, DEADLINE_S)
        gone = [self.client.send("DELETE", f"/resource_providers/{uuid}").status for uuid in self.fitted]
        return is_back and set(gone) <= {204}

    def load(self, requests: int) -> None:
        enough = threading.Event()
        load = Load(self.world.url, self.world.tenants, lambda number: number >= requests and enough.set())
        reached = enough.wait(DEADLINE_S)
        load.stop()
        load.join()
        assert reached, f"{load.acknowledged} of {requests} in {DEADLINE_S} s; clients ended with {load.lost}"
        self.world.note(load)

    def provider(self, aggregates: Sequence[str] = ()) -> str:
        """Creates a provider that the model does not know; delete it before the model checks the tables."""
        answer = self.client.send("POST", "/resource_providers", {"name": "on a full disk"})
        uuid: str = answer.body["uuid"]
        body = {"resource_provider_generation": 0, "aggregates": aggregates}
        assert self.client.send("PUT", f"/resource_providers/{uuid}/aggregates", body).status == 200
        assert self.set_inventory(uuid, 1).status == 200
        return uuid

    def set_inventory(self, provider: str, generation: int) -> Answer:
        inventories = {"VCPU": {"total": 10_000 + generation}}
        body = {"resource_provider_generation": generation, "inventories": inventories}
        return self.client.send("PUT", f"/resource_providers/{provider}/inventories", body)

    def written_until_refused(self, provider: str) -> tuple[str, int]:
        """Sends small writes until one is refused; returns the reason, and the generation after the last accepted
        write.

        One client changes the total of one inventory, so that only the new row of the change log needs space.
        """
        for generation in range(2, 2 + SMALL_WRITES_THAT_FIT):
            answer = self.set_inventory(provider, generation)
            if answer.status != 200:
                break
        assert answer.status == 503, answer
        assert int(answer.headers["retry-after"]) > 0
        return answer.reason, generation

    def stored_generation(self, provider: str) -> int:
        ((generation,),) = self.database.execute(f"SELECT generation FROM providers WHERE uuid = '{provider}'")
        return generation

    def refusal(self) -> str:
        """The reason of a refused write. Repeats it, because the first ones may fit into space that the database
        has.
        """
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
    # Not below pytest's directory, because the database's user cannot read that.
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
    wal_elsewhere = request.node.originalname != "test_the_service_recovers_after_the_write_ahead_log_was_full"
    with database_server(kind, place=disk.place, wal_elsewhere=wal_elsewhere, **SETTINGS[kind]) as database:
        yield from started(disk, tmp_path, database.url, database)


@pytest.mark.parametrize("disk", DATABASES[:2], indirect=True)
def test_writes_are_refused_and_reads_answered_while_the_disk_is_full(place):
    place.load(50)
    place.disk.fill()
    place.load_until_refused()
    reason = place.refusal()
    assert "the disk of the database" in reason
    assert "free some space there" in reason
    for path in READS:
        answer = place.client.send("GET", path)
        assert (answer.status, answer.headers.get("x-moorage-as-of")) == (200, None), answer
    place.disk.free_space()
    assert place.is_writable_again()
    place.world.check()
    assert place.world.summary.unanswered["carried out"] == 0, "it was refused, and done"
    place.load(50)
    place.world.check()


@pytest.mark.parametrize("disk", DATABASES[1:2], indirect=True)
def test_the_service_recovers_after_the_write_ahead_log_was_full(place):
    """PostgreSQL panics if its write-ahead log cannot grow. It then recovers repeatedly, or ends: for the service the
    database is full or gone by turns.
    """
    place.load(50)
    place.disk.fill()
    place.load_until_refused()
    assert place.refusal()
    for path in READS:
        assert place.client.send("GET", path).status == 200
    place.disk.free_space()
    if place.database.has_ended():
        place.database.start()
    assert place.is_writable_again()
    place.world.check()
    place.load(50)
    place.world.check()


@pytest.mark.parametrize("disk", DATABASES[2:], indirect=True)
def test_a_row_that_needs_new_pages_is_refused_on_a_full_disk_in_mariadb(place):
    """Only the row itself needs space. There is no load from other clients: see the next test."""
    provider = place.provider()
    place.disk.fill()
    reason, generation = place.written_until_refused(provider)
    assert "the disk of the database" in reason
    assert "free some space there" in reason
    for path in READS:
        answer = place.client.send("GET", path)
        assert (answer.status, answer.headers.get("x-moorage-as-of")) == (200, None), answer
    assert not place.database.has_ended()
    place.disk.free_space()
    assert place.is_writable_again()
    assert place.stored_generation(provider) == generation, "it was refused, and done"
    assert place.client.send("DELETE", f"/resource_providers/{provider}").status == 204
    place.load(50)
    place.world.check()


@pytest.mark.parametrize("disk", DATABASES[2:], indirect=True)
def test_mariadb_ends_if_a_rollback_needs_space_and_the_service_recovers_after_its_restart(place):
    """To roll back a row that did not fit into its pages, InnoDB needs new pages. It tries for 5 s, then the server
    ends ("Out of disk space in rollback"). The service then reports that the database does not answer, until somebody
    has freed space and started it.
    """
    provider = place.provider(MANY_AGGREGATES)
    place.load(50)
    place.disk.fill()
    reason, generation = place.written_until_refused(provider)
    assert reason.startswith("the database does not answer")
    assert place.database.ends_by_itself()
    assert "(Out of disk space) in rollback" in place.database.log
    for path in READS:
        assert place.client.send("GET", path).status == 200
    assert place.client.send("PUT", "/traits/CUSTOM_REFUSED").status == 503
    place.disk.free_space()
    place.database.start()
    assert place.is_writable_again()
    assert place.stored_generation(provider) == generation, "it was refused, and done"
    assert place.client.send("DELETE", f"/resource_providers/{provider}").status == 204
    place.world.check()
    place.load(50)
    place.world.check()
