"""The rule that no part of a card is given out twice: `offered_devices`. Pure: no I/O here.

A handle contains its parts: a physical function contains its virtual functions, and a function contains the mediated
devices on it. Functions of one card in one IOMMU group cannot be separated either, because the kernel gives a group to
one guest only. Two handles *overlap* if they are the same, or one contains the other, or they cannot be separated.

The reports of all drivers of a host pass through `offered_devices` in the checkpoint step that records them, and each
claim through `HandleSet.find_overlap`, because a discovery may be older than the last claim. The service checks the
reports of hosts with `find_nested`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from moorage.accelerator.model.devices import Deployable, Device, mdev_of

#: Handles that a reason names; a card may have 256.
_MAX_NAMED = 4


@dataclass(frozen=True, slots=True)
class FunctionTree:
    """How the functions of a host contain each other. A handle without an entry stands alone."""

    parents: Mapping[str, str] = field(default_factory=dict)  #: the function that contains a handle, by handle
    iommu_groups: Mapping[str, str] = field(default_factory=dict)  #: by PCI address

    def ancestors(self, handle: str) -> list[str]:
        """The functions that contain `handle`, the nearest first."""
        found: list[str] = []
        at = self.parents.get(handle, "")
        while at and at != handle and at not in found:  # a report could be circular
            found.append(at)
            at = self.parents.get(at, "")
        return found

    def isolation_key(self, handle: str) -> tuple[str, str] | None:
        """Equal for the functions of one card that cannot be separated; None if `handle` is in no known group."""
        group = self.iommu_groups.get(handle)
        card = [handle, *self.ancestors(handle)][-1]
        return (group, card.partition(".")[0]) if group else None


def tree_of(devices: Iterable[Device]) -> FunctionTree:
    parents: dict[str, str] = {}
    groups: dict[str, str] = {}
    for device in devices:
        handles = [handle for part in device.deployables for handle in part.handles]
        _add_parents(parents, device.pci_id, device.part_of, handles)
        groups |= dict(device.iommu_groups)
    return FunctionTree(parents, groups)


def _add_parents(parents: dict[str, str], card: str, part_of: str, handles: Iterable[str]) -> None:
    if part_of and part_of != card:
        parents[card] = part_of
    for handle in handles:
        mdev = mdev_of(handle)
        parent = card if mdev is None else mdev.parent
        if parent != handle:
            parents.setdefault(handle, parent)
        if parent != card:
            parents.setdefault(parent, card)


class HandleSet:
    """Handles that may be given out together. `add` does not check; call `find_overlap` first."""

    def __init__(self, tree: FunctionTree, handles: Iterable[str] = ()) -> None:
        self._tree = tree
        self._members: set[str] = set()
        self._containers: dict[str, str] = {}  #: function -> the first member that it contains
        self._isolated: dict[tuple[str, str], str] = {}  #: `FunctionTree.isolation_key` -> the first member that has it
        for handle in handles:
            self.add(handle)

    def add(self, handle: str) -> None:
        self._members.add(handle)
        for container in self._tree.ancestors(handle):
            self._containers.setdefault(container, handle)
        if key := self._tree.isolation_key(handle):
            self._isolated.setdefault(key, handle)

    def find_overlap(self, handle: str) -> str:
        """``it is a part of 0000:3d:00.0``: how `handle` overlaps a member of this set; empty if it does not."""
        if handle in self._members:
            return f"{handle} has another owner"
        if around := next((one for one in self._tree.ancestors(handle) if one in self._members), ""):
            return f"it is a part of {around}"
        if inside := self._containers.get(handle):
            return f"{inside} is a part of it"
        key = self._tree.isolation_key(handle)
        if key and (sibling := self._isolated.get(key)):
            return f"it shares IOMMU group {key[0]} with {sibling}"
        return ""


def offered_devices(known: Iterable[Device], found: Iterable[Device], in_use: Mapping[str, str]) -> tuple[Device, ...]:
    """`found`, with the handles that can all be given to different guests, and those in use. `Device.withheld` says why
    others are missing.

    Handles in use stay, and what overlaps them is withheld. Of the others, parts stay and what contains them is
    withheld: a card has parts only because an operator divided it. A device with a handle in use that is now configured
    in another form keeps its form in `known`, with the handles in use only, until they are released.
    `in_use`: {handle: its deployable}.
    """
    last = {device.pci_id: device for device in known}
    devices = [_kept_form(last.get(device.pci_id), device, in_use) for device in found]
    tree = tree_of(devices)
    given_out = HandleSet(tree, in_use)
    places = [(part.name, handle) for device in devices for part in device.deployables for handle in part.handles]
    withheld: dict[tuple[str, str], str] = {}
    # The deepest parts first, then by address, so that the result does not depend on the order of the drivers.
    for part, handle in sorted(places, key=lambda place: (-len(tree.ancestors(place[1])), _in_order(place[1]), place)):
        if in_use.get(handle) == part:
            continue
        if reason := given_out.find_overlap(handle):
            withheld[part, handle] = reason
        else:
            given_out.add(handle)
    return tuple(_without_handles(device, withheld) for device in devices)


def find_nested(tree: FunctionTree, free: Iterable[str], in_use: Iterable[str]) -> tuple[str, str] | None:
    """(handle, how it overlaps) of a free handle that overlaps another free handle or one in use, if there is one."""
    given_out = HandleSet(tree, in_use)
    for handle in free:
        if reason := given_out.find_overlap(handle):
            return handle, reason
        given_out.add(handle)
    return None


def reported_tree(cards: Iterable[tuple[str, str, Sequence[str]]]) -> FunctionTree:
    """The tree of a host's report: (address, the card that it is a part of, handles) of each device."""
    parents: dict[str, str] = {}
    for address, part_of, handles in cards:
        _add_parents(parents, address, part_of, handles)
    return FunctionTree(parents)


def _kept_form(before: Device | None, now: Device, in_use: Mapping[str, str]) -> Device:
    if before is None:
        return now
    parts = {part.name: part for part in now.deployables}
    held = [
        (part, tuple(handle for handle in part.handles if in_use.get(handle) == part.name))
        for part in before.deployables
    ]
    is_same = all(
        part.name in parts and set(handles) <= set(parts[part.name].handles) for part, handles in held if handles
    )
    if not any(handles for _, handles in held) or (is_same and before.type == now.type):
        return now
    names = ", ".join(handle for _, handles in held for handle in handles[:_MAX_NAMED])
    reason = f"its configuration changed; the new one applies when {names} is released"
    kept = tuple(replace(part, handles=handles) for part, handles in held)
    return replace(before, deployables=kept, health=now.health, details=now.details, withheld=reason)


def _without_handles(device: Device, withheld: Mapping[tuple[str, str], str]) -> Device:
    reasons = {
        handle: withheld[part.name, handle]
        for part in device.deployables
        for handle in part.handles
        if (part.name, handle) in withheld
    }
    if not reasons:
        return device
    parts = tuple(_part_without(part, withheld) for part in device.deployables)
    shown = [f"{handle}: {reason}" for handle, reason in list(reasons.items())[:_MAX_NAMED]]
    more = [f"and {len(reasons) - _MAX_NAMED} more"] if len(reasons) > _MAX_NAMED else []
    return replace(device, deployables=parts, withheld="; ".join([*filter(None, [device.withheld]), *shown, *more]))


def _part_without(part: Deployable, withheld: Mapping[tuple[str, str], str]) -> Deployable:
    return replace(part, handles=tuple(handle for handle in part.handles if (part.name, handle) not in withheld))


def _in_order(handle: str) -> tuple[str | int, ...]:
    """Sorts mediated devices by number: slot 2 before slot 10."""
    return tuple(int(text) if text.isdecimal() else text for text in re.split(r"_(\d+)\Z", handle))
