"""Runs in the outer guest as root: a plane, libvirtd, and a server with an NVMe drive through VFIO.

Prints a line for each fact, in the order of the server's life. Each fact continues with the server of the one before.
"""

import contextlib
import json
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from tests.plane import SERVICE, InProcessPlane
from tests.qemu.inside import SYSFS, drive
from tests.qemu.nested import SECRET
from tests.system.libvirt import servers
from tests.system.libvirt.guest import CMDLINE
from tests.system.libvirt.host import LibvirtHost
from tests.system.planes import PlaneClients

#: A boot of the server's guest, in an emulator within an emulator, and any other step.
BOOT_S = 600
SHORT_S = 240
LAST_TENANT = "the last tenant's data"


class Inside:
    """The plane with its one server."""

    def __init__(self, plane: InProcessPlane, host: LibvirtHost, files: Path) -> None:
        self.clients = PlaneClients(plane.transport, SERVICE, SystemClock())
        self.plane, self.host, self.files = plane, host, files
        self.drive = drive()
        self.server = ""

    # ------------------------------------------------------------------------------------ the facts, in order

    def boots(self) -> str:
        """The server is ACTIVE: libvirt passes the drive through, which is on vfio-pci."""
        create, files = self.clients.create_image, self.files
        parts = {
            "kernel_id": create((files / "inner-kernel").read_bytes(), disk_format="aki", container_format="aki"),
            "ramdisk_id": create((files / "inner-initrd").read_bytes(), disk_format="ari", container_format="ari"),
            "os_command_line": CMDLINE,
        }
        image = create((files / "inner-disk").read_bytes(), disk_format="qcow2", **parts)
        flavor = self.clients.create_flavor("drive", ram_mb=256, **{"resources:CUSTOM_ACCELERATOR_SSD": "1"})
        self.server = self.clients.create_server(flavor=flavor, name="tenant", image=image)
        self.clients.wait_for_status(self.server, "ACTIVE", timeout_s=SHORT_S)
        self.check_attached()
        return " ".join(self.clients.accelerators_of(self.server))

    def view(self) -> str:
        """The guest's own view, as its ``lspci -n`` shows it, and what it reads from the drive."""
        text = self.wait_for_console("READY")
        (seen,) = re.findall(r"LSPCI (\S+ 0108: 1b36:0010)", text)
        assert f"DRIVE {LAST_TENANT}" in text
        return seen

    def kept(self) -> str:
        """Pause, unpause, lock and unlock leave the devices where they are."""
        for action, status in (("pause", "PAUSED"), ("unpause", "ACTIVE"), ("lock", "ACTIVE"), ("unlock", "ACTIVE")):
            self.act(action, status)
            self.check_attached()
        return self.definition_of_devices()

    def suspended(self) -> str:
        """Suspend takes the devices out of the guest, and resume gives it the same ones; nobody else gets them."""
        self.act("suspend", "SUSPENDED")
        assert self.handles() == {self.drive: "attached"}
        self.act("resume", "ACTIVE")
        self.check_attached()
        text = self.wait_for_console("BACK")
        assert "GONE" in text
        assert f"DRIVE {SECRET}" in text
        return self.definition_of_devices()

    def rebooted(self) -> str:
        """A soft reboot: the guest shuts down when it is asked to, and starts again with the same device. What the guest
        then sees is what it saw after `suspended`; waiting for one more boot would double the time of all facts.
        """
        before = self.host.guests()
        self.clients.compute.request("POST", f"/servers/{self.server}/action", json={"reboot": {"type": "SOFT"}})
        wait(lambda: "OFF" in self.console(), SHORT_S, self.console_end)
        self.wait_for("ACTIVE")
        self.check_attached()
        assert self.host.guests() != before, "the guest was not started again"
        return self.definition_of_devices()

    def deleted(self) -> str:
        """The server is deleted while it runs: the drive is erased and free, and the history has the proof."""
        assert self.host.guests()
        self.clients.compute.request("DELETE", f"/servers/{self.server}")
        wait(lambda: self.clients.server(self.server) is None, SHORT_S)
        wait(lambda: not self.host.guests(), SHORT_S)
        wait(lambda: self.handles() == {self.drive: "free"}, SHORT_S, self.handles)
        assert SYSFS.pci_function(self.drive).driver == "nvme"
        node = next((Path("/sys/bus/pci/devices") / self.drive / "nvme").glob("*/nvme*n1"))
        wait((Path("/dev") / node.name).exists, SHORT_S)
        with (Path("/dev") / node.name).open("rb") as disk:
            assert disk.read() == bytes(16 << 20)
        (record,) = wait(lambda: [one for one in self.history() if one["event"] == "clean"], SHORT_S)
        assert record["handle"] == self.drive
        return record["reason"]

    # ----------------------------------------------------------------------------------------- looking

    def check_attached(self) -> None:
        assert self.handles() == {self.drive: "attached"}
        assert SYSFS.pci_function(self.drive).driver == "vfio-pci"
        assert self.definition_of_devices() == self.drive

    def definition_of_devices(self) -> str:
        """The devices that libvirt passes to the running guest."""
        text = subprocess.run(
            ["virsh", "-c", self.host.uri, "dumpxml", f"moorage-{self.server}"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        found = re.findall(
            r"<hostdev.*?<source>\s*<address domain='0x(\w+)' bus='0x(\w+)' slot='0x(\w+)' function='0x(\w)'/>",
            text,
            re.DOTALL,
        )
        return " ".join(sorted("{}:{}:{}.{}".format(*one) for one in found))

    def handles(self) -> dict[str, str]:
        rows = self.plane.send("GET", "/accelerator/moorage/v1/handles?host=metal-1").body["handles"]
        return {one["handle"]: one["state"] for one in rows if one["handle"] == self.drive}

    def history(self) -> list[dict]:
        return self.plane.send("GET", "/accelerator/moorage/v1/history?host=metal-1").body["records"]

    def console(self) -> str:
        return servers.console(self.clients, self.server)

    def console_end(self) -> str:
        return self.console()[-1500:]

    def wait_for_console(self, text: str) -> str:
        return wait(lambda: text in (seen := self.console()) and seen, BOOT_S, self.console_end)

    def wait_for(self, status: str) -> None:
        def is_settled() -> bool:
            now = self.clients.server(self.server)
            return now["status"] == status and not now["OS-EXT-STS:task_state"]

        wait(is_settled, SHORT_S, lambda: self.clients.server(self.server))

    def act(self, action: str, status: str) -> None:
        self.clients.compute.request("POST", f"/servers/{self.server}/action", json={action: None})
        self.wait_for(status)


def wait(probe: Callable[[], object], timeout_s: float, seen: Callable[[], object] = lambda: ""):
    """Calls `probe` until its result is true, and returns it."""
    deadline = time.monotonic() + timeout_s
    while not (answer := probe()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s; seen last: {seen()}"
        time.sleep(1)  # each look takes time from the guests
    return answer


FACTS = (Inside.boots, Inside.kept, Inside.view, Inside.suspended, Inside.rebooted, Inside.deleted)


def main(files: str) -> None:
    begin = time.monotonic()
    devices = json.dumps([{"address": drive(), "type": "SSD"}])
    place = Path("/run/m")
    with contextlib.ExitStack() as stack:
        host = LibvirtHost(Path("/run/lv"))
        stack.enter_context(host)
        plane = stack.enter_context(
            InProcessPlane(
                place, "placement,compute,accelerator,image,agent", clock=SystemClock(), ids=RandomIds(), has_sockets=True,
                agent={"host": "metal-1", "virt_driver": "libvirt", "domain_report_period_s": 2.0},
                libvirt={
                    "uri": host.uri, "instances_path": "/run/lv/instances", "virt_type": "qemu", "cpu_mode": "none",
                    "reserved_host_memory_mb": 0,
                },
                accelerator={"drivers": "pci", "pci_devices": devices, "report_period_s": 5.0},
            )
        )  # fmt: skip
        plane.plane.start_tasks()
        inside = Inside(plane, host, Path(files))
        print(f"TIME plane {time.monotonic() - begin:.0f} s", flush=True)
        for fact in FACTS:
            try:
                print(f"FACT {fact.__name__} holds: {fact(inside)}", flush=True)
            except Exception:  # noqa: BLE001 - the test reads every failure from the console
                print(
                    f"FACT {fact.__name__} fails: {' | '.join(traceback.format_exc().splitlines()[-3:])[-2000:]}",
                    flush=True,
                )
                break  # the others continue with its server
            print(f"TIME {fact.__name__} {time.monotonic() - begin:.0f} s", flush=True)
    print("FACTS END", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
