"""The simulation with fixed seeds; that a seed always gives the same events; and that planted errors are found."""

import dataclasses
import subprocess
import sys
import threading
import uuid
from datetime import timedelta

import pytest

from moorage.accelerator.drivers.base import Cleaned
from moorage.accelerator.drivers.simulated import SimulatedAccelerators
from moorage.agent.jobs.job_task import JobsTask
from moorage.placement.client.placement_client import PlacementClient
from moorage.placement.rules import allocation_writes
from moorage.reservation.hosts.healing import Healing
from tests.simulation.dice import KINDS
from tests.simulation.run import Course, run
from tests.simulation.settling import REST, settle
from tests.simulation.users import Users
from tests.simulation.world import World, Wrong

pytestmark = [pytest.mark.core, pytest.mark.slow]

#: Many faults within little simulated time, because a run takes time for each event.
STORM = Course(rounds=1, stormy=timedelta(days=1), busy=timedelta(minutes=30), fury=3.0, hosts=3)
CALM = dataclasses.replace(STORM, without=KINDS.keys())


@pytest.mark.parametrize("seed", [f"ci-{number}" for number in range(1, 11)])
def test_under_random_faults_no_invariant_is_violated_and_all_operations_end(seed):
    summary = run(seed, STORM)
    assert summary.wrong == ""
    assert summary.settled == 1
    assert summary.checks == summary.steps
    assert sum(summary.faults.values()) > 50, "this seed has too few faults"
    assert summary.faults["crash"] + summary.faults["killed"] > 5


def test_a_seed_gives_the_same_events_in_another_process_and_after_other_seeds():
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


def test_no_thread_runs_beside_the_simulation(tmp_path):
    """Its requests would come at a different moment of the story in each run."""
    before = set(threading.enumerate())
    with World(tmp_path, "threads", hosts=1):
        assert set(threading.enumerate()) == before


@pytest.fixture
def users(world):
    users = Users(world, timedelta(minutes=20))
    users.create_resources()
    return users


def test_the_simulation_reports_a_device_that_was_not_cleaned(world, users, monkeypatch):
    monkeypatch.setattr(SimulatedAccelerators, "clean", lambda driver, pci_id: Cleaned("claimed without cleaning"))
    with pytest.raises(Wrong, match="uncleaned"):
        for _ in range(12):  # a host has four such devices
            server = users.clients.create_server(flavor="gpu", image=users.image)
            world.run_for(timedelta(minutes=1))
            users.clients.compute.request("DELETE", f"/servers/{server}")
            world.run_for(timedelta(minutes=1))


def test_the_simulation_reports_usage_above_the_capacity(world, users, monkeypatch):
    monkeypatch.setattr(allocation_writes, "_problem", lambda *_: None)
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


def test_the_simulation_reports_a_server_that_never_leaves_its_task(world, users, monkeypatch):
    monkeypatch.setattr(JobsTask, "run_once", lambda task: None)
    users.clients.create_server(flavor="small", image=users.image)
    with pytest.raises(Wrong, match="is stuck"):
        settle(world, users)


def test_the_simulation_reports_allocations_of_a_deleted_server(world, users, monkeypatch):
    server = users.clients.create_server(flavor="small", image=users.image)
    world.run_for(timedelta(minutes=1))
    monkeypatch.setattr(PlacementClient, "release", lambda *_, **__: None)
    users.clients.compute.request("DELETE", f"/servers/{server}")
    with pytest.raises(Wrong, match=r"unknown consumer|is stuck"):
        settle(world, users)


def test_a_lease_that_lost_its_capacity_to_an_operator_is_whole_again_when_it_is_given_back(world, users):
    _lease_of_resources(world, users, 4)
    for host in world.hosts[-2:]:
        users.configure(host, 1)
    world.run_for(REST)
    assert _degraded_leases(users) == 1
    settle(world, users)
    assert _degraded_leases(users) == 0


def test_the_simulation_reports_a_lease_that_is_not_moved_although_another_host_has_capacity(world, users, monkeypatch):
    monkeypatch.setattr(Healing, "_asks", lambda *_: [])
    _lease_of_resources(world, users, 16)
    users.configure(world.hosts[-2], 4)
    users.configure(world.hosts[-1], 16)
    with pytest.raises(Wrong, match="lease without resources"):
        settle(world, users)


def _lease_of_resources(world, users, amount):
    """A lease of CUSTOM_LLC that begins after everything has come to rest. Two hosts have eight units each."""
    world.run_for(timedelta(hours=1))
    users.lease_resources(world.clock.now() + timedelta(days=10), timedelta(days=4), amount)


def _degraded_leases(users):
    return sum(lease["degraded"] for lease in users.clients.reservation.get("/v1/leases")["leases"])
