"""Servers as guests of QEMU, through the API and the stock client: they boot, receive passwords, and leave nothing
behind.

Devices: `plug` prepares a (simulated) GPU and returns its address. The guest has an emulated PCI device that
corresponds to this address on its host; both show it by a shared memory. VFIO is not tested, because it needs an IOMMU.
In `test_driver` libvirt accepts such a definition and says what the host lacks.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.processes import openstack
from tests.system.libvirt.host import LibvirtHost
from tests.system.libvirt.servers import act, console, delete, wait_for, wait_for_console
from tests.system.planes import PlaneProcess, until

pytestmark = [pytest.mark.slow, pytest.mark.clients]

WORD = 0xC0FFEE42


def variables(plane: PlaneProcess) -> dict[str, str]:
    account = json.loads((plane.state / "credentials.json").read_text())["admin"]
    return {
        "OS_AUTH_URL": f"{plane.url}/identity",
        "OS_USERNAME": "admin",
        "OS_PASSWORD": account["password"],
        "OS_PROJECT_NAME": account["project"],
        "OS_USER_DOMAIN_ID": "default",
        "OS_PROJECT_DOMAIN_ID": "default",
    }


def virsh(libvirtd: LibvirtHost, *words: str) -> str:
    command = ["virsh", "--quiet", "--connect", libvirtd.uri, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files_of(libvirtd: LibvirtHost, server: str) -> list[Path]:
    return list((libvirtd.directory / "instances" / "guests").glob(f"{server}*"))


def test_a_guest_has_the_device_that_plug_returned_and_leaves_nothing_behind(clients, libvirtd, image, tmp_path):
    """R33 (accelerator-attach): the device is in the guest when the server is active."""
    flavor = clients.create_flavor("gpu", ram_mb=192, **{"resources:CUSTOM_ACCELERATOR_GPU": "1"})
    server = clients.create_server(flavor=flavor, image=image, name="a <&> guest")
    wait_for(clients, server, "ACTIVE")
    (address,) = until(lambda: clients.accelerators_of(server))
    text = wait_for_console(clients, server, r"MEMORY \S+ 0x00000000")
    assert "READY" in text
    assert len(re.findall(r"PCI \S+ 0x1af4 0x1110", text)) == 1
    memory = Path("/dev/shm", f"moorage-{address}")
    with memory.open("r+b") as file:
        file.write(WORD.to_bytes(4, "little"))
    wait_for_console(clients, server, rf"MEMORY \S+ 0x{WORD:08X}")

    definition = tmp_path / "domain.xml"
    definition.write_text(virsh(libvirtd, "dumpxml", "--inactive", server))
    validated = subprocess.run(["virt-xml-validate", definition, "domain"], capture_output=True, text=True, check=False)
    assert validated.returncode == 0, validated.stderr

    delete(clients, server)
    assert server not in virsh(libvirtd, "list", "--all", "--uuid")
    assert files_of(libvirtd, server) == []
    assert not memory.exists()
    until(lambda: not clients.accelerators_of(server))
    assert clients.allocations(server) == {}


def create_command(name: str, image: str, flavor: str) -> list[str]:
    command = f"server create {name} --image {image} --flavor {flavor} --nic none --wait -f json"
    return command.split()


def test_the_stock_client_runs_every_operation_on_a_guest(plane, clients, libvirtd, image, flavor):
    """The content of the guest's disk (its boot count) survives a stop, and is part of an image of the server."""

    def run(*commands: str) -> list[str]:
        said = openstack(variables(plane), *(command.split() for command in commands))
        assert [one.status for one in said] == [0] * len(commands), said
        return [one.out.strip() for one in said]

    (create,) = openstack(variables(plane), create_command("web", image, flavor))
    server = create.document["id"]
    wait_for_console(clients, server, "READY")
    status, before = run("server show web -f value -c status", "console log show web")
    assert status == "ACTIVE"
    assert re.search(r"^BOOT 1\s", before, re.MULTILINE)
    assert "DISK vda 2097152" in before  # 1 GB, of which the image has 16 MB
    assert "DISK vdb 16384" in before  # the swap of the flavor

    act(clients, server, "pause", "PAUSED")
    act(clients, server, "unpause", "ACTIVE")
    act(clients, server, "suspend", "SUSPENDED")
    assert server not in virsh(libvirtd, "list", "--uuid")
    act(clients, server, "resume", "ACTIVE")
    assert "BOOT 2" not in console(clients, server)
    run("server stop web")
    wait_for(clients, server, "SHUTOFF")
    wait_for_console(clients, server, "OFF")  # the guest got the request to shut down

    run("server image create web --name picture --wait", "server start web")
    (again,) = openstack(variables(plane), create_command("again", "picture", flavor))
    second = again.document["id"]
    for booted in (server, second):
        wait_for_console(clients, booted, r"BOOT 2\s[^$]*READY")
    run("server delete web again --wait")
    assert files_of(libvirtd, server) == files_of(libvirtd, second) == []


def test_a_guest_that_shuts_itself_down_is_shutoff_and_one_that_vanished_is_in_error(clients, libvirtd, images, flavor):
    server = clients.create_server(flavor=flavor, image=images("poweroff_after=2"))
    off = wait_for(clients, server, "SHUTOFF")
    assert off["OS-EXT-STS:power_state"] == 4
    assert "OFF" in wait_for_console(clients, server, "OFF")
    virsh(libvirtd, "undefine", server)
    lost = wait_for(clients, server, "ERROR")
    assert "vanished from host metal-1 without a request" in lost["fault"]["message"]
    delete(clients, server)


def test_operations_wait_while_libvirtd_is_down(plane, clients, libvirtd, firmware, flavor):
    """Guests continue; operations wait until libvirtd answers again; the log says what is wrong."""
    server = clients.create_server(flavor=flavor, image=firmware)
    wait_for(clients, server, "ACTIVE")
    guests = libvirtd.guests()
    libvirtd.stop()
    until(lambda: "check that its daemon runs on this host" in plane.err)
    clients.compute.request("POST", f"/servers/{server}/action", json={"pause": None})
    assert clients.server(server)["OS-EXT-STS:task_state"] == "pausing"
    libvirtd.start()
    wait_for(clients, server, "PAUSED")
    assert libvirtd.guests() == guests
    act(clients, server, "unpause", "ACTIVE")
    delete(clients, server)
    assert libvirtd.guests() == []


def test_an_action_interrupted_by_the_death_of_libvirtd_ends_in_error_and_leaves_the_server_usable(
    plane, clients, libvirtd, firmware, flavor
):
    server = clients.create_server(flavor=flavor, image=firmware)
    wait_for(clients, server, "ACTIVE")
    clients.compute.request(
        "POST", f"/servers/{server}/action", json={"os-stop": None}
    )  # the guest ignores the request, and the driver waits for it
    until(lambda: f'"kind":"stop","key":"{server}"' in plane.err)
    libvirtd.stop()
    libvirtd.start()
    wait_for(clients, server, "ACTIVE", "SHUTOFF")
    action = clients.compute.get(f"/servers/{server}/os-instance-actions")["instanceActions"][0]
    shown = clients.compute.get(f"/servers/{server}/os-instance-actions/{action['request_id']}")["instanceAction"]
    assert [event["result"] for event in shown["events"]] == ["Error"]
    delete(clients, server)


def test_a_guest_suspended_with_virsh_is_shown_as_paused_and_can_be_unpaused(clients, libvirtd, firmware, flavor):
    """QEMU pauses a guest so if its host has no space for its writes (`test_faults`)."""
    server = clients.create_server(flavor=flavor, image=firmware)
    wait_for(clients, server, "ACTIVE")
    virsh(libvirtd, "suspend", server)
    wait_for(clients, server, "PAUSED")
    act(clients, server, "unpause", "ACTIVE")
    delete(clients, server)


def test_a_restarted_agent_finds_its_guests_and_starts_them_after_a_boot_of_the_host(
    plane, clients, libvirtd, image, flavor
):
    """Guests that ran are booted again, and stopped ones stay off."""
    server, off = (clients.create_server(flavor=flavor, image=image) for _ in range(2))
    wait_for(clients, off, "ACTIVE")
    act(clients, off, "os-stop", "SHUTOFF")
    wait_for_console(clients, server, "READY")
    guests = libvirtd.guests()
    plane.kill()
    assert libvirtd.guests() == guests
    plane.start()
    assert libvirtd.guests() == guests
    act(clients, server, "pause", "PAUSED")
    act(clients, server, "unpause", "ACTIVE")

    plane.kill()
    libvirtd.end_guests()
    (plane.state / "host" / "boot_id").write_text("another boot")
    plane.start()
    wait_for_console(clients, server, "BOOT 2")
    wait_for(clients, server, "ACTIVE")
    assert clients.server(off)["status"] == "SHUTOFF"
    for each in (server, off):
        delete(clients, each)
