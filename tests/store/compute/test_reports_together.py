"""Hosts that claim and report at the same moment, to two processes: each build ends once, and none is lost."""

import threading

from moorage.compute.agents.agent_service import AgentService
from moorage.compute.deps import ComputeDeps, ComputeSettings
from moorage.compute.model import lifecycle
from moorage.compute.model.job_payloads import build_job
from moorage.compute.model.servers import Action, HostReport, Placed, TaskState, VmState
from moorage.compute.moves.migration_engine import MigrationEngine
from moorage.compute.store import action_store, server_store
from moorage.core.clock import SystemClock
from moorage.db.session import read, write
from moorage.jobs.background_tasks import Wakeups
from moorage.jobs.job_api import JobReport, ReportState
from moorage.jobs.model import JobState
from moorage.jobs.wakeups import InProcessHints
from tests.migrated import migrated_engine
from tests.store.compute.test_server_store import a_server
from tests.store.conftest import on_every_database

HOSTS, SERVERS_PER_HOST = 6, 5


def agents_of_a_process(engine, ids):
    deps = ComputeDeps(engine, SystemClock(), ids, InProcessHints(Wakeups()))
    return AgentService(deps, ComputeSettings(), MigrationEngine(deps))


def wait_for_builds(engine, ids):
    """Servers that each host must build; returns their ids."""
    now, made = SystemClock().now(), []
    with write(engine) as connection:
        for number in range(HOSTS * SERVERS_PER_HOST):
            server = a_server(ids.uuid(), task_state=TaskState.SPAWNING, host=f"compute-{number % HOSTS}")
            action = Action(ids.uuid(), server.id, "req-1", "create", "alice", "red", now, now, None)
            server_store.insert_servers(connection, [server])
            action_store.begin_actions(connection, [action], lifecycle.CREATE.event)
            known = {"action_id": action.id, "request_id": "req-1"}
            job = build_job(server, Placed({}, {}), server.host, lifecycle.CREATE, known)
            server_store.HOST_JOBS.enqueue(connection, job, now)
            made.append(server.id)
    return made


@on_every_database
def test_builds_of_many_hosts_that_report_together_end_once(kind, ids):
    with migrated_engine("compute", kind) as engine:
        services = [agents_of_a_process(engine, ids) for _ in range(2)]
        for number in range(HOSTS):
            uuid = f"{number:08x}-0000-4000-8000-000000000000"
            services[0].register_host(HostReport(f"compute-{number}", uuid, "simulated", 1, "::1", 9, 9, 9, 0, {}))
        servers = wait_for_builds(engine, ids)
        built, failures = [], []

        def work(number):
            """The agent of a host; it sends every report twice, as if the first answer was lost."""
            name, service = f"compute-{number}", services[number % 2]
            try:
                while jobs := service.claim_jobs(name, f"{name}/1", 2):
                    for job in jobs:
                        built.append(job.key)
                        report = JobReport(ReportState.DONE, job.epoch, {"devices": [], "console": job.key})
                        service.report_job(job.id, report, host=name)
                        service.report_job(job.id, report, host=name)
            except Exception as error:  # noqa: BLE001 - the end of a thread: the test compares its error
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(HOSTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert sorted(built) == sorted(servers)
        with read(engine) as connection:
            for one in servers:
                (job,) = server_store.HOST_JOBS.story(connection, one)
                server = server_store.server(connection, one)
                assert (job.state, job.attempt) == (JobState.DONE, 1)
                assert (server.vm_state, server.task_state) == (VmState.ACTIVE, None)
                assert server_store.console(connection, one) == one
