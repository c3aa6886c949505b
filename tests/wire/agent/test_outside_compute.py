"""Accelerators of a host with another compute service: added below that service's provider."""

from tests.plane import InProcessPlane

PERIOD_S = 60.0
#: A URL at which nothing answers; no test calls it.
ELSEWHERE = {"compute": "http://nova.example", "image": "http://glance.example"}


def regions(plane: InProcessPlane) -> list[str]:
    rows = plane.send("GET", "/placement/resource_providers", version="1.39").body["resource_providers"]
    return [row["name"] for row in rows if row["name"].startswith("mole_") and "_R" in row["name"]]


def test_accelerators_are_added_within_one_and_a_half_periods_after_the_compute_node(tmp_path):
    agent = {"host": "mole", "update_period_s": PERIOD_S}
    with InProcessPlane(tmp_path, "placement,accelerator,accelerator-agent", endpoints=ELSEWHERE, agent=agent) as plane:
        plane.run_for(3600)
        assert regions(plane) == []
        made = plane.send("POST", "/placement/resource_providers", {"name": "mole"}, version="1.39")
        assert made.status == 200
        plane.run_for(1.5 * PERIOD_S)
        assert len(regions(plane)) == 3
