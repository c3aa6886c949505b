"""Records the events of a run as lines of text, with a digest: two runs of one seed record the same lines.

A line names an actor, an action and its result. It contains generated ids, so a run that generates one more id differs.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from datetime import datetime

from tests.simulation.dice import stamp


class Story:
    """Keeps the last `kept` lines in `last`, and calls `shown` with each new line.

    `left_out`: the directory of the simulation, which is removed from the lines.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        shown: Callable[[str], None] | None = None,
        *,
        left_out: str,
        kept: int = 400,
    ) -> None:
        self._now = now
        self._shown = shown
        self._left_out = left_out
        self._digest = hashlib.sha256()
        self.last: deque[str] = deque(maxlen=kept)
        self.lines = 0

    def tell(self, line: str) -> None:
        told = f"{stamp(self._now())} {line.replace(self._left_out, '')}"
        self._digest.update(told.encode())
        self.lines += 1
        self.last.append(told)
        if self._shown is not None:
            self._shown(told)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()
