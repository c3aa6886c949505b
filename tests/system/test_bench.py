"""`moorage bench`: a private plane is measured and gone, a running one is measured and left as it was."""

import json

import pytest

from tests.ports import free_port
from tests.system.planes import PlaneProcess, moorage, until

pytestmark = pytest.mark.slow

FIGURES = ["candidates", "claims, each released", "leases, each deleted"]


def figures(directory, *words):
    """`directory`: where temporary files go."""
    done = moorage("bench", "--seconds", "0.1", "--json", *words, TMPDIR=str(directory))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["clients"] == (2 if "--clients" in words else 1)
    return document["figures"]


def test_a_private_plane_is_measured_and_gone(tmp_path):
    found = figures(tmp_path)
    assert [one["what"] for one in found] == FIGURES
    assert [one["reason"] for one in found] == ["", "", ""]
    assert all(one["per_s"] > 0 and 0 < one["p50_ms"] <= one["p99_ms"] for one in found)
    assert list(tmp_path.iterdir()) == []


def test_a_running_plane_is_left_as_it_was_by_two_clients(tmp_path):
    with PlaneProcess(tmp_path / "state" / "moorage.conf", "--port", str(free_port())) as plane:
        clients = plane.clients()
        before = until(lambda: clients.placement.get("/resource_providers")["resource_providers"])
        found = figures(tmp_path, "--running", "--clients", "2", "--config", str(plane.config))
        assert [one["per_s"] > 0 for one in found] == [True, True, False]
        assert "Not enough hosts available" in found[2]["reason"], "no host of it is for leases"
        after = clients.placement.get("/resource_providers")["resource_providers"]
        assert {row["name"] for row in after} == {row["name"] for row in before}
        classes = clients.placement.get("/resource_classes")["resource_classes"]
        assert not [row["name"] for row in classes if "BENCH" in row["name"]]
