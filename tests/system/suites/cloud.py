"""A plane as the suites of the clients expect a cloud: DevStack's flavors and image, users of some projects, clouds.yaml."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from moorage.core.clock import SystemClock
from moorage.identity.client import PasswordTokens
from tests.ports import free_port
from tests.system import tempest_rig
from tests.system.planes import PlaneClients, PlaneProcess, write_config

#: {name: (project, role, ...)}. Tempest gives the three users of a project different tasks.
PEOPLE = (
    {
        f"{name}-{number}": (f"project-{number}", "member", "reader", "manager")
        for number in range(1, 9)
        for name in ("first", "second", "third")
    }
    | {f"chief-{number}": ("admin", "admin") for number in (1, 2, 3)}
    | {"chief": ("admin", "admin"), "demo-member": ("demo", "member")}
)

#: DevStack's flavors: {name: (RAM in MB, VCPUs, disk in GB)}.
FLAVORS = {
    "m1.tiny": (512, 1, 1),
    "m1.small": (2048, 1, 20),
    "m1.medium": (4096, 2, 40),
    "m1.large": (8192, 4, 80),
    "m1.xlarge": (16384, 8, 160),
}
#: Some suites wait for the version of a volume service before a test; no test that calls it passes.
NO_VOLUME_SERVICE = "http://127.0.0.1:1/v3"


@dataclass(frozen=True)
class Cloud:
    """`directory`: the home directory of the clients, where they find their configuration."""

    plane: PlaneProcess
    directory: Path

    def clients(self, user: str, project: str) -> PlaneClients:
        transport, clock = self.plane.transport, SystemClock()
        tokens = PasswordTokens(
            transport("/identity"), username=user, password=tempest_rig.PASSWORD, project=project, clock=clock
        )
        return PlaneClients(transport, tokens, clock)


@contextlib.contextmanager
def devstack_cloud(directory: Path, *, networks: Mapping[str, str]) -> Iterator[Cloud]:
    """`networks`: lines of the section ``[network]``."""
    config = write_config(
        directory / "state",
        server={"port": free_port()},
        agent={"simulated_hosts": 2},
        network={"lines": dict(networks)},
    )
    home = directory / "home"
    home.mkdir()
    with PlaneProcess(config.source) as plane:
        tempest_rig.add_people(plane, PEOPLE)
        clients = plane.clients()
        for number, (name, (ram, vcpus, disk)) in enumerate(FLAVORS.items(), 1):
            flavor = {"id": str(number), "name": name, "ram": ram, "vcpus": vcpus, "disk": disk}
            clients.compute.request("POST", "/flavors", json={"flavor": flavor})
        clients.create_image(b"x" * 65536, name="cirros-0.6.2-x86_64-disk", visibility="public", disk_format="qcow2")
        _write_clouds(home, plane.url)
        yield Cloud(plane, home)


def _write_clouds(home: Path, url: str) -> None:
    clouds = {
        "devstack-admin": _cloud(url, "chief", "admin"),
        "devstack-system-admin": _cloud(url, "chief", "admin"),
        "devstack": _cloud(url, "demo-member", "demo"),  # the project that openstacksdk expects
        "devstack-alt": _cloud(url, "first-2", "project-2"),
    }
    path = home / ".config" / "openstack" / "clouds.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"clouds": clouds}))


def _cloud(url: str, user: str, project: str) -> Mapping[str, object]:
    login = {
        "auth_url": f"{url}/identity",
        "username": user,
        "password": tempest_rig.PASSWORD,
        "project_name": project,
        "user_domain_id": "default",
        "project_domain_id": "default",
    }
    return {
        "auth": login,
        "region_name": "RegionOne",
        "block_storage_endpoint_override": NO_VOLUME_SERVICE,
        "block_storage_api_version": "3",
    }
