"""Kills a process that runs lease events, with SIGKILL: its claims are taken over within five seconds.

Real processes under adjustable clocks: the test moves a clock to the start of twelve leases, and the process dies
before it gives a project access to the first of them.
"""

import contextlib
import time
from datetime import timedelta

import pytest

from moorage.core.clock import SystemClock
from moorage.core.errors import MoorageError
from moorage.wire.client import NoCredentials, ServiceClient
from moorage.wire.transports import SocketTransport
from tests.crash.processes import Process, Zygote
from tests.ports import free_port
from tests.servers import temporary_database
from tests.system.planes import PlaneClients, until, write_config

pytestmark = pytest.mark.slow

WITH_HOST = ("placement", "image", "compute", "accelerator", "agent")
PACKAGES = (
    "cli",
    "placement",
    "compute",
    "reservation",
    "agent",
    "accelerator",
    "identity",
    "images",
    "jobs",
    "wiring",
)
LEASES = 12
GRANT = "before POST /v2.1/flavors/*/action"
#: Issue 18, point 11: "within 5 s".
TAKEN_OVER_WITHIN_S = 5.0
PATIENCE_S = 90
DAY_S = 86400.0


@pytest.fixture
def zygote():
    zygote = Zygote(*(f"moorage.{package}" for package in PACKAGES))
    yield zygote
    zygote.close()


class Member:
    """One process of the cloud."""

    def __init__(self, directory, zygote, stack, services, **sections):
        self.config = write_config(
            directory,
            plane={"services": ",".join(services), "log_level": "warning", "clock": "adjustable"},
            server={"port": free_port()},
            identity={"mode": "none"},
            agent={"host": "compute-1"},
            **sections,
        )
        self.process = stack.enter_context(Process(directory / "moorage.conf", zygote, effects=directory))
        self.clients = PlaneClients(self._transport, NoCredentials(), SystemClock())

    def _transport(self, path=""):
        return SocketTransport(f"{self.config.url}{path}")

    def start(self):
        self.process.start()
        until(self._answers, timeout_s=PATIENCE_S, seen=lambda: self.process.last_log)
        return self

    def _answers(self):
        with contextlib.suppress(MoorageError):
            return self._transport().send("GET", "/", {}).status < 500

    def advance_a_day(self):
        """Its process may die meanwhile."""
        with contextlib.suppress(MoorageError):
            clock = ServiceClient(self._transport("/moorage"), service_type="moorage")
            clock.request_raw("POST", "/v1/clock", json={"advance_s": DAY_S}, repeatable=False)

    def create_leases(self):
        """They start at the same moment, in a day."""

        def register():
            with contextlib.suppress(MoorageError):
                return self.clients.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})

        until(register, timeout_s=PATIENCE_S)
        start = SystemClock().now() + timedelta(days=1)
        for _ in range(LEASES):
            self.clients.create_lease(start=start, end=start + timedelta(days=1), amount=1)

    def dies_at(self, point):
        (self.config.state / "fault").write_text(point)

    def statuses(self):
        return [lease["status"] for lease in self.clients.reservation.get("/v1/leases")["leases"]]

    def wait_until_active(self):
        """Returns the time that it took."""
        began = time.monotonic()
        until(lambda: self.statuses() == ["ACTIVE"] * LEASES, timeout_s=PATIENCE_S, seen=self.statuses)
        return time.monotonic() - began


def test_a_killed_process_continues_its_leases_within_5_seconds_of_its_next_start(tmp_path, zygote):
    """It has all services, and SQLite."""
    with contextlib.ExitStack() as stack:
        plane = Member(tmp_path / "plane", zygote, stack, (*WITH_HOST, "reservation")).start()
        plane.create_leases()
        plane.dies_at(GRANT)
        plane.advance_a_day()
        assert plane.process.died() == GRANT
        plane.start()
        assert plane.wait_until_active() < TAKEN_OVER_WITHIN_S


@pytest.mark.postgresql
def test_another_process_takes_over_the_leases_of_a_killed_one_within_5_seconds(tmp_path, zygote):
    """The killed process does not come back. Both share one database, and the machine."""
    with contextlib.ExitStack() as stack:
        database = {"reservation": stack.enter_context(temporary_database("postgresql"))}
        services = Member(tmp_path / "services", zygote, stack, WITH_HOST).start()
        elsewhere = {name: f"{services.config.url}/{name}" for name in WITH_HOST[:-1]}
        first, second = (
            Member(tmp_path / name, zygote, stack, ["reservation"], endpoints=elsewhere, database=database).start()
            for name in ("first", "second")
        )
        first.create_leases()
        first.dies_at(GRANT)
        first.advance_a_day()
        assert first.process.died() == GRANT
        second.advance_a_day()
        assert second.wait_until_active() < TAKEN_OVER_WITHIN_S
