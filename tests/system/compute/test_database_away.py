"""Compute's database is away for longer than a host may be silent: no host counts as down for it."""

import contextlib
import threading
import time

import pytest

from moorage.core.errors import MoorageError
from tests.ports import free_port
from tests.servers import temporary_database
from tests.system.planes import PlaneProcess, until, write_config
from tests.transport.proxy import Line

pytestmark = pytest.mark.slow

DOWN_AFTER_S = 8


@pytest.fixture
def database():
    with temporary_database("postgresql") as url:
        yield url


def states_of(clients):
    rows = clients.compute.get("/os-services", params={"binary": "nova-compute"})["services"]
    return {row["host"]: row["state"] for row in rows}


@pytest.mark.parametrize("how", ["cut", "swallow"])
def test_no_host_is_down_because_the_database_was_away(tmp_path, database, how):
    line = Line(database)
    config = write_config(
        tmp_path / "state",
        server={"port": free_port()},
        database={"compute": line.url},
        compute={"host_down_after_s": DOWN_AFTER_S},
        agent={"heartbeat_period_s": 1.0, "poll_period_s": 1.0},
        reservation={"watch_period_s": 0.5},
    )
    with contextlib.closing(line), PlaneProcess(config.source) as plane:
        clients = plane.clients()
        until(lambda: states_of(clients) == {"compute-1": "up"})
        clients.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
        seen, ended = [], threading.Event()

        def look():
            while not ended.is_set():
                with contextlib.suppress(MoorageError):
                    seen.append(states_of(clients)["compute-1"])
                time.sleep(0.02)

        looking = threading.Thread(target=look)
        looking.start()
        getattr(line, how)()
        time.sleep(DOWN_AFTER_S + 4)
        before = len(seen)
        line.cut()
        line.mend()
        until(lambda: len(seen) > before + 200)
        ended.set()
        looking.join()
        assert set(seen) == {"up"}
        hosts = clients.reservation.get("/v1/os-hosts")["hosts"]
        assert [one["reservable"] for one in hosts] == [True]
        assert "host is down" not in plane.log
