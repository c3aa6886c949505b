"""A line to a database at which a process dies at a chosen point around a commit.

Not here: how the points are found in what passes, which each database says in its own way (`postgresql_line`,
`mariadb_line`).
"""

from collections.abc import Callable

from tests.crash.faults import Plan
from tests.transport.proxy import Line


class FatalLine(Line):
    """`fatal` is called when the armed plan is fulfilled; what was not passed on by then never is."""

    def __init__(self, url: str, fatal: Callable[[str], None]) -> None:
        self._fatal = fatal
        self.arm(None)
        super().__init__(url)

    def arm(self, plan: Plan | None) -> None:
        self.plan = plan
        self._left, self._spared = (plan.nth, plan.spared) if plan else (0, 0)

    def reached(self, point: str, position: int = 0) -> bool:
        """Whether this was the point."""
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
