"""Reads from the last known state while the database does not answer: the requests that accept it, and its age.

Writes are never served from stale data; the commit would reject them.

See docs/evidence/decisions/0008.
"""

from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self


class StaleRead:
    """A context in which the request accepts stale data.

    `age_s`: seconds since the data of the answer was known to be exact; None: the answer is exact.
    """

    __slots__ = ("_token", "age_s")

    _token: "Token[StaleRead | None]"

    def __init__(self) -> None:
        self.age_s: float | None = None

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._token)


_current: ContextVar[StaleRead | None] = ContextVar("reading", default=None)


def accepts_stale_read(age_s: float) -> bool:
    """True if the current request accepts stale data; then records the greatest `age_s` in its `StaleRead`."""
    stale_read = _current.get()
    if stale_read is None:
        return False
    stale_read.age_s = max(age_s, stale_read.age_s or 0.0)
    return True
