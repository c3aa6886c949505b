"""Intel QuickAssist cards: given out by virtual functions (or whole), with a check whether the card is up.

The operator sets the number of virtual functions (``sriov_numvfs``); all existing ones are given out.
Source: the kernel's ABI/testing/sysfs-driver-qat, and the ids that its drivers claim.
"""

from dataclasses import replace

from moorage.accelerator.drivers.base import CleaningFacts
from moorage.accelerator.drivers.device_spec import DeviceSpec, Functions
from moorage.accelerator.drivers.pci import PciDriver
from moorage.accelerator.drivers.sysfs import PciFunction
from moorage.accelerator.model.devices import Device, DeviceType, Health
from moorage.core.names import custom_name

#: Model names by product id of the card. Virtual functions have ids of their own.
MODELS = {
    "0435": "DH895XCC",
    "37c8": "C62x",
    "19e2": "C3xxx",
    "6f54": "D15xx",
    "18a0": "C4xxx",
    "4940": "4xxx",
    "4942": "401xx",
    "4944": "402xx",
    "4946": "420xx",
    "4948": "6xxx",
}


class QatDriver(PciDriver):
    name = "qat"
    cleaning = CleaningFacts(
        "keys and requests in the virtual function",
        "a reset of the function by the kernel",
        "the function answers after its reset",
    )
    default_specs = tuple(
        DeviceSpec(vendor="8086", product=product, type=str(DeviceType.QAT), functions=str(Functions.VIRTUAL))
        for product in MODELS
    )

    def health(self, pci_id: str) -> Health:
        """FAILED also for a card that an operator brought down, because its functions do not work then."""
        answers = super().health(pci_id)
        down = self._sysfs.read_attribute(pci_id, "qat/state") == "down"
        return Health.FAILED if answers is Health.OK and down else answers

    def _device(self, function: PciFunction, spec: DeviceSpec) -> Device | None:
        device = super()._device(function, spec)
        if device is None:
            return None
        services = self._sysfs.read_attribute(function.address, "qat/cfg_services")
        return replace(
            device,
            model=f"QuickAssist {MODELS.get(function.product, function.product)}",
            details=device.details + ((("services", services),) if services else ()),
            traits=device.traits | {custom_name(f"QAT_SERVICE_{name}") for name in (services or "").split(";") if name},
        )
