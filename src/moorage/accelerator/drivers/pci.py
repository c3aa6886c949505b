"""Any PCI device that an operator's specs match: given out whole, by virtual functions, or as mediated devices.

The kernel resets a function between two tenants, and an NVMe drive is erased before (`nvme`). If that fails, the
function is quarantined. ``"reset": "none"`` in its spec omits the reset, never the erasure. Drivers for particular
cards are subclasses that override `_device`.

Mediated devices are shares of a card that its kernel driver creates and removes on request. A parent is a directory of
``/sys/class/mdev_bus``: one for each card, or virtual function, whose driver can create them.
Source: the kernel's ABI/testing/sysfs-bus-pci (``driver_override``, ``reset``), ABI/testing/sysfs-bus-vfio-mdev,
driver-api/vfio, driver-api/vfio-mediated-device.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from moorage.accelerator.drivers.base import (
    Cleaned,
    CleaningFacts,
    DeviceGone,
    DriverError,
    RegionContent,
    StillCleaning,
)
from moorage.accelerator.drivers.device_spec import VFIO, DeviceSpec, Functions, find_spec
from moorage.accelerator.drivers.nvme import NvmeEraser
from moorage.accelerator.drivers.sysfs import PciFunction, Sysfs
from moorage.accelerator.model.devices import (
    PHYSICAL_NETWORK,
    Bitstream,
    Deployable,
    Device,
    DeviceType,
    Health,
    Mdev,
    RegionState,
    mdev_of,
)
from moorage.core.names import custom_name

#: Vendor names in traits, by PCI vendor id. Other vendors appear by id.
VENDORS = {"8086": "intel", "10de": "nvidia", "10ee": "xilinx", "1002": "amd", "1bd4": "inspur", "19e5": "huawei"}

#: PCI classes: mass storage, and of it the controllers of non-volatile memory.
STORAGE, NVME = "01", "0108"


class PciDriver:
    """`specs` match the devices to give out; empty: use `default_specs`."""

    name = "pci"
    default_specs: tuple[DeviceSpec, ...] = ()

    cleaning = CleaningFacts(
        "registers and memory of the function; on an NVMe drive all data; firmware that a guest replaced stays",
        "NVMe: sanitize or format, by crypto erase if the drive can; then a reset by the kernel",
        "the drive's sanitize log or the answer to the format, sampled blocks that must have changed; the function "
        "answers after its reset",
    )

    def __init__(
        self, specs: Sequence[DeviceSpec] = (), sysfs: Sysfs | None = None, nvme: NvmeEraser | None = None
    ) -> None:
        self._specs = tuple(specs) or self.default_specs
        self._sysfs = sysfs or Sysfs()
        self._mediated = MediatedDevices(self._sysfs)
        self._nvme = nvme or NvmeEraser(self._sysfs)

    def discover(self) -> Sequence[Device]:
        """Virtual functions that are handles of their card are not listed as devices."""
        found = (self._device(function, spec) for function, spec in self._matching_cards())
        return [device for device in found if device is not None]

    def identify(self, deployable: str) -> RegionContent:
        self._find_function(deployable)
        return RegionContent(RegionState.IDLE)

    def program(self, deployable: str, bitstream: Bitstream | None, data: BinaryIO | None) -> None:
        raise DriverError(f"{deployable} cannot be programmed: it has no region")

    def prepare(self, handle: str, instance_uuid: str) -> None:
        if (mdev := mdev_of(handle)) is not None:
            self._check_mdev(mdev)
            self._mediated.create(mdev.parent, mdev.type, mdev.uuid)
            return
        function, spec = self._find_function(handle)
        self._nvme.check_idle(function)
        if spec.bind == "none" or function.driver == VFIO:
            return
        self._bind(function, VFIO)
        if (now := self._find_function(handle)[0].driver) != VFIO:
            raise DriverError(
                f"{handle} is bound to {now or 'no driver'} instead of {VFIO}; is the module vfio_pci loaded, "
                "and the IOMMU enabled?"
            )

    def release(self, handle: str) -> None:
        if (mdev := mdev_of(handle)) is not None:
            self._check_mdev(mdev)
            self._mediated.remove(mdev.parent, mdev.uuid)
            return
        function, spec = self._find_function(handle)
        if spec.bind == "none" or function.driver != VFIO:
            return
        self._bind(function, "")
        if self._find_function(handle)[0].driver == VFIO:
            raise DriverError(f"{handle} is still bound to {VFIO}: its guest may still use it")

    def clean(self, handle: str) -> Cleaned | StillCleaning:
        """For a mediated device, only checks that it was removed, because its data was removed with it."""
        if (mdev := mdev_of(handle)) is not None:
            self._check_mdev(mdev)
            if self._mediated.exists(mdev.parent, mdev.uuid):
                raise DriverError(f"the mediated device {mdev.uuid} on {mdev.parent} still exists")
            return Cleaned("mediated device removed: it no longer exists")
        function, spec = self._find_function(handle)
        proofs = []
        if function.kind.startswith(NVME):
            erased = self._nvme.erase(function)
            if isinstance(erased, StillCleaning):
                return erased
            proofs.append(erased.proof)
        elif function.kind.startswith(STORAGE) and spec.reset != "none":
            raise DriverError(
                f"{handle} is a storage controller, and only NVMe drives can be erased; if it has no disks, set in its "
                'device spec: "reset": "none"'
            )
        proofs.append(self._reset(handle, spec))
        return Cleaned("; ".join(proofs))

    def _reset(self, handle: str, spec: DeviceSpec) -> str:
        if spec.reset == "none":
            return 'not reset: its device spec says "reset": "none"'
        if not self._sysfs.has_attribute(handle, "reset"):
            raise DriverError(
                f"the kernel cannot reset {handle}; if no data of a tenant can stay in it, set in its device spec: "
                '"reset": "none"'
            )
        self._sysfs.write_attribute(handle, "reset", "1")
        if self._config_space_health(handle) is not Health.OK:
            raise DriverError(f"{handle} does not answer after its reset")
        return "function reset by the kernel: its configuration space answers"

    def health(self, pci_id: str) -> Health:
        return self._config_space_health(pci_id)

    def _config_space_health(self, pci_id: str) -> Health:
        """FAILED if the configuration space reads as all ones, as for a card that has lost its bus."""
        function = self._sysfs.pci_function(pci_id)
        if function is None:
            return Health.GONE
        config = self._sysfs.config_space(pci_id)
        return Health.FAILED if config == b"\xff" * len(config) else Health.OK

    def _bind(self, function: PciFunction, driver: str) -> None:
        """Binds to `driver`; empty: to the driver that the kernel chooses."""
        self._sysfs.write_attribute(function.address, "driver_override", f"{driver}\n")
        if function.driver is not None:
            self._sysfs.unbind(function.address, function.driver)
        self._sysfs.probe(function.address)

    def _matching_cards(self) -> list[tuple[PciFunction, DeviceSpec]]:
        functions = {function.address: function for function in self._sysfs.pci_functions()}
        return [
            (function, spec)
            for function in functions.values()
            if (spec := find_spec(function, self._specs)) is not None
            and not self._is_split(functions.get(function.physical_function or ""))
        ]

    def _is_split(self, card: PciFunction | None) -> bool:
        if card is None:
            return False
        spec = find_spec(card, self._specs)
        return spec is not None and (spec.uses_virtual_functions(card) or spec.functions == Functions.MDEV)

    def _find_function(self, handle: str) -> tuple[PciFunction, DeviceSpec]:
        """The function of `handle`, with the spec of its card."""
        function = self._sysfs.pci_function(handle)
        if function is None:
            raise DeviceGone(f"PCI device {handle} is no longer on this host")
        # The physical function comes last: its spec may have changed while a guest has the virtual function.
        owners = (self._card_behind(function), function, self._sysfs.pci_function(function.physical_function or ""))
        specs = (find_spec(owner, self._specs) for owner in owners if owner is not None)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None:
            raise DriverError(f"no device spec of this host matches {handle} any more")
        return function, spec

    def _card_behind(self, function: PciFunction) -> PciFunction:
        """The card to which `function` belongs, often itself; device specs match cards."""
        card = self._sysfs.pci_function(function.physical_function) if function.physical_function else None
        return card if card is not None and self._is_split(card) else function

    def _check_mdev(self, mdev: Mdev) -> None:
        if self._find_function(mdev.parent)[1].mdev_type != mdev.type:
            raise DriverError(
                f"no device spec of this host gives out mediated devices of type {mdev.type} on {mdev.parent}"
            )

    def _attach_handles(self, function: PciFunction, spec: DeviceSpec) -> tuple[str, ...]:
        if spec.functions == Functions.MDEV:
            # Newer cards offer one mediated device on each virtual function, older cards offer them on the card
            # itself.
            parents = function.virtual_functions or (function.address,)
            return tuple(
                str(mdev) for parent in parents for mdev in self._mediated.available_mdevs(parent, spec.mdev_type)
            )
        return function.virtual_functions if spec.uses_virtual_functions(function) else (function.address,)

    def _device(self, function: PciFunction, spec: DeviceSpec) -> Device | None:
        vendor = VENDORS.get(function.vendor, function.vendor)
        shares = {custom_name(f"{vendor}_{spec.mdev_type}")} if spec.mdev_type else set()
        return Device(
            pci_id=function.address,
            type=DeviceType(spec.type),
            vendor=vendor,
            vendor_id=function.vendor,
            product_id=function.product,
            model=f"{vendor} {function.product}",
            numa_node=max(function.numa_node, 0),
            deployables=(Deployable(function.address, self._attach_handles(function, spec)),),
            details=_details(function, spec),
            traits=frozenset(spec.traits) | {f"CUSTOM_PCI_{function.vendor}_{function.product}".upper()} | shares,
            part_of=function.physical_function or "",
            iommu_groups=self._iommu_groups(function),
        )

    def _iommu_groups(self, card: PciFunction) -> tuple[tuple[str, str], ...]:
        functions = [card, *(self._sysfs.pci_function(address) for address in card.virtual_functions)]
        return tuple((one.address, one.iommu_group) for one in functions if one is not None and one.iommu_group)


def _details(function: PciFunction, spec: DeviceSpec) -> tuple[tuple[str, str], ...]:
    pairs = (("iommu_group", function.iommu_group), (PHYSICAL_NETWORK, spec.physical_network))
    return tuple((name, value) for name, value in pairs if value)


class MediatedDevices:
    def __init__(self, sysfs: Sysfs) -> None:
        self._sysfs = sysfs
        self._parents = sysfs.root / "class" / "mdev_bus"

    def available_mdevs(self, parent: str, kind: str) -> Iterator[Mdev]:
        """The mediated devices of `kind` on `parent` that may be given out: Moorage's own, and the free capacity.

        Those that other programs created are not among them. A parent that does not offer the type now has none.
        """
        directory = self._type(parent, kind)
        available = self._sysfs.read_text(directory / "available_instances")
        if available is None:
            return
        if not available.isdecimal():
            raise DriverError(f"{directory}/available_instances is {available!r}; it should be a number")
        made = {path.name for path in (directory / "devices").glob("*")}
        left = int(available)
        for slot in range(left + len(made)):
            share = Mdev(parent, kind, slot)
            if share.uuid in made:
                yield share
            elif left:
                left -= 1
                yield share

    def create(self, parent: str, kind: str, uuid: str) -> None:
        """Does nothing if the device exists; Moorage has then created it, because the uuid is derived (`Mdev.uuid`)."""
        if self.exists(parent, uuid):
            return
        self._sysfs.write_text(self._type(parent, kind) / "create", uuid)
        if not self.exists(parent, uuid):
            raise DriverError(f"the kernel did not create the mediated device {uuid} on {parent}")

    def remove(self, parent: str, uuid: str) -> None:
        if self.exists(parent, uuid):
            self._sysfs.write_text(self._parents / parent / uuid / "remove", "1")

    def exists(self, parent: str, uuid: str) -> bool:
        return (self._parents / parent / uuid).exists()

    def _type(self, parent: str, kind: str) -> Path:
        return self._parents / parent / "mdev_supported_types" / kind
