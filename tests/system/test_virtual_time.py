"""A whole plane with its agent under a virtual clock: no thread, no socket, no waiting."""

import time
from datetime import UTC, datetime, timedelta

from tests.system.planes import VirtualPlane

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LEASE = timedelta(days=30)


def test_a_lease_of_30_days_passes_in_under_a_second(tmp_path):
    with VirtualPlane(tmp_path, START) as plane:
        plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
        lease = plane.create_lease(start=START + timedelta(days=1), end=START + timedelta(days=1) + LEASE, amount=3)
        began = time.process_time()
        assert plane.lease(lease)["status"] == "PENDING"

        plane.run_until(START + timedelta(days=1))
        assert plane.lease(lease)["status"] == "ACTIVE"
        server = plane.create_server(flavor=plane.reservation_id(lease))
        plane.settle()
        assert plane.server(server)["status"] == "ACTIVE"

        plane.run_until(START + timedelta(days=1) + LEASE - timedelta(seconds=1))
        assert plane.server(server)["status"] == "ACTIVE"
        plane.run_until(START + timedelta(days=1) + LEASE + timedelta(minutes=1))
        assert plane.lease(lease)["status"] == "TERMINATED"
        assert plane.server(server) is None
        assert time.process_time() - began < 1.0, "thirty days must cost only the work that they hold"


def test_the_same_seed_gives_the_same_run(tmp_path):
    def run(directory):
        with VirtualPlane(directory, START, seed=7) as plane:
            plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
            plane.create_lease(start=START + timedelta(hours=1), end=START + timedelta(hours=2), amount=2)
            plane.run_until(START + timedelta(hours=3))
            return plane.story()

    assert run(tmp_path / "first") == run(tmp_path / "second")
