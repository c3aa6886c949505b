"""The simulation: some fixed seeds, that a seed always gives the same story, and that errors are found."""

import dataclasses
import subprocess
import sys
import uuid
from datetime import timedelta

import pytest

from moorage.accelerator.drivers.simulated import SimulatedAccelerators
from moorage.agent.jobs.job_task import JobsTask
from moorage.placement.client.placement_client import PlacementClient
from moorage.placement.rules import capacity_check
from tests.simulation.dice import KINDS
from tests.simulation.run import Course, run
from tests.simulation.settling import settle
from tests.simulation.users import Users
from tests.simulation.world import World, Wrong

pytestmark = [pytest.mark.core, pytest.mark.slow]

#: Many faults in little time: events cost, not the simulated time.
STORM = Course(rounds=1, stormy=timedelta(days=1), busy=timedelta(minutes=30), fury=3.0, hosts=3)
CALM = dataclasses.replace(STORM, without=KINDS.keys())


@pytest.mark.parametrize("seed", [f"ci-{number}" for number in range(1, 11)])
def test_whatever_fails_nothing_wrong_is_ever_seen_and_all_comes_to_rest(seed):
    summary = run(seed, STORM)
    assert summary.wrong == ""
    assert summary.settled == 1
    assert summary.looks == summary.steps
    assert sum(summary.faults.values()) > 50, "this seed must be a storm"
    assert summary.faults["crash"] + summary.faults["killed"] > 5


def test_the_same_seed_is_the_same_story_in_another_process_and_after_other_seeds():
    """Event by event: each request with its answer, each generated id, and the final state."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", "ci-4", "--rounds", "1", "--days", "0.5"]
    command += ["--pause", "0.5", "--fury", "3", "--hosts", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        run("ci-5", dataclasses.replace(STORM, until=100))
        digest = run("ci-4", dataclasses.replace(STORM, stormy=timedelta(days=0.5))).digest
        told = other.communicate()[0]
    assert other.returncode == 0
    assert f"digest of the story: {digest}" in told.splitlines()


@pytest.fixture
def world(tmp_path):
    with World(tmp_path, "planted", hosts=3) as world:
        yield world


@pytest.fixture
def users(world):
    users = Users(world, timedelta(minutes=20))
    users.furnish()
    return users


def test_a_device_that_is_not_cleaned_is_seen(world, users, monkeypatch):
    monkeypatch.setattr(SimulatedAccelerators, "clean", lambda driver, pci_id: None)
    with pytest.raises(Wrong, match="uncleaned"):
        for _ in range(12):  # there are four of them on a host
            server = users.clients.create_server(flavor="gpu", image=users.image)
            world.run_for(timedelta(minutes=1))
            users.clients.compute.request("DELETE", f"/servers/{server}")
            world.run_for(timedelta(minutes=1))


def test_more_in_use_than_there_is_is_seen(world, users, monkeypatch):
    monkeypatch.setattr(capacity_check, "_problem", lambda *_: None)
    (host, *_) = users.clients.placement.get("/resource_providers", params={"name": "host-1"})["resource_providers"]
    body = {
        "allocations": {host["uuid"]: {"resources": {"VCPU": 1000}}},
        "project_id": "demo",
        "user_id": "demo",
        "consumer_generation": None,
        "consumer_type": "OTHER",
    }
    users.clients.placement.request("PUT", f"/allocations/{uuid.UUID(int=7)}", json=body)
    with pytest.raises(Wrong, match=r"host-1 has 1000 VCPU in use of 16"):
        world.run_for(timedelta(days=1))


def test_a_server_that_is_stuck_is_seen(world, users, monkeypatch):
    monkeypatch.setattr(JobsTask, "run_once", lambda task: None)
    users.clients.create_server(flavor="small", image=users.image)
    with pytest.raises(Wrong, match="is stuck"):
        settle(world, users)


def test_what_stays_allocated_is_seen(world, users, monkeypatch):
    server = users.clients.create_server(flavor="small", image=users.image)
    world.run_for(timedelta(minutes=1))
    monkeypatch.setattr(PlacementClient, "release", lambda *_, **__: None)
    users.clients.compute.request("DELETE", f"/servers/{server}")
    with pytest.raises(Wrong, match=r"unknown consumer|is stuck"):
        settle(world, users)
