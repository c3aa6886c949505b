"""The statements that heartbeats cost, and that heartbeats are correct.

On each database: heartbeats of one host and of many together are written and read. When they are written is decided in
memory.
"""

from datetime import timedelta

import pytest
from sqlalchemy import event

from moorage.compute.agents.agent_service import REPORT_REFRESH, WRITE_INTERVAL, AgentService, Heartbeats
from moorage.compute.hosts.host_service import HostService
from moorage.compute.model.servers import HostReport
from moorage.compute.store import host_store, server_store
from moorage.core.errors import NotFound, Unavailable
from moorage.db.session import read, write
from moorage.jobs.background_tasks import Wakeups
from moorage.jobs.model import NewJob
from moorage.jobs.wakeups import InProcessHints
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database

PERIOD = timedelta(seconds=10)
UP_WINDOW_S = 60.0


def facts(number, vcpus=16):
    uuid = f"{number:08x}-0000-4000-8000-000000000000"
    return HostReport(f"compute-{number}", uuid, "simulated", 1, "127.0.0.1", vcpus, 1024, 10, 0, {})


@pytest.fixture
def engine(kind):
    with migrated_engine("compute", kind) as engine:
        yield engine


@pytest.fixture
def agents(engine, clock, ids):
    return AgentService(engine, clock, ids, InProcessHints(Wakeups()))


@pytest.fixture
def hosts(engine, clock, ids):
    return HostService(engine, clock, ids, InProcessHints(Wakeups()), up_window_s=UP_WINDOW_S)


@pytest.fixture
def statements(engine, agents):
    """Those of transactions; single reads (`questions`) are counted separately."""
    said = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: said.append(arguments[2]))
    return said


@pytest.fixture
def questions(agents):
    asked, ask = [], agents._open_jobs
    agents._open_jobs = lambda **what: asked.append(what) or ask(**what)
    return asked


def test_a_thousand_hosts_cost_a_few_statements_a_minute_and_no_transaction_per_beat(
    agents, hosts, clock, statements, questions
):
    """Each sends a heartbeat and polls every ten seconds; the test counts work, not time."""
    number = 1000
    for host in range(number):
        agents.register_host(facts(host))
    clock.sleep(WRITE_INTERVAL.total_seconds())
    statements.clear()
    for _ in range(6):
        for host in range(number):
            agents.register_host(facts(host))
            assert agents.claim_jobs(f"compute-{host}", f"compute-{host}/1", 1) == []
            clock.sleep(PERIOD.total_seconds() / number)
    minute = timedelta(minutes=1)
    updates = [statement for statement in statements if not statement.startswith("BEGIN")]
    assert len(updates) <= minute / WRITE_INTERVAL + 1
    assert len(questions) == 6 * number, "one question each time for jobs: they must be found at once"
    assert {one.is_up for one in hosts.hosts()} == {True}


@on_every_database
def test_a_host_that_falls_silent_is_down_after_the_bound_and_up_with_its_next_sign(agents, hosts, clock):
    for host in (1, 2):
        agents.register_host(facts(host))
    silent_since = clock.now()

    def states():
        return [one.is_up for one in sorted(hosts.hosts(), key=lambda one: one.host.name)]

    while clock.now() - silent_since <= timedelta(seconds=UP_WINDOW_S):
        assert states()[1] is True
        agents.register_host(facts(1))
        clock.sleep(5)
    assert states() == [True, False]
    agents.claim_jobs("compute-2", "compute-2/1", 1)
    clock.sleep(WRITE_INTERVAL.total_seconds())
    agents.register_host(facts(1))
    assert states() == [True, True]


def test_asking_for_jobs_is_a_sign_of_life_too(agents, hosts, clock):
    agents.register_host(facts(1))
    for _ in range(30):
        clock.sleep(PERIOD.total_seconds())
        agents.claim_jobs("compute-1", "compute-1/1", 1)
    assert hosts.hosts()[0].is_up


@on_every_database
def test_a_process_that_was_restarted_takes_a_claim_for_a_sign_of_life_and_knows_the_facts(
    agents, engine, hosts, clock, ids
):
    agents.register_host(facts(1))
    clock.sleep(UP_WINDOW_S + 1)
    assert not hosts.hosts()[0].is_up
    again = AgentService(engine, clock, ids, InProcessHints(Wakeups()))
    assert again.claim_jobs("compute-1", "compute-1/1", 1) == []
    assert hosts.hosts()[0].is_up
    written = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: written.append(arguments[2]))
    again.register_host(facts(1))
    assert not any("vcpus" in statement for statement in written)


@on_every_database
def test_changed_facts_are_written_at_once(agents, engine, clock):
    agents.register_host(facts(1))
    agents.register_host(facts(1, vcpus=32))
    with read(engine) as connection:
        assert host_store.host(connection, "compute-1").report.vcpus == 32


def test_facts_that_another_process_wrote_meanwhile_are_set_right_some_time(agents, engine, clock, ids):
    agents.register_host(facts(1))
    AgentService(engine, clock, ids, InProcessHints(Wakeups())).register_host(facts(1, vcpus=32))
    clock.sleep(REPORT_REFRESH.total_seconds())
    agents.register_host(facts(1))
    with read(engine) as connection:
        assert host_store.host(connection, "compute-1").report.vcpus == 16


@on_every_database
def test_a_job_is_found_by_the_next_claim(agents, engine, clock):
    agents.register_host(facts(1))
    assert agents.claim_jobs("compute-1", "compute-1/1", 1) == []
    with write(engine) as connection:
        server_store.HOST_JOBS.enqueue(connection, NewJob("j", "compute-1", "build", "k", {}), clock.now())
    assert [job.id for job in agents.claim_jobs("compute-1", "compute-1/1", 1)] == ["j"]
    assert [job.epoch for job in agents.claim_jobs("compute-1", "compute-1/1", 1)] == [2], "who asks again has it again"


@on_every_database
def test_a_host_that_was_forgotten_gets_no_jobs_until_it_is_registered_again(agents, engine, hosts, clock):
    for host in (1, 2):
        agents.register_host(facts(host))
    with write(engine) as connection:
        host_store.delete_host(connection, "compute-1")
    for _ in range(2):
        clock.sleep(WRITE_INTERVAL.total_seconds())
        agents.register_host(facts(2))
        agents.register_host(facts(1))
    assert {one.host.name for one in hosts.hosts()} == {"compute-1", "compute-2"}
    with write(engine) as connection:
        host_store.delete_host(connection, "compute-1")
    clock.sleep(WRITE_INTERVAL.total_seconds())
    with pytest.raises(NotFound, match="an agent registers it first"):
        agents.claim_jobs("compute-1", "compute-1/1", 1)


def test_signs_of_life_that_could_not_be_written_are_kept(engine, clock, agents, hosts, monkeypatch):
    agents.register_host(facts(1))
    agents.register_host(facts(2))
    clock.sleep(30)

    def away(*_):
        raise Unavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr("moorage.compute.agents.agent_service.in_transaction", away)
        with pytest.raises(Unavailable):
            agents.register_host(facts(1))
    clock.sleep(1)
    agents.register_host(facts(2))
    clock.sleep(UP_WINDOW_S - 2)
    assert [one.is_up for one in hosts.hosts()] == [True, True]


def test_a_host_that_is_not_known_is_not_noted(engine, clock, agents):
    assert not Heartbeats(engine, clock).record_heartbeat("nobody")
