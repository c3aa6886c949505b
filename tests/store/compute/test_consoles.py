"""Consoles that are asked for at the same moment: the limit of a project is exact."""

import threading
from concurrent.futures import ThreadPoolExecutor

from moorage.compute.deps import ComputeDeps, ComputeSettings
from moorage.compute.hosts import HostService
from moorage.compute.model.servers import HostReport, VmState
from moorage.compute.servers.console_service import CAPABILITY, SERIAL, ConsoleService
from moorage.compute.store import console_store, server_store
from moorage.core.caller import Caller
from moorage.core.clock import SystemClock
from moorage.core.errors import OverQuota
from moorage.db.session import read, write
from moorage.jobs.background_tasks import Wakeups
from moorage.jobs.wakeups import InProcessHints
from tests.migrated import migrated_engine
from tests.store.compute.test_reports_together import agents_of_a_process
from tests.store.compute.test_server_store import a_server
from tests.store.conftest import on_servers

SERVERS, LIMIT = 8, 3
ALICE = Caller("alice", "red", frozenset({"member"}))


@on_servers
def test_requests_for_many_servers_at_once_do_not_exceed_the_limit_of_the_project(kind, ids):
    with migrated_engine("compute", kind) as engine:
        report = HostReport("compute-1", ids.uuid(), "simulated", 1, "::1", 9, 9, 9, 0, {}, (CAPABILITY,))
        agents_of_a_process(engine, ids).register_host(report)
        servers = [
            a_server(ids.uuid(), host="compute-1", vm_state=VmState.ACTIVE, task_state=None) for _ in range(SERVERS)
        ]
        with write(engine) as connection:
            server_store.insert_servers(connection, servers)
        hints = InProcessHints(Wakeups())
        deps = ComputeDeps(engine, SystemClock(), ids, hints, console_url=lambda: "http://here")
        settings = ComputeSettings(quota_consoles=LIMIT)
        service = ConsoleService(deps, settings, HostService(deps, settings))
        together = threading.Barrier(SERVERS)

        def ask(server):
            together.wait(30)
            try:
                return service.create_console(ALICE, "req-1", server.id, SERIAL)
            except OverQuota:
                return None

        with ThreadPoolExecutor(SERVERS) as threads:
            given = list(threads.map(ask, servers))
        assert sum(url is not None for url in given) == LIMIT
        with read(engine) as connection:
            assert console_store.count_of_project(connection, "red") == LIMIT
