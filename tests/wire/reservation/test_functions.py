"""Bitstreams of ``resource:any``: programmed and verified before a project is let in, taken away after the end.

The accelerator service, the host's agent and its (simulated) card are the real ones.
"""

import pytest

from moorage.accelerator import routes as accelerator_routes
from moorage.accelerator.client import AcceleratorClient
from moorage.accelerator.service import AcceleratorService
from moorage.agent.accelerator_jobs import AcceleratorRunner
from moorage.agent.jobs_duty import JobsDuty
from moorage.core.errors import Unavailable
from moorage.identity.authenticators import TestTokens
from moorage.wire.app import Surroundings, build
from tests.unit.accelerator.rig import AES, HOST, R1, R2, TYPE_R1, Rig, fpga, new_instance
from tests.wire.accelerator.conftest import Told
from tests.wire.reservation.plane import Plane
from tests.wire.reservation.test_any_reservations import change, create, of_any
from tests.wire.reservation.test_flavor_reservations import add_child
from tests.wire.reservation.test_host_reservations import START

FPGA = "CUSTOM_ACCELERATOR_FPGA"


class Cloud(Plane):
    """With an accelerator service, and the accelerators of compute-1."""

    def __init__(self, folder):
        super().__init__(folder)
        self.hints_to_hosts = Told()
        engine = self.database("accelerator")
        service = AcceleratorService(engine, self.clock, self.ids, self.hints_to_hosts)
        around = Surroundings(TestTokens(), accelerator_routes.RULES, self.ids)
        self.apps["/accelerator"] = build(accelerator_routes.API, service, around)
        self.accelerators = AcceleratorClient(self.client("accelerator"))
        self.add_host(HOST)
        for region, units in ((R1, 2), (R2, 1)):
            add_child(self, HOST, region, FPGA, units, trait=f"CUSTOM_{region[-2:]}")
        self.register(HOST)
        self.rig = Rig(folder / "host", clock=self.clock)
        self.rig.agent._reports = self.accelerators
        self.rig.agent.tick()
        runner = AcceleratorRunner(self.rig.agent, keep_alive_period_s=10)
        self._jobs = JobsDuty(
            host=HOST, number=1, service=self.accelerators, runner=runner, clock=self.clock, poll_period_s=1
        )
        self.hints_to_hosts.heard = self.host_works

    def host_works(self):
        for _ in range(9):
            self._jobs.tick()

    def new_service(self, placement=None, compute=None, worker=None):
        return super().new_service(placement, compute, worker, accelerators=_Late(self))


class _Late:
    """The service of reservations is there before the accelerator service."""

    def __init__(self, cloud):
        self._cloud = cloud

    def __getattr__(self, name):
        return getattr(self._cloud.accelerators, name)


@pytest.fixture
def cloud(tmp_path):
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.rig.agent.close()
    for engine in cloud.engines:
        engine.dispose()


def with_function(image, amount=1, *, units=2, **more):
    traits = {"CUSTOM_R1": "required"}
    return of_any(amount, {FPGA: units, "VCPU": 1}, traits=traits, bitstream_id=image, **more)


def until(cloud, hour):
    cloud.run_until(cloud.clock.now().replace(hour=hour, minute=0, second=5))
    cloud.run_for(20)


def test_a_region_carries_the_function_from_the_start_to_the_end(cloud):
    """Once each: what is loaded is what the image's digest says, or the driver of the rig refuses."""
    image = cloud.rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    made = create(cloud, with_function(image), start=START, end="2026-03-01 13:00")
    (reservation,) = made["reservations"]
    assert (reservation["bitstream_id"], cloud.rig.programs()) == (image, [])
    assert cloud.extra_specs(reservation["id"])["accel:bitstream_id"] == image
    until(cloud, 12)
    assert cloud.lease(made["id"])["status"] == "ACTIVE"
    assert (cloud.rig.carries(R1), cloud.rig.programs()) == (image, [R1])
    assert {part.name: part.bitstream_id for part in cloud.accelerators.deployables()}[f"{HOST}_{R1}"] == image
    until(cloud, 13)
    assert cloud.lease(made["id"])["status"] == "TERMINATED"
    assert (cloud.rig.carries(R1), cloud.rig.programs()) == ("", [R1, R1])


def test_nobody_is_let_in_before_it_is_loaded(cloud):
    """The host is away for a while: the start waits, and is then done once."""
    image = cloud.rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    made = create(cloud, with_function(image), start=START)
    (reservation,) = made["reservations"]
    cloud.hints_to_hosts.heard = lambda: None
    until(cloud, 12)
    assert cloud.lease(made["id"])["status"] == "STARTING"
    assert cloud.access(reservation["id"]) == []
    cloud.hints_to_hosts.heard = cloud.host_works
    cloud.run_for(120)
    assert cloud.lease(made["id"])["status"] == "ACTIVE"
    assert (cloud.access(reservation["id"]), cloud.rig.programs()) == (["demo"], [R1])


class _AnswerLost:
    """What was asked for is done; who asked does not learn of it."""

    def __init__(self, accelerators):
        self.lost, self._accelerators = [], accelerators

    def __getattr__(self, name):
        method = getattr(self._accelerators, name)
        if name not in ("program", "empty"):
            return method

        def call(*arguments):
            answer = method(*arguments)
            if name not in self.lost:
                self.lost.append(name)
                raise Unavailable("the answer got lost")
            return answer

        return call


def test_what_was_done_is_not_done_again(cloud):
    """As after a crash between the effect and the journal: the step is repeated, the device is not touched."""
    cloud.accelerators = lossy = _AnswerLost(cloud.accelerators)
    image = cloud.rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    made = create(cloud, with_function(image), end="2026-03-01 11:00")
    cloud.run_for(20)
    assert (cloud.lease(made["id"])["status"], lossy.lost, cloud.rig.programs()) == ("ACTIVE", ["program"], [R1])
    until(cloud, 11)
    assert (cloud.lease(made["id"])["status"], lossy.lost) == ("TERMINATED", ["program", "empty"])
    assert (cloud.rig.carries(R1), cloud.rig.programs()) == ("", [R1, R1])


def test_a_region_in_use_after_the_end_keeps_no_lease_from_ending(cloud):
    """Somebody got past the reservation and holds the region."""
    image = cloud.rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    made = create(cloud, with_function(image), end="2026-03-01 11:00")
    cloud.run_for(10)
    cloud.rig.plug(new_instance(), fpga(function=AES), R1)
    until(cloud, 11)
    assert (cloud.lease(made["id"])["status"], cloud.rig.carries(R1)) == ("TERMINATED", image)


def test_an_image_that_does_not_fit_lets_nobody_in_and_says_why(cloud):
    image = cloud.rig.image(region_uuid=AES, function_uuid=AES)
    made = create(cloud, with_function(image), start=START)
    until(cloud, 12)
    assert cloud.lease(made["id"])["status"] == "STARTING"
    until(cloud, 14)
    assert (cloud.lease(made["id"])["status"], cloud.rig.programs()) == ("ERROR", [])


def test_a_private_image_is_that_of_the_leases_project(cloud):
    mine = cloud.rig.image(region_uuid=TYPE_R1, function_uuid=AES, visibility="private", owner="demo")
    made = create(cloud, with_function(mine))
    cloud.run_for(10)
    assert (cloud.lease(made["id"])["status"], cloud.rig.carries(R1)) == ("ACTIVE", mine)
    cloud.ask("DELETE", f"/v1/leases/{made['id']}", status=204)
    cloud.run_for(20)
    theirs = cloud.rig.image("b", region_uuid=TYPE_R1, function_uuid=AES, visibility="private", owner="other")
    made = create(cloud, with_function(theirs))
    cloud.run_for(10)
    assert (cloud.lease(made["id"])["status"], cloud.rig.carries(R1)) == ("STARTING", "")


def test_a_lease_that_is_deleted_before_its_start_touches_no_region(cloud):
    image = cloud.rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    now = create(cloud, with_function(image), end="2026-03-01 11:00")
    cloud.run_for(10)
    made = create(cloud, with_function(image), start=START)
    cloud.ask("DELETE", f"/v1/leases/{made['id']}", status=204)
    assert (cloud.rig.carries(R1), cloud.lease(now["id"])["status"]) == (image, "ACTIVE")


def test_what_cannot_be_meant_is_refused(cloud):
    image = cloud.ids.uuid()
    refused = create(cloud, of_any(1, {"VCPU": 1}, bitstream_id=image), start=START, status=400)
    assert f"name in resources what shall carry it: {FPGA}" in refused["error_message"]
    refused = create(cloud, with_function("x"), start=START, status=400)
    assert "Malformed parameter bitstream_id" in refused["error_message"]


def test_a_cloud_without_accelerators_says_so(plane):
    refused = create(plane, with_function(plane.ids.uuid()), start=START, status=400)
    assert refused["error_message"] == "bitstream_id: this cloud has no accelerator service"


def test_a_region_is_nobody_elses(cloud):
    """It carries one bitstream: a part of it is not had, and what others have a part of is not had."""
    image = cloud.ids.uuid()
    refused = create(cloud, with_function(image, units=1), start=START, status=409)
    assert f"1 instance of 1 VCPU, 1 {FPGA} (all that a provider has) cannot be had" in refused["error_message"]
    create(cloud, of_any(1, {FPGA: 1}, traits={"CUSTOM_R1": "required"}), start=START, end="2026-03-01 13:00")
    create(cloud, with_function(image), start=START, status=409)
    create(cloud, with_function(image), start="2026-03-01 13:00")
    small = of_any(1, {FPGA: 1, "VCPU": 1}, bitstream_id=image)
    create(cloud, small, start=START)
    create(cloud, small, start=START, status=409)


def test_before_the_start_another_can_be_named(cloud):
    made = create(cloud, with_function(cloud.ids.uuid()), start=START)
    image = cloud.rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    (shown,) = change(cloud, made, bitstream_id=image)["lease"]["reservations"]
    assert shown["bitstream_id"] == image
    until(cloud, 12)
    assert cloud.rig.carries(R1) == image
