"""What NVIDIA's management library tells of the cards: read only, and only where it is installed.

The library comes with NVIDIA's driver; its Python bindings are the extra ``nvidia`` of this package. It is opened for
each look and closed again: an open library keeps a card from being bound to another driver.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

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
