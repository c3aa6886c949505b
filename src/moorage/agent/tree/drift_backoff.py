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
Thing = tuple[str, str]

#: Mended at once for so many times; then the pauses begin.
FREE = 2
FIRST_PAUSE = timedelta(minutes=2)
LONGEST_PAUSE = timedelta(hours=1)


def drifted(before: ProviderTree, wanted: ProviderTree, seen: Mapping[str, SeenProvider]) -> set[Thing]:
    """What was published as it is wanted now, and is not so in Placement any more. A provider that is gone counts
    with nothing: it is made again.
    """
    things: set[Thing] = set()
    for node in wanted:
        there, earlier = seen.get(node.uuid or ""), before.get(node.name)
        if there is None or earlier is None:
            continue
        things |= {
            (there.uuid, name)
            for name, inventory in node.inventories.items()
            if earlier.inventories.get(name) == inventory and there.inventories.get(name) != inventory
        }
        things |= {(there.uuid, name) for name in (node.traits & earlier.traits) - there.traits}
    return things


@dataclass
class _Contest:
    mended: int = 0
    last: datetime | None = None  #: found changed


@dataclass
class Contests:
    """In memory: an agent that was restarted begins with the benefit of the doubt."""

    _by_thing: dict[Thing, _Contest] = field(default_factory=dict)

    def given_way(self, things: set[Thing], now: datetime) -> dict[Thing, datetime]:
        """Of `things`, which have drifted, those that are not to be mended yet, and when they are."""
        self._forget(things, now)
        waiting = {}
        for thing in things:
            contest = self._by_thing.setdefault(thing, _Contest())
            due = now if contest.last is None else contest.last + _pause(contest.mended)
            if due > now:
                waiting[thing] = due
        return waiting

    def mended(self, things: set[Thing], now: datetime) -> None:
        """They were written again."""
        for thing in things:
            contest = self._by_thing.setdefault(thing, _Contest())
            contest.mended += 1
            contest.last = now

    def _forget(self, things: set[Thing], now: datetime) -> None:
        for thing, contest in list(self._by_thing.items()):
            if thing not in things and contest.last is not None and now - contest.last > _calm(contest.mended):
                del self._by_thing[thing]


def _pause(mended: int) -> timedelta:
    """Before the next mending."""
    if mended < FREE:
        return timedelta(0)
    return min(FIRST_PAUSE * (1 << min(mended - FREE, 16)), LONGEST_PAUSE)


def _calm(mended: int) -> timedelta:
    """How long nothing must happen until it is forgotten."""
    return 2 * max(_pause(mended), FIRST_PAUSE)
