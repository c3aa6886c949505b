"""All processes of a cloud go from the previous release to this one, one after the other, under load.

Two processes with placement, compute, accelerators and reservations stand behind one address; a third has the images,
and a fourth the agent of two simulated hosts. The schemas are the previous release's, and are upgraded while its
program runs. No request fails but those for servers while the only process of images restarts, and nothing that was
acknowledged is lost.
"""

import configparser
import contextlib
import json
from pathlib import Path

import httpx
import pytest

from moorage.db import migrations
from moorage.db.engine import open_engine
from tests.ports import free_port
from tests.servers import temporary_database
from tests.system.balancer import Balancer
from tests.system.clusters.cloud import Requests
from tests.system.clusters.load import Load, expect
from tests.system.planes import PlaneProcess, moorage, until
from tests.system.previous_program import unpack_previous_program

pytestmark = [pytest.mark.slow, pytest.mark.postgresql]

SERVICES = ("placement", "compute", "accelerator", "reservation")
#: Processes in the order in which the guide restarts them: the agents of hosts last.
ORDER = ("one", "other", "images", "host")
#: Long enough for a proxy that checks before each connection, also on a busy machine.
DRAIN_S = 5.0
BALANCED = ("one", "other")


def write_options(directory: Path, sections: dict[str, dict[str, object]]) -> Path:
    """A configuration with these options only: the previous release does not know all of today's."""
    directory.mkdir()
    config = configparser.ConfigParser(interpolation=None)
    config.read_dict(sections | {"identity": {"mode": "none"}})
    path = directory / "moorage.conf"
    with path.open("w") as file:
        config.write(file)
    return path


class Cloud:
    """Its processes; each runs the program of the previous release until it is upgraded."""

    def __init__(self, directory: Path, databases: dict[str, str]) -> None:
        self.databases = databases
        ports = {name: free_port() for name in ORDER}
        self.balancer = Balancer([f"http://127.0.0.1:{ports[name]}/placement" for name in BALANCED])
        images = {"image": f"http://127.0.0.1:{ports['images']}/image"}
        through = {service: f"{self.balancer.url}/{service}" for service in SERVICES}
        own = {"plane": {"services": ",".join(SERVICES)}, "database": databases, "endpoints": images}
        sections = {
            "one": own, "other": own,
            "images": {"plane": {"services": "image"}, "endpoints": through},
            "host": {
                "plane": {"services": "agent"}, "endpoints": through | images,
                "agent": {"host": "compute-1", "simulated_hosts": 2},
            },
        }  # fmt: skip
        self.configs = {
            name: write_options(
                directory / name,
                sections[name] | {"server": {"port": ports[name], "drain_s": DRAIN_S if name in BALANCED else 0.0}},
            )
            for name in ORDER
        }
        before = unpack_previous_program(directory)
        self.processes = {
            name: PlaneProcess(config, python_path=str(before / "src"), is_warm=False)
            for name, config in self.configs.items()
        }
        self._directory = directory

    def upgrade(self, name: str) -> None:
        """Stops the process as its unit does, and starts this program in its place."""
        stopped = self.processes[name]
        stopped.process.terminate()
        assert stopped.process.wait(60) == 0, stopped.err
        self.processes[name] = PlaneProcess(self.configs[name], is_warm=False)
        self.processes[name].start()

    def connect(self, service: str) -> Requests:
        return Requests(service, [self.balancer.url.removeprefix("http://")], timeout_s=60)

    def moorage(self, *words: str) -> str:
        """The output of a command of this program, with the configuration of a process of the services."""
        done = moorage(*words, "--config", self.configs["one"], directory=self._directory)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def revisions(self) -> dict[str, str | None]:
        found = {}
        for service, url in self.databases.items():
            engine = open_engine(url)
            found[service] = migrations.current_revision(engine, service)
            engine.dispose()
        return found

    def create_image(self) -> str:
        images = Requests("image", [self.processes["images"].url.removeprefix("http://")])
        body = {"name": "image", "disk_format": "raw", "container_format": "bare"}
        image = json.loads(expect(images.send("POST", "/v2/images", body), 201))["id"]
        httpx.put(
            f"{self.processes['images'].url}/image/v2/images/{image}/file", content=b"tiny", trust_env=False,
            headers={"x-auth-token": "admin", "content-type": "application/octet-stream"},
        ).raise_for_status()  # fmt: skip
        return image


@pytest.fixture
def cloud(tmp_path):
    with contextlib.ExitStack() as stack:
        databases = {service: stack.enter_context(temporary_database("postgresql")) for service in SERVICES}
        cloud = Cloud(tmp_path, databases)
        stack.callback(lambda: [process.kill() for process in cloud.processes.values()])
        for name in ("images", *BALANCED):
            cloud.processes[name].start()
        stack.enter_context(cloud.balancer)
        cloud.processes["host"].start()
        yield cloud


def refusals(load: Load) -> list[str]:
    """All but those of servers that were to be created while the only process of images was stopped."""
    return [
        f"{kind}: {reason}"
        for kind, writer in load.writers.items()
        for reason in writer.refused
        if not (kind == "servers" and reason.startswith("503 ") and "/image does not answer" in reason)
    ]


def test_a_rolling_upgrade_from_the_previous_release_fails_no_request(cloud):
    reservation, compute = cloud.connect("reservation"), cloud.connect("compute")
    until(lambda: reservation.send("POST", "/v1/os-hosts", {"name": "compute-1"})[0] in (200, 201))
    expect(
        compute.send("POST", "/v2.1/flavors", {"flavor": {"id": "t", "name": "t", "vcpus": 1, "ram": 64, "disk": 1}}),
        200,
    )
    before = cloud.revisions()
    newest = {service: migrations.revisions(service)[-1] for service in SERVICES}
    assert before["compute"] < newest["compute"], "the schemas are a release apart"
    with Load(cloud.connect, cloud.create_image(), "t") as load:
        load.more()
        cloud.moorage("db", "upgrade", "--phase", "expand")
        load.more()
        for name in ORDER:
            cloud.upgrade(name)
            load.more()
        cloud.moorage("db", "upgrade", "--phase", "migrate")
        load.more()
    assert refusals(load) == []
    assert load.wrong() == []
    assert cloud.revisions() == newest
    assert all(cloud.balancer.given)
