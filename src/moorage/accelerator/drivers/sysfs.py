"""PCI devices in the kernel's sysfs, below a root that tests may replace.

Source: the kernel's documentation, ABI/testing/sysfs-bus-pci. Read and write errors are `DriverError`s that name the
file; a missing file reads as None.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from moorage.accelerator.drivers.base import DriverError

PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]\Z")


@dataclass(frozen=True, slots=True)
class PciFunction:
    """A directory of ``/sys/bus/pci/devices``. Numbers are in the kernel's notation, without ``0x``."""

    address: str
    vendor: str
    product: str
    kind: str  #: the class, six digits
    numa_node: int  #: -1: unknown
    driver: str | None
    physical_function: str | None  #: the parent, for a virtual function
    virtual_functions: tuple[str, ...]  #: for a physical function, in the order of their numbers
    iommu_group: str | None


class Sysfs:
    def __init__(self, root: Path = Path("/sys")) -> None:
        self.root = root
        self._devices = root / "bus" / "pci" / "devices"
        self._drivers = root / "bus" / "pci" / "drivers"
        self._probe = root / "bus" / "pci" / "drivers_probe"

    def pci_functions(self) -> Iterator[PciFunction]:
        """All PCI functions of the host, by address. A function that vanishes meanwhile is left out."""
        try:
            addresses = sorted(path.name for path in self._devices.iterdir() if PCI_ADDRESS.match(path.name))
        except FileNotFoundError:
            return
        except OSError as error:
            raise DriverError(f"{self._devices} cannot be read: {error.strerror}") from error
        for address in addresses:
            if (function := self.pci_function(address)) is not None:
                yield function

    def pci_function(self, address: str) -> PciFunction | None:
        vendor, product, kind = (self.read_attribute(address, name) for name in ("vendor", "device", "class"))
        if vendor is None or product is None or kind is None:
            return None
        return PciFunction(
            address=address,
            vendor=vendor.removeprefix("0x"),
            product=product.removeprefix("0x"),
            kind=kind.removeprefix("0x"),
            numa_node=int(self.read_attribute(address, "numa_node") or -1),
            driver=self._link(address, "driver"),
            physical_function=self._link(address, "physfn"),
            virtual_functions=self._virtual_functions(address),
            iommu_group=self._link(address, "iommu_group"),
        )

    def read_attribute(self, address: str, name: str) -> str | None:
        return self.read_text(self._devices / address / name)

    def config_space(self, address: str) -> bytes:
        """The first 8 bytes of the configuration space: vendor, product, command, status."""
        path = self._devices / address / "config"
        try:
            with path.open("rb") as file:
                return file.read(8)
        except OSError as error:
            raise DriverError(f"{path} cannot be read: {error.strerror}") from error

    def has_attribute(self, address: str, name: str = "") -> bool:
        return (self._devices / address / name).exists()

    def write_attribute(self, address: str, name: str, value: str) -> None:
        self.write_text(self._devices / address / name, value)

    def unbind(self, address: str, driver: str) -> None:
        self.write_text(self._drivers / driver / "unbind", address)

    def probe(self, address: str) -> None:
        """Let the kernel bind its choice of driver, or the one in ``driver_override``."""
        self.write_text(self._probe, address)

    def paths_below(self, address: str, pattern: str) -> list[Path]:
        """Paths below the device that match, sorted. Links are not followed, because they lead to other devices."""
        return sorted((self._devices / address).resolve().glob(pattern))

    def read_first(self, address: str, pattern: str) -> str | None:
        """The text of the first non-empty file that matches `pattern` below the device."""
        return next((text for path in self.paths_below(address, pattern) if (text := self.read_text(path))), None)

    def read_text(self, path: Path) -> str | None:
        """The file's content, stripped of white space."""
        try:
            return path.read_text().strip()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise DriverError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from error

    def write_text(self, path: Path, value: str) -> None:
        """Write an existing attribute. A missing file is not created, because the kernel does not have the
        attribute.
        """
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
            with os.fdopen(descriptor, "w") as file:
                file.write(value)
        except OSError as error:
            raise DriverError(f"{value.strip()!r} cannot be written to {path}: {error.strerror}") from error

    def _link(self, address: str, name: str) -> str | None:
        try:
            return (self._devices / address / name).readlink().name
        except OSError:
            return None

    def _virtual_functions(self, address: str) -> tuple[str, ...]:
        links = sorted((self._devices / address).glob("virtfn*"), key=lambda path: int(path.name[6:] or 0))
        return tuple(link.readlink().name for link in links if link.is_symlink())
