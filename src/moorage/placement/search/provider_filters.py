"""Filters of GET /resource_providers, applied to arrays instead of objects."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from moorage.placement.forest.forest import Forest
from moorage.placement.search.masks import Mask, members_of_any, with_any
from moorage.placement.search.query import NO_AGGREGATES, NO_TRAITS, AggregateFilter, TraitFilter


@dataclass(frozen=True, slots=True)
class ProviderFilter:
    """The query of GET /resource_providers; all conditions must hold."""

    name: str | None = None
    uuid: str | None = None
    in_tree: str | None = None
    resources: Mapping[str, int] | None = None
    traits: TraitFilter = NO_TRAITS
    aggregates: AggregateFilter = NO_AGGREGATES


def matching_slots(forest: Forest, wanted: ProviderFilter) -> list[int]:
    """Slots of the providers that meet all conditions of `wanted`, ascending."""
    if wanted.name is None and wanted.uuid is None and wanted.in_tree is None:
        return np.flatnonzero(_matching(forest, wanted)).tolist()
    slots = _named_slots(forest, wanted)
    if slots and (wanted.resources or wanted.traits != NO_TRAITS or wanted.aggregates != NO_AGGREGATES):
        matching = _matching(forest, wanted)
        slots = [slot for slot in slots if matching[slot]]
    return slots


def _named_slots(forest: Forest, wanted: ProviderFilter) -> list[int]:
    """Slots of the providers with this name, with this uuid, and in this tree, as far as given; in order."""
    slot_sets: list[Collection[int]] = []
    for key, slot_of in ((wanted.name, forest.slot_of_name), (wanted.uuid, forest.slot_of_uuid)):
        if key is not None:
            slot = slot_of.get(key)
            slot_sets.append(() if slot is None else (slot,))
    if wanted.in_tree is not None:
        member = forest.slot_of_uuid.get(wanted.in_tree)
        slot_sets.append(() if member is None else forest.tree(member))
    return sorted(set(slot_sets[0]).intersection(*slot_sets[1:]))


def _matching(forest: Forest, wanted: ProviderFilter) -> Mask:
    """By slot: True if the provider meets the conditions on resources, traits and aggregates."""
    passes: Mask = np.asarray(forest.roots >= 0, dtype=np.bool_)
    for name, amount in (wanted.resources or {}).items():
        fits = np.zeros(len(passes), dtype=np.bool_)
        if (column := forest.columns.get(name)) is not None:
            fits[column.fitting(amount)] = True
        passes &= fits
    for any_of in wanted.traits.required:
        passes &= with_any(forest, any_of)
    if wanted.traits.forbidden:
        passes &= ~with_any(forest, wanted.traits.forbidden)
    for any_of in wanted.aggregates.required:
        passes &= members_of_any(forest, any_of)
    if wanted.aggregates.forbidden:
        passes &= ~members_of_any(forest, wanted.aggregates.forbidden)
    return passes
