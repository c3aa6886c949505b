"""Random decisions from the seed: which fault happens at which point, and all other choices.

Each kind of fault has its own random sequence, so leaving out one kind does not change the others.
"""

import random
from collections import Counter
from collections.abc import Collection
from datetime import datetime

#: Kind of fault -> (its probability at each possible point while faults are on; its description).
KINDS = {
    "lost": (0.01, "a request is lost, and its caller waits for its timeout"),
    "unanswered": (0.01, "a request is carried out, and its answer is lost"),
    "doubled": (0.01, "an idempotent request is carried out twice"),
    "delayed": (0.01, "a request takes up to half a minute"),
    "late": (
        0.003,
        "the caller of a request gives up, and the request is carried out up to a minute later, after others",
    ),
    "hint": (0.1, "a hint is lost"),
    "crash": (0.001, "a part is killed at an access to its database, its disk or another part"),
    "killed": (0.002, "a part is killed between two steps"),
    "clock": (0.002, "a part's clock jumps by up to two minutes, or is set right"),
    "drift": (0.002, "a part's clock drifts by up to a second an hour"),
    "full": (0.002, "a part's disk is full for some minutes"),
    "failing": (0.001, "one call to a part's disk fails"),
    "torn": (0.2, "if a part is killed during a write, only half of the write is on its disk"),
    "away": (0.002, "a part's database is unavailable for some minutes"),
    "given_up": (0.005, "the database aborts a transaction in favour of another one, at its begin or commit"),
    "half_told": (0.003, "a commit is carried out, and its answer is lost"),
    "device": (0.004, "one operation of a device fails"),
    "agent_late": (0.3, "if a host's agent is killed, it stays down for up to hours, not for a minute"),
}


class Dice:
    """`without` names kinds of faults that never happen. While `calm`, no fault happens."""

    def __init__(self, seed: str, without: Collection[str] = (), fury: float = 1.0) -> None:
        """Each kind happens `fury` times as often."""
        self._streams = {kind: random.Random(f"{seed}/{kind}") for kind in KINDS}
        self._fury = fury
        self._without = frozenset(without)
        self.calm = True
        self.happened: Counter[str] = Counter()

    def happens(self, kind: str) -> bool:
        if self.calm or kind in self._without:
            return False
        if self._streams[kind].random() >= KINDS[kind][0] * self._fury:
            return False
        self.happened[kind] += 1
        return True

    def seconds(self, kind: str, most: float, least: float = 0.0) -> float:
        """The duration of a fault of this kind, in whole milliseconds."""
        return round(self._streams[kind].uniform(least, most), 3)

    def one_of(self, kind: str, number: int) -> int:
        return self._streams[kind].randrange(number)


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
