"""NVIDIA GPUs: whole cards, and vGPUs (mediated devices of a type that the operator chooses for a card).

Cards are discovered through the kernel. Details for display come from NVML, if it is installed: the library comes with
NVIDIA's driver, and its Python bindings are the extra ``nvidia`` of this package. NVML is opened for each query and
closed again, because an open library keeps a card from being bound to another driver.

A card in MIG mode is not given out whole: it is partitioned for programs of this host, and the reset between two
guests would destroy the partitions. Partitions have no PCI function, so guests cannot get them; MIG-backed vGPUs are
mediated devices and are given out as such. A card with vGPUs has one resource provider, with as many units of VGPU as
the type allows.

Not here: vGPUs of drivers that write ``nvidia/current_vgpu_type`` instead of mediated devices.
Source: NVIDIA's MIG user guide (virtualization), NVML's reference (``nvmlDeviceGetMigMode``).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from moorage.accelerator.drivers.base import CleaningFacts
from moorage.accelerator.drivers.device_spec import VFIO, DeviceSpec
from moorage.accelerator.drivers.pci import PciDriver
from moorage.accelerator.drivers.sysfs import PciFunction, Sysfs
from moorage.accelerator.model.devices import Device, DeviceType

log = logging.getLogger(__name__)


VENDOR = "10de"


IN_MIG_MODE = (
    "the card is in MIG mode, partitioned for programs of this host; to give it out whole, run nvidia-smi -mig 0 and "
    "reset the card"
)


PENDING = ", {} after a reset"


@dataclass(frozen=True, slots=True)
class NvidiaCard:
    name: str  #: ``NVIDIA H200``
    memory_mb: int
    uuid: str  #: ``GPU-...``
    mig: str  #: ``on``, ``off``, either with `PENDING`; empty: the card has no MIG mode
    mig_instances: int = 0  #: number of its partitions

    def details(self) -> tuple[tuple[str, str], ...]:
        found = (("name", self.name), ("memory_mb", str(self.memory_mb)), ("uuid", self.uuid), ("mig", self.mig))
        return tuple((name, value) for name, value in found if value) + (
            (("mig_instances", str(self.mig_instances)),) if self.in_mig_mode else ()
        )

    @property
    def in_mig_mode(self) -> bool:
        """Whether the card is in MIG mode now, or will be after its next reset."""
        return self.mig not in ("", "off")


def _installed_cards() -> Mapping[str, NvidiaCard]:
    bindings = nvml_bindings()
    return {} if bindings is None else nvml_cards(bindings)


class NvidiaDriver(PciDriver):
    """`cards` returns NVML's data on the cards, by PCI address."""

    name = "nvidia"
    cleaning = CleaningFacts(
        "memory and registers of the GPU; the memory of a vGPU",
        "card: a reset by the kernel; vGPU: the mediated device is removed, and NVIDIA's driver clears its memory",
        "the card answers after its reset; the mediated device no longer exists; memory is not read",
    )
    #: Displays (0300) and 3D controllers (0302); not its audio and USB functions.
    default_specs = tuple(DeviceSpec(vendor=VENDOR, kind=kind, type=str(DeviceType.GPU)) for kind in ("0300", "0302"))

    def __init__(
        self,
        specs: Sequence[DeviceSpec] = (),
        sysfs: Sysfs | None = None,
        cards: Callable[[], Mapping[str, NvidiaCard]] = _installed_cards,
    ) -> None:
        super().__init__(specs, sysfs)
        self._cards_now = cards
        #: Last data of each card: NVML does not see a card that a guest has.
        self._last_cards: dict[str, NvidiaCard] = {}

    def discover(self) -> Sequence[Device]:
        self._last_cards |= self._cards_now()
        return super().discover()

    def _device(self, function: PciFunction, spec: DeviceSpec) -> Device | None:
        device = super()._device(function, spec)
        card = self._last_cards.get(function.address)
        if device is None or function.vendor != VENDOR or card is None:
            return device
        device = replace(
            device, model=card.name.removeprefix("NVIDIA ").strip(), details=device.details + card.details()
        )
        # While a guest has the card, its data is old.
        is_whole = device.deployables[0].handles == (function.address,) and function.driver != VFIO
        if not (is_whole and card.in_mig_mode):
            return device
        parts = tuple(replace(part, handles=()) for part in device.deployables)
        return replace(device, deployables=parts, withheld=IN_MIG_MODE)


class NvmlPciInfo(Protocol):
    domain: int
    bus: int
    device: int


class NvmlMemoryInfo(Protocol):
    total: int


class Nvml(Protocol):
    """The functions of the module `pynvml` that are called here; it has no types. A handle is opaque."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> object: ...
    def nvmlShutdown(self) -> object: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> object: ...
    def nvmlDeviceGetPciInfo(self, handle: object) -> NvmlPciInfo: ...
    def nvmlDeviceGetMemoryInfo(self, handle: object) -> NvmlMemoryInfo: ...
    def nvmlDeviceGetName(self, handle: object) -> str | bytes: ...
    def nvmlDeviceGetUUID(self, handle: object) -> str | bytes: ...
    def nvmlDeviceGetMigMode(self, handle: object) -> tuple[int, int]: ...
    def nvmlDeviceGetMaxMigDeviceCount(self, handle: object) -> int: ...
    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: object, index: int) -> object: ...


def nvml_bindings() -> Nvml | None:
    """The module `pynvml`; None if it is not installed."""
    try:
        import pynvml
    except ImportError:
        return None
    bindings: Nvml = pynvml
    return bindings


def nvml_cards(nvml: Nvml) -> Mapping[str, NvidiaCard]:
    """Cards bound to NVIDIA's driver, by PCI address; empty if the driver is not loaded. `nvml`: the module from
    `nvml_bindings`.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        log.debug("NVML is not available", extra={"reason": str(error)})
        return {}
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return {_pci_address(nvml.nvmlDeviceGetPciInfo(handle)): _nvml_card(nvml, handle) for handle in handles}
    except nvml.NVMLError as error:
        log.warning("NVML query failed", extra={"reason": str(error)})
        return {}
    finally:
        nvml.nvmlShutdown()


def _nvml_card(nvml: Nvml, handle: object) -> NvidiaCard:
    mig = _mig_mode(nvml, handle)
    memory_mb = nvml.nvmlDeviceGetMemoryInfo(handle).total >> 20
    name, uuid = _decoded_text(nvml.nvmlDeviceGetName(handle)), _decoded_text(nvml.nvmlDeviceGetUUID(handle))
    return NvidiaCard(name, memory_mb, uuid, mig, _count_mig_instances(nvml, handle) if mig.startswith("on") else 0)


def _mig_mode(nvml: Nvml, handle: object) -> str:
    """The current MIG mode, and the mode after the next reset if it differs."""
    try:
        now, then = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:  # not supported
        return ""
    return ("on" if now else "off") + ("" if now == then else PENDING.format("on" if then else "off"))


def _count_mig_instances(nvml: Nvml, handle: object) -> int:
    """MIG instances have no PCI address; NVML numbers them, with gaps."""
    found = 0
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError:  # no instance with this number
            continue
        found += 1
    return found


def _pci_address(pci: NvmlPciInfo) -> str:
    """NVML writes the domain with eight digits, the kernel with four."""
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"


def _decoded_text(value: str | bytes) -> str:
    """Older bindings return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
