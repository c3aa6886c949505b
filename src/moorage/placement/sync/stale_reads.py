"""Reads from the last known state while the database does not answer: which requests accept it, and the age of the state.

Writes are never served from stale data; the commit would reject them.

See docs/evidence/decisions/0008.
"""

from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self


class StaleRead:
    """One request that accepts stale data while this context is entered.

    `age_s`: seconds since the data of its answer was known to be exact; None: the answer is exact.
    """

    __slots__ = ("_token", "age_s")

    _token: "Token[StaleRead | None]"

    def __init__(self) -> None:
        self.age_s: float | None = None

    def __enter__(self) -> Self:
        self._token = _present.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _present.reset(self._token)


_present: ContextVar[StaleRead | None] = ContextVar("reading", default=None)


def accepts_stale_read(age_s: float) -> bool:
    """True if the current request accepts data that is `age_s` seconds old; then records the greatest age in its `StaleRead`."""
    reading = _present.get()
    if reading is None:
        return False
    reading.age_s = max(age_s, reading.age_s or 0.0)
    return True
