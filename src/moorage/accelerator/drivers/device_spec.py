"""Device specs: the operator's JSON list of the PCI devices that a host gives out, and in which form.

::

    [
        {"vendor": "8086", "product": "37c8", "type": "QAT", "functions": "virtual", "traits": ["CUSTOM_QAT_C62X"]},
        {"vendor": "10de", "kind": "0302", "type": "VGPU", "functions": "mdev", "mdev_type": "nvidia-474"},
        {"address": "0000:17:00.*", "type": "HPTS", "reset": "none"},
    ]

The first matching spec applies to a device.
"""

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from moorage.accelerator.drivers.sysfs import PciFunction
from moorage.accelerator.model.devices import DeviceType
from moorage.core.errors import StartError
from moorage.core.ids import is_uuid
from moorage.core.names import is_custom

#: The kernel's driver for devices that are passed through to a guest.
VFIO = "vfio-pci"

#: As in Neutron.
MAX_NETWORK_CHARACTERS = 64

_ID = re.compile(r"[0-9a-f]{4}\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}\Z")


class Functions(StrEnum):
    WHOLE = "whole"
    VIRTUAL = "virtual"  #: the existing virtual functions of the device
    ANY = "any"  #: the virtual functions if there are any, otherwise the whole device
    MDEV = "mdev"  #: mediated devices of one type, created when they are given out


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """Matches devices, and defines how to give them out. Empty fields match everything; at least one must be set."""

    vendor: str = ""
    product: str = ""
    address: str = ""  #: with ``*`` and ``?`` as in file names
    kind: str = ""  #: the first digits of the PCI class: ``03`` for displays, ``1200`` for processing accelerators
    type: str = str(DeviceType.PCI)
    functions: str = str(Functions.WHOLE)
    mdev_type: str = ""  #: with ``mdev``: one of the types that the kernel's driver offers
    traits: tuple[str, ...] = ()
    reset: str = "kernel"  #: ``none``: the device is not reset, because no data of a tenant can stay in it
    physical_network: str = ""  #: of a network card, as Neutron calls it, for ports with a device profile
    bind: str = VFIO  #: ``none``: the attaching hypervisor binds the driver itself, as libvirt does
    region_type: str = ""  #: UUID of the region type, for an FPGA that does not report one
    blank: str = ""  #: file of the FPGA's blank bitstream
    overlay: str = ""  #: `fpga_manager`: the device-tree overlay that loads the bitstream, in the firmware directory

    def matches(self, function: PciFunction) -> bool:
        return (
            self.vendor in ("", function.vendor)
            and self.product in ("", function.product)
            and function.kind.startswith(self.kind)
            and (not self.address or fnmatch.fnmatchcase(function.address, self.address))
        )

    def uses_virtual_functions(self, function: PciFunction) -> bool:
        """Whether `function` is given out by its virtual functions."""
        if self.functions == Functions.ANY:
            return bool(function.virtual_functions)
        return self.functions == Functions.VIRTUAL


def parse_specs(text: str, where: str) -> tuple[DeviceSpec, ...]:
    """Raises `StartError` with `where`, the number of the spec and the correction."""
    if not text.strip():
        return ()
    try:
        specs = msgspec.json.decode(text, type=tuple[DeviceSpec, ...])
    except msgspec.DecodeError as error:
        raise StartError(f"{where} is not a JSON list of device specs: {error}") from error
    for number, spec in enumerate(specs):
        if fault := _find_mistake(spec):
            raise StartError(f"{where}, spec {number}: {fault}")
    return specs


def find_spec(function: PciFunction, specs: Sequence[DeviceSpec]) -> DeviceSpec | None:
    return next((spec for spec in specs if spec.matches(function)), None)


def _find_mistake(spec: DeviceSpec) -> str:
    if not (spec.vendor or spec.product or spec.address or spec.kind):
        return "it has no vendor, product, address or kind, so it would match every device of the host"
    for name in ("vendor", "product"):
        if (value := getattr(spec, name)) and not _ID.match(value):
            return f"{name} is {value!r}; write four lower-case hexadecimal digits, as lspci -n shows"
    if not re.fullmatch("[0-9a-f]{0,6}", spec.kind):
        return f"kind is {spec.kind!r}; write the first hexadecimal digits of the six-digit PCI class"
    choices: dict[str, Sequence[str]] = {"type": tuple(DeviceType), "functions": tuple(Functions)}
    choices |= {"reset": ("kernel", "none"), "bind": (VFIO, "none")}
    for name, allowed in choices.items():
        if getattr(spec, name) not in allowed:
            return f"{name} is {getattr(spec, name)!r}; use one of {', '.join(allowed)}"
    bad = [trait for trait in spec.traits if not is_custom(trait)]
    return f"trait {bad[0]!r} must be CUSTOM_ followed by A-Z, 0-9 and _" if bad else _find_mistake_in_details(spec)


def _find_mistake_in_details(spec: DeviceSpec) -> str:
    if (spec.functions == Functions.MDEV) != bool(spec.mdev_type):
        return 'functions "mdev" requires an mdev_type, and the reverse'
    for name in ("mdev_type", "overlay"):
        if (value := getattr(spec, name)) and not _NAME.match(value):
            return f"{name} is {value!r}; only letters, digits, - _ and . are allowed, 40 at most"
    if len(spec.physical_network) > MAX_NETWORK_CHARACTERS or not spec.physical_network.isprintable():
        return f"physical_network is {spec.physical_network!r}; it may have at most {MAX_NETWORK_CHARACTERS} characters"
    if spec.region_type and not is_uuid(spec.region_type):
        return f"region_type is {spec.region_type!r}; it must be a UUID"
    if spec.blank and not spec.blank.startswith("/"):
        return f"blank is {spec.blank!r}; write an absolute path"
    return ""
