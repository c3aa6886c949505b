"""A steady load of writes on the four services, and what must hold of them afterwards.

    with Load(connect) as load:  load.more(), ..., load.figures(since)
    load.check()

`connect(service)` returns a client of a service. A write that was refused or not answered is repeated until it is
acknowledged, if a repetition cannot carry it out twice.
"""

import itertools
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, Self

import httpx

from moorage.core.clock import SystemClock
from tests.system.planes import until

PATIENCE_S = 120
CLAIMERS = 3
#: Seconds between two writes of one thread.
PAUSE_S = 0.05
#: Units of the small host, for which the claimers compete.
UNITS = 2
#: A refusal that says nothing about the request itself: it may be repeated.
UNAVAILABLE = (500, 502, 503, 504)


class Requests(Protocol):
    """A client of one service; the status is 0 if there was no answer."""

    def send(self, method: str, path: str, body: object = None) -> tuple[int, str]: ...


@dataclass
class Writer:
    """What one kind of write was answered."""

    #: {name of the object: moment of the acknowledgement}
    acknowledged: dict[str, float] = field(default_factory=dict)
    #: names whose write was refused or not answered, and not repeated
    unknown: set[str] = field(default_factory=set)
    #: {"status text": how often}
    refused: Counter[str] = field(default_factory=Counter)
    repeated: int = 0

    def pause_s(self, since: float) -> float:
        """The longest time without an acknowledgement."""
        moments = sorted(moment for moment in self.acknowledged.values() if moment > since)
        return max((after - before for before, after in itertools.pairwise([since, *moments])), default=0.0)


@dataclass
class Holding:
    """A unit of the small host that a claimer has: from the acknowledgement until it sends the release."""

    since: float
    until: float


class Load:
    """Claims, flavors, device profiles, leases, and servers that are built and deleted on a host.

    Each claimer makes a claim on the large host, which it keeps, and one on the small host, which it releases.
    """

    def __init__(self, connect: Callable[[str], Requests], image: str, flavor: str) -> None:
        self._connect, self._image, self._flavor = connect, image, flavor
        self.large, self.small = str(uuid.uuid4()), str(uuid.uuid4())
        #: with which the names of its objects begin
        self.prefix = f"{uuid.uuid4()}-"
        self.writers = {name: Writer() for name in ("claims", "flavors", "profiles", "leases", "servers")}
        self.holdings: list[Holding] = []
        self._stops = threading.Event()
        self.errors: list[BaseException] = []
        works = [*[self._claim] * CLAIMERS, self._create_flavors, self._create_profiles, self._create_leases,
                 self._build_servers]  # fmt: skip
        self._threads = [threading.Thread(target=self._run, args=(work,), daemon=True) for work in works]

    def __enter__(self) -> Self:
        placement = self._connect("placement")
        for provider, units in ((self.large, 1_000_000), (self.small, UNITS)):
            expect(placement.send("POST", "/resource_providers", {"name": provider, "uuid": provider}), 200)
            inventories = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": units}}}
            expect(placement.send("PUT", f"/resource_providers/{provider}/inventories", inventories), 200)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stops.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        assert not self.errors, self.errors
        assert not any(thread.is_alive() for thread in self._threads), "a request was not answered"

    def more(self, number: int = 3) -> None:
        """Waits for further acknowledgements of each kind."""
        for name, writer in self.writers.items():
            wanted = len(writer.acknowledged) + number
            until(lambda w=writer, n=wanted: len(w.acknowledged) >= n or self.errors, timeout_s=PATIENCE_S,
                  seen=lambda n=name, w=writer: (n, w.refused, self.errors))  # fmt: skip
        assert not self.errors, self.errors

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the thread that joins this one raises it
            self.errors.append(error)

    def _write(self, kind: str, client: Requests, name: str, request: tuple[str, str, object]) -> str:
        """The answer, if it was acknowledged; empty if it is unknown whether it was carried out."""
        status, text = client.send(*request)
        if 200 <= status < 300:
            self.writers[kind].acknowledged[name] = time.monotonic()
            return text or "acknowledged"
        self._refuse(kind, status, text)
        self.writers[kind].unknown.add(name)
        return ""

    def _write_until_done(self, kind: str, client: Requests, name: str, request: tuple[str, str, object]) -> None:
        """Repeats the write until it is acknowledged, or a conflict says that it was carried out before."""
        for number in itertools.count():
            status, text = client.send(*request)
            if 200 <= status < 300 or (number and status == 409):
                self.writers[kind].acknowledged[name] = time.monotonic()
                return
            self._refuse(kind, status, text)
            if self._stops.wait(PAUSE_S):
                self.writers[kind].unknown.add(name)
                return
            self.writers[kind].repeated += 1

    def _refuse(self, kind: str, status: int, text: str) -> None:
        assert status == 0 or status in UNAVAILABLE, f"{kind}: {status} {text}"
        self.writers[kind].refused[f"{status} {text[:300]}"] += 1

    def _claim(self) -> None:
        client = self._connect("placement")
        while not self._stops.wait(PAUSE_S):
            consumer = str(uuid.uuid4())
            request = ("PUT", f"/allocations/{consumer}", claim_of(self.large))
            self._write_until_done("claims", client, consumer, request)
            self._claim_and_release(client)

    def _claim_and_release(self, client: Requests) -> None:
        path = f"/allocations/{uuid.uuid4()}"
        status, text = client.send("PUT", path, claim_of(self.small))
        since = time.monotonic()
        if status == 409:
            return
        if status != 204:
            self._refuse("claims", status, text)
        time.sleep(PAUSE_S)
        released = time.monotonic()
        answers: list[int] = []
        while not answers or answers[-1] in (0, *UNAVAILABLE):
            if answers and self._stops.wait(PAUSE_S):
                return
            answers.append(client.send("DELETE", path)[0])
            assert answers[-1] in (0, 204, 404, *UNAVAILABLE), answers
        if status == 204:
            assert answers[0] != 404, "an acknowledged claim is lost"
            self.holdings.append(Holding(since, released))

    def _create_flavors(self) -> None:
        client = self._connect("compute")
        while not self._stops.wait(2 * PAUSE_S):
            name = f"{self.prefix}{uuid.uuid4()}"
            body = {"flavor": {"id": name, "name": name, "vcpus": 1, "ram": 64, "disk": 1}}
            self._write_until_done("flavors", client, name, ("POST", "/v2.1/flavors", body))

    def _create_profiles(self) -> None:
        client = self._connect("accelerator")
        while not self._stops.wait(2 * PAUSE_S):
            name = f"{self.prefix}{uuid.uuid4()}"
            body = [{"name": name, "groups": [{"resources:FPGA": "1"}]}]
            self._write_until_done("profiles", client, name, ("POST", "/v2/device_profiles", body))

    def _create_leases(self) -> None:
        """One after another in time, so that the host has room for each."""
        first = SystemClock().now() + timedelta(days=30)
        client = self._connect("reservation")
        for number in itertools.count():
            if self._stops.wait(4 * PAUSE_S):
                return
            name = f"{self.prefix}{number}"
            start = first + timedelta(minutes=2 * number)
            self._write("leases", client, name, ("POST", "/v1/leases", lease_of(name, start)))

    def _build_servers(self) -> None:
        """Acknowledged: the server is ACTIVE. Its predecessor is deleted then."""
        client = self._connect("compute")
        before: str | None = None
        while not self._stops.wait(PAUSE_S):
            name = f"{self.prefix}{uuid.uuid4()}"
            body = {"name": name, "flavorRef": self._flavor, "imageRef": self._image, "networks": "none"}
            status, text = client.send("POST", "/v2.1/servers", {"server": body})
            if status != 202:
                self._refuse("servers", status, text)
                self.writers["servers"].unknown.add(name)
                continue
            server = httpx.Response(200, text=text).json()["server"]["id"]
            if before is not None:
                self._delete(client, before)
            before = server
            self._wait_until_active(client, server, name)

    def _wait_until_active(self, client: Requests, server: str, name: str) -> None:
        while True:
            status, text = client.send("GET", f"/v2.1/servers/{server}")
            assert status != 404, "an acknowledged server is lost"
            if status == 200 and (state := httpx.Response(200, text=text).json()["server"]["status"]) != "BUILD":
                if state == "ACTIVE":
                    self.writers["servers"].acknowledged[name] = time.monotonic()
                else:
                    self.writers["servers"].refused[f"server {state}"] += 1
                    self.writers["servers"].unknown.add(name)
                return
            if self._stops.wait(2 * PAUSE_S):
                self.writers["servers"].unknown.add(name)
                return

    def _delete(self, client: Requests, server: str) -> None:
        for number in itertools.count():
            status, text = client.send("DELETE", f"/v2.1/servers/{server}")
            if status == 204 or (number and status in (404, 409)):
                return
            self._refuse("servers", status, text)
            if self._stops.wait(PAUSE_S):
                return
            self.writers["servers"].repeated += 1

    # ------------------------------------------------------------------------------------------- afterwards

    def wrong(self) -> list[str]:
        """Each acknowledged object exists, each existing one was requested, and no unit had two consumers."""
        placement, compute = self._connect("placement"), self._connect("compute")
        held = document(placement, f"/resource_providers/{self.large}/allocations")["allocations"]
        names = {
            "claims": set(held),
            "flavors": set(flavors(compute)),
            "profiles": {
                row["name"] for row in document(self._connect("accelerator"), "/v2/device_profiles")["device_profiles"]
            },
            "leases": {row["name"] for row in document(self._connect("reservation"), "/v1/leases")["leases"]},
        }
        found = []
        for kind, existing in names.items():
            writer = self.writers[kind]
            ours = {name for name in existing if kind == "claims" or name.startswith(self.prefix)}
            if lost := set(writer.acknowledged) - ours:
                found.append(f"acknowledged {kind} are lost: {sorted(lost)}")
            if strange := ours - {*writer.acknowledged, *writer.unknown}:
                found.append(f"{kind} that nobody requested: {sorted(strange)}")
        if most_at_once(self.holdings) > UNITS:
            found.append(f"{most_at_once(self.holdings)} consumers held {UNITS} units")
        return found

    def delete_servers(self) -> None:
        """All that are left, so that they do not count against the quota of the next load."""
        compute = self._connect("compute")
        for row in document(compute, f"/v2.1/servers?name={self.prefix}")["servers"]:
            status, text = compute.send("DELETE", f"/v2.1/servers/{row['id']}")
            assert status in (204, 404), (status, text)

    def figures(self, since: float) -> Mapping[str, float]:
        """{kind of write: longest time without an acknowledgement}"""
        return {kind: writer.pause_s(since) for kind, writer in self.writers.items()}


def claim_of(provider: str) -> dict:
    return {
        "allocations": {provider: {"resources": {"VCPU": 1}}}, "project_id": "project", "user_id": "user",
        "consumer_generation": None, "consumer_type": "LOAD",
    }  # fmt: skip


def lease_of(name: str, start: datetime) -> dict:
    reservation = {
        "resource_type": "virtual:instance", "vcpus": 1, "memory_mb": 64, "disk_gb": 1, "amount": 1,
        "affinity": "None", "resource_properties": "",
    }  # fmt: skip
    return {
        "name": name, "start_date": f"{start:%Y-%m-%d %H:%M}", "events": [], "reservations": [reservation],
        "end_date": f"{start + timedelta(minutes=1):%Y-%m-%d %H:%M}",
    }  # fmt: skip


def most_at_once(holdings: list[Holding]) -> int:
    """How many holdings overlap at most."""
    changes = sorted([(one.since, 1) for one in holdings] + [(one.until, -1) for one in holdings])
    return max(itertools.accumulate(change for _, change in changes), default=0)


def flavors(compute: Requests) -> Iterator[str]:
    """The names of all, page by page."""
    path = "/v2.1/flavors?is_public=None"
    page = document(compute, path)["flavors"]
    while page:
        yield from (row["name"] for row in page)
        page = document(compute, f"{path}&marker={page[-1]['id']}")["flavors"]


def expect(answer: tuple[int, str], *wanted: int) -> str:
    status, text = answer
    assert status in wanted, (status, text)
    return text


def document(client: Requests, path: str) -> dict:
    return httpx.Response(200, text=expect(client.send("GET", path), 200)).json()
