"""Two processes of placement behind one address restart one after the other under load: no request fails."""

import threading
import uuid
from typing import Self

import httpx
import pytest

from tests.ports import free_port
from tests.servers import temporary_database
from tests.system.balancer import Balancer
from tests.system.planes import PlaneProcess, until, write_config

pytestmark = [pytest.mark.slow, pytest.mark.postgresql]

CLIENTS = 4
#: Long enough for a proxy that checks before each connection, also on a busy machine.
DRAIN_S = 5.0
#: The number of requests that are answered between two steps.
BETWEEN = 60
HEADERS = {"openstack-api-version": "placement 1.39"}


class Load:
    """Clients that read and write without a pause, each on a keep-alive connection."""

    def __init__(self, url: str, provider: str) -> None:
        self._url, self._provider = url, provider
        self._stops = threading.Event()
        self.answered = 0
        self.failed: list[str] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(CLIENTS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stops.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, headers=HEADERS, trust_env=False, timeout=60) as client:
            while not self._stops.is_set():
                self._cycle(client, str(uuid.uuid4()))

    def _cycle(self, client: httpx.Client, consumer: str) -> None:
        held = {
            "allocations": {self._provider: {"resources": {"VCPU": 1}}},
            "project_id": "project", "user_id": "user", "consumer_generation": None, "consumer_type": "INSTANCE",
        }  # fmt: skip
        path = f"/placement/allocations/{consumer}"
        for method, target, body in (
            ("PUT", path, held),
            ("GET", path, None),
            ("GET", "/placement/allocation_candidates?resources=VCPU:1", None),
            ("DELETE", path, None),
        ):
            try:
                answer = client.request(method, target, json=body)
            except httpx.HTTPError as error:
                self.failed.append(f"{method} {target}: {type(error).__name__} {error}")
                continue
            self.answered += 1
            if answer.status_code >= 300:
                self.failed.append(f"{method} {target}: {answer.status_code} {answer.text[:200]}")

    def more(self) -> None:
        """Waits until `BETWEEN` more requests were answered."""
        wanted = self.answered + BETWEEN
        until(lambda: self.answered >= wanted)


def process(directory, url: str) -> PlaneProcess:
    port = free_port()
    write_config(
        directory,
        plane={"services": "placement", "log_file": "moorage.log"},
        server={"port": port, "drain_s": DRAIN_S},
        identity={"mode": "none"},
        database={"placement": url},
    )
    return PlaneProcess(directory / "moorage.conf")


def test_a_rolling_restart_under_load_fails_no_request(tmp_path):
    with (
        temporary_database("postgresql") as url,
        process(tmp_path / "one", url) as one,
        process(tmp_path / "other", url) as other,
        Balancer([f"{one.url}/placement", f"{other.url}/placement"]) as balancer,
    ):
        with httpx.Client(base_url=one.url, headers=HEADERS, trust_env=False, timeout=60) as client:
            provider = client.post("/placement/resource_providers", json={"name": "host"}).json()["uuid"]
            body = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 100_000}}}
            client.put(f"/placement/resource_providers/{provider}/inventories", json=body).raise_for_status()
        with Load(balancer.url, provider) as load:
            load.more()
            for restarted in (one, other):
                before = list(balancer.given)
                restarted.process.terminate()
                load.more()  # while the stopping process still answers its requests
                assert restarted.process.wait(60) == 0
                load.more()  # answered by the other process alone
                restarted.start()
                load.more()
                assert sum(balancer.given) > sum(before), "its clients have gone elsewhere"
        assert load.failed == []
        assert all(balancer.given)
        with httpx.Client(base_url=one.url, headers=HEADERS, trust_env=False, timeout=60) as client:
            usages = client.get(f"/placement/resource_providers/{provider}/usages").json()["usages"]
        assert usages == {"VCPU": 0}, "each claim was given back, once"
