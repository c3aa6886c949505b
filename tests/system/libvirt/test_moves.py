"""Servers that change hosts: two libvirtds on this machine, each with its own agent, without shared storage."""

import re

import pytest

from tests.ports import free_port
from tests.system.libvirt import host
from tests.system.libvirt.servers import act, delete, wait_for, wait_for_console
from tests.system.planes import PlaneProcess, let_in, until, write_config

pytestmark = [pytest.mark.slow, pytest.mark.clients]

SERVICES = ("identity", "placement", "compute", "accelerator", "image")


@pytest.fixture(scope="module")
def second(plane, clients, directory):
    """Another host, for this module only."""
    (directory / "other").mkdir()
    with host.LibvirtHost(directory / "other") as libvirtd:
        config = write_config(
            directory / "agent",
            plane={"services": "agent"},
            server={"port": free_port()},
            endpoints={name: f"{plane.url}/{name}" for name in SERVICES},
            agent={"virt_driver": "libvirt", "host": "metal-2", "poll_period_s": 0.2, "domain_report_period_s": 1.0},
            libvirt={
                "uri": libvirtd.uri,
                "instances_path": str(libvirtd.directory / "instances"),
                "virt_type": "qemu",
                "shutdown_timeout_s": 20.0,
                "reserved_host_memory_mb": 0,
            },
        )
        let_in(config, plane.state)
        with PlaneProcess(config.source).start():
            until(lambda: "metal-2" in services(clients))
            yield libvirtd
            body = {"status": "disabled", "disabled_reason": "its tests are over"}
            clients.compute.request("PUT", f"/os-services/{services(clients)['metal-2']}", json=body)


def services(clients) -> dict[str, str]:
    """Name of a host -> id of its service."""
    rows = clients.compute.get("/os-services?binary=nova-compute")["services"]
    return {row["host"]: row["id"] for row in rows if row["state"] == "up"}


def host_of(clients, server: str) -> str:
    return clients.server(server)["OS-EXT-SRV-ATTR:host"]


def guests_of(libvirtd, server: str) -> list[str]:
    return sorted(path.name for path in (libvirtd.directory / "instances/guests").glob(f"{server}*"))


def test_a_server_is_resized_and_migrated_to_another_host_with_what_is_on_its_disk(
    clients, libvirtd, second, image, flavor
):
    """The disk contains its boot count, so it shows that the disk moved, too, and is the old one after a revert."""
    hosts = {"metal-1": libvirtd, "metal-2": second}
    body = {"id": "larger", "name": "larger", "vcpus": 1, "ram": 224, "disk": 2}
    clients.compute.request("POST", "/flavors", json={"flavor": body})
    server = clients.create_server(flavor=flavor, image=image)
    wait_for(clients, server, "ACTIVE")
    wait_for_console(clients, server, r"BOOT 1\s[^$]*READY")
    source = host_of(clients, server)
    (target,) = hosts.keys() - {source}

    act(clients, server, "resize", "VERIFY_RESIZE", flavorRef="larger")
    assert host_of(clients, server) == target
    text = wait_for_console(clients, server, r"BOOT 2\s[^$]*READY")
    assert re.search(r"DISK vda 4194304", text)  # 2 GB
    act(clients, server, "revertResize", "ACTIVE")
    assert host_of(clients, server) == source
    wait_for_console(
        clients, server, r"BOOT 1\s[^$]*BOOT 2\s[^$]*READY"
    )  # the console and the disk moved with the server
    assert guests_of(hosts[target], server) == []

    act(clients, server, "migrate", "VERIFY_RESIZE")
    assert host_of(clients, server) == target
    wait_for_console(clients, server, r"BOOT 3\s[^$]*READY")
    clients.compute.request("POST", f"/servers/{server}/action", json={"confirmResize": None})
    wait_for(clients, server, "ACTIVE")
    until(lambda: guests_of(hosts[source], server) == [])
    assert hosts[source].guests() == []
    assert clients.allocations(server) == {"VCPU": 1, "MEMORY_MB": 192, "DISK_GB": 2}
    delete(clients, server)
    assert guests_of(hosts[target], server) == []
