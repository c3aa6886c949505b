"""Resource classes and traits of accelerators: the names that hosts publish, and all spellings that are accepted.

Published (the spec's forms)::

    CUSTOM_ACCELERATOR_<TYPE>
    CUSTOM_FPGA_<VENDOR>_REGION_<ID>      CUSTOM_FPGA_<VENDOR>_FUNCTION_<ID>

With `NameScheme.CYBORG`, a host publishes the class that today's Cyborg uses for the type, and each trait in both
forms. It never publishes two classes for one unit, because the unit could then be allocated twice.

Also accepted: ``CUSTOM_FPGA_REGION_<VENDOR>_<ID>`` (the scheduling spec and Cyborg),
``CUSTOM_FPGA_FUNCTION_ID_<VENDOR>_<ID>`` (Cyborg), and ids with dashes, underscores or neither.
Pure: no I/O here.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from moorage.accelerator.model.devices import Deployable, Device, DeviceType, Function
from moorage.core.names import custom_name

CLASS_PREFIX = "CUSTOM_ACCELERATOR_"

#: Both Nova and Cyborg may report such providers; this standard trait marks those of Cyborg.
OWNER_TRAIT = "OWNER_CYBORG"

_FIELD_FIRST = re.compile(r"CUSTOM_[A-Z]+_(REGION|FUNCTION_ID|FUNCTION)_([A-Z0-9]+)_([A-Z0-9_]+)\Z")
_VENDOR_FIRST = re.compile(r"CUSTOM_[A-Z]+_([A-Z0-9]+)_(REGION|FUNCTION)_([A-Z0-9_]+)\Z")
_HEX = re.compile(r"[0-9a-f]{32}\Z")
_JOINERS = re.compile(r"[^a-z0-9]")


class TraitKind(StrEnum):
    REGION = "region"
    FUNCTION = "function"


@dataclass(frozen=True, slots=True)
class ParsedTrait:
    kind: TraitKind
    vendor: str  #: lower case
    id: str  #: normalized, as `same_id` compares it


class NameScheme(StrEnum):
    """The names that a host publishes."""

    SPEC = "spec"
    CYBORG = "cyborg"


#: Cyborg's resource classes; for other types the class is ``CUSTOM_<TYPE>``.
_CYBORG_CLASSES = {DeviceType.FPGA: "FPGA", DeviceType.GPU: "PGPU", DeviceType.VGPU: "VGPU"}


def resource_class(kind: DeviceType, names: NameScheme = NameScheme.SPEC) -> str:
    if names is NameScheme.CYBORG:
        return _CYBORG_CLASSES.get(kind, custom_name(kind))
    return f"{CLASS_PREFIX}{kind}"


def spec_class(name: str) -> str:
    """The spec's class for a class of Cyborg: ``CUSTOM_ACCELERATOR_GPU`` for ``PGPU``. Other names are returned
    unchanged.
    """
    if name == "GPU":  # used by old profiles
        return resource_class(DeviceType.GPU)
    return next((resource_class(kind) for kind in DeviceType if resource_class(kind, NameScheme.CYBORG) == name), name)


def type_of_class(name: str) -> str | None:
    """``FPGA`` for ``CUSTOM_ACCELERATOR_FPGA``; None for any other class."""
    return name.removeprefix(CLASS_PREFIX) or None if name.startswith(CLASS_PREFIX) else None


def region_trait(vendor: str, region_type: str) -> str:
    return custom_name(f"FPGA_{vendor}_REGION_{region_type}")


def function_trait(vendor: str, function: Function) -> str:
    """Uses the function's UUID, or its name if it has no UUID."""
    return custom_name(f"FPGA_{vendor}_FUNCTION_{function.id or function.name}")


def function_traits(vendor: str, function: Function) -> frozenset[str]:
    """The trait of a function in two forms: the spec's, and that of today's Cyborg."""
    return frozenset(
        {function_trait(vendor, function), custom_name(f"FPGA_FUNCTION_ID_{vendor}_{function.id or function.name}")}
    )


def traits_of(device: Device, deployable: Deployable, names: NameScheme = NameScheme.SPEC) -> frozenset[str]:
    """The traits to publish for `deployable`. Omits functions of a bitstream that is private or has no
    voucher.
    """
    vendor, both = device.vendor, names is NameScheme.CYBORG
    traits = {OWNER_TRAIT, custom_name(f"{device.type}_{vendor}"), *device.traits}
    if deployable.programmable:
        traits.add(region_trait(vendor, deployable.region_type))
        traits |= {custom_name(f"FPGA_REGION_{vendor}_{deployable.region_type}")} if both else set()
    if deployable.bitstream is not None and deployable.bitstream.is_published:
        for function in deployable.bitstream.functions:
            traits |= function_traits(vendor, function) if both else {function_trait(vendor, function)}
    return frozenset(traits)


def parse_trait(text: str) -> ParsedTrait | None:
    """Parse a region or function trait in any known spelling.

    >>> parse_trait("CUSTOM_FPGA_FUNCTION_ID_INTEL_9AFF_01").id
    '9aff01'
    """
    name = text.upper().replace("-", "_")
    if match := _FIELD_FIRST.match(name):
        kind, vendor, identity = match.groups()
    elif match := _VENDOR_FIRST.match(name):
        vendor, kind, identity = match.groups()
    else:
        return None
    return ParsedTrait(TraitKind(kind.removesuffix("_ID").lower()), vendor.lower(), normalized_id(identity))


def normalized_id(identity: str) -> str:
    """Ids and names without case and separators: lower-case letters and digits only."""
    return _JOINERS.sub("", identity.lower())


def same_id(one: str, other: str) -> bool:
    return bool(one) and normalized_id(one) == normalized_id(other)


def canonical_id(identity: str) -> str:
    """`identity` as a dashed UUID; unchanged if it is not a UUID."""
    digits = normalized_id(identity)
    if not _HEX.match(digits):
        return identity
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
