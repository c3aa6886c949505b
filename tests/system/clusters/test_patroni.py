"""Placement, compute and reservation as processes on PostgreSQL under Patroni, with the files of packaging/patroni: the
primary's machine is lost, or suspended and continued, and then etcd's leader dies, under a steady load of writes.

Nothing acknowledged is lost, no capacity is exceeded, and the time without writes is bounded.
"""

import contextlib
import itertools
import os
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Self

import httpx
import psycopg
import pytest

from moorage.core.clock import SystemClock
from tests.patroni import FILES, PatroniCluster
from tests.ports import free_port
from tests.servers import ServerMissing
from tests.system.clusters.load import Holding, Writer, claim_of, lease_of, most_at_once
from tests.system.planes import PlaneProcess, until, write_config

pytestmark = [pytest.mark.slow, pytest.mark.postgresql]

CAMPAIGN = pytest.mark.skipif(
    "MOORAGE_TEST_CLUSTERS" not in os.environ, reason="only in `make test-clusters`: a minute each"
)
PAGE = FILES.parents[1] / "docs" / "reference" / "patroni.md"
#: Aim of issue 20 for a primary. `ttl` and `loop_wait` of patroni.yml allow 6 s, and PostgreSQL's promotion the rest.
WITHOUT_WRITES_S = 10.0
SUSPENDED_S = 15.0
PATIENCE_S = 60
CLAIMERS = 4
#: Of each claimer and second.
CLAIMS_PER_S = 20
#: Units of the small host, for which the claimers compete.
UNITS = 2


class Plane:
    """Three processes, and what was acknowledged by them."""

    def __init__(self, directory: Path, urls: dict[str, str]) -> None:
        ports = {name: free_port() for name in ("placement", "compute", "reservation")}
        self._urls = {name: f"http://127.0.0.1:{port}/{name}" for name, port in ports.items()}
        services = {"placement": "placement", "compute": "compute,image,agent", "reservation": "reservation"}
        self.processes = [
            PlaneProcess(
                write_config(
                    directory / name, plane={"services": services[name], "log_file": "moorage.log"},
                    server={"port": port}, identity={"mode": "none"}, database={name: urls[name]},
                    endpoints={other: url for other, url in self._urls.items() if other != name}
                    | {"accelerator": "http://127.0.0.1:9/accelerator"},
                    agent={"host": "compute-1"},
                ).source
            )
            for name, port in ports.items()
        ]  # fmt: skip

    def client(self, service: str) -> httpx.Client:
        headers = {"openstack-api-version": "placement 1.39", "x-auth-token": "admin"}
        return httpx.Client(base_url=self._urls[service], headers=headers, trust_env=False, timeout=60)


class Load:
    """Claims of `CLAIMERS` clients, flavors and leases of one client each.

    Each claimer makes a claim on the large host, which it keeps, and one on the small host, which it releases.
    """

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self.large, self.small = str(uuid.uuid4()), str(uuid.uuid4())
        #: with which the names of its flavors and leases begin
        self._prefix = f"{uuid.uuid4()}-"
        self.claims, self.flavors, self.leases = Writer(), Writer(), Writer()
        self.holdings: list[Holding] = []
        self._stops = threading.Event()
        self._errors: list[BaseException] = []
        works = [*[self._claim] * CLAIMERS, self._create_flavors, self._create_leases]
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in works]

    def __enter__(self) -> Self:
        with self._plane.client("placement") as client:
            for provider, units in ((self.large, 1_000_000), (self.small, UNITS)):
                client.post("/resource_providers", json={"name": provider, "uuid": provider}).raise_for_status()
                inventories = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": units}}}
                client.put(f"/resource_providers/{provider}/inventories", json=inventories).raise_for_status()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stops.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        assert not self._errors, self._errors

    def more(self) -> None:
        """Waits for further acknowledgements of each kind."""
        for writer in (self.claims, self.flavors, self.leases):
            wanted = len(writer.acknowledged) + 10
            until(lambda w=writer, n=wanted: len(w.acknowledged) >= n or self._errors, timeout_s=PATIENCE_S,
                  seen=lambda w=writer: (w.refused, self._errors))  # fmt: skip

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the thread that joins this one raises it
            self._errors.append(error)

    def _write(self, writer: Writer, client: httpx.Client, name: str, method: str, path: str, body: object) -> bool:
        """Whether it was acknowledged; any refusal but 503 is an error of this test."""
        answer = client.request(method, path, json=body)
        if answer.status_code < 300:
            writer.acknowledged[name] = time.monotonic()
            return True
        assert answer.status_code == 503, answer.text
        writer.refused[answer.text[:200]] += 1
        writer.unknown.add(name)
        return False

    def _claim(self) -> None:
        with self._plane.client("placement") as client:
            while not self._stops.wait(1 / CLAIMS_PER_S):
                consumer = str(uuid.uuid4())
                self._write(self.claims, client, consumer, "PUT", f"/allocations/{consumer}", claim_of(self.large))
                self._claim_and_release(client)

    def _claim_and_release(self, client: httpx.Client) -> None:
        path = f"/allocations/{uuid.uuid4()}"
        status = client.put(path, json=claim_of(self.small)).status_code
        assert status in (204, 409, 503), status
        since = time.monotonic()
        if status == 409:
            return
        time.sleep(1 / CLAIMS_PER_S)
        released = time.monotonic()
        statuses = self._release(client, path)
        if status == 204:
            assert statuses[0] != 404, "an acknowledged claim is lost"
            self.holdings.append(Holding(since, released))

    @staticmethod
    def _release(client: httpx.Client, path: str) -> list[int]:
        """Repeats it until it is acknowledged; returns all statuses. There may be nothing to release."""
        statuses: list[int] = []
        while not statuses or statuses[-1] == 503:
            if statuses:
                time.sleep(1 / CLAIMS_PER_S)
            statuses.append(client.delete(path).status_code)
            assert statuses[-1] in (204, 404, 503), statuses
        return statuses

    def _create_flavors(self) -> None:
        with self._plane.client("compute") as client:
            while not self._stops.wait(0.1):
                name = f"{self._prefix}{uuid.uuid4()}"
                body = {"flavor": {"id": name, "name": name, "vcpus": 1, "ram": 64, "disk": 1}}
                self._write(self.flavors, client, name, "POST", "/v2.1/flavors", body)

    def _create_leases(self) -> None:
        """One after another in time, so that each fits on the host."""
        first = SystemClock().now() + timedelta(days=30)
        with self._plane.client("reservation") as client:
            for number in itertools.count():
                if self._stops.wait(0.2):
                    return
                name = f"{self._prefix}{number}"
                start = first + timedelta(minutes=2 * number)
                self._write(self.leases, client, name, "POST", "/v1/leases", lease_of(name, start))

    # ------------------------------------------------------------------------------------------- afterwards

    def check(self) -> None:
        """Each acknowledged object exists, each existing one was requested, and no unit had two consumers."""
        with self._plane.client("placement") as client:
            held = client.get(f"/resource_providers/{self.large}/allocations").raise_for_status().json()["allocations"]
            left = client.get(f"/resource_providers/{self.small}/allocations").raise_for_status().json()["allocations"]
        assert left == {}
        with self._plane.client("compute") as client:
            flavors = client.get("/v2.1/flavors?is_public=None").raise_for_status().json()["flavors"]
        with self._plane.client("reservation") as client:
            leases = client.get("/v1/leases").raise_for_status().json()["leases"]
        for writer, names in (
            (self.claims, set(held)),
            (self.flavors, {row["name"] for row in flavors if row["name"].startswith(self._prefix)}),
            (self.leases, {row["name"] for row in leases if row["name"].startswith(self._prefix)}),
        ):
            assert set(writer.acknowledged) - names == set(), "acknowledged writes are lost"
            assert names - {*writer.acknowledged, *writer.unknown} == set(), "refused writes were carried out"
        assert most_at_once(self.holdings) <= UNITS

    def figures(self, what: str, since: float) -> str:
        writers = {"claims": self.claims, "flavors": self.flavors, "leases": self.leases}
        return f"{what}: " + "; ".join(
            f"{name}: {writer.pause_s(since):.1f} s without, {len(writer.acknowledged)} acknowledged, "
            f"{writer.refused.total()} answered 503, by reason {dict(writer.refused)}"
            for name, writer in writers.items()
        )


@pytest.fixture(scope="module")
def cluster() -> Iterator[PatroniCluster]:
    try:
        made = PatroniCluster()
    except ServerMissing as missing:
        pytest.skip(f"no Patroni: {missing}")
    with made:
        yield made


@pytest.fixture(scope="module")
def plane(cluster: PatroniCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    plane = Plane(tmp_path_factory.mktemp("plane"), cluster.database_urls())
    with contextlib.ExitStack() as stack:
        for process in plane.processes:
            stack.enter_context(process)
        with plane.client("reservation") as client:
            until(lambda: client.post("/v1/os-hosts", json={"name": "compute-1"}).status_code < 300)
        yield plane


def test_a_lost_primary_is_replaced_and_nothing_acknowledged_is_lost(cluster, plane, record_property):
    primary, standby = cluster.primary(), cluster.standby()
    with Load(plane) as load:
        load.more()
        killed = time.monotonic()
        primary.kill()
        load.more()
        record_property("figures", load.figures("primary killed", killed))
        pauses = [writer.pause_s(killed) for writer in (load.claims, load.flavors, load.leases)]
    load.check()
    assert standby.is_primary()
    assert max(pauses) < WITHOUT_WRITES_S, pauses
    cluster.start(primary)


@CAMPAIGN
def test_a_suspended_primary_is_replaced_and_its_late_commit_is_refused(cluster, plane, record_property):
    """It goes on as a primary that knows nothing of the new one, until its Patroni has asked etcd."""
    primary, standby = cluster.primary(), until(cluster.standby, timeout_s=PATIENCE_S)
    primary.administer("CREATE TABLE late (id integer)")
    with Load(plane) as load, primary.connection() as connection:
        connection.execute("INSERT INTO late VALUES (1)")
        load.more()
        paused = time.monotonic()
        primary.pause()
        until(standby.is_primary, timeout_s=PATIENCE_S)
        elected_s = time.monotonic() - paused
        time.sleep(max(0.0, SUSPENDED_S - elected_s))
        primary.resume()
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
        until(lambda: cluster.standby() is primary, timeout_s=PATIENCE_S)
        load.more()
        record_property("figures", load.figures(f"primary suspended, elected in {elected_s:.1f} s", paused))
        pauses = [writer.pause_s(paused) for writer in (load.claims, load.flavors, load.leases)]
    load.check()
    assert [machine.administer("SELECT * FROM late") for machine in cluster.machines] == [[], []]
    assert max(pauses) < WITHOUT_WRITES_S, pauses


@CAMPAIGN
def test_the_death_of_the_leader_of_etcd_stops_no_write(cluster, plane, record_property):
    (leader,) = (member for member in cluster.etcd if member.is_leader())
    primary = cluster.primary()
    with Load(plane) as load:
        load.more()
        killed = time.monotonic()
        leader.kill()
        until(lambda: any(member.is_leader() for member in cluster.etcd), timeout_s=PATIENCE_S)
        time.sleep(WITHOUT_WRITES_S - (time.monotonic() - killed))
        load.more()
        record_property("figures", load.figures("leader of etcd killed", killed))
        pauses = [writer.pause_s(killed) for writer in (load.claims, load.flavors, load.leases)]
    load.check()
    assert cluster.primary() is primary
    assert max(pauses) < 2.0, pauses
    cluster.start_etcd(leader)


@pytest.mark.core
def test_the_page_shows_the_whole_files():
    page = PAGE.read_text()
    for path in set(FILES.iterdir()) - {FILES / "standby-site.yml"}:  # the page of a second site shows that one
        assert textwrap.indent(path.read_text(), "   ") in page, path.name
