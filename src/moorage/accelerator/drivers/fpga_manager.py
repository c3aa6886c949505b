"""FPGAs of the kernel's FPGA manager class: the whole card is one region, loaded through the firmware loader.

The mainline kernel has no file for loading. The driver supports two ways, and detects which one a card has:

* ``/sys/class/fpga_manager/fpga0/firmware``: the name of a file in the firmware directory is written there (vendors'
  kernels);
* a device-tree overlay (``overlay`` in the card's spec) that names ``moorage/<address>.bin`` as its firmware: it is
  applied anew below ``/sys/kernel/config/device-tree/overlays``.

The class does not report the id of its content. After loading, the driver checks that the manager is ``operating``,
that its ``status`` has no fault, and that the overlay is applied. After a restart of the host, the content counts as
unknown.
Source: the kernel's ABI/testing/sysfs-class-fpga-manager, sysfs-class-fpga-region; fpga/fpga-region.rst.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.drivers.bitstream_headers import BitstreamHeader
from moorage.accelerator.drivers.device_spec import DeviceSpec, find_spec
from moorage.accelerator.drivers.fpga import FpgaDriver, FpgaRegion
from moorage.accelerator.drivers.sysfs import PciFunction, Sysfs
from moorage.accelerator.model.devices import Bitstream, DeviceType
from moorage.accelerator.model.naming import canonical_id
from moorage.core.ids import is_uuid

#: A subdirectory of the firmware directory, used by this driver only.
FIRMWARE = "moorage"


class FpgaManagerDriver(FpgaDriver):
    """`boot_id`: a file whose content changes with each start of the host."""

    name = "fpga_manager"
    default_specs = (DeviceSpec(kind="1200", type=str(DeviceType.FPGA)),)

    def __init__(
        self,
        directory: Path,
        specs: Sequence[DeviceSpec] = (),
        sysfs: Sysfs | None = None,
        firmware: Path = Path("/lib/firmware"),
        boot_id: Path = Path("/proc/sys/kernel/random/boot_id"),
    ) -> None:
        super().__init__(directory, specs, sysfs)
        self._firmware = firmware / FIRMWARE
        self._boot_id = boot_id
        self._overlays = self._sysfs.root / "kernel/config/device-tree/overlays"

    def _discover_regions(self, card: PciFunction, spec: DeviceSpec) -> Sequence[FpgaRegion]:
        manager = self._manager(card.address)
        if manager is None:
            return ()
        compatible = self._sysfs.read_first(card.address, "**/fpga_region/region*/compat_id")
        region_type = canonical_id(compatible or "")
        return [FpgaRegion(card.address, 1, region_type if is_uuid(region_type) else spec.region_type, (card.address,))]

    def _loaded_id(self, region: FpgaRegion) -> str:
        manager = self._manager(region.address)
        state = self._sysfs.read_text(manager / "state") if manager else None
        return f"{state} since boot {self._sysfs.read_text(self._boot_id)}" if state else ""

    def _foreign_bitstream(self, shown: str) -> Bitstream | None:
        return None  # the text shown by the manager names no function

    def _load_file(self, region: FpgaRegion, path: Path, head: BitstreamHeader | None) -> None:
        manager = self._manager(region.address)
        function = self._sysfs.pci_function(region.address)
        spec = find_spec(function, self._specs) if function else None
        if manager is None or spec is None:
            raise DriverError(f"{region.address} currently shows no FPGA manager")
        file = self._firmware / f"{region.address}{self.suffix}"
        try:
            self._firmware.mkdir(mode=0o755, parents=True, exist_ok=True)
            shutil.copyfile(path, file)
        except OSError as error:
            raise DriverError(f"{file} cannot be written: {error.strerror}") from error
        try:
            if spec.overlay:
                self._apply(spec.overlay, region)
            elif (manager / "firmware").exists():
                self._sysfs.write_text(manager / "firmware", f"{FIRMWARE}/{file.name}\n")
            else:
                raise DriverError(
                    f"{manager} has no file for loading; set the device-tree overlay in the card's device spec "
                    "(overlay)"
                )
            self._check(manager)
        finally:
            file.unlink(missing_ok=True)

    def _apply(self, overlay: str, region: FpgaRegion) -> None:
        """Applies the overlay. First removes the one that was applied before; otherwise the kernel loads nothing."""
        place = self._overlays / f"moorage-{region.address.replace(':', '-')}"
        try:
            if place.exists():
                place.rmdir()
            place.mkdir()
        except OSError as error:
            raise DriverError(f"{place} cannot be created: {error.strerror}; is configfs mounted?") from error
        self._sysfs.write_text(place / "path", overlay)
        if (status := self._sysfs.read_text(place / "status")) != "applied":
            raise DriverError(f"the overlay {overlay} is {status or 'without status'} after it was applied")

    def _check(self, manager: Path) -> None:
        state, status = self._sysfs.read_text(manager / "state"), self._sysfs.read_text(manager / "status")
        if state != "operating" or status:
            raise DriverError(f"{manager.name} is {state!r} after programming, its status is {status!r}")

    def _manager(self, address: str) -> Path | None:
        """The FPGA manager of the card or a part of it. Managers of a DFL management engine belong to `fpga_dfl`."""
        found = self._sysfs.paths_below(address, "**/fpga_manager/fpga*")
        return next((path for path in found if "dfl-fme" not in str(path)), None)
