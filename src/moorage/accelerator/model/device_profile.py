"""What a device profile of the Accelerator API may say. Pure.

Group keys are ``resources:<class>``, ``trait:<trait>`` and ``accel:<key>``, as the peer's; unknown ``accel:`` keys are
accepted, as there. Refused here though the peer lets them pass: amounts below 1, groups without resources.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moorage.accelerator.model.naming import OWNER_TRAIT
from moorage.core.errors import Invalid
from moorage.core.names import is_custom

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,255}\Z")
#: Of one group: each is a row of its own once a request is made, and no host has so many.
MAX_UNITS_PER_GROUP = 1000
STANDARD_CLASSES = frozenset({"FPGA", "GPU", "VGPU", "PGPU"})


@dataclass(frozen=True, slots=True)
class NewProfile:
    name: str
    groups: list[Mapping[str, str]]
    description: str | None = None
    uuid: str | None = None


def check_profile(profile: NewProfile) -> None:
    """Raises `Invalid` naming the group and the key."""
    if not _NAME.match(profile.name):
        raise Invalid(
            f"Device profile name {profile.name!r} may have letters, digits, - and _, 255 characters at most."
        )
    if not profile.groups:
        raise Invalid("Device profile needs at least one group.")
    for number, group in enumerate(profile.groups):
        _check_group(f"groups[{number}]", group)


def _check_group(where: str, group: Mapping[str, str]) -> None:
    amounts = 0
    for key, value in group.items():
        kind, _, name = key.partition(":")
        match kind:
            case "resources" if name:
                amounts += _amount(where, key, name, value)
            case "trait" if name:
                _check_trait(where, name, value)
            case "accel" if name:
                pass
            case _:
                raise Invalid(f"{where}: key {key!r} must begin with resources:, trait: or accel:.")
    if not amounts:
        raise Invalid(f"{where}: a group needs resources:<class>=<amount>.")


def _amount(where: str, key: str, name: str, value: str) -> int:
    if name not in STANDARD_CLASSES and not is_custom(name):
        raise Invalid(f"{where}: resource class {name!r} must be one of {_listed(STANDARD_CLASSES)} or CUSTOM_*.")
    if not value.isdecimal() or len(value) > len(str(MAX_UNITS_PER_GROUP)) or not 1 <= int(value) <= MAX_UNITS_PER_GROUP:
        raise Invalid(f"{where}: {key} is {value!r}; it must be a whole number from 1 to {MAX_UNITS_PER_GROUP}.")
    return int(value)


def _check_trait(where: str, name: str, value: str) -> None:
    # Profiles are expected to tell Cyborg's devices from Nova's by this one standard trait.
    if not is_custom(name) and name != OWNER_TRAIT:
        raise Invalid(f"{where}: trait {name!r} must begin with CUSTOM_.")
    if value not in ("required", "forbidden"):
        raise Invalid(f"{where}: trait {name} is {value!r}; it must be required or forbidden.")


def _listed(names: Sequence[str] | frozenset[str]) -> str:
    return ", ".join(sorted(names))
