import threading
from functools import partial

import pytest

from moorage.reservation.events.parallel_requests import ParallelRequests


def test_with_one_thread_requests_run_in_order_in_the_callers_thread():
    seen = []
    works = [partial(seen.append, number) for number in range(5)]
    assert list(ParallelRequests(1)([*works, threading.current_thread])) == [None] * 5 + [threading.current_thread()]
    assert seen == [0, 1, 2, 3, 4]


def test_as_many_requests_as_threads_run_at_the_same_time():
    """Each request waits for three others, so with fewer than four threads none would finish."""
    together, lock, under_way, most = threading.Barrier(4, timeout=30), threading.Lock(), [0], [0]

    def work(number):
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        together.wait()
        with lock:
            under_way[0] -= 1
        return number

    assert sorted(ParallelRequests(4)([partial(work, number) for number in range(12)])) == list(range(12))
    assert most[0] <= 4


def test_the_error_of_a_request_is_raised_when_the_results_are_read():
    def fail():
        raise KeyError("mine")

    for threads in (1, 4):
        with pytest.raises(KeyError, match="mine"):
            list(ParallelRequests(threads)([fail, fail, fail]))
