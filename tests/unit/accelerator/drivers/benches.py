"""One simulated machine per driver for `test_conformance`: a driver, one of its handles, and the machine's state.

If you write a driver, add a `Bench` here; docs/guides/writing-a-driver.md says how.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from moorage.accelerator.drivers import opae as opae_tools
from moorage.accelerator.drivers import xrt as xrt_tools
from moorage.accelerator.drivers.base import AcceleratorDriver, DriverError
from moorage.accelerator.drivers.device_spec import VFIO, DeviceSpec
from moorage.accelerator.drivers.fpga_dfl import FpgaDflDriver
from moorage.accelerator.drivers.fpga_manager import FpgaManagerDriver
from moorage.accelerator.drivers.nvidia import NvidiaDriver
from moorage.accelerator.drivers.pci import PciDriver
from moorage.accelerator.drivers.qat import QatDriver
from moorage.accelerator.drivers.simulated import (
    FaultControl,
    FaultKind,
    SimulatedAccelerators,
    SimulatedFault,
    default_simulated_host,
)
from moorage.accelerator.model.devices import Mdev
from tests.unit.accelerator.drivers.bits import bitstream_of, bitstreams, gbs, xclbin
from tests.unit.accelerator.drivers.fake_tools import FakeTools
from tests.unit.accelerator.drivers.sysfs_tree import KernelSysfs, Tree
from tests.unit.accelerator.rig import Killed

NOBODY = "0000:7f:1f.7"  #: a PCI address that no simulated machine has


@dataclass
class Bench:
    driver: AcceleratorDriver
    card: str
    deployable: str
    handle: str
    #: Removes the card from the machine.
    vanish: Callable[[], None]
    #: Makes cleaning have no effect from now on.
    resist_cleaning: Callable[[], None]
    #: Whether the machine's state allows the handle to be attached to a guest now.
    is_attachable: Callable[[], bool]
    #: The state that discovery must not change.
    snapshot: Callable[[], object]
    #: Returns a new driver for the same machine, as a restarted agent creates it.
    again: Callable[[], AcceleratorDriver]
    #: For programmable devices: bitstreams that fit, each with its data; and a function that makes programming fail.
    bitstreams: list = field(default_factory=list)
    fail_programming: Callable[[], None] | None = None
    #: The machine's simulated sysfs. None if the driver itself simulates the machine.
    tree: Tree | None = None


def simulated(directory: Path, clock) -> Bench:
    def driver():
        return SimulatedAccelerators(default_simulated_host(), directory / "sim", clock)

    made = driver()

    def order(verb, kind):
        return lambda: made.order(FaultControl({}, (SimulatedFault(verb, kind),)))

    return Bench(
        made,
        "0000:3b:00.0",
        "0000:3b:00.0_R1",
        "0000:3b:00.1",
        vanish=order("discover", FaultKind.VANISHES),
        resist_cleaning=order("clean", FaultKind.FAILS),
        is_attachable=lambda: made.is_dirty("0000:3b:00.1"),
        snapshot=made._read,
        again=driver,
        bitstreams=bitstreams(),
        fail_programming=order("program", FaultKind.DIES),
    )


def of_tree(tree: Tree, make, card, handle) -> Bench:
    """A bench for functions that the kernel binds and resets."""
    return Bench(
        make(),
        card,
        card,
        handle,
        vanish=lambda: [tree.remove(address) for address in dict.fromkeys((card, handle))],
        resist_cleaning=lambda: tree.deaf.add(handle),
        is_attachable=lambda: tree.sysfs().pci_function(handle).driver == VFIO,
        snapshot=tree.snapshot,
        again=make,
        tree=tree,
    )


def _machine(directory: Path) -> Tree:
    tree = Tree(directory / "sys")
    tree.bind_nothing_to(VFIO)
    return tree


def pci(directory: Path, clock) -> Bench:
    tree = _machine(directory)
    tree.add("0000:5e:00.0", "1bd4:a115", driver="nvme")
    return of_tree(tree, lambda: PciDriver([DeviceSpec(vendor="1bd4")], tree.sysfs()), "0000:5e:00.0", "0000:5e:00.0")


def qat(directory: Path, clock) -> Bench:
    tree = _machine(directory)
    tree.add("0000:3d:00.0", "8086:4940", driver="4xxx", qat__state="up", qat__cfg_services="sym;asym")
    for number in range(2):
        tree.add(f"0000:3d:00.{number + 1}", "8086:4941", driver="vfio-pci-none", of="0000:3d:00.0")
    return of_tree(tree, lambda: QatDriver((), tree.sysfs()), "0000:3d:00.0", "0000:3d:00.1")


def nvidia(directory: Path, clock) -> Bench:
    tree = _machine(directory)
    tree.add("0000:17:00.0", "10de:27b8", kind="030200", driver="nvidia")
    return of_tree(tree, lambda: NvidiaDriver((), tree.sysfs(), dict), "0000:17:00.0", "0000:17:00.0")


def nvidia_shares(directory: Path, clock) -> Bench:
    tree = _machine(directory)
    tree.add("0000:17:00.0", "10de:2237", kind="030200", driver="nvidia")
    tree.add_mdev_type("0000:17:00.0", "nvidia-474", 2, "GRID A10-12Q")
    spec = DeviceSpec(vendor="10de", type="VGPU", functions="mdev", mdev_type="nvidia-474")
    share = Mdev("0000:17:00.0", "nvidia-474", 1)
    stuck = set()
    bench = of_tree(tree, lambda: NvidiaDriver([spec], _Sticky(tree, stuck), dict), "0000:17:00.0", str(share))
    bench.vanish = lambda: tree.remove("0000:17:00.0")
    bench.resist_cleaning = lambda: stuck.add(share.uuid)
    bench.is_attachable = (tree.mdev_bus / "0000:17:00.0" / share.uuid).exists
    return bench


class _Sticky(KernelSysfs):
    """A kernel that reports the removal of a mediated device, but keeps it."""

    def __init__(self, tree, stuck):
        super().__init__(tree)
        self._stuck = stuck

    def write_text(self, path, value):
        if path.name == "remove" and path.parts[-2] in self._stuck:
            return
        super().write_text(path, value)


# ------------------------------------------------------------------------------------------------ FPGAs

REGION_TYPE = "ce489693-98f0-5f33-946d-560708be108a"
FACTORY = "d8424dc4-a4a3-c413-f89e-433683f9040b"
AES = "9aff21a8-3f5b-4a3c-9d0e-0f1c7d1f0a01"
SHA = "0b3ddd11-8f2c-4d0a-a3aa-77c2b8f0f202"
FPGA = "0000:3b:00.0"


def dfl_card(tree: Tree, address=FPGA, *, ports=1, afu_id=FACTORY, number=0, virtual=False):
    """A PAC as the kernel's dfl-pci driver shows it."""
    tree.add(address, "8086:09c4", driver="dfl-pci", numa_node=1)
    region = tree.devices / address / "fpga_region" / f"region{number}"
    tree.write(region / "dfl-fme.0" / "ports_num", ports)
    for port in range(ports):
        own = region / "dfl-fme.0" / f"dfl-fme-region.{port}" / "fpga_region" / f"region{number + port + 1}"
        tree.write(own / "compat_id", REGION_TYPE.replace("-", ""))
        holder = region
        if virtual:
            function = f"{address[:-1]}{port + 1}"
            tree.add(function, "8086:09c5", driver="dfl-pci", numa_node=1, of=address)
            holder = tree.devices / function / "fpga_region" / f"region{number + port + 10}"
        tree.write(holder / f"dfl-port.{port}" / "id", port)
        tree.write(holder / f"dfl-port.{port}" / "afu_id", afu_id.replace("-", ""))


class DflKernel:
    """Simulates the kernel's loading of a port, which on a real host is an ioctl. `fault` says how it fails."""

    def __init__(self, tree):
        self.tree, self.fault, self.orders = tree, "", []

    def load(self, node, port, file, offset):
        self.orders.append((str(node), port, file.name, offset))
        with self.tree.around("kernel", "load"):
            self._carry_out(port, file, offset)

    def _carry_out(self, port, file, offset):
        if self.fault == "is killed":
            raise Killed
        if self.fault == "refuses":
            raise DriverError("the kernel refused")
        shown = (
            "00" * 16
            if self.fault
            else json.loads(file.read_bytes()[20:offset])["afu-image"]["accelerator-clusters"][0][
                "accelerator-type-uuid"
            ]
        )
        for path in self.tree.devices.glob(f"*/fpga_region/*/dfl-port.{port}/afu_id"):
            self.tree.write(path, shown.replace("-", ""))


def gbs_bitstreams():
    return [bitstream_of(gbs(REGION_TYPE, afu), f"image-{afu[:4]}", afu) for afu in (AES, SHA)]


def _fpga_dfl(directory: Path, *, virtual: bool) -> Bench:
    tree = _machine(directory)
    dfl_card(tree, virtual=virtual)
    kernel = DflKernel(tree)
    handle = "0000:3b:00.1" if virtual else FPGA
    bench = of_tree(
        tree,
        lambda: FpgaDflDriver(directory / "state", (), _Hiding(tree), directory / "dev", kernel.load),
        FPGA,
        handle,
    )
    bench.deployable = f"{FPGA}_R1"
    bench.bitstreams = gbs_bitstreams()
    bench.fail_programming = lambda: setattr(kernel, "fault", "loads something else")
    return bench


def fpga_dfl(directory: Path, clock) -> Bench:
    return _fpga_dfl(directory, virtual=False)


def fpga_dfl_virtual(directory: Path, clock) -> Bench:
    return _fpga_dfl(directory, virtual=True)


class _Hiding(KernelSysfs):
    """A kernel that shows a function's FPGA parts only while its own driver has it."""

    def paths_below(self, address, pattern):
        return [] if self._link(address, "driver") == VFIO else super().paths_below(address, pattern)


def fpga_manager(directory: Path, clock) -> Bench:
    tree = _machine(directory)
    tree.add("0000:04:00.0", "1d22:3684", driver="made_up_fpga")
    manager = tree.devices / "0000:04:00.0" / "fpga_manager" / "fpga0"
    for name, text in (("name", "made up"), ("state", "power up"), ("status", ""), ("firmware", "")):
        tree.write(manager / name, text)
    tree.write(directory / "boot_id", "boot-1")
    fault = []

    def load(path, value):
        assert (directory / "firmware" / value.strip()).is_file()
        tree.write(manager / "state", "write error" if fault else "operating")

    tree.effects.append(("fpga0/firmware", load))
    spec = DeviceSpec(vendor="1d22", type="FPGA", region_type=REGION_TYPE)
    bench = of_tree(
        tree,
        lambda: FpgaManagerDriver(
            directory / "state", [spec], _Hiding(tree), directory / "firmware", directory / "boot_id"
        ),
        "0000:04:00.0",
        "0000:04:00.0",
    )
    bench.deployable = "0000:04:00.0_R1"
    bench.bitstreams = bitstreams()
    bench.fail_programming = lambda: fault.append("now")
    return bench


def opae(directory: Path, clock) -> Bench:
    tree = _machine(directory)
    tree.add(FPGA, "8086:09c4", driver="intel-fpga-pci")
    tools = FakeTools(directory / "tools", {FPGA: {"type": REGION_TYPE, "shown": FACTORY}})
    look, load = opae_tools.fpgainfo(tools.path), opae_tools.fpgaconf(tools.path)
    bench = of_tree(tree, lambda: opae_tools.OpaeDriver(directory / "state", (), tree.sysfs(), look, load), FPGA, FPGA)
    bench.deployable = f"{FPGA}_R1"
    bench.bitstreams = gbs_bitstreams()
    bench.fail_programming = lambda: tools.behave("lies", "fpgaconf")
    return bench


def xrt(directory: Path, clock) -> Bench:
    tree = _machine(directory)
    tree.add("0000:b3:00.0", "10ee:5020", driver="xclmgmt")
    tree.add("0000:b3:00.1", "10ee:5021", driver="xocl")
    nothing = "0" * 32
    cards = {"0000:b3:00.0": {"type": REGION_TYPE.upper()}, "0000:b3:00.1": {"shown": nothing}}
    tools = FakeTools(directory / "tools", cards)
    manage, use = xrt_tools.xbmgmt(tools.path), xrt_tools.xbutil(tools.path)
    bench = of_tree(
        tree,
        lambda: xrt_tools.XrtDriver(directory / "state", (), tree.sysfs(), manage, use),
        "0000:b3:00.0",
        "0000:b3:00.1",
    )
    bench.deployable = "0000:b3:00.0_R1"
    bench.bitstreams = [bitstream_of(xclbin(one), f"image-{one[:4]}", one) for one in (AES, SHA)]
    bench.fail_programming = lambda: tools.behave("lies", "program")
    return bench
