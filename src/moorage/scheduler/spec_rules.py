"""Refuses servers with an extra spec or image property that no component honours.

    refuse_unhonoured     flavor and image of a server that is created or moved -> the same, with ignored keys renamed
    guest_settings        the settings that the host's virt driver applies
    inherited_properties  the properties that an image of a server's disk gets from the server's image
    pci_alias_groups      ``pci_passthrough:alias`` as groups of a device profile

`spec_table` says which component honours a key. The operator can choose keys to ignore (`SpecRules.ignored`). In the
server's own copies of flavor and image they are named ``ignored:<key>``, so that its owner sees that they have no
effect, and no component acts on them. Pure: no I/O here.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from moorage.core.errors import Invalid
from moorage.scheduler.spec_table import (
    RESCUE_PROPERTIES,
    HonouredBy,
    SpecEntry,
    image_entry,
    is_of_known_namespace,
    similar_keys,
    spec_entry,
)

ALIAS_KEY = "pci_passthrough:alias"
IGNORED = "ignored:"
#: Largest number of devices of one alias; each is a group of the request.
MAX_DEVICES = 64
_PCPU = re.compile(r"resources([a-zA-Z0-9_-]{1,64})?:PCPU\Z")


@dataclass(frozen=True)
class SpecRules:
    """`ignored`: extra specs and image properties that have no effect, by the operator's choice.

    `pci_aliases`: {alias: name of a device profile, or resource class ``CUSTOM_ACCELERATOR_<TYPE>``}.
    """

    ignored: frozenset[str] = frozenset()
    pci_aliases: Mapping[str, str] = field(default_factory=dict)


_INHERITED = frozenset(
    {HonouredBy.PLACEMENT, HonouredBy.SCHEDULER, HonouredBy.COMPUTE, HonouredBy.DRIVER, HonouredBy.NOTHING}
)

#: Ignores nothing.
NO_RULES = SpecRules()


@dataclass(frozen=True)
class HonouredSpecs:
    """`ignored`: the original names of the keys that were renamed, sorted."""

    extra_specs: Mapping[str, str]
    image_properties: Mapping[str, str]
    ignored: tuple[str, ...] = ()


def refuse_unhonoured(
    rules: SpecRules,
    extra_specs: Mapping[str, str],
    image_properties: Mapping[str, str],
    *,
    is_rescue: bool = False,
) -> HonouredSpecs:
    """Extra specs and image properties with the ignored ones renamed.

    Raises `Invalid`, naming the first key that no component honours with its value. `is_rescue`: the image is for a
    rescue.
    """
    ignored: set[str] = set()

    def kept(given: Mapping[str, str], what: str, entry_of: Callable[[str], SpecEntry | None]) -> dict[str, str]:
        copy = {}
        for key, value in given.items():
            entry = entry_of(key)
            names = {key} if entry is None else {key, entry.key, entry.image, *entry.aliases, *entry.image_aliases}
            if _is_honoured(key, value, entry, is_rescue=is_rescue):
                copy[key] = value
                if entry is not None and entry.by is HonouredBy.DRIVER and not re.fullmatch(entry.values, value):
                    raise Invalid(f"{what} {key}={value}: it takes {entry.meaning}")
            elif not rules.ignored.isdisjoint(names - {""}):
                copy[f"{IGNORED}{key}"] = value
                ignored.add(key)
            else:
                raise Invalid(_refusal(what, key, value, entry))
        return copy

    specs, properties = (
        kept(extra_specs, "extra spec", spec_entry),
        kept(image_properties, "image property", image_entry),
    )
    refuse_contradictions(specs, properties)
    return HonouredSpecs(specs, properties, tuple(sorted(ignored)))


def refuse_contradictions(extra_specs: Mapping[str, str], image_properties: Mapping[str, str]) -> None:
    """Raises `Invalid` if flavor and image demand different settings of the guest."""
    of_flavor, of_image = _driver_values(extra_specs, spec_entry), _driver_values(image_properties, image_entry)
    for name in of_flavor.keys() & of_image.keys():
        if of_flavor[name].lower() != of_image[name].lower():
            raise Invalid(
                f"the flavor has {name}={of_flavor[name]}, the image {of_image[name]}; choose a flavor and an image "
                "that agree"
            )


def guest_settings(extra_specs: Mapping[str, str], image_properties: Mapping[str, str]) -> dict[str, str]:
    """{name: value} of the settings that the virt driver applies, without values that need no action.

    Names are keys of extra specs, or image properties where there is no such key.
    """
    given = _driver_values(image_properties, image_entry) | _driver_values(extra_specs, spec_entry)
    return {
        name: value
        for name, value in sorted(given.items())
        if (entry := spec_entry(name) or image_entry(name)) is not None and not entry.holds_without_action(value)
    }


def inherited_properties(image_properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that an image of the server's disk has as well, so that servers of it ask for the same; those that
    were ignored for the server have their own names again. Not those that describe the server's own image, and none of
    accelerators: the image would name bitstreams that its readers may not see.
    """
    given = {name.removeprefix(IGNORED): value for name, value in image_properties.items()}
    return {
        name: value
        for name, value in given.items()
        if (entry := image_entry(name)) is not None and entry.by in _INHERITED
    }


def _driver_values(given: Mapping[str, str], entry_of: Callable[[str], SpecEntry | None]) -> dict[str, str]:
    return {
        entry.key or entry.image: value.strip()
        for key, value in given.items()
        if (entry := entry_of(key)) is not None and entry.by is HonouredBy.DRIVER
    }


def _is_honoured(key: str, value: str, entry: SpecEntry | None, *, is_rescue: bool) -> bool:
    """A key outside the table is accepted, as in Nova, because filters of other packages may read it; but not in the
    namespaces of the hypervisor, where it is a spelling mistake or a key of a later Nova.
    """
    if _PCPU.match(key):
        return value.strip() == "0"
    if entry is None:
        return not is_of_known_namespace(key)
    if entry.by is not HonouredBy.NOTHING:
        return True
    return entry.holds_without_action(value) or (key in RESCUE_PROPERTIES and not is_rescue)


def _refusal(what: str, key: str, value: str, entry: SpecEntry | None) -> str:
    if entry is None:
        near = " or ".join(similar_keys(key))
        return f"{what} {key}={value}: no component knows such a key; remove it, or correct its name" + (
            f": there is {near}" if near else ""
        )
    why = entry.becomes if entry.by is HonouredBy.NOTHING else "no driver of Moorage pins processors"
    accepted = f" (accepted: {entry.harmless_words})" if entry.harmless_words else ""
    return (
        f"{what} {key}={value}: no host can apply this, because {why}{accepted}; remove it, or ask the operator to "
        "ignore it ([compute] ignored_extra_specs)"
    )


def pci_alias_groups(
    rules: SpecRules, value: str, profile_groups: Callable[[str], Sequence[Mapping[str, str]]]
) -> list[Mapping[str, str]]:
    """The groups of a device profile for ``<alias>:<count>,<alias>:<count>``: for each device those of its alias.

    `profile_groups`: name of a device profile -> its groups. Raises `Invalid` for another form and unknown aliases.
    """
    groups: list[Mapping[str, str]] = []
    for text in value.split(","):
        alias, _, count = (part.strip() for part in text.partition(":"))
        if not count.isascii() or not count.isdigit() or not 1 <= int(count) <= MAX_DEVICES:
            raise Invalid(f"{ALIAS_KEY}={value}: write <alias>:<count>, with 1 to {MAX_DEVICES} devices, like gpu:1")
        target = rules.pci_aliases.get(alias)
        if target is None:
            known = ", ".join(sorted(rules.pci_aliases)) or "none"
            raise Invalid(
                f"{ALIAS_KEY}={value}: no alias {alias!r} is configured (there are: {known}); the operator maps "
                "aliases to device profiles or resource classes with [compute] pci_aliases"
            )
        of_one = [{f"resources:{target}": "1"}] if target.startswith("CUSTOM_") else profile_groups(target)
        groups += [group for _ in range(int(count)) for group in of_one]
    return groups
