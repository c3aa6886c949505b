"""Two sites, each with PostgreSQL under Patroni and etcd. The first one is lost while it is written to; an operator
promotes the second one by the commands of the page, and Moorage goes on there. Then the first one returns, and follows.

What the second site has is the state of all databases at one moment: of the acknowledged writes of each writer, across
the services, only the newest ones are missing.
"""

import contextlib
import itertools
import os
import re
import shlex
import signal
import textwrap
import threading
import time
import uuid
from collections.abc import Iterator
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
from tests.system.clusters.load import claim_of, lease_of
from tests.system.clusters.shown import shown_commands
from tests.system.planes import PlaneProcess, moorage, until, write_config

pytestmark = [pytest.mark.slow, pytest.mark.postgresql]

CAMPAIGN = pytest.mark.skipif(
    "MOORAGE_TEST_CLUSTERS" not in os.environ, reason="only in `make test-clusters`: a minute"
)
PAGE = FILES.parents[1] / "docs" / "reference" / "second-site.md"
PATIENCE_S = 120
WRITERS = 3
#: For this long before its loss, the first site sends nothing to the second one.
LAG_S = 1.0
SERVICES = ("placement", "compute", "reservation")
#: Of the provider that all writers claim from.
UNITS = 2_000
#: The process that sends the journal to the second site.
FOLLOWERS = "SELECT pid FROM pg_stat_replication WHERE application_name IN ('db3', 'db4')"


class Moorage:
    """The services and a simulated host in one process at one site."""

    def __init__(self, directory: Path, urls: dict[str, str]) -> None:
        config = write_config(
            directory, plane={"services": "placement,compute,accelerator,image,agent,reservation"}, identity={"mode": "none"},
            server={"port": free_port()}, agent={"host": "compute-1"},
            database={name: urls[name] for name in (*SERVICES, "accelerator")},
        )  # fmt: skip
        self.config, self._url = config.source, f"http://127.0.0.1:{config.server.port}"
        self.process = PlaneProcess(self.config)

    def client(self, service: str) -> httpx.Client:
        headers = {"openstack-api-version": "placement 1.39", "x-auth-token": "admin"}
        return httpx.Client(base_url=f"{self._url}/{service}", headers=headers, trust_env=False, timeout=60)

    def run(self, command: str) -> int:
        """A command of the page; returns its exit code."""
        words = [str(self.config) if word == "/etc/moorage/moorage.conf" else word for word in shlex.split(command)]
        done = moorage(*words[1:], directory=self.config.parent)
        assert done.returncode in (0, 1), f"{command}: {done.stdout}{done.stderr}"
        return done.returncode


class Writers:
    """Each writer makes a claim, a flavor and a lease in turn, one after the other was acknowledged."""

    def __init__(self, plane: Moorage) -> None:
        self._plane = plane
        self.provider = str(uuid.uuid4())
        #: of each writer, {name: service} in the order of the acknowledgements
        self.acknowledged: list[dict[str, str]] = [{} for _ in range(WRITERS)]
        self._stops = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(WRITERS)]

    def __enter__(self) -> Self:
        self._set_up()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stops.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        assert not self._errors, self._errors

    def more(self, number: int = 5) -> None:
        """Waits for further acknowledgements of each writer."""
        wanted = [len(acknowledged) + number for acknowledged in self.acknowledged]

        def is_enough() -> bool:
            enough = (len(got) >= least for got, least in zip(self.acknowledged, wanted, strict=True))
            return all(enough) or bool(self._errors)

        until(is_enough, timeout_s=PATIENCE_S)

    def figures(self, missing: list[list[str]]) -> str:
        acknowledged = sum(map(len, self.acknowledged))
        return f"{sum(map(len, missing))} of {acknowledged} acknowledged lost, {missing}, load {os.getloadavg()[0]:.0f}"

    def missing(self, plane: Moorage) -> list[list[str]]:
        """The services of the acknowledged writes of each writer that `plane` lacks; fails if a later one is there."""
        existing = self._existing(plane)
        found = []
        for acknowledged in self.acknowledged:
            is_there = [name in existing for name in acknowledged]
            assert is_there == sorted(is_there, reverse=True), "a write is missing, and a later one is there"
            found.append([service for name, service in acknowledged.items() if name not in existing])
        return found

    def _existing(self, plane: Moorage) -> set[str]:
        with plane.client("placement") as client:
            held = client.get(f"/resource_providers/{self.provider}/allocations").raise_for_status().json()
        with plane.client("compute") as client:
            flavors = client.get("/v2.1/flavors?is_public=None&limit=1000").raise_for_status().json()["flavors"]
        with plane.client("reservation") as client:
            leases = client.get("/v1/leases").raise_for_status().json()["leases"]
        return {*held["allocations"], *(row["name"] for row in (*flavors, *leases))}

    def _set_up(self) -> None:
        with self._plane.client("placement") as client:
            body = {"name": self.provider, "uuid": self.provider}
            client.post("/resource_providers", json=body).raise_for_status()
            inventories = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": UNITS}}}
            client.put(f"/resource_providers/{self.provider}/inventories", json=inventories).raise_for_status()

    def _run(self, number: int) -> None:
        """Ends with the first request that is not answered."""
        try:
            with contextlib.ExitStack() as stack:
                clients = {service: stack.enter_context(self._plane.client(service)) for service in SERVICES}
                self._write(number, clients)
        except httpx.TransportError:
            pass  # the site is lost
        except BaseException as error:  # noqa: BLE001 - the thread that joins this one raises it
            self._errors.append(error)

    def _write(self, number: int, clients: dict[str, httpx.Client]) -> None:
        first = SystemClock().now() + timedelta(days=30 * (number + 1))
        claim = claim_of(self.provider) | {"consumer_type": "INSTANCE"}
        for step in itertools.count():
            name = str(uuid.uuid4())
            flavor = {"id": f"flavor-{name}", "name": f"flavor-{name}", "vcpus": 1, "ram": 64, "disk": 1}
            lease = lease_of(f"lease-{name}", first + timedelta(minutes=2 * step))
            for service, made, request in (
                ("placement", name, ("PUT", f"/allocations/{name}", claim)),
                ("compute", flavor["name"], ("POST", "/v2.1/flavors", {"flavor": flavor})),
                ("reservation", lease["name"], ("POST", "/v1/leases", lease)),
            ):
                if self._stops.wait(0.02):
                    return
                answer = clients[service].request(request[0], request[1], json=request[2])
                if answer.status_code == 503:
                    continue  # it is unknown whether it was carried out, and nobody relies on it
                answer.raise_for_status()
                self.acknowledged[number][made] = service


@pytest.fixture
def sites() -> Iterator[tuple[PatroniCluster, PatroniCluster]]:
    with contextlib.ExitStack() as stack:
        try:
            first = PatroniCluster()
        except ServerMissing as missing:
            pytest.skip(f"no Patroni: {missing}")
        stack.enter_context(first)
        yield first, stack.enter_context(PatroniCluster(follows=first))


def test_a_lost_site_is_replaced_by_the_second_one(sites, tmp_path, record_property):
    first, second = sites
    open_network, reload, keep_journal, lag, members, promote, promoted, audit, fix, follow = shown_commands(
        PAGE, "test_a_lost_site_is_replaced_by_the_second_one"
    )
    for command in (open_network, reload, keep_journal):
        first.run(command)
    assert "Standby Leader" in second.run(members)
    at_first = Moorage(tmp_path / "first", first.database_urls())
    at_second = Moorage(tmp_path / "second", second.database_urls())
    with writing_until_lost(first, at_first) as writers:
        until(lambda: re.search(r"^ db[34] +\|", first.run(lag), re.MULTILINE), timeout_s=PATIENCE_S)
        hold_back(first)
        lagging = time.monotonic()
        writers.more()
        time.sleep(max(0.0, LAG_S - (time.monotonic() - lagging)))
        lag_s = time.monotonic() - lagging

    began = time.monotonic()
    second.run(promote)
    until(lambda: takes_writes(second), timeout_s=PATIENCE_S)
    promoted_s = time.monotonic() - began
    until(lambda: "Sync Standby" in second.run(promoted), timeout_s=PATIENCE_S)
    with at_second.process.start():
        first_answer_s = time.monotonic() - began
        missing = writers.missing(at_second)
        record_property("figures", f"promotion {promoted_s:.1f} s, Moorage at B after {first_answer_s:.1f} s; "
                        f"{writers.figures(missing)}, B {lag_s:.1f} s behind")  # fmt: skip
        assert all(missing), "what was not sent before the loss is at the second site"
        assert all(len(lost) < len(all_) for lost, all_ in zip(missing, writers.acknowledged, strict=True))
        check_capacity(at_second, writers.provider)
        assert at_second.run(audit) == 1
        at_second.run(fix)
        with at_second.client("placement") as client:
            client.delete(f"/resource_providers/{writers.provider}").raise_for_status()
        assert at_second.run(audit) == 0
        with Writers(at_second) as later:
            later.more()
        assert later.missing(at_second) == [[]] * WRITERS

        first.start_all_etcd()
        first.run(follow)
        first.start_all()
        until(first.is_standby_site, timeout_s=PATIENCE_S)
        for machine in first.machines:
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                machine.administer("CREATE TABLE forgotten (id integer)")
        with at_first.process.launch():
            assert at_first.process.process.wait(PATIENCE_S) != 0
            assert "the database of placement" in at_first.process.err


@CAMPAIGN
def test_hardly_anything_is_lost_if_the_line_works_until_the_loss(sites, tmp_path, record_property):
    first, second = sites
    *_, promote, _promoted, _audit, _fix, _follow = shown_commands(
        PAGE, "test_a_lost_site_is_replaced_by_the_second_one"
    )
    with writing_until_lost(first, Moorage(tmp_path / "first", first.database_urls())) as writers:
        until(lambda: senders(first), timeout_s=PATIENCE_S)
        writers.more(20)
    second.run(promote)
    until(lambda: takes_writes(second), timeout_s=PATIENCE_S)
    at_second = Moorage(tmp_path / "second", second.database_urls())
    with at_second.process.start():
        missing = writers.missing(at_second)
    record_property("figures", writers.figures(missing))
    assert sum(map(len, missing)) < sum(map(len, writers.acknowledged)) / 2


@contextlib.contextmanager
def writing_until_lost(site: PatroniCluster, plane: Moorage) -> Iterator[Writers]:
    """Writers at the site, which loses everything at the end of the block."""
    with plane.process.start():
        with plane.client("reservation") as client:
            until(lambda: client.post("/v1/os-hosts", json={"name": "compute-1"}).status_code < 300)
        with Writers(plane) as writers:
            writers.more()
            yield writers
            site.kill()
            plane.process.kill()


def hold_back(cluster: PatroniCluster) -> None:
    """Suspends what sends the journal to the other site, as if the line were slow."""
    ((sender,),) = senders(cluster)
    os.kill(sender, signal.SIGSTOP)


def senders(cluster: PatroniCluster) -> list[tuple]:
    """Of the primary or of its standby: the other site follows the first one that answers."""
    return [row for machine in cluster.machines for row in machine.administer(FOLLOWERS)]


def takes_writes(cluster: PatroniCluster) -> bool:
    try:
        return cluster.primary().administer("SELECT pg_is_in_recovery()") == [(False,)]
    except (StopIteration, psycopg.OperationalError):
        return False


def check_capacity(plane: Moorage, provider: str) -> None:
    """What no allocation holds can be claimed, and not a unit more."""
    with plane.client("placement") as client:
        held = client.get(f"/resource_providers/{provider}/allocations").raise_for_status().json()["allocations"]
        left = UNITS - sum(one["resources"]["VCPU"] for one in held.values())
        for amount, status in ((left + 1, 409), (left, 204), (1, 409)):
            claim = claim_of(provider) | {
                "allocations": {provider: {"resources": {"VCPU": amount}}},
                "consumer_type": "INSTANCE",
            }
            assert client.put(f"/allocations/{uuid.uuid4()}", json=claim).status_code == status, (amount, left)


@pytest.mark.core
def test_the_page_shows_the_whole_file_of_the_second_site():
    assert textwrap.indent((FILES / "standby-site.yml").read_text(), "   ") in PAGE.read_text()
