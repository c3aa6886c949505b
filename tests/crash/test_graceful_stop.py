"""A server that receives SIGTERM, as from an init system or an upgrade, finishes the requests that it has."""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.conftest import DATABASES
from tests.crash.campaign import World
from tests.crash.load import Load
from tests.crash.processes import DEADLINE_S, Server
from tests.crash.tenants import Tenant
from tests.crash.wire import Answer, Client
from tests.servers import temporary_database

pytestmark = pytest.mark.slow

#: Time limit of a stop; the limits of init systems are longer.
ENDS_WITHIN_S = 15

#: Sessions of our database that wait for a lock; other tests use other databases of this server.
WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.postgresql
def test_a_stopping_server_answers_its_open_requests_and_keeps_their_writes(tmp_path):
    """Sends SIGTERM while three claims wait for a lock, then releases the lock."""
    with temporary_database("postgresql") as url, Server(tmp_path / "server", url) as server:
        server.start()
        server.wait()
        world = World(server.url, url, seed=1)
        world.set_up()

        def claim(tenant: Tenant) -> Answer:
            client = Client(server.url)
            step = tenant.next_step()
            answer = client.send(step.method, step.path, step.body)
            client.close()
            assert 200 <= answer.status < 300, answer
            tenant.known.acknowledge(step)
            return answer

        with psycopg.connect(url, autocommit=True) as holder, ThreadPoolExecutor(len(world.tenants)) as clients:
            holder.execute("BEGIN")
            holder.execute("SELECT last FROM change_sequence FOR UPDATE")
            answers = [clients.submit(claim, tenant) for tenant in world.tenants]
            until(lambda: server.in_flight() == len(world.tenants))
            with psycopg.connect(url) as looking:
                assert looking.execute(WAITING).fetchall()
            server.stop()
            until(lambda: not listens(server.port))
            holder.execute("COMMIT")
            assert [answer.result(DEADLINE_S).status // 100 for answer in answers] == [2] * len(world.tenants)
        assert server.died(ENDS_WITHIN_S) is not None
        server.start()
        server.wait()
        world.check()


@pytest.mark.parametrize("kind", DATABASES[:2])
def test_a_server_stopped_under_load_loses_no_write_and_leaves_no_partial_write(tmp_path, kind):
    """Each request is answered or never accepted; every acknowledged write is stored."""
    with temporary_database(kind) as url, Server(tmp_path / "server", url) as server:
        server.start()
        server.wait()
        world = World(server.url, url, seed=2)
        world.set_up()
        for _ in range(2):
            enough = threading.Event()
            load = Load(world.url, world.tenants, lambda number, enough=enough: number >= 40 and enough.set())
            assert enough.wait(DEADLINE_S)
            server.stop()
            assert server.died(ENDS_WITHIN_S) is not None
            load.join()
            server.start()
            server.wait()
            world.check()
        # An orderly stop interrupts no request: each was answered or never accepted.
        assert world.summary.unanswered["carried out"] == 0
