"""Reads that go on while the database does not answer: which requests may be told what was known last, and how old
that is. Writes never are: what is decided on old knowledge is refused by whoever cannot commit it.

See docs/evidence/decisions/0008.
"""

from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self


class StaleRead:
    """One request, present while it is entered: what is read then may be what was known last.

    `age_s`: how long ago its answer was known to be exact; None: it is exact.
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
    """Whether the present request takes something so old; it is noted then."""
    reading = _present.get()
    if reading is None:
        return False
    reading.age_s = max(age_s, reading.age_s or 0.0)
    return True
