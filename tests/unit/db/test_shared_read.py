"""Threads that wait for the same read share one read that began after they had asked for it."""

import threading

import pytest

from moorage.core.errors import Unavailable
from moorage.db.session import SharedRead


class ObservableLock:
    """A lock that signals each thread that waits for it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.came = threading.Semaphore(0)

    def __enter__(self):
        self.came.release()
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()


def test_waiting_threads_share_one_read_that_began_after_they_had_asked():
    began, let, asked = threading.Event(), threading.Event(), []

    def ask():
        asked.append(len(asked) + 1)
        number = len(asked)
        began.set()
        assert let.wait(timeout=10)
        return number

    together, answers = SharedRead(ask), []
    first = threading.Thread(target=lambda: answers.append(together()))
    first.start()
    assert began.wait(timeout=10)
    together._next.lock = shown = ObservableLock()
    others = [threading.Thread(target=lambda: answers.append(together())) for _ in range(5)]
    for thread in others:
        thread.start()
    for _ in others:
        assert shown.came.acquire(timeout=10)
    let.set()
    for thread in [first, *others]:
        thread.join()
    # All five asked after the first read had begun, so none of them may use its result.
    assert sorted(answers) == [1, 2, 2, 2, 2, 2]


def test_after_a_failed_read_the_next_thread_reads_again():
    asked = []

    def ask():
        asked.append(1)
        if len(asked) == 1:
            raise Unavailable("gone")
        return 7

    together = SharedRead(ask)
    with pytest.raises(Unavailable):
        together()
    assert together() == 7
