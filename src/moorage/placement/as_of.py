"""Reads that go on while the database does not answer: which requests may be told what was known last, and how old
that is. Writes never are: what is decided on old knowledge is refused by whoever cannot commit it.

See docs/decisions/0008.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Reading:
    """One request. `age_s`: how long ago its answer was known to be exact; None: it is exact."""

    age_s: float | None = None


_present: ContextVar[Reading | None] = ContextVar("reading", default=None)


@contextmanager
def may_be_old() -> Iterator[Reading]:
    """What is read inside may be what was known last; the answer tells."""
    reading = Reading()
    token = _present.set(reading)
    try:
        yield reading
    finally:
        _present.reset(token)


def accepts(age_s: float) -> bool:
    """Whether the present request takes something so old; it is noted then."""
    reading = _present.get()
    if reading is None:
        return False
    reading.age_s = max(age_s, reading.age_s or 0.0)
    return True
