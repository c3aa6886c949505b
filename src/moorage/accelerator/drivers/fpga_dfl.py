"""FPGAs of the kernel's Device Feature List: a management engine (FME), and a port for each region.

Regions appear in sysfs and are loaded through the FME's device node; no vendor software is needed::

    <PCI device>/fpga_region/region0/dfl-fme.0/ports_num
    <PCI device>/fpga_region/region0/dfl-fme.0/dfl-fme-region.1/fpga_region/region1/compat_id    the region type
    <PCI device>/fpga_region/region0/dfl-port.0/{id,afu_id}                                the region's content

With virtual functions, port n belongs to the nth one; otherwise the card itself is the handle of its first region.
Source: the kernel's fpga/dfl.rst, ABI/testing/sysfs-platform-dfl-{fme,port}, include/uapi/linux/fpga-dfl.h.
"""

import fcntl
import mmap
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.drivers.bitstream_headers import BitstreamHeader, read_gbs_header
from moorage.accelerator.drivers.device_spec import DeviceSpec, Functions
from moorage.accelerator.drivers.fpga import FpgaDriver, FpgaRegion
from moorage.accelerator.drivers.sysfs import PciFunction, Sysfs
from moorage.accelerator.model.devices import DeviceType
from moorage.accelerator.model.naming import canonical_id

#: DFL_FPGA_FME_PORT_PR: ``_IO(0xB6, 0x80)``.
_PORT_PR = 0xB680
#: struct dfl_fpga_fme_port_pr: argsz, flags, port_id, buffer_size, buffer_address.
_PORT_PR_ARGUMENT = struct.Struct("=IIIIQ")

#: (node of the FME, port, file, offset of the data)
Reconfigure = Callable[[Path, int, Path, int], None]


def load_port(node: Path, port: int, file: Path, offset: int) -> None:
    """Loads `file` into a port, and returns when it is loaded. Maps the file, because the kernel copies the data from
    this process's memory.
    """
    try:
        with file.open("rb") as bits, mmap.mmap(bits.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            view = np.frombuffer(mapped, dtype=np.uint8, offset=offset)
            address, size = view.__array_interface__["data"][0], view.size
            argument = _PORT_PR_ARGUMENT.pack(_PORT_PR_ARGUMENT.size, 0, port, size, address)
            try:
                descriptor = os.open(node, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.ioctl(descriptor, _PORT_PR, argument)
                finally:
                    os.close(descriptor)
            finally:
                del view  # a mapping with a view on it cannot be closed
    except OSError as error:
        raise DriverError(f"the kernel refused to load port {port} by {node}: {error.strerror}") from error


class FpgaDflDriver(FpgaDriver):
    name = "fpga_dfl"
    suffix = ".gbs"
    default_specs = (DeviceSpec(vendor="8086", kind="1200", type=str(DeviceType.FPGA), functions=str(Functions.ANY)),)

    def __init__(
        self,
        directory: Path,
        specs: Sequence[DeviceSpec] = (),
        sysfs: Sysfs | None = None,
        dev: Path = Path("/dev"),
        load: Reconfigure = load_port,
    ) -> None:
        super().__init__(directory, specs, sysfs)
        self._dev = dev
        self._reconfigure = load

    def _discover_regions(self, card: PciFunction, spec: DeviceSpec) -> Sequence[FpgaRegion]:
        engine = self._engine(card.address)
        if engine is None:
            return ()
        ports = self._sysfs.read_text(engine / "ports_num") or "0"
        if not ports.isdecimal():
            raise DriverError(f"{engine}/ports_num is {ports!r}, which is not a number")
        region_type = self._region_type(engine) or spec.region_type
        return [
            FpgaRegion(card.address, port + 1, region_type, self._handles_of(card, spec, port))
            for port in range(int(ports))
        ]

    def _loaded_id(self, region: FpgaRegion) -> str:
        """A port assigned to a virtual function appears there, as long as a driver of the host has the function."""
        for address in (region.address, *region.handles):
            for port in self._sysfs.paths_below(address, "fpga_region/region*/dfl-port.*"):
                is_of_region = address != region.address or self._sysfs.read_text(port / "id") == str(region.number - 1)
                if is_of_region and (afu_id := self._sysfs.read_text(port / "afu_id")):
                    return canonical_id(afu_id)
        return ""

    def _read_header(self, path: Path) -> BitstreamHeader:
        return read_gbs_header(path)

    def _load_file(self, region: FpgaRegion, path: Path, head: BitstreamHeader | None) -> None:
        engine = self._engine(region.address)
        if engine is None:
            raise DriverError(f"{region.address} currently shows no management engine")
        self._reconfigure(self._dev / engine.name, region.number - 1, path, head.offset if head else 0)

    def _engine(self, address: str) -> Path | None:
        return next(iter(self._sysfs.paths_below(address, "fpga_region/region*/dfl-fme.*")), None)

    def _region_type(self, engine: Path) -> str:
        """All regions of a card have one type, given by its static part."""
        found: Iterator[str | None] = (
            self._sysfs.read_text(path)
            for path in sorted(engine.glob("dfl-fme-region.*/fpga_region/region*/compat_id"))
        )
        return next((canonical_id(text) for text in found if text), "")

    def _handles_of(self, card: PciFunction, spec: DeviceSpec, port: int) -> tuple[str, ...]:
        if spec.uses_virtual_functions(card):
            return card.virtual_functions[port : port + 1]
        return (card.address,) if port == 0 else ()
