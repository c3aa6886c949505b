"""A whole plane with its agent under a virtual clock: no thread, no socket, no waiting."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, event

from tests.system.planes import VirtualPlane

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LEASE = timedelta(days=30)
#: For thirty days: twice the counted number. A task that polls once a minute would need 40,000.
STATEMENTS = 3600


def counted_statements(request):
    """Counts the statements on all engines from now until the end of the test."""
    statements = []

    def note(_connection, _cursor, statement, *_more):
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    request.addfinalizer(lambda: event.remove(Engine, "before_cursor_execute", note))
    return statements


def test_a_lease_of_30_days_needs_few_statements(tmp_path, request):
    with VirtualPlane(tmp_path, START) as plane:
        plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
        lease = plane.create_lease(start=START + timedelta(days=1), end=START + timedelta(days=1) + LEASE, amount=3)
        statements = counted_statements(request)
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
        assert 100 < len(statements) < STATEMENTS


def test_two_runs_with_one_seed_are_equal(tmp_path):
    def run(directory):
        with VirtualPlane(directory, START, seed=7) as plane:
            plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
            plane.create_lease(start=START + timedelta(hours=1), end=START + timedelta(hours=2), amount=2)
            plane.run_until(START + timedelta(hours=3))
            return plane.story()

    assert run(tmp_path / "first") == run(tmp_path / "second")
