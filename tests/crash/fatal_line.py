"""A connection to a database on which a process dies at a chosen point around a commit.

Not here: how to find these points in the bytes of each database's protocol (`postgresql_line`, `mariadb_line`).
"""

from collections.abc import Callable

from tests.crash.faults import Plan
from tests.transport.proxy import Line


class FatalLine(Line):
    """Calls `fatal` at the planned point. Bytes that were not forwarded until then are lost."""

    def __init__(self, url: str, fatal: Callable[[str], None]) -> None:
        self._fatal = fatal
        self.arm(None)
        super().__init__(url)

    def arm(self, plan: Plan | None) -> None:
        self.plan = plan
        self._left, self._spared = (plan.nth, plan.spared) if plan else (0, 0)

    def reached(self, point: str, position: int = 0) -> bool:
        """Counts the point; returns whether it was the planned one."""
        with self._lock:
            plan = self.plan
            if plan and self._spared == 0 and point == plan.point and position in (0, plan.position):
                self._left -= 1
                if self._left == 0:
                    self.plan = None
                    self._fatal(f"statement {position}" if position else point)
                    return True
            if point == "committed" and self._spared:
                self._spared -= 1
        return False
