"""Combines the same read of many threads."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from moorage.core import blocking_hook

T = TypeVar("T")


class SharedReader(Generic[T]):
    """Threads that wait while one reads share the result of the next read.

    A read answers only the threads that called before it began, so a result is never older than the call.
    """

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._asking = threading.Lock()
        self._next = _SharedRead[T]()

    def __call__(self) -> T:
        blocking_hook.about_to_block()
        mine = self._next
        with mine.lock:
            if mine.answers:
                return mine.answers[0]
            with self._asking:
                # Later callers take part in the next read. If this read fails, each of its callers reads for itself.
                self._next = _SharedRead()
                answer = self._ask()
            mine.answers.append(answer)
            return answer


class _SharedRead(Generic[T]):
    __slots__ = ("answers", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.answers: list[T] = []
