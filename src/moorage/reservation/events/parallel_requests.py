"""Several requests to other services at the same time: most of each is waiting until somebody has it on a disk."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")

#: Enough that somebody works while the others wait, and no more: they share one processor.
REQUESTS_AT_ONCE = 8


class AtOnce:
    """Carries out what is given to it, in up to `threads` threads; with one in the caller's own, in the given order.

    What is given neither waits for one another nor needs an order. The threads are made for it and end after it, or
    with the process, whatever they do then: a pool would have the process wait for them.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def __call__(self, works: Sequence[Callable[[], T]]) -> Iterator[T]:
        """The results as they come. What raises ends it for the caller; the others are still carried out."""
        if self._threads < 2 or len(works) < 2:
            yield from (work() for work in works)
            return
        todo: SimpleQueue[Callable[[], T]] = SimpleQueue()
        done: SimpleQueue[Future[T]] = SimpleQueue()
        for work in works:
            todo.put(work)
        for number in range(min(self._threads, len(works))):
            threading.Thread(target=_work_off, args=(todo, done), name=f"at-once-{number}", daemon=True).start()
        for _ in works:
            yield done.get().result()


def _work_off(todo: SimpleQueue[Callable[[], T]], done: SimpleQueue[Future[T]]) -> None:
    while True:
        try:
            work = todo.get_nowait()
        except Empty:
            return
        future: Future[T] = Future()
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the top of a thread: whoever asked for it is told
            future.set_exception(error)
        done.put(future)
