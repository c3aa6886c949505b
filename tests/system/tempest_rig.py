"""Runs Tempest's tests against our plane: configuration, accounts, and one run of named tests.

Tempest and the plugin for accelerators come from their packages in .venv-tempest; this repository contains none of
them.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from moorage.core.clock import SystemClock
from moorage.wire.client import ServiceClient
from tests.processes import python_of
from tests.system.planes import PlaneProcess, embedded_credentials

#: The password of all users that this module adds.
PASSWORD = "tempest-secret"
#: {name: (project, role, ...)}: three users in each of three projects, and an administrator.
PEOPLE = {
    f"{role}-{project}": (project, role)
    for project in ("demo", "other", "third")
    for role in ("member", "reader", "manager")
} | {"chief": ("admin", "admin")}


def modules(package: str) -> list[str]:
    """All test modules below `package`, without its name."""
    (top,) = python_of(".venv-tempest").parents[1].glob(f"lib/python3*/site-packages/{package.replace('.', '/')}")
    found = (path.relative_to(top).with_suffix("") for path in top.rglob("test_*.py"))
    return [".".join(path.parts) for path in found]


def add_people(plane: PlaneProcess, people: Mapping[str, tuple[str, ...]] = PEOPLE) -> None:
    """Adds users, and the projects that they need, over the Identity API."""
    identity = ServiceClient(
        plane.transport("/identity"),
        service_type="identity",
        credentials=embedded_credentials(plane.transport("/identity"), plane.state, SystemClock()),
        clock=SystemClock(),
    )
    projects = {row["name"]: row["id"] for row in identity.get("/v3/projects")["projects"]}
    for name, (project, *roles) in people.items():
        if project not in projects:
            made = identity.request("POST", "/v3/projects", json={"project": {"name": project}})
            projects[project] = made["project"]["id"]
        user = {"name": name, "password": PASSWORD, "default_project_id": projects[project]}
        made = identity.request("POST", "/v3/users", json={"user": user})
        for role in roles:
            identity.request("PUT", f"/v3/projects/{projects[project]}/users/{made['user']['id']}/roles/{role}")


def configure(
    plane: PlaneProcess,
    directory: Path,
    people: Mapping[str, tuple[str, ...]] = PEOPLE,
    *,
    creates_people: bool = False,
) -> Path:
    """Writes a configuration directory for Tempest, and creates two flavors and two images in the plane.

    `creates_people`: Tempest creates a project with its users for each class of tests; `people` only has to contain
    chief.
    """
    clients = plane.clients()
    images = [clients.create_image(name=f"tempest-{number}", visibility="public") for number in (1, 2)]
    for name, vcpus in (("tempest-1", 1), ("tempest-2", 2)):
        flavor = {"id": name, "name": name, "vcpus": vcpus, "ram": 64 * vcpus, "disk": 1}
        clients.compute.request("POST", "/flavors", json={"flavor": flavor})
    accounts = [
        {
            "username": name, "password": PASSWORD, "project_name": project, "domain_name": "Default",
            "types": ["admin"] if "admin" in roles else [], "roles": roles,
        }
        for name, (project, *roles) in people.items()
    ]  # fmt: skip
    etc = directory / "etc"
    etc.mkdir(parents=True)
    (etc / "accounts.yaml").write_text(yaml.safe_dump(accounts))
    lines = _TEMPLATE.format(
        identity=f"{plane.url}/identity/v3", accounts=etc / "accounts.yaml", locks=directory, image=images[0],
        image_alt=images[1], password=PASSWORD, creates_people=str(creates_people).lower(),
    )  # fmt: skip
    (etc / "tempest.conf").write_text(lines)
    return etc


_TEMPLATE = """
[DEFAULT]
log_file = {locks}/tempest.log
[oslo_concurrency]
lock_path = {locks}
[auth]
use_dynamic_credentials = {creates_people}
test_accounts_file = {accounts}
admin_username = chief
admin_password = {password}
admin_project_name = admin
admin_domain_name = Default
[identity]
auth_version = v3
uri_v3 = {identity}
region = RegionOne
default_domain_id = default
[identity-feature-enabled]
api_v3 = true
[service_available]
neutron = false
cinder = false
swift = false
glance = true
nova = true
cyborg = true
[cyborg_policy]
enforce_new_defaults = true
[image-feature-enabled]
image_format_enforcement = false
[image]
build_timeout = 60
region = RegionOne
[compute]
region = RegionOne
image_ref = {image}
image_ref_alt = {image_alt}
flavor_ref = tempest-1
flavor_ref_alt = tempest-2
build_interval = 1
build_timeout = 60
min_microversion = 2.1
max_microversion = 2.100
min_compute_nodes = 2
[compute-feature-enabled]
resize = true
shelve = true
live_migration = false
cold_migration = true
vnc_console = false
rdp_console = false
spice_console = false
console_output = true
interface_attach = false
attach_encrypted_volume = false
volume_backed_live_migration = false
volume_multiattach = false
metadata_service = false
personality = false
disk_config = true
change_password = true
config_drive = true
[validation]
run_validation = false
[network-feature-enabled]
floating_ips = false
[scheduler]
enabled_filters = all
"""


#: The line of Tempest's output for a test: ``tempest.api.compute....test_x[id-...] ... ok``.
_OUTCOME = re.compile(r"^(?:setUpClass \()?((?:cyborg_)?tempest[\w.]+)\)?(?:\[[^\]]*\])? \.\.\. (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """`said` by test: ok, FAIL, ERROR, or skip with its reason."""

    said: dict[str, str]
    text: str

    @property
    def failed(self) -> list[str]:
        return sorted(name for name, said in self.said.items() if said.startswith(("FAIL", "ERROR")))

    @property
    def passed(self) -> list[str]:
        return sorted(name for name, said in self.said.items() if said.startswith("ok"))


def run(etc: Path, names: list[str], timeout_s: float, *, program: Path | None = None) -> Outcome:
    """`names`: modules, classes or tests. `program` runs them instead of unittest."""
    runner = ["-m", "unittest", "-v"] if program is None else [program]
    done = subprocess.run(
        [python_of(".venv-tempest"), "-W", "ignore", *runner, *names],
        cwd=etc.parent,
        env={"PATH": os.environ["PATH"], "HOME": str(etc.parent), "TEMPEST_CONFIG_DIR": str(etc)},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    text = done.stdout + done.stderr
    return Outcome(dict(_OUTCOME.findall(text)), text)
