"""A tree of PCI devices in a directory, as the kernel shows it; writing to its files has the kernel's effects.

The attributes are those of real machines; only directories, files and links are simulated.
"""

import hashlib
import shutil
from contextlib import nullcontext

from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.drivers.sysfs import Sysfs


class Tree:
    def __init__(self, root) -> None:
        self.root = root
        self.devices = root / "bus" / "pci" / "devices"
        self.drivers = root / "bus" / "pci" / "drivers"
        self.mdev_bus = root / "class" / "mdev_bus"
        for directory in (self.devices, self.drivers, self.mdev_bus):
            directory.mkdir(parents=True)
        self.default_drivers = {}
        self.left_by_guests = set()  #: functions that hold data of a guest
        self.deaf = set()  #: functions on which a reset has no effect
        #: Further effects of the kernel: (end of the path, effect); an effect gets the path and the value.
        self.effects = []
        #: A context manager around each write to the kernel, in which a test can end the process.
        self.around = lambda *order: nullcontext()

    def add(self, address, ids, *, numa_node=0, driver=None, of=None, kind="120000", reset=True, **attributes):
        """Adds a PCI function. `ids`: vendor and product, as ``8086:09c4``; `of`: the card of a virtual function.

        `attributes`: other files and their contents; ``__`` in a name means ``/``.
        """
        directory = self.devices / address
        directory.mkdir()
        vendor, product = ids.split(":")
        texts = {"vendor": f"0x{vendor}", "device": f"0x{product}", "class": f"0x{kind}", "numa_node": str(numa_node)}
        for name, text in (texts | {"driver_override": "(null)"} | attributes).items():
            self.write(directory / name.replace("__", "/"), text)
        if reset:
            (directory / "reset").write_text("")
        (directory / "config").write_bytes(bytes.fromhex(vendor)[::-1] + bytes.fromhex(product)[::-1] + bytes(4))
        if driver:
            self.default_drivers[address] = driver
            self.bind(address, driver)
        if of:
            (directory / "physfn").symlink_to(f"../{of}")
            number = len(list((self.devices / of).glob("virtfn*")))
            (self.devices / of / f"virtfn{number}").symlink_to(f"../{address}")

    def bind_nothing_to(self, driver):
        """Loads the kernel driver `driver`, without a device."""
        (self.drivers / driver).mkdir()

    def write(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def add_mdev_type(self, parent, name, available, label=""):
        """Makes `available` more mediated devices of type `name` possible on `parent`."""
        directory = self.devices / parent / "mdev_supported_types" / name
        self.write(directory / "available_instances", available)
        self.write(directory / "name", label or name)
        (directory / "create").write_text("")
        (directory / "devices").mkdir()
        if not (self.mdev_bus / parent).exists():
            (self.mdev_bus / parent).symlink_to(f"../../bus/pci/devices/{parent}")

    def add_mdev(self, parent, name, uuid):
        """Creates a mediated device, as a write to ``create`` does."""
        directory = self.devices / parent / "mdev_supported_types" / name
        left = int((directory / "available_instances").read_text())
        if not left or (self.mdev_bus / parent / uuid).exists():
            raise DriverError("the kernel says no")
        self.write(directory / "available_instances", left - 1)
        made = self.devices / parent / uuid
        made.mkdir()
        (made / "remove").write_text("")
        (made / "mdev_type").symlink_to(f"../mdev_supported_types/{name}")
        (directory / "devices" / uuid).symlink_to(f"../../../{uuid}")

    def remove_mdev(self, parent, uuid):
        made = self.devices / parent / uuid
        directory = self.devices / parent / "mdev_supported_types" / (made / "mdev_type").readlink().name
        self.write(directory / "available_instances", int((directory / "available_instances").read_text()) + 1)
        (directory / "devices" / uuid).unlink()
        shutil.rmtree(made)

    def remove(self, address):
        shutil.rmtree(self.devices / address)
        (self.mdev_bus / address).unlink(missing_ok=True)

    def bind(self, address, driver):
        (self.drivers / driver).mkdir(exist_ok=True)
        link = self.devices / address / "driver"
        link.unlink(missing_ok=True)
        link.symlink_to(f"../../drivers/{driver}")

    def sysfs(self) -> "KernelSysfs":
        return KernelSysfs(self)

    def snapshot(self):
        """A digest of every file, to check that a driver changed nothing."""
        found = []
        for path in sorted(self.root.rglob("*")):
            content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
            found.append((str(path), hashlib.sha256(str(content).encode()).hexdigest()))
        return found


class KernelSysfs(Sysfs):
    """Sysfs with a simulated kernel that carries out writes; `written` lists (file, value) of each write."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree.root)
        self._tree = tree
        self.written = []

    def write_text(self, path, value):
        name = "/".join(path.relative_to(self._tree.root).parts).removeprefix("bus/pci/")
        self.written.append((name, value))
        with self._tree.around("kernel", name):
            self._carry_out(path, value)

    def _carry_out(self, path, value):
        address = path.parent.name
        if path.name == "unbind":
            (self._tree.devices / value / "driver").unlink()
        elif path.name == "drivers_probe":
            self._probe_now(value)
        elif path.name == "create" and "mdev_supported_types" in path.parts:
            self._tree.add_mdev(path.parts[-4], path.parts[-2], value)
        elif path.name == "remove":
            self._tree.remove_mdev(path.parts[-3], path.parts[-2])
        elif path.name == "reset":
            super().write_text(path, value)
            if address in self._tree.deaf:
                (path.parent / "config").write_bytes(b"\xff" * 64)
            self._tree.left_by_guests.discard(address)
        else:
            for end, effect in self._tree.effects:
                if str(path).endswith(end):
                    effect(path, value)
                    return
            super().write_text(path, value)

    def _probe_now(self, address):
        wanted = (self._tree.devices / address / "driver_override").read_text().strip()
        driver = wanted or self._tree.default_drivers.get(address)
        if driver and (self._tree.drivers / driver).is_dir():
            self._tree.bind(address, driver)
