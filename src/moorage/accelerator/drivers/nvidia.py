"""NVIDIA's GPUs: whole cards, and vGPUs (mediated devices of a type that the operator chooses for a card).

Found by what the kernel shows; what the cards say of themselves comes from NVML where it is there (`nvml`), and is
for people only: nothing is decided by it, for a card in a guest's hands says nothing.
A card in shares has one resource provider with as many units of VGPU as the type has room for.
Not here: MIG instances, and vGPUs of drivers that write ``nvidia/current_vgpu_type`` instead of mediated devices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from moorage.accelerator.drivers import nvml
from moorage.accelerator.drivers.device_spec import DeviceSpec
from moorage.accelerator.drivers.nvml import NvidiaCard
from moorage.accelerator.drivers.pci import PciDriver
from moorage.accelerator.drivers.sysfs import PciFunction, Sysfs
from moorage.accelerator.model import Device, DeviceType

VENDOR = "10de"


def _cards() -> Mapping[str, NvidiaCard]:
    bindings = nvml.bindings()
    return {} if bindings is None else nvml.cards(bindings)


class NvidiaDriver(PciDriver):
    """`cards` tells by PCI address what NVML knows now."""

    name = "nvidia"
    #: Displays (0300) and 3D controllers (0302); a card's audio and USB functions are none.
    default_specs = tuple(DeviceSpec(vendor=VENDOR, kind=kind, type=str(DeviceType.GPU)) for kind in ("0300", "0302"))

    def __init__(
        self,
        specs: Sequence[DeviceSpec] = (),
        sysfs: Sysfs | None = None,
        cards: Callable[[], Mapping[str, NvidiaCard]] = _cards,
    ) -> None:
        super().__init__(specs, sysfs)
        self._cards_now = cards
        #: As last told by a card: one that a guest has is silent.
        self._told: dict[str, NvidiaCard] = {}

    def discover(self) -> Sequence[Device]:
        self._told |= self._cards_now()
        return super().discover()

    def _device(self, function: PciFunction, spec: DeviceSpec) -> Device | None:
        device = super()._device(function, spec)
        card = self._told.get(function.address)
        if device is None or function.vendor != VENDOR or card is None:
            return device
        return replace(device, model=card.name.removeprefix("NVIDIA ").strip(), details=card.details())
