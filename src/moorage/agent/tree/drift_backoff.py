"""[pure] Drift of published classes and traits: when the agent restores one that another client changed.

The agent restores a changed class or trait at once: an operator made a mistake, or restored a backup. If it is changed
again and again, another client owns it too, and undoes each restore: a second agent of the same name, or a script.
Then each further restore of this item waits twice as long as the one before, and the item is left as it is until then.
The agent forgets the drift when the other client has left the item alone for twice the last pause.
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
    """Classes and traits that were published as they are wanted now, and that Placement has otherwise now.

    A deleted provider does not count: the agent creates it again.
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
    mended: int = 0
    last: datetime | None = None  #: when it was last found changed


@dataclass
class DriftBackoff:
    """Counts the restores of each item, in memory: after a restart the agent restores at once again."""

    _by_item: dict[ClassOrTrait, _Drift] = field(default_factory=dict)

    def backed_off(self, items: set[ClassOrTrait], now: datetime) -> dict[ClassOrTrait, datetime]:
        """Those of the drifted `items` that must not be restored yet, each with the moment when they may."""
        self._forget(items, now)
        waiting = {}
        for item in items:
            drift = self._by_item.setdefault(item, _Drift())
            due = now if drift.last is None else drift.last + _pause_before_restore(drift.mended)
            if due > now:
                waiting[item] = due
        return waiting

    def record_restored(self, items: set[ClassOrTrait], now: datetime) -> None:
        """`items` were written again at `now`."""
        for item in items:
            drift = self._by_item.setdefault(item, _Drift())
            drift.mended += 1
            drift.last = now

    def _forget(self, items: set[ClassOrTrait], now: datetime) -> None:
        for item, drift in list(self._by_item.items()):
            if item not in items and drift.last is not None and now - drift.last > _calm_period(drift.mended):
                del self._by_item[item]


def _pause_before_restore(mended: int) -> timedelta:
    """Pause before the next restore, after `mended` restores."""
    return timedelta(seconds=BACKOFF.pause_s(mended - FREE_RESTORES + 1))


def _calm_period(mended: int) -> timedelta:
    """The time without a change after which the drift of an item is forgotten."""
    return 2 * max(_pause_before_restore(mended), timedelta(seconds=BACKOFF.first_s))
