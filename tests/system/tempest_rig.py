"""What Tempest's tests need to run against our plane: configuration and accounts.

Tempest and the plugin for accelerators come from their packages in .venv-tempest; this repository contains none of
them.
"""

from collections.abc import Mapping
from pathlib import Path

import yaml

from moorage.core.clock import SystemClock
from moorage.wire.client import ServiceClient
from tests.system.planes import PlaneProcess, embedded_credentials

#: The password of all users that this module adds.
PASSWORD = "tempest-secret"
#: {name: (project, role, ...)}: three users in each of three projects, and an administrator.
PEOPLE = {
    f"{role}-{project}": (project, role)
    for project in ("demo", "other", "third")
    for role in ("member", "reader", "manager")
} | {"chief": ("admin", "admin")}


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
    network: str = "",
) -> Path:
    """Writes a configuration directory for Tempest, and creates two flavors and two images in the plane.

    `network`: the network of the plane that servers get; "" if there is no network service. `creates_people`: Tempest creates a project with its users for each class of tests; `people` only has to contain
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
        image_alt=images[1], password=PASSWORD, creates_people=str(creates_people).lower(), has_network=str(bool(network)).lower(), network=network,
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
neutron = {has_network}
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
build_timeout = 20
region = RegionOne
[compute]
region = RegionOne
fixed_network_name = {network}
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
interface_attach = true
attach_encrypted_volume = false
volume_backed_live_migration = false
volume_multiattach = false
metadata_service = false
personality = false
scheduler_enabled_filters = all
disk_config = true
change_password = true
config_drive = true
[validation]
run_validation = false
[network-feature-enabled]
floating_ips = false
api_extensions = quotas
"""
