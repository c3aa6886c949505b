"""[pure] Drift of published classes and traits: when the agent restores one that another client has changed.

The agent restores a changed class or trait at once, since it may be an operator's mistake or come from a restored
backup. If the item is changed repeatedly, another client, for example a second agent of the same name or a script,
undoes each restore. Then the agent doubles the pause before each further restore of this item. It stops counting when
the item has been left unchanged for twice the last pause.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from moorage.agent.tree.provider_tree import ProviderTree, SeenProvider
from moorage.core.backoff import Backoff

#: A class or trait of a provider: (provider uuid, name of the class or trait).
ClassOrTrait = tuple[str, str]

#: Number of restores without a pause.
FREE_RESTORES = 2
#: Between the restores after those.
BACKOFF = Backoff(first_s=120.0, longest_s=3600.0)


def drifted_items(before: ProviderTree, wanted: ProviderTree, seen: Mapping[str, SeenProvider]) -> set[ClassOrTrait]:
    """Classes and traits that this agent published as they are wanted now, and that are different in Placement.

    Those of a deleted provider are not among them: the agent creates it again at once.
    """
    items: set[ClassOrTrait] = set()
    for node in wanted:
        there, earlier = seen.get(node.uuid or ""), before.get(node.name)
        if there is None or earlier is None:
            continue
        items |= {
            (there.uuid, name)
            for name, inventory in node.inventories.items()
            if earlier.inventories.get(name) == inventory and there.inventories.get(name) != inventory
        }
        items |= {(there.uuid, name) for name in (node.traits & earlier.traits) - there.traits}
    return items


@dataclass
class _Drift:
    restores: int = 0
    last: datetime | None = None  #: time of the last restore


@dataclass
class DriftBackoff:
    """Counts the restores of each item. The counts are in memory, so after a restart the agent restores at once."""

    _by_item: dict[ClassOrTrait, _Drift] = field(default_factory=dict)

    def backed_off(self, items: set[ClassOrTrait], now: datetime) -> dict[ClassOrTrait, datetime]:
        """{item: earliest time of its restore}, for the drifted `items` that must not be restored now."""
        self._forget(items, now)
        waiting = {}
        for item in items:
            drift = self._by_item.setdefault(item, _Drift())
            due = now if drift.last is None else drift.last + _pause_before_restore(drift.restores)
            if due > now:
                waiting[item] = due
        return waiting

    def record_restored(self, items: set[ClassOrTrait], now: datetime) -> None:
        """Call it when the agent has written `items` again."""
        for item in items:
            drift = self._by_item.setdefault(item, _Drift())
            drift.restores += 1
            drift.last = now

    def _forget(self, items: set[ClassOrTrait], now: datetime) -> None:
        for item, drift in list(self._by_item.items()):
            if item not in items and drift.last is not None and now - drift.last > _forget_after(drift.restores):
                del self._by_item[item]


def _pause_before_restore(restores: int) -> timedelta:
    """Pause before the next restore, after this number of restores."""
    return timedelta(seconds=BACKOFF.pause_s(restores - FREE_RESTORES + 1))


def _forget_after(restores: int) -> timedelta:
    """The time without a change after which the drift of an item is forgotten."""
    return 2 * max(_pause_before_restore(restores), timedelta(seconds=BACKOFF.first_s))
