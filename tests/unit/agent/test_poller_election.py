"""The election of the one worker of a queue that polls it while all are idle."""

from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.jobs.job_task import PollerElection

WORKERS = (1, 2, 3)


def idle_workers():
    """An election in which no worker found a job, so that only worker 1 polls; and the list of woken workers."""
    woken = []
    shared = PollerElection(woken.append)
    assert [shared.found_no_job(worker) for worker in WORKERS] == [True, False, False]
    return shared, woken


def polling(shared):
    return [worker for worker in WORKERS if shared.may_poll(worker)]


def test_at_the_start_every_worker_polls_once():
    assert polling(PollerElection(lambda _: None)) == [1, 2, 3]


def test_of_idle_workers_only_the_elected_one_polls():
    shared, _ = idle_workers()
    assert polling(shared) == [1]


def test_when_the_poller_begins_a_job_an_idle_worker_is_woken_to_poll():
    shared, woken = idle_workers()
    shared.began_job(1)
    assert woken == [2]
    assert shared.may_poll(2)
    assert not shared.may_poll(3)
    assert shared.found_no_job(2)
    assert [worker for worker in (2, 3) if shared.may_poll(worker)] == [2]


def test_when_the_woken_worker_begins_a_job_the_next_idle_one_is_woken():
    shared, woken = idle_workers()
    shared.began_job(1)
    assert shared.may_poll(2)
    shared.began_job(2)
    assert shared.may_poll(3)
    shared.began_job(3)
    assert woken == [2, 3], "no idle worker is left"


def test_after_all_workers_had_jobs_the_first_idle_one_becomes_the_poller():
    shared, _ = idle_workers()
    for worker in WORKERS:
        shared.began_job(worker)
    assert shared.may_poll(2), "a worker polls again after a job"
    assert shared.found_no_job(2)
    assert not shared.found_no_job(1)


def test_a_job_of_another_worker_wakes_no_worker_while_the_poller_is_idle():
    shared, woken = idle_workers()
    shared.began_job(2)
    assert woken == []


def test_a_woken_worker_whose_poll_fails_polls_again():
    shared, _ = idle_workers()
    shared.began_job(1)
    assert [shared.may_poll(2) for _ in range(3)] == [True, True, True]


def test_after_the_last_job_of_a_queue_the_next_worker_is_the_poller_and_does_not_ask():
    shared, woken = idle_workers()
    assert shared.may_poll(1)
    shared.began_job(1, may_have_more=False)
    assert woken == [2], "it must wait for the end of the poll period"
    assert shared.need_not_poll(2)
    assert not shared.need_not_poll(2), "only once"
    assert [worker for worker in (2, 3) if shared.may_poll(worker)] == [2]


def test_a_hint_between_the_question_and_the_first_job_lets_the_next_worker_ask():
    shared, woken = idle_workers()
    assert shared.may_poll(1)
    shared.hear_hint()
    shared.began_job(1, may_have_more=False)
    assert woken == [2]
    assert not shared.need_not_poll(2)
    assert shared.may_poll(2)


def test_a_hint_after_the_last_job_lets_the_new_poller_ask():
    shared, _ = idle_workers()
    assert shared.may_poll(1)
    shared.began_job(1, may_have_more=False)
    shared.hear_hint()
    assert not shared.need_not_poll(2)
    assert [worker for worker in (2, 3) if shared.may_poll(worker)] == [2]


ANSWERS = ("work", "last work", "nothing", "no answer")


@given(st.lists(st.tuples(st.sampled_from(WORKERS), st.sampled_from(ANSWERS), st.booleans()), max_size=60))
def test_at_any_time_a_worker_is_busy_polling_or_woken(moves):
    """Otherwise no worker would poll the queue any more."""
    shared = PollerElection(lambda _: None)
    for worker, answer, has_hint in moves:
        if shared.need_not_poll(worker) or not shared.may_poll(worker):
            continue
        if has_hint:
            shared.hear_hint()
        if answer in ("work", "last work"):
            shared.began_job(worker, may_have_more=answer == "work")
        elif answer == "nothing":
            shared.found_no_job(worker)
        asks_by_itself = set(WORKERS) - shared._resting
        assert asks_by_itself or shared._poller in WORKERS or shared._called in shared._resting
        assert shared._poller is None or shared._poller in shared._resting
