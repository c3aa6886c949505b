"""How many statements heartbeats cost, and when a host counts as up.

Heartbeats of one host and of many together are written and read on each database. When they are written is decided in
memory, so SQLite suffices for the tests of that decision.
"""

from datetime import timedelta

import pytest
from sqlalchemy import event

from moorage.compute.agents import outage_task
from moorage.compute.agents.agent_service import REPORT_REFRESH, WRITE_INTERVAL, AgentService, Heartbeats
from moorage.compute.agents.outage_task import OutageTask
from moorage.compute.deps import ComputeDeps, ComputeSettings
from moorage.compute.hosts import HostService
from moorage.compute.model.servers import HostReport
from moorage.compute.moves.migration_engine import MigrationEngine
from moorage.compute.store import host_store, server_store
from moorage.core.errors import NotFound, Unavailable
from moorage.db.session import read, write
from moorage.jobs.background_tasks import Wakeups
from moorage.jobs.contract import JobKind
from moorage.jobs.model import NewJob
from moorage.jobs.wakeups import InProcessHints
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database

PERIOD = timedelta(seconds=10)
UP_WINDOW_S = 60.0


def host_report(number, vcpus=16):
    uuid = f"{number:08x}-0000-4000-8000-000000000000"
    return HostReport(f"compute-{number}", uuid, "simulated", 1, "127.0.0.1", vcpus, 1024, 10, 0, {})


@pytest.fixture
def engine(kind):
    with migrated_engine("compute", kind) as engine:
        yield engine


def raises(error):
    def fail(*_arguments):
        raise error

    return fail


def new_agents(engine, clock, ids):
    deps = ComputeDeps(engine, clock, ids, InProcessHints(Wakeups()))
    return AgentService(deps, ComputeSettings(), MigrationEngine(deps))


@pytest.fixture
def agents(engine, clock, ids):
    return new_agents(engine, clock, ids)


@pytest.fixture
def hosts(engine, clock, ids):
    return HostService(
        ComputeDeps(engine, clock, ids, InProcessHints(Wakeups())), ComputeSettings(up_window_s=UP_WINDOW_S)
    )


@pytest.fixture
def statements(engine, agents):
    """The statements of all transactions. Single reads are counted separately, in `questions`."""
    recorded = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: recorded.append(arguments[2]))
    return recorded


@pytest.fixture
def questions(agents):
    asked = []

    def counted(ask):
        return lambda **what: asked.append(what) or ask(**what)

    agents._read_host = counted(agents._read_host)
    agents._jobs._any_claimable = counted(agents._jobs._any_claimable)
    return asked


def test_a_thousand_hosts_cost_a_few_statements_a_minute_and_no_transaction_per_heartbeat(
    agents, hosts, clock, statements, questions
):
    """Each host sends a heartbeat and claims jobs every ten seconds; the test counts statements, not time."""
    number = 1000
    for host in range(number):
        agents.register_host(host_report(host))
    clock.sleep(WRITE_INTERVAL.total_seconds())
    statements.clear()
    for _ in range(6):
        for host in range(number):
            agents.register_host(host_report(host))
            assert agents.claim_jobs(f"compute-{host}", f"compute-{host}/1", 1) == []
            clock.sleep(PERIOD.total_seconds() / number)
    minute = timedelta(minutes=1)
    updates = [statement for statement in statements if not statement.startswith("BEGIN")]
    assert len(updates) <= minute / WRITE_INTERVAL + 1
    assert len(questions) == 6 * number, "one read per claim, which also finds a new job at once"
    assert {one.is_up for one in hosts.hosts()} == {True}


@on_every_database
def test_a_host_without_heartbeats_is_down_after_the_up_window_and_up_after_its_next_call(agents, hosts, clock):
    for host in (1, 2):
        agents.register_host(host_report(host))
    silent_since = clock.now()

    def states():
        return [one.is_up for one in sorted(hosts.hosts(), key=lambda one: one.host.name)]

    while clock.now() - silent_since <= timedelta(seconds=UP_WINDOW_S):
        assert states()[1] is True
        agents.register_host(host_report(1))
        clock.sleep(5)
    assert states() == [True, False]
    agents.claim_jobs("compute-2", "compute-2/1", 1)
    clock.sleep(WRITE_INTERVAL.total_seconds())
    agents.register_host(host_report(1))
    assert states() == [True, True]


@on_every_database
def test_the_time_in_which_compute_could_not_write_does_not_count_as_silence(engine, agents, hosts, clock):
    def states():
        return [one.is_up for one in sorted(hosts.hosts(), key=lambda one: one.host.name)]

    task = OutageTask(engine, clock, hosts.deps.outages)
    task.run_once()
    agents.register_host(host_report(1))
    agents.register_host(host_report(2))
    clock.sleep(3600)  # the database stands still, and so does all that writes
    assert states() == [True, True]
    assert hosts.down_hosts() == []
    task.run_once()
    assert states() == [True, True]
    for _ in range(31):
        clock.sleep((task.run_once() - clock.now()).total_seconds())
        agents.register_host(host_report(1))
    assert states() == [True, False], "a host that is not heard afterwards is down"
    assert hosts.down_hosts() == ["compute-2"]


@on_every_database
def test_the_time_before_the_start_of_a_process_counts_only_if_another_process_ran(engine, agents, clock, ids):
    def start():
        deps = ComputeDeps(engine, clock, ids, InProcessHints(Wakeups()))
        task = OutageTask(engine, clock, deps.outages)
        task.run_once()
        return task, HostService(deps, ComputeSettings(up_window_s=UP_WINDOW_S))

    start()
    agents.register_host(host_report(1))
    agents.register_host(host_report(2))
    clock.sleep(3600)
    first, hosts = start()
    agents.register_host(host_report(2))
    clock.sleep(2)
    _, beside = start()
    assert hosts.down_hosts() == beside.down_hosts() == [], "both know the outage, also if a host has reported since"
    for _ in range(31):
        first.run_once()
        agents.register_host(host_report(2))
        clock.sleep(2)
    assert hosts.down_hosts() == ["compute-1"]
    _, late = start()
    assert late.down_hosts() == ["compute-1"]


@pytest.mark.parametrize("error", [Unavailable("gone"), OSError("gone")])
def test_a_write_that_fails_does_not_end_an_outage(engine, agents, hosts, clock, monkeypatch, error):
    task = OutageTask(engine, clock, hosts.deps.outages)
    task.run_once()
    agents.register_host(host_report(1))
    monkeypatch.setattr(outage_task, "in_transaction", raises(error))
    for _ in range(31):
        clock.sleep(2)
        with pytest.raises(type(error)):
            task.run_once()
    assert hosts.down_hosts() == []


def test_a_claim_of_jobs_counts_as_a_heartbeat(agents, hosts, clock):
    agents.register_host(host_report(1))
    for _ in range(30):
        clock.sleep(PERIOD.total_seconds())
        agents.claim_jobs("compute-1", "compute-1/1", 1)
    assert hosts.hosts()[0].is_up


@on_every_database
def test_a_restarted_service_counts_a_claim_as_a_heartbeat_and_does_not_rewrite_an_unchanged_report(
    agents, engine, hosts, clock, ids
):
    agents.register_host(host_report(1))
    clock.sleep(UP_WINDOW_S + 1)
    assert not hosts.hosts()[0].is_up
    again = new_agents(engine, clock, ids)
    assert again.claim_jobs("compute-1", "compute-1/1", 1) == []
    assert hosts.hosts()[0].is_up
    written = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: written.append(arguments[2]))
    again.register_host(host_report(1))
    assert not any("vcpus" in statement for statement in written)


@on_every_database
def test_a_changed_host_report_is_written_at_once(agents, engine, clock):
    agents.register_host(host_report(1))
    agents.register_host(host_report(1, vcpus=32))
    with read(engine) as connection:
        assert host_store.host(connection, "compute-1").report.vcpus == 32


def test_a_report_that_another_process_overwrote_is_written_again_after_the_refresh_period(agents, engine, clock, ids):
    agents.register_host(host_report(1))
    new_agents(engine, clock, ids).register_host(host_report(1, vcpus=32))
    clock.sleep(REPORT_REFRESH.total_seconds())
    agents.register_host(host_report(1))
    with read(engine) as connection:
        assert host_store.host(connection, "compute-1").report.vcpus == 16


@on_every_database
def test_a_job_is_found_by_the_next_claim(agents, engine, clock):
    agents.register_host(host_report(1))
    assert agents.claim_jobs("compute-1", "compute-1/1", 1) == []
    with write(engine) as connection:
        server_store.HOST_JOBS.enqueue(connection, NewJob("j", "compute-1", JobKind.BUILD, "k", {}), clock.now())
    assert [job.id for job in agents.claim_jobs("compute-1", "compute-1/1", 1)] == ["j"]
    assert [job.epoch for job in agents.claim_jobs("compute-1", "compute-1/1", 1)] == [2], (
        "a worker that claims again gets its job again"
    )


@on_every_database
def test_a_deleted_host_gets_no_jobs_until_its_agent_registers_it_again(agents, engine, hosts, clock):
    for host in (1, 2):
        agents.register_host(host_report(host))
    with write(engine) as connection:
        host_store.delete_host(connection, "compute-1")
    for _ in range(2):
        clock.sleep(WRITE_INTERVAL.total_seconds())
        agents.register_host(host_report(2))
        agents.register_host(host_report(1))
    assert {one.host.name for one in hosts.hosts()} == {"compute-1", "compute-2"}
    with write(engine) as connection:
        host_store.delete_host(connection, "compute-1")
    clock.sleep(WRITE_INTERVAL.total_seconds())
    with pytest.raises(NotFound, match="an agent registers it first"):
        agents.claim_jobs("compute-1", "compute-1/1", 1)


def test_heartbeats_that_could_not_be_written_are_written_with_the_next_ones(engine, clock, agents, hosts, monkeypatch):
    agents.register_host(host_report(1))
    agents.register_host(host_report(2))
    clock.sleep(30)

    def away(*_):
        raise Unavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr("moorage.compute.agents.agent_service.in_transaction", away)
        with pytest.raises(Unavailable):
            agents.register_host(host_report(1))
    clock.sleep(1)
    agents.register_host(host_report(2))
    clock.sleep(UP_WINDOW_S - 2)
    assert [one.is_up for one in hosts.hosts()] == [True, True]


def test_a_heartbeat_of_an_unknown_host_is_not_recorded(engine, clock, agents):
    assert not Heartbeats(engine, clock).record_heartbeat("nobody")
