"""One call at a time for each name; calls for different names do not wait for each other."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary


class OneAtATime:
    """Names that nobody holds or waits for are forgotten."""

    def __init__(self) -> None:
        self._held: WeakValueDictionary[str, _Lock] = WeakValueDictionary()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        with self._lock:
            held = self._held.setdefault(name, _Lock())
        with held.lock:
            yield


class _Lock:
    """Can be referred to weakly, which a lock itself cannot."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
