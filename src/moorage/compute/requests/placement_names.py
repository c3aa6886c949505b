"""Which resource classes and traits Placement knows: a query that names another one it refuses as a whole."""

import threading
from collections.abc import Callable
from typing import Protocol

from moorage.core.errors import Invalid, MoorageError
from moorage.core.names import is_custom


class NameLookup(Protocol):
    def has_class(self, name: str) -> bool: ...
    def has_trait(self, name: str) -> bool: ...


class KnownNames:
    """Remembers names that were there: they hardly ever go. What is not there is asked again each time."""

    def __init__(self, placement: NameLookup) -> None:
        self._placement = placement
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def check(self, classes: frozenset[str], traits: frozenset[str]) -> None:
        """Raises `Invalid` naming what Placement would refuse. A Placement that does not answer refuses nothing."""
        for kind, names, lookup in (
            ("resource class", classes, self._placement.has_class),
            ("trait", traits, self._placement.has_trait),
        ):
            for name in sorted(names):
                if is_custom(name) and not self._is_known(name, lookup):
                    raise Invalid(
                        f"Placement knows no {kind} {name}: no host offers it, and none can be asked for it; "
                        "correct the flavor or image, or have a host offer it"
                    )

    def _is_known(self, name: str, lookup: Callable[[str], bool]) -> bool:
        with self._lock:
            if name in self._known:
                return True
        try:
            found = lookup(name)
        except MoorageError:
            return True  # the scheduler finds out, and waits
        if found:
            with self._lock:
                self._known.add(name)
        return found
