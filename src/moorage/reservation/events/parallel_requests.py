"""Runs independent requests of a batch of events at the same time."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")

#: Parallel requests: enough to use the waiting time; more would compete for one processor.
REQUESTS_AT_ONCE = 8


class ParallelRequests:
    """Runs independent callables in up to `threads` threads; with one, in the caller's thread and in order.

    Most of each request is waiting for a disk elsewhere. The threads are daemons made for one call: a pool would make
    the process wait for them when it stops.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def __call__(self, requests: Sequence[Callable[[], T]]) -> Iterator[T]:
        """Yields results as they arrive. An exception is raised to the caller; the other callables still run."""
        if self._threads < 2 or len(requests) < 2:
            yield from (request() for request in requests)
            return
        todo: SimpleQueue[Callable[[], T]] = SimpleQueue()
        done: SimpleQueue[Future[T]] = SimpleQueue()
        for request in requests:
            todo.put(request)
        for number in range(min(self._threads, len(requests))):
            threading.Thread(target=_run_queue, args=(todo, done), name=f"at-once-{number}", daemon=True).start()
        for _ in requests:
            yield done.get().result()


def _run_queue(todo: SimpleQueue[Callable[[], T]], done: SimpleQueue[Future[T]]) -> None:
    while True:
        try:
            request = todo.get_nowait()
        except Empty:
            return
        future: Future[T] = Future()
        try:
            future.set_result(request())
        except BaseException as error:  # noqa: BLE001 - the top of a thread: the thread that waits raises it again
            future.set_exception(error)
        done.put(future)
