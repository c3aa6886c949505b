import threading
from functools import partial

import pytest

from moorage.reservation.events.event_executor import ParallelRequests


def test_one_after_the_other_keeps_the_order_and_the_thread():
    seen = []
    works = [partial(seen.append, number) for number in range(5)]
    assert list(ParallelRequests(1)([*works, threading.current_thread])) == [None] * 5 + [threading.current_thread()]
    assert seen == [0, 1, 2, 3, 4]


def test_so_many_are_under_way_at_the_same_time_and_no_more():
    """Each waits for three others, so fewer threads than four would never finish."""
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


def test_what_raises_is_raised_where_the_results_are_taken():
    def fail():
        raise KeyError("mine")

    for threads in (1, 4):
        with pytest.raises(KeyError, match="mine"):
            list(ParallelRequests(threads)([fail, fail, fail]))
