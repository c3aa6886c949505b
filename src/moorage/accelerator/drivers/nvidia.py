"""NVIDIA's GPUs: whole cards, and vGPUs (mediated devices of a type that the operator chooses for a card).

Found by what the kernel shows; what the cards say of themselves comes from NVML where it is there (`nvml`), and is
for people, but for one thing: a card in MIG mode is not given out whole. Somebody has parted it for programs of this
host, and the reset between two guests would take the parts from under them. The parts themselves have no PCI function,
so no guest can be given one; MIG-backed vGPUs are mediated devices, and given out as such.
A card in shares has one resource provider with as many units of VGPU as the type has room for.
Not here: vGPUs of drivers that write ``nvidia/current_vgpu_type`` instead of mediated devices.
Source: NVIDIA's MIG user guide (virtualization), NVML's reference (``nvmlDeviceGetMigMode``).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from moorage.accelerator.drivers.device_spec import VFIO, DeviceSpec
from moorage.accelerator.drivers.pci import PciDriver
from moorage.accelerator.drivers.sysfs import PciFunction, Sysfs
from moorage.accelerator.model.devices import Device, DeviceType

log = logging.getLogger(__name__)


VENDOR = "10de"


IN_MIG_MODE = (
    "it is in MIG mode: its parts are for programs of this host; nvidia-smi -mig 0 and a reset make it whole again"
)


PENDING = ", {} after a reset"


@dataclass(frozen=True, slots=True)
class NvidiaCard:
    name: str  #: ``NVIDIA H200``
    memory_mb: int
    uuid: str  #: ``GPU-...``
    mig: str  #: ``on``, ``off``, either with `PENDING`; empty: the card has no such mode
    mig_instances: int = 0  #: parts that somebody has made of it, for programs on this host

    def details(self) -> tuple[tuple[str, str], ...]:
        found = (("name", self.name), ("memory_mb", str(self.memory_mb)), ("uuid", self.uuid), ("mig", self.mig))
        return tuple((name, value) for name, value in found if value) + (
            (("mig_instances", str(self.mig_instances)),) if self.in_mig_mode else ()
        )

    @property
    def in_mig_mode(self) -> bool:
        """Or about to be: whoever gets the card next is given it so."""
        return self.mig not in ("", "off")


def _installed_cards() -> Mapping[str, NvidiaCard]:
    bindings = nvml_bindings()
    return {} if bindings is None else nvml_cards(bindings)


class NvidiaDriver(PciDriver):
    """`nvml_cards` tells by PCI address what NVML knows now."""

    name = "nvidia"
    #: Displays (0300) and 3D controllers (0302); a card's audio and USB functions are none.
    default_specs = tuple(DeviceSpec(vendor=VENDOR, kind=kind, type=str(DeviceType.GPU)) for kind in ("0300", "0302"))

    def __init__(
        self,
        specs: Sequence[DeviceSpec] = (),
        sysfs: Sysfs | None = None,
        cards: Callable[[], Mapping[str, NvidiaCard]] = _installed_cards,
    ) -> None:
        super().__init__(specs, sysfs)
        self._cards_now = cards
        #: As last told by a card: one that a guest has is silent.
        self._told: dict[str, NvidiaCard] = {}
        #: By card the MIG mode that was complained of.
        self._complaints: dict[str, str] = {}

    def discover(self) -> Sequence[Device]:
        self._told |= self._cards_now()
        return super().discover()

    def _device(self, function: PciFunction, spec: DeviceSpec) -> Device | None:
        device = super()._device(function, spec)
        card = self._told.get(function.address)
        if device is None or function.vendor != VENDOR or card is None:
            return device
        device = replace(
            device, model=card.name.removeprefix("NVIDIA ").strip(), details=device.details + card.details()
        )
        # What it said before a guest got it is old.
        is_whole = device.deployables[0].handles == (function.address,) and function.driver != VFIO
        if not (is_whole and card.in_mig_mode):
            self._complaints.pop(function.address, None)
            return device
        if self._complaints.get(function.address) != card.mig:
            self._complaints[function.address] = card.mig
            log.warning("a card is not given out", extra={"card": function.address, "why": IN_MIG_MODE})
        parts = tuple(replace(part, handles=()) for part in device.deployables)
        return replace(device, deployables=parts, details=(*device.details, ("not_offered", IN_MIG_MODE)))


def nvml_bindings() -> Any:
    """The module, which has no types; None where it is not installed."""
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml


def nvml_cards(nvml: Any) -> Mapping[str, NvidiaCard]:
    """By PCI address, those that NVIDIA's driver has; none where it is not loaded. `nvml`: what `nvml_bindings` gave."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        log.debug("no NVML here", extra={"reason": str(error)})
        return {}
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return {_pci_address(nvml.nvmlDeviceGetPciInfo(handle)): _nvml_card(nvml, handle) for handle in handles}
    except nvml.NVMLError as error:
        log.warning("NVML stopped half-way", extra={"reason": str(error)})
        return {}
    finally:
        nvml.nvmlShutdown()


def _nvml_card(nvml: Any, handle: Any) -> NvidiaCard:
    mig = _mig_mode(nvml, handle)
    memory_mb = nvml.nvmlDeviceGetMemoryInfo(handle).total >> 20
    name, uuid = _decoded_text(nvml.nvmlDeviceGetName(handle)), _decoded_text(nvml.nvmlDeviceGetUUID(handle))
    return NvidiaCard(name, memory_mb, uuid, mig, _count_mig_instances(nvml, handle) if mig.startswith("on") else 0)


def _mig_mode(nvml: Any, handle: Any) -> str:
    """NVML tells the mode, and the one that comes with the next reset."""
    try:
        now, then = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:  # not supported
        return ""
    return ("on" if now else "off") + ("" if now == then else PENDING.format("on" if then else "off"))


def _count_mig_instances(nvml: Any, handle: Any) -> int:
    """They have no PCI address: NVML numbers them, with gaps."""
    found = 0
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError:  # none of this number
            continue
        found += 1
    return found


def _pci_address(pci: Any) -> str:
    """NVML writes eight digits of the domain; the kernel four."""
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"


def _decoded_text(value: str | bytes) -> str:
    """Older bindings answer in bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
