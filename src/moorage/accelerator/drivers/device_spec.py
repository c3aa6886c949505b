"""Which of a host's PCI devices are given out, and how: what an operator writes, as a JSON list.

::

    [
        {"vendor": "8086", "product": "37c8", "type": "QAT", "functions": "virtual", "traits": ["CUSTOM_QAT_C62X"]},
        {"vendor": "10de", "kind": "0302", "type": "VGPU", "functions": "mdev", "mdev_type": "nvidia-474"},
        {"address": "0000:17:00.*", "type": "HPTS", "reset": "none"},
    ]

A device is taken by the first spec that matches it.
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

#: The kernel's driver for devices that a guest gets.
VFIO = "vfio-pci"

_ID = re.compile(r"[0-9a-f]{4}\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}\Z")


class Functions(StrEnum):
    WHOLE = "whole"
    VIRTUAL = "virtual"  #: those of the device's virtual functions that are there
    ANY = "any"  #: its virtual functions where there are some, else the whole
    MDEV = "mdev"  #: mediated devices of one type, made as they are given out


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """Which devices are meant, and what they are. Empty texts match everything; at least one must not be."""

    vendor: str = ""
    product: str = ""
    address: str = ""  #: with ``*`` and ``?`` as in file names
    kind: str = ""  #: the first digits of the PCI class: ``03`` for displays, ``1200`` for processing accelerators
    type: str = str(DeviceType.PCI)
    functions: str = str(Functions.WHOLE)
    mdev_type: str = ""  #: with ``mdev``: which of the types that the kernel's driver offers
    traits: tuple[str, ...] = ()
    reset: str = "kernel"  #: ``none``: nothing of a tenant stays in it
    bind: str = VFIO  #: ``none``: whoever attaches it sees to its driver, as libvirt does
    region_type: str = ""  #: of an FPGA that does not tell its own: UUID of what bitstreams are made for
    blank: str = ""  #: file of the bitstream that an FPGA carries when it is to carry nothing
    overlay: str = ""  #: `fpga_manager`: the device-tree overlay that loads the bitstream, in the firmware directory

    def matches(self, function: PciFunction) -> bool:
        return (
            self.vendor in ("", function.vendor)
            and self.product in ("", function.product)
            and function.kind.startswith(self.kind)
            and (not self.address or fnmatch.fnmatchcase(function.address, self.address))
        )

    def uses_virtual_functions(self, function: PciFunction) -> bool:
        """Whether the virtual functions of `function` are what is given out."""
        if self.functions == Functions.ANY:
            return bool(function.virtual_functions)
        return self.functions == Functions.VIRTUAL


def parse_specs(text: str, where: str) -> tuple[DeviceSpec, ...]:
    """Raises `StartError` naming `where`, the spec and the remedy."""
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
        return "it names neither vendor nor product, address or kind; it would give out the whole machine"
    for name in ("vendor", "product"):
        if (value := getattr(spec, name)) and not _ID.match(value):
            return f"{name} is {value!r}; write four hexadecimal digits in lower case, as lspci -n shows them"
    if not re.fullmatch("[0-9a-f]{0,6}", spec.kind):
        return f"kind is {spec.kind!r}; write the first of the six hexadecimal digits of the PCI class"
    choices: dict[str, Sequence[str]] = {"type": tuple(DeviceType), "functions": tuple(Functions)}
    choices |= {"reset": ("kernel", "none"), "bind": (VFIO, "none")}
    for name, allowed in choices.items():
        if getattr(spec, name) not in allowed:
            return f"{name} is {getattr(spec, name)!r}; it takes {', '.join(allowed)}"
    bad = [trait for trait in spec.traits if not is_custom(trait)]
    return f"trait {bad[0]!r} must be CUSTOM_ and then A-Z, 0-9 and _ only" if bad else _find_mistake_in_details(spec)


def _find_mistake_in_details(spec: DeviceSpec) -> str:
    if (spec.functions == Functions.MDEV) != bool(spec.mdev_type):
        return 'functions "mdev" and an mdev_type go together'
    for name in ("mdev_type", "overlay"):
        if (value := getattr(spec, name)) and not _NAME.match(value):
            return f"{name} is {value!r}; it takes letters, digits, - _ and . only, 40 at most"
    if spec.region_type and not is_uuid(spec.region_type):
        return f"region_type is {spec.region_type!r}; it must be a UUID"
    if spec.blank and not spec.blank.startswith("/"):
        return f"blank is {spec.blank!r}; write the whole path of a file"
    return ""
