"""One of the workers of a queue polls it."""

from hypothesis import given
from hypothesis import strategies as st

from moorage.jobs.poller_election import PollerElection

WORKERS = (1, 2, 3)


def rested():
    """All have polled once without a job; worker 1 keeps polling."""
    woken = []
    shared = PollerElection(woken.append)
    assert [shared.found_no_job(worker) for worker in WORKERS] == [True, False, False]
    return shared, woken


def asking(shared):
    return [worker for worker in WORKERS if shared.may_poll(worker)]


def test_at_the_start_everybody_asks_for_what_he_had_begun():
    assert asking(PollerElection(lambda _: None)) == [1, 2, 3]


def test_a_hint_is_followed_by_the_one_who_looks():
    shared, _ = rested()
    assert asking(shared) == [1]


def test_who_finds_work_calls_one_who_looks_then():
    shared, woken = rested()
    shared.began_job(1)
    assert woken == [2]
    assert shared.may_poll(2)
    assert not shared.may_poll(3)
    assert shared.found_no_job(2)
    assert [worker for worker in (2, 3) if shared.may_poll(worker)] == [2]


def test_who_was_called_and_finds_work_calls_the_next():
    shared, woken = rested()
    shared.began_job(1)
    assert shared.may_poll(2)
    shared.began_job(2)
    assert shared.may_poll(3)
    shared.began_job(3)
    assert woken == [2, 3], "nobody was left to be called"


def test_the_first_who_is_done_looks_when_all_have_worked():
    shared, _ = rested()
    for worker in WORKERS:
        shared.began_job(worker)
    assert shared.may_poll(2), "who has just worked asks again"
    assert shared.found_no_job(2)
    assert not shared.found_no_job(1)


def test_work_for_somebody_while_another_looks_calls_nobody():
    shared, woken = rested()
    shared.began_job(2)
    assert woken == []


def test_who_was_called_and_got_no_answer_asks_again():
    shared, _ = rested()
    shared.began_job(1)
    assert [shared.may_poll(2) for _ in range(3)] == [True, True, True]


@given(st.lists(st.tuples(st.sampled_from(WORKERS), st.sampled_from(["work", "nothing", "no answer"])), max_size=60))
def test_at_no_time_everybody_rests_and_nobody_looks_or_is_called(moves):
    """Otherwise a queue would be forgotten."""
    shared = PollerElection(lambda _: None)
    for worker, answer in moves:
        if not shared.may_poll(worker):
            continue
        if answer == "work":
            shared.began_job(worker)
        elif answer == "nothing":
            shared.found_no_job(worker)
        asks_by_itself = set(WORKERS) - shared._resting
        assert asks_by_itself or shared._poller in WORKERS or shared._called in shared._resting
        assert shared._poller is None or shared._poller in shared._resting
