"""Group commit: requests that arrive during a write are written together, in one transaction.

No request waits for others to join. A request that arrives while nothing is being written leads: it is written at
once, alone. Requests that arrive meanwhile wait; when the leader is done, the first of them leads a group of all that
wait (up to `MAX_GROUP`). So groups grow with the load, and one commit (one fsync) serves each.

While a group is with the database, the next one can be prepared (`NextGroup`), each request by its own thread. It is
started before the answers of the group before are handed out, to keep the database busy.

Every caller gets the outcome of its own request, after the commit that contains it.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, Protocol, TypeVar

from moorage.core import blocking_hook
from moorage.core.errors import Unavailable

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
R = TypeVar("R")

#: Requests in one group, at most, to bound the length of a transaction.
MAX_GROUP = 64
#: A request that is in no group after this time is refused: the database hangs.
MAX_WAIT_S = 30.0
#: A request with more subjects is not prepared early: the answers of the group before would wait for it.
MAX_EARLY_SUBJECTS = 256


class NextGroup(Protocol[T_contra]):
    """A group that is prepared while the one before it is written."""

    def take(self, item: T_contra) -> bool:
        """Prepare an item; False if it cannot be prepared early. Called by any thread, one at a time."""
        ...

    def begin(self) -> None:
        """The group before is written and no more items will come. Must not raise; `write` always follows."""
        ...


class _Waiter(Generic[T]):
    def __init__(self, item: T) -> None:
        self.item = item
        self.call = (
            threading.Lock()
        )  #: released when the request has its outcome or must lead; an Event costs ten times as much
        self.call.acquire()
        self.leads = False
        #: The group that it leads, if that was made ready early.
        self.group: tuple[list[_Waiter[T]], NextGroup[T]] | None = None
        self.is_done = False
        self.outcome: Any = None  #: or its error


class GroupCommit(Generic[T, R]):
    """Collects the items of concurrent callers into groups and writes one group at a time.

    `write(items, prepared)` writes a group and returns a result or an error for each item; if it raises, the items are written
    one by one (after `Unavailable`, all of them fail). `prepared`: the `NextGroup` that has prepared the same items in the same
    order, or None.

    `about` names the subjects of an item: no two items of a group share a subject, so they do not depend on each other.
    """

    def __init__(
        self, write: Callable[[Sequence[T], Any], Sequence[R | Exception]], about: Callable[[T], Collection[str]]
    ) -> None:
        self._write = write
        self._about = about
        self._lock = threading.Lock()
        self._waiting: deque[_Waiter[T]] = deque()
        self._somebody_leads = False
        self._written: list[_Waiter[T]] = []
        #: The next group if it is prepared early: the group, its requests, and the subjects of it and the group before.
        self._early: NextGroup[T] | None = None
        self._ready: list[_Waiter[T]] = []
        self._early_about: set[str] = set()

    def submit(self, item: T) -> R:
        """Blocks until `item` is committed; returns its result or raises its error.

        Raises `Unavailable` if the item is in no group after `MAX_WAIT_S`.
        """
        mine = _Waiter(item)
        with self._lock:
            leads = not self._somebody_leads
            self._somebody_leads = True
            if self._waiting or not self._is_ready(mine):
                self._waiting.append(mine)
        if not leads:
            self._wait(mine)
        if not mine.is_done:
            self._lead(mine)
        if isinstance(mine.outcome, Exception):
            raise mine.outcome
        result: R = mine.outcome
        return result

    def gather(self, early: NextGroup[T]) -> None:
        """Call while a group is being written: until the write is done, `early` prepares each request that arrives."""
        with self._lock:
            if self._early is not None:  # prepared in vain: another write came in between
                self._waiting.extendleft(reversed(self._close()[0]))
            self._early = early
            self._early_about.update(*(self._about(waiter.item) for waiter in self._written))
            while self._waiting and self._is_ready(self._waiting[0]):
                self._waiting.popleft()

    def _is_ready(self, waiter: _Waiter[T]) -> bool:
        """Try to prepare the request for the next group. The caller must not let it overtake waiting requests."""
        if self._early is None or len(self._ready) >= MAX_GROUP:
            return False
        about = self._about(waiter.item)
        if len(about) > MAX_EARLY_SUBJECTS or not self._early_about.isdisjoint(about):
            return False
        if not self._early.take(waiter.item):
            return False
        self._early_about.update(about)
        self._ready.append(waiter)
        return True

    def _wait(self, mine: _Waiter[T]) -> None:
        blocking_hook.about_to_block()
        if mine.call.acquire(timeout=MAX_WAIT_S):
            return
        with self._lock:
            if mine in self._ready:
                self._waiting.extendleft(reversed(self._close()[0]))
            if mine in self._waiting and not mine.leads:
                self._waiting.remove(mine)
                raise Unavailable("the database has not finished earlier requests; repeat the request")
        mine.call.acquire()  # it is being written, so the caller must wait for its outcome

    def _close(self) -> tuple[list[_Waiter[T]], NextGroup[T] | None]:
        """Returns the prepared group; nothing is prepared after this."""
        ready, early = self._ready, self._early
        self._ready, self._early, self._early_about = [], None, set()
        return ready, early

    def _lead(self, mine: _Waiter[T]) -> None:
        """Writes the first group of waiting requests, then lets the next leader begin."""
        with self._lock:
            group, early = mine.group or (self._next_group(), None)
            self._written = group
        outcomes: Sequence[R | Exception] = [Unavailable("the server was stopped in the middle")] * len(group)
        try:
            outcomes = self._outcomes([waiter.item for waiter in group], early)
        finally:
            self._hand_over()
            for waiter, outcome in zip(group, outcomes, strict=True):
                waiter.outcome, waiter.is_done = outcome, True
                if waiter is not mine:
                    waiter.call.release()

    def _hand_over(self) -> None:
        """Begin the prepared group, and make the first of the next group its leader."""
        with self._lock:
            ready, early = self._close()
        if ready and early is not None:
            early.begin()
            ready[0].group = ready, early
        with self._lock:
            following = ready or self._waiting
            self._somebody_leads = bool(following)
            if following:
                following[0].leads = True
                following[0].call.release()

    def _next_group(self) -> list[_Waiter[T]]:
        """Takes up to `MAX_GROUP` waiting requests in order of arrival; stops at one that shares a subject with one before it."""
        group: list[_Waiter[T]] = []
        about: set[str] = set()
        while self._waiting and len(group) < MAX_GROUP:
            names = self._about(self._waiting[0].item)
            if group and not about.isdisjoint(names):
                break
            about.update(names)
            group.append(self._waiting.popleft())
        return group

    def _outcomes(self, items: Sequence[T], early: NextGroup[T] | None = None) -> Sequence[R | Exception]:
        try:
            return self._write(items, early)
        except Unavailable as error:  # the database, which would fail each of them too
            return [error] * len(items)
        except Exception as error:  # noqa: BLE001 - the error of one request must not fail its neighbours
            return [error] if len(items) == 1 else [outcome for item in items for outcome in self._outcomes([item])]
