"""Finished jobs of hosts are deleted in the background; servers, and everything that users see, are not affected."""

import sqlite3
from datetime import UTC, datetime, timedelta

import pytest

from moorage.core.errors import StartError
from tests.plane import InProcessPlane
from tests.system.planes import VirtualPlane

pytestmark = pytest.mark.slow

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def jobs(plane, service: str) -> list[tuple[str, str]]:
    """(kind, state)"""
    with sqlite3.connect(plane.state / f"{service}.db") as connection:
        return connection.execute("SELECT kind, state FROM jobs ORDER BY position").fetchall()


def actions(plane, server: str) -> list[str]:
    return [row["action"] for row in plane.compute.get(f"/servers/{server}/os-instance-actions")["instanceActions"]]


def test_old_jobs_are_deleted_and_the_actions_of_servers_are_kept(tmp_path):
    with VirtualPlane(tmp_path, START, audit={"period_s": 40 * 24 * 3600.0}) as plane:
        server = plane.create_server(flavor=plane.create_fpga_flavor())
        plane.settle()
        plane.compute.request("POST", f"/servers/{server}/action", json={"os-stop": None})
        plane.settle()
        assert {"build", "stop"} <= {kind for kind, _ in jobs(plane, "compute")}
        shown, attached = actions(plane, server), plane.accelerators_of(server)
        plane.run_until(START + timedelta(days=29))
        assert {"build", "stop"} <= {kind for kind, _ in jobs(plane, "compute")}
        plane.run_until(START + timedelta(days=32))
        assert [(kind, state) for kind, state in jobs(plane, "compute") if kind != "audit"] == []
        assert (actions(plane, server), plane.accelerators_of(server)) == (shown, attached)
        plane.run_until(START + timedelta(days=79))  # the audits ran 7 and 47 days after the start
        assert [(kind, state.upper()) for kind, state in jobs(plane, "compute")] == [("audit", "DONE")]
        plane.compute.request("POST", f"/servers/{server}/action", json={"os-start": None})
        plane.settle()
        assert plane.server(server)["status"] == "ACTIVE"
        plane.compute.request("DELETE", f"/servers/{server}")
        plane.settle()
        assert plane.server(server) is None
        assert plane.allocations(server) == {}


@pytest.mark.parametrize("service", ["compute", "accelerator"])
def test_an_invalid_age_is_refused_at_the_start(tmp_path, service):
    with pytest.raises(StartError, match=rf"\[{service}\] finished_jobs_days is -1; it takes 0 to"):
        InProcessPlane(tmp_path, "placement,image,compute,accelerator", **{service: {"finished_jobs_days": -1}})
