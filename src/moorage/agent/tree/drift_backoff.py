"""[pure] Whom the agent gives way to: drift is mended, but nobody is fought.

What the agent published and finds changed, it mends at once: somebody slipped, or a backup was restored. Found
changed again and again, it has another owner, who mends it the other way: a second agent of the same name, an
operator's script. Each further mending of the same thing then waits, twice as long each time, and until then the
thing is left as it is. What has been left alone by the other for as long as the last pause is forgotten.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from moorage.agent.tree.provider_tree import ProviderTree, SeenProvider

#: A class or trait of a provider: (provider uuid, its name).
ClassOrTrait = tuple[str, str]

#: Mended at once for so many times; then the pauses begin.
FREE_RESTORES = 2
FIRST_PAUSE = timedelta(minutes=2)
LONGEST_PAUSE = timedelta(hours=1)


def drifted_items(before: ProviderTree, wanted: ProviderTree, seen: Mapping[str, SeenProvider]) -> set[ClassOrTrait]:
    """What was published as it is wanted now, and is not so in Placement any more. A provider that is gone counts
    with nothing: it is made again.
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
    last: datetime | None = None  #: found changed


@dataclass
class DriftBackoff:
    """In memory: an agent that was restarted begins with the benefit of the doubt."""

    _by_item: dict[ClassOrTrait, _Drift] = field(default_factory=dict)

    def backed_off(self, items: set[ClassOrTrait], now: datetime) -> dict[ClassOrTrait, datetime]:
        """Of `items`, which have drifted, those that are not to be mended yet, and when they are."""
        self._forget(items, now)
        waiting = {}
        for item in items:
            drift = self._by_item.setdefault(item, _Drift())
            due = now if drift.last is None else drift.last + _pause_before_restore(drift.mended)
            if due > now:
                waiting[item] = due
        return waiting

    def record_restored(self, items: set[ClassOrTrait], now: datetime) -> None:
        """They were written again."""
        for item in items:
            drift = self._by_item.setdefault(item, _Drift())
            drift.mended += 1
            drift.last = now

    def _forget(self, items: set[ClassOrTrait], now: datetime) -> None:
        for item, drift in list(self._by_item.items()):
            if item not in items and drift.last is not None and now - drift.last > _calm_period(drift.mended):
                del self._by_item[item]


def _pause_before_restore(mended: int) -> timedelta:
    """Before the next mending."""
    if mended < FREE_RESTORES:
        return timedelta(0)
    return min(FIRST_PAUSE * (1 << min(mended - FREE_RESTORES, 16)), LONGEST_PAUSE)


def _calm_period(mended: int) -> timedelta:
    """How long nothing must happen until it is forgotten."""
    return 2 * max(_pause_before_restore(mended), FIRST_PAUSE)
