"""Many simulated hosts in one process, in virtual and in real time."""

import pytest

from moorage.config import names_of
from tests.conftest import START
from tests.ports import free_port
from tests.system.planes import PlaneProcess, VirtualPlane, write_config


@pytest.mark.parametrize(
    ("first", "names"),
    [
        ("compute-1", ["compute-1", "compute-2", "compute-3"]),
        ("rack7-09", ["rack7-09", "rack7-10", "rack7-11"]),
        ("node", ["node", "node-2", "node-3"]),
    ],
)
def test_simulated_hosts_are_numbered_upwards_from_the_first_name(first, names):
    assert list(names_of(first, 3)) == names


LLC = """
meta: {schema_version: '1.0'}
providers:
  - identification: {uuid: $COMPUTE_NODE}
    inventories: {additional: {CUSTOM_LLC: {total: 22}}}
"""


def test_each_simulated_host_has_its_own_providers_and_service_and_shares_the_provider_files(tmp_path):
    folder = tmp_path / "provider_config"
    folder.mkdir(mode=0o700)
    path = folder / "a.yaml"
    path.write_text(LLC)
    path.chmod(0o644)
    with VirtualPlane(tmp_path, START, agent={"simulated_hosts": 5}) as plane:
        services = plane.compute.get("/os-services")["services"]
        assert [(row["host"], row["state"]) for row in services] == [
            (f"compute-{number}", "up") for number in range(1, 6)
        ]
        found = plane.placement.get("/allocation_candidates?resources=VCPU:1,CUSTOM_LLC:22")
        assert len(found["allocation_requests"]) == 5
        path.unlink()
        plane.plane.reload()
        plane.settle()
        for number in range(1, 6):
            plane.wakeups.wake(f"resources of compute-{number}")
        plane.settle()
        found = plane.placement.get("/allocation_candidates?resources=CUSTOM_LLC:1")
        assert found["allocation_requests"] == []


def test_servers_move_between_simulated_hosts_with_their_disks(tmp_path):
    with VirtualPlane(tmp_path, START, agent={"simulated_hosts": 2}) as plane:
        server = plane.create_server(flavor=plane.create_flavor("small"))
        plane.settle()
        seen = [plane.server(server)["OS-EXT-SRV-ATTR:host"]]
        for _ in range(2):
            for action, status in (("migrate", "VERIFY_RESIZE"), ("confirmResize", "ACTIVE")):
                plane.compute.request("POST", f"/servers/{server}/action", json={action: None})
                plane.settle()
                assert plane.server(server)["status"] == status
            seen.append(plane.server(server)["OS-EXT-SRV-ATTR:host"])
        assert sorted(seen[:2]) == ["compute-1", "compute-2"]
        assert seen[2] == seen[0]


@pytest.mark.slow
def test_a_hundred_hosts_in_one_process_run_servers(tmp_path):
    write_config(
        tmp_path, plane={"log_file": "moorage.log"}, server={"port": free_port()}, agent={"simulated_hosts": 100}
    )
    with PlaneProcess(tmp_path / "moorage.conf") as process:
        clients = process.clients()
        assert len(clients.compute.get("/os-services")["services"]) == 100
        flavor = clients.create_flavor("small")
        image = clients.create_image()
        servers = [clients.create_server(flavor=flavor, name=f"s{number}", image=image) for number in range(10)]
        for server in servers:
            clients.wait_for_status(server, "ACTIVE")
        assert len(threads_of(process)) < 120


def threads_of(process):
    from pathlib import Path

    return [task for pid in process.members() for task in Path(f"/proc/{pid}/task").iterdir()]
