"""The jobs table on all three databases.

They run on each database because the statements lock or change rows under conditions and use the driver's row count.
"""

import dataclasses
from datetime import timedelta
from itertools import count

import pytest

from moorage.core.errors import Conflict, MoorageError, NotFound
from moorage.db.session import read, write
from moorage.db.types import new_metadata
from moorage.jobs.contract import JobKind
from moorage.jobs.model import JobState, NewJob
from moorage.jobs.store import Ending, JobStore
from moorage.jobs.tables import jobs_table
from tests.databases import Schema
from tests.migrated import engine_with
from tests.store.conftest import on_every_database

METADATA = new_metadata()
STORE = JobStore(jobs_table(METADATA))
THREE_TIMES = JobStore(STORE.table, max_attempts=3)

LEASE_S = 60.0
numbers = count()


SCHEMA = Schema("jobs", METADATA.create_all)


@pytest.fixture
def jobs(kind):
    with engine_with(SCHEMA, kind) as engine:
        yield engine


def new(job_id, key="server-1", queue="compute-1"):
    return NewJob(id=job_id, queue=queue, kind=JobKind.BUILD, key=key, payload={"server": {"id": key}, "n": [1, None]})


def enqueue(engine, now, *jobs):
    with write(engine) as connection:
        for job in jobs:
            STORE.enqueue(connection, job, now)


def claim(engine, now, *, queue="compute-1", worker=None, limit=1, store=STORE, given_up=None):
    """By a worker that has not claimed anything before, unless one is named."""
    worker = worker or f"worker {next(numbers)}"
    with write(engine) as connection:
        return store.claim(connection, queue, worker, now, LEASE_S, limit, given_up=given_up)


def finish(engine, job, now, state=JobState.DONE, result=None):
    with write(engine) as connection:
        return STORE.finish(connection, job.id, job.epoch, state, result, now)


def get(engine, job_id):
    with read(engine) as connection:
        return STORE.get(connection, job_id)


def next_due(engine, queue="compute-1"):
    with read(engine) as connection:
        return STORE.next_due(connection, queue)


def test_a_kind_of_a_newer_release_is_named_with_its_job(clock):
    with engine_with(SCHEMA, "sqlite") as engine:
        enqueue(engine, clock.now(), new("a"))
        with write(engine) as connection:
            connection.execute(STORE.table.update().values(kind="dance"))
        with pytest.raises(MoorageError, match=r"job a in queue compute-1 has the kind 'dance'.*upgrade this process"):
            claim(engine, clock.now())


@on_every_database
def test_an_enqueued_job_reads_back_the_same(jobs, clock):
    enqueue(jobs, clock.now(), new("a"))
    job = get(jobs, "a")
    assert (job.id, job.queue, job.kind, job.key) == ("a", "compute-1", "build", "server-1")
    assert job.payload == {"server": {"id": "server-1"}, "n": [1, None]}
    assert (job.state, job.attempt, job.epoch, job.lease_until, job.result) == (JobState.READY, 0, 0, None, None)
    assert job.created_at == clock.now()


@on_every_database
def test_enqueuing_an_existing_id_again_changes_nothing(jobs, clock):
    enqueue(jobs, clock.now(), new("a"))
    [first] = claim(jobs, clock.now())
    enqueue(jobs, clock.now(), new("a", key="another", queue="elsewhere"))
    assert get(jobs, "a") == first


@on_every_database
def test_a_claim_counts_the_attempt_and_bumps_the_epoch(jobs, clock):
    enqueue(jobs, clock.now(), new("a"))
    [job] = claim(jobs, clock.now(), worker="w7")
    assert (job.state, job.attempt, job.epoch, job.worker) == (JobState.CLAIMED, 1, 1, "w7")
    assert job.lease_until == clock.now() + timedelta(seconds=LEASE_S)


@on_every_database
def test_a_claim_from_an_empty_queue_returns_no_jobs(jobs, clock):
    enqueue(jobs, clock.now(), new("a", queue="compute-2"))
    assert claim(jobs, clock.now()) == []


@on_every_database
def test_jobs_enqueued_at_the_same_time_are_claimed_in_the_order_of_arrival(jobs, clock):
    names = [f"job-{number}" for number in (7, 3, 9, 1)]
    enqueue(jobs, clock.now(), *(new(name, key=name) for name in names))
    assert [job.id for job in claim(jobs, clock.now(), limit=3)] == names[:3]
    assert [job.id for job in claim(jobs, clock.now(), limit=3)] == names[3:]


@on_every_database
def test_jobs_of_one_key_run_one_at_a_time_and_in_order(jobs, clock):
    enqueue(jobs, clock.now(), new("a"), new("b"), new("c", key="server-2"))
    first = claim(jobs, clock.now(), limit=9)
    assert [job.id for job in first] == ["a", "c"]
    assert claim(jobs, clock.now(), limit=9) == []
    finish(jobs, first[0], clock.now())
    assert [job.id for job in claim(jobs, clock.now(), limit=9)] == ["b"]


@on_every_database
def test_a_key_has_one_claimed_job_at_a_time_in_all_queues(jobs, clock):
    enqueue(jobs, clock.now(), new("a", queue="compute-build"), new("b", queue="compute-1"))
    assert claim(jobs, clock.now()) == []
    [first] = claim(jobs, clock.now(), queue="compute-build")
    assert claim(jobs, clock.now()) == []
    finish(jobs, first, clock.now())
    assert [job.id for job in claim(jobs, clock.now())] == ["b"]


@on_every_database
def test_keys_that_differ_only_in_case_are_different(jobs, clock):
    enqueue(jobs, clock.now(), new("a", key="host"), new("b", key="HOST"))
    assert len(claim(jobs, clock.now(), limit=2)) == 2


@on_every_database
def test_a_job_whose_lease_has_expired_is_claimed_again_with_a_higher_epoch(jobs, clock):
    enqueue(jobs, clock.now(), new("a"), new("b"))
    claim(jobs, clock.now(), worker="w1")
    clock.sleep(LEASE_S - 0.001)
    assert claim(jobs, clock.now(), worker="w2") == []
    clock.sleep(0.001)
    [again] = claim(jobs, clock.now(), worker="w2", limit=9)
    assert (again.id, again.epoch, again.attempt, again.worker) == ("a", 2, 2, "w2")


@on_every_database
def test_a_worker_that_claims_again_gets_its_job_again_and_its_earlier_claim_is_fenced(jobs, clock):
    """After a restart or a lost answer, a worker does not have to wait for the end of its lease."""
    enqueue(jobs, clock.now(), new("a"), new("b"), new("c", key="server-2"))
    [before] = claim(jobs, clock.now(), worker="compute-1/1")
    assert [job.id for job in claim(jobs, clock.now(), worker="compute-1/2", limit=9)] == ["c"]
    [again] = claim(jobs, clock.now(), worker="compute-1/1", limit=9)
    assert (again.id, again.epoch, again.attempt) == ("a", 2, 2)
    with pytest.raises(Conflict) as caught:
        finish(jobs, before, clock.now())
    assert caught.value.error_code == "jobs.fenced"
    assert finish(jobs, again, clock.now())


@on_every_database
def test_a_worker_does_not_get_a_finished_job_again(jobs, clock):
    enqueue(jobs, clock.now(), new("a"))
    [job] = claim(jobs, clock.now(), worker="compute-1/1")
    finish(jobs, job, clock.now())
    assert claim(jobs, clock.now(), worker="compute-1/1") == []


@on_every_database
def test_a_late_report_is_fenced(jobs, clock):
    enqueue(jobs, clock.now(), new("a"))
    [late] = claim(jobs, clock.now(), worker="w1")
    clock.sleep(LEASE_S)
    [current] = claim(jobs, clock.now(), worker="w2")
    with write(jobs) as connection:
        for report in (
            lambda: STORE.finish(connection, "a", late.epoch, JobState.DONE, None, clock.now()),
            lambda: STORE.extend(connection, "a", late.epoch, clock.now() + timedelta(hours=1)),
            lambda: STORE.release(connection, "a", late.epoch),
        ):
            with pytest.raises(Conflict) as caught:
                report()
            assert caught.value.error_code == "jobs.fenced"
            assert caught.value.fields == {"epoch": 2}
    assert get(jobs, "a") == current


@on_every_database
def test_an_expired_lease_can_be_extended_while_no_other_worker_has_claimed_the_job(jobs, clock):
    enqueue(jobs, clock.now(), new("a"))
    [job] = claim(jobs, clock.now())
    clock.sleep(LEASE_S * 2)
    with write(jobs) as connection:
        STORE.extend(connection, "a", job.epoch, clock.now() + timedelta(seconds=1))
    assert claim(jobs, clock.now()) == []


@on_every_database
@pytest.mark.parametrize("state", [JobState.DONE, JobState.FAILED, JobState.CANCELLED])
def test_a_repeated_report_is_accepted_and_changes_nothing(jobs, clock, state):
    enqueue(jobs, clock.now(), new("a"))
    [job] = claim(jobs, clock.now())
    assert finish(jobs, job, clock.now(), state, {"devices": [{"pci_id": "0000:3b:00.1"}]}) is True
    clock.sleep(5)
    assert finish(jobs, job, clock.now(), state, {"devices": []}) is False
    done = get(jobs, "a")
    assert (done.state, done.result) == (state, {"devices": [{"pci_id": "0000:3b:00.1"}]})
    assert done.finished_at == clock.now() - timedelta(seconds=5)
    assert done.lease_until is None


@on_every_database
def test_a_finished_job_cannot_get_another_state(jobs, clock):
    enqueue(jobs, clock.now(), new("a"))
    [job] = claim(jobs, clock.now())
    finish(jobs, job, clock.now(), JobState.DONE)
    with pytest.raises(Conflict, match="is done, not claimed: it cannot become failed") as caught:
        finish(jobs, job, clock.now(), JobState.FAILED)
    assert caught.value.error_code == "moorage.state"


@on_every_database
def test_several_jobs_are_finished_together_or_none_of_them(jobs, clock):
    enqueue(jobs, clock.now(), new("first"), new("second", "server-2"), new("third", "server-3"))
    claimed = claim(jobs, clock.now(), worker="one", limit=3)
    with pytest.raises(Conflict), write(jobs) as connection:
        late = dataclasses.replace(claimed[1], epoch=claimed[1].epoch - 1)
        STORE.finish_all(
            connection, [Ending(one, JobState.DONE, {}) for one in (claimed[0], late, claimed[2])], clock.now()
        )
    assert {get(jobs, one.id).state for one in claimed} == {JobState.CLAIMED}
    with write(jobs) as connection:
        endings = [Ending(one, JobState.DONE, {"host": one.key}) for one in claimed]
        STORE.finish_all(connection, endings, clock.now())
    assert {(get(jobs, one.id).state, get(jobs, one.id).result["host"]) for one in claimed} == {
        (JobState.DONE, f"server-{number}") for number in (1, 2, 3)
    }
    with pytest.raises(Conflict), write(jobs) as connection:
        STORE.finish_all(connection, [Ending(claimed[0], JobState.DONE, {})], clock.now())


@on_every_database
def test_an_unclaimed_job_cannot_be_finished(jobs, clock):
    enqueue(jobs, clock.now(), new("a"))
    with pytest.raises(Conflict, match="is ready, not claimed"):
        finish(jobs, get(jobs, "a"), clock.now())


@on_every_database
def test_a_report_on_an_unknown_job_is_refused_as_not_found(jobs, clock):
    with write(jobs) as connection, pytest.raises(NotFound, match="there is no job x"):
        STORE.extend(connection, "x", 1, clock.now())


@on_every_database
def test_a_released_job_keeps_its_place_in_the_queue_and_is_not_claimed_before_its_time(jobs, clock):
    enqueue(jobs, clock.now(), new("a"), new("b"))
    [job] = claim(jobs, clock.now())
    moment = clock.now() + timedelta(seconds=10)
    with write(jobs) as connection:
        STORE.release(connection, "a", job.epoch, not_before=moment)
    assert claim(jobs, clock.now(), limit=9) == []
    assert next_due(jobs) == moment
    clock.advance_to(moment)
    [again] = claim(jobs, clock.now(), limit=9)
    assert (again.id, again.epoch, again.attempt) == ("a", 2, 2)


@on_every_database
def test_a_job_without_attempts_left_fails_with_a_reason_and_the_next_job_of_its_key_can_be_claimed(jobs, clock):
    enqueue(jobs, clock.now(), new("a"), new("b"))
    told = []
    for attempt in (1, 2, 3):
        [job] = claim(jobs, clock.now(), worker="w1", store=THREE_TIMES, given_up=lambda _, job: told.append(job))
        assert (job.id, job.attempt) == ("a", attempt)
        clock.sleep(LEASE_S)
    assert claim(jobs, clock.now(), store=THREE_TIMES, given_up=lambda _, job: told.append(job)) == []
    failed = get(jobs, "a")
    assert told == [failed]
    assert failed.state is JobState.FAILED
    assert failed.result == {
        "error": "given up after 3 attempts; the last worker, w1, did not report in time",
        "code": "jobs.attempts",
    }
    assert [job.id for job in claim(jobs, clock.now(), store=THREE_TIMES)] == ["b"]


@on_every_database
def test_only_an_unclaimed_job_can_be_cancelled(jobs, clock):
    enqueue(jobs, clock.now(), new("a"), new("b"))
    claim(jobs, clock.now())
    with write(jobs) as connection:
        assert STORE.cancel(connection, "a", clock.now()) is False
        assert STORE.cancel(connection, "b", clock.now()) is True
        assert STORE.cancel(connection, "b", clock.now()) is False
        assert STORE.cancel(connection, "x", clock.now()) is False
    assert get(jobs, "a").state is JobState.CLAIMED
    assert get(jobs, "b").state is JobState.CANCELLED


@on_every_database
def test_next_due_is_the_time_at_which_a_claim_would_find_a_job(jobs, clock):
    assert next_due(jobs) is None
    enqueue(jobs, clock.now(), new("a"), new("b"), new("c", queue="compute-2"))
    assert next_due(jobs) == clock.now()
    # "c" waits for "a" of another queue, so it cannot be claimed before that is finished.
    assert next_due(jobs, "compute-2") is None
    [job] = claim(jobs, clock.now())
    assert next_due(jobs) == job.lease_until
    finish(jobs, job, clock.now())
    [job] = claim(jobs, clock.now())
    finish(jobs, job, clock.now())
    assert next_due(jobs) is None
    assert next_due(jobs, "compute-2") is not None


@on_every_database
def test_the_jobs_of_a_key_are_listed_until_they_are_pruned(jobs, clock):
    enqueue(jobs, clock.now(), new("a"), new("b"), new("c", key="server-2"))
    [job] = claim(jobs, clock.now())
    finish(jobs, job, clock.now())
    with write(jobs) as connection:
        assert [job.id for job in STORE.story(connection, "server-1")] == ["a", "b"]
        assert STORE.prune(connection, clock.now(), 9) == 0
        assert STORE.prune(connection, clock.now() + timedelta(seconds=1), 9) == 1
        assert [job.id for job in STORE.story(connection, "server-1")] == ["b"]


SECRETS = JobStore(STORE.table, max_attempts=1, secrets=(("password",), ("server", "guest", "user_data")))
SECRET = "geheim \N{SNOWMAN} '\"\\\\ %s {x}"


def _finished(state):
    return lambda connection, job, now: SECRETS.finish(connection, job.id, job.epoch, state, {"a": 1}, now)


#: Name -> (whether the job is claimed first, the function that ends it).
ENDS = {
    **{state.value: (True, _finished(state)) for state in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)},
    "done with others": (
        True,
        lambda connection, job, now: SECRETS.finish_all(connection, [Ending(job, JobState.DONE, {})], now),
    ),
    "cancelled before": (False, lambda connection, job, now: SECRETS.cancel(connection, job.id, now)),
    "revoked": (True, lambda connection, job, now: SECRETS.revoke(connection, job.key, job.queue, now)),
    "revoked before": (False, lambda connection, job, now: SECRETS.revoke(connection, job.key, job.queue, now)),
    "one revoked": (True, lambda connection, job, now: SECRETS.revoke_one(connection, job.id, now)),
    "given up": (
        True,
        lambda connection, job, now: SECRETS.claim(
            connection, job.queue, "another", now + timedelta(seconds=LEASE_S), LEASE_S
        ),
    ),
}


@on_every_database
@pytest.mark.parametrize("end", ENDS)
def test_the_secrets_of_a_job_are_removed_however_it_ends_and_the_rest_is_kept(jobs, clock, end):
    now, (is_begun, ends) = clock.now(), ENDS[end]
    server = {"id": "s", "name": "a \N{SNOWMAN}", "guest": {"hostname": "h", "user_data": SECRET}}
    payload = {"server": server, "password": SECRET, "n": [1, None, 2.5], "action_id": "a"}
    secret = dataclasses.replace(new("1"), payload=payload)
    without = dataclasses.replace(
        new("2", key="other", queue="other"), payload={"server": {"guest": None}, "password": ""}
    )
    enqueue(jobs, now, secret, without)
    job = claim(jobs, now)[0] if is_begun else get(jobs, "1")
    assert job.payload == payload
    with write(jobs) as connection:
        ends(connection, job, now)
        SECRETS.revoke_one(connection, "2", now)
    ended = get(jobs, "1")
    assert ended.finished_at is not None
    guest = {"hostname": "h", "user_data": ""}
    assert ended.payload == {**payload, "password": "", "server": {**server, "guest": guest}}
    assert get(jobs, "2").payload == without.payload
