"""Group commit: requests that arrive while others are being written are written together, in one transaction.

Nobody waits for company. Who comes while nobody writes, leads: writes at once, alone. Who comes meanwhile waits; when
the leader is done it hands over to the first of those, who leads a group of all that wait (up to a bound). So groups
grow with the load and one commit (one fsync) serves each.

Every caller gets the outcome of its own request, after the commit that holds it.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, TypeVar

from moorage.core.errors import Unavailable

T = TypeVar("T")
R = TypeVar("R")

#: Requests in one group at most, so that nobody waits for a very long transaction.
MOST = 64
#: Who has not been taken into a group for so long is sent away: the database hangs.
PATIENCE_S = 30.0


class _Waiter(Generic[T]):
    def __init__(self, item: T) -> None:
        self.item = item
        self.call = threading.Lock()  #: released when it has its outcome, or is to lead; an Event costs ten times that
        self.call.acquire()
        self.leads = False
        self.is_done = False
        self.outcome: Any = None  #: or its error


class Grouping(Generic[T, R]):
    """`write` writes a group and answers, for each item, its result or error; what it raises counts for the whole group.

    `about` names what an item is about: a group holds nothing twice, so its items do not depend on each other's rows.
    """

    def __init__(
        self, write: Callable[[Sequence[T]], Sequence[R | Exception]], about: Callable[[T], Collection[str]]
    ) -> None:
        self._write = write
        self._about = about
        self._lock = threading.Lock()
        self._waiting: deque[_Waiter[T]] = deque()
        self._somebody_leads = False

    def submit(self, item: T) -> R:
        """The result of `item` when it is committed; raises its own error."""
        mine = _Waiter(item)
        with self._lock:
            self._waiting.append(mine)
            leads = not self._somebody_leads
            self._somebody_leads = True
        if not leads:
            self._wait(mine)
        if not mine.is_done:
            self._lead(mine)
        if isinstance(mine.outcome, Exception):
            raise mine.outcome
        result: R = mine.outcome
        return result

    def _wait(self, mine: _Waiter[T]) -> None:
        if mine.call.acquire(timeout=PATIENCE_S):
            return
        with self._lock:
            if mine in self._waiting and not mine.leads:
                self._waiting.remove(mine)
                raise Unavailable("the database does not finish what was asked before; repeat the request")
        mine.call.acquire()  # it is being written: only the outcome can tell whether it was

    def _lead(self, mine: _Waiter[T]) -> None:
        """Write the first group of those that wait, then let the next one lead."""
        with self._lock:
            group = self._next_group()
        outcomes: Sequence[R | Exception] = [Unavailable("the server was stopped in the middle")] * len(group)
        try:
            outcomes = self._outcomes([waiter.item for waiter in group])
        finally:
            for waiter, outcome in zip(group, outcomes, strict=True):
                waiter.outcome, waiter.is_done = outcome, True
                if waiter is not mine:
                    waiter.call.release()
            with self._lock:
                self._somebody_leads = bool(self._waiting)
                if self._waiting:
                    self._waiting[0].leads = True
                    self._waiting[0].call.release()

    def _next_group(self) -> list[_Waiter[T]]:
        """In the order of arrival, up to the first that is about the same as one before it."""
        group: list[_Waiter[T]] = []
        about: set[str] = set()
        while self._waiting and len(group) < MOST:
            names = self._about(self._waiting[0].item)
            if group and not about.isdisjoint(names):
                break
            about.update(names)
            group.append(self._waiting.popleft())
        return group

    def _outcomes(self, items: Sequence[T]) -> Sequence[R | Exception]:
        try:
            return self._write(items)
        except Unavailable as error:  # the database, which would fail each of them too
            return [error] * len(items)
        except Exception as error:  # noqa: BLE001 - whoever this is about must not fail its neighbours
            return [error] if len(items) == 1 else [outcome for item in items for outcome in self._outcomes([item])]
