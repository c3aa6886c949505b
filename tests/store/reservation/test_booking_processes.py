"""Eight processes book the same three hosts concurrently, on all three databases.

No lease ends during the test, so usage only grows. A request that fits at the end would have fitted when it was
refused. The environment variable ``MOORAGE_BOOKING_REQUESTS`` sets the total number of requests, for example to 10000.
"""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta

import pytest

from moorage.db.session import read
from moorage.reservation.store import host_store
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database
from tests.store.reservation import booking_process
from tests.store.reservation.worlds import NOW, add_host

PROCESSES = 8
TOTAL = int(os.environ.get("MOORAGE_BOOKING_REQUESTS", "320"))
VCPUS = 12


class Oracle:
    """Usage in each hour of each host, counted one by one."""

    def __init__(self, engine):
        with read(engine) as connection:
            self.hosts = [each.host for each in host_store.capacities(connection)]
            usages = host_store.live_usages(connection, NOW)
        self.used = {host: [0] * (booking_process.HOURS + 24) for host in self.hosts}
        for usage in usages:
            for hour in self._hours(usage.start, usage.end):
                self.used[usage.host][hour] += usage.amounts["VCPU"]

    @staticmethod
    def _hours(start, end):
        first, last = ((moment - NOW) // timedelta(hours=1) for moment in (start, end))
        return range(first, last)

    def fits(self, request):
        hours = self._hours(request.start, request.end)
        slots = [(VCPUS - max(self.used[host][hour] for hour in hours)) // request.vcpus for host in self.hosts]
        if request.affinity is None:
            return sum(slots) >= request.amount
        return max(slots) >= request.amount if request.affinity else sum(map(bool, slots)) >= request.amount


@pytest.fixture(scope="module")
def processes():
    """Processes forked from one without threads: a fork of this process could inherit a lock that stays held."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.store.reservation.booking_process"])
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        yield pool


@on_every_database
def test_eight_concurrent_processes_never_overbook_and_refuse_no_fitting_request(kind, processes):
    """D3, R19 (instance-reservation)."""
    with migrated_engine("reservation", kind) as engine:
        book_with_all_processes(engine, processes)


def book_with_all_processes(engine, processes):
    for number in range(3):
        add_host(engine, f"compute-{number}", vcpus=VCPUS, memory_mb=10**9, disk_gb=10**9)
    share = TOTAL // PROCESSES
    url = engine.url.render_as_string(hide_password=False)
    tasks = [processes.submit(booking_process.book, url, seed, share) for seed in range(1, PROCESSES + 1)]
    results = [task.result() for task in tasks]
    oracle = Oracle(engine)
    assert max(max(hours) for hours in oracle.used.values()) <= VCPUS
    refused = [request for _, each in results for request in each]
    assert sum(got for got, _ in results) + len(refused) == share * PROCESSES
    assert refused, "no request was refused: the test has too few requests"
    assert [request for request in refused if oracle.fits(request)] == []
