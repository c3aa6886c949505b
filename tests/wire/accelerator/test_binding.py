"""Accelerator requests as Nova uses them: created, bound by the host's agent, reported to compute, deleted.

Spec: docs/evidence/specs/accelerator-attach.md
"""

import json
from datetime import timedelta

import pytest

from moorage.accelerator.drivers.simulated import simulated_host_with_every_device_type
from moorage.accelerator.model.devices import Mdev
from moorage.accelerator.service.event_task import EventsTask
from moorage.agent.jobs.job_runner import AcceleratorRunner
from moorage.agent.jobs.job_task import JobsTask
from moorage.compute.client.compute_client import ComputeClient
from moorage.jobs.contract import BindJob, JobKind, payload_of
from moorage.wire.client import NoCredentials, ServiceClient
from moorage.wire.transports import InProcessTransport
from tests.unit.accelerator.rig import AES, GPU, HOST, R1, R2, TYPE_R1, Killed, Rig, new_instance, rp

FPGA = {"resources:CUSTOM_ACCELERATOR_FPGA": "1", "accel:function_id": AES}
CARD = {"resources:CUSTOM_ACCELERATOR_GPU": "1"}


class Compute:
    """The only relevant route of a Nova; records its requests."""

    def __init__(self) -> None:
        self.events = []
        self.status = "200 OK"

    def __call__(self, environ, start_response):
        assert environ["PATH_INFO"] == "/v2.1/os-server-external-events"
        assert environ["HTTP_OPENSTACK_API_VERSION"] == "compute 2.82"
        events = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))["events"]
        if self.status == "200 OK":
            self.events += events
        start_response(self.status, [("content-type", "application/json")])
        return [b"{}"]


class Plane:
    """The service, a host with its agent, and a compute service for events."""

    def __init__(self, tmp_path, wire, engine, clock, devices=None) -> None:
        self.wire = wire
        self.clock = clock
        self.rig = Rig(tmp_path / "host", clock=clock, devices=devices)
        self.rig.agent._reports = wire.client()
        self.rig.image(region_uuid=TYPE_R1, function_uuid=AES)
        self.rig.agent.run_once()
        self.compute = Compute()
        http = ServiceClient(
            InProcessTransport(self.compute, "http://compute"), service_type="compute", credentials=NoCredentials()
        )
        self._events = EventsTask(engine, clock, ComputeClient(http), worker="events", poll_s=5)
        self._jobs = JobsTask(
            host=HOST,
            number=1,
            service=wire.client(),
            runner=AcceleratorRunner(self.rig.agent, keep_alive_period_s=10),
            clock=clock,
            poll_period_s=1,
            what="accelerator jobs",
        )

    def host_works(self) -> None:
        while self._jobs.run_once() <= self.clock.now():
            pass

    def tell(self) -> list:
        """The events that compute receives now."""
        before = len(self.compute.events)
        self._events.run_once()
        return [(event["tag"], event["status"]) for event in self.compute.events[before:]]

    def profile(self, name, *groups):
        seen = self.wire("POST", "/v2/device_profiles", body=[{"name": name, "groups": list(groups)}])
        assert seen.status == 201

    def requests(self, profile, *, role="member"):
        seen = self.wire("POST", "/v2/accelerator_requests", role=role, body={"device_profile_name": profile})
        assert seen.status == 201, seen.body
        return seen.body["arqs"]

    def bind(self, places, instance, *, role="service", host=HOST):
        """`places`: request -> resource provider."""
        body = {
            uuid: [
                {"op": "add", "path": "/hostname", "value": host},
                {"op": "add", "path": "/device_rp_uuid", "value": provider},
                {"op": "add", "path": "/instance_uuid", "value": instance},
            ]
            for uuid, provider in places.items()
        }
        return self.wire("PATCH", "/v2/accelerator_requests", role=role, body=body)

    def of(self, instance, query=""):
        return self.wire("GET", f"/v2/accelerator_requests?instance={instance}{query}")

    def state_of(self, uuid):
        return self.wire("GET", f"/v2/accelerator_requests/{uuid}").body["state"]


@pytest.fixture
def plane(tmp_path, wire, process, clock):
    return Plane(tmp_path, wire, process.engine("accelerator"), clock)


def test_a_profile_becomes_a_request_per_unit(plane):
    plane.profile("mixed", FPGA, CARD | {"resources:CUSTOM_ACCELERATOR_GPU": "2"})
    arqs = plane.requests("mixed")
    assert [arq["device_profile_group_id"] for arq in arqs] == [0, 1, 1]
    for arq in arqs:
        assert (arq["state"], arq["device_profile_name"]) == ("Initial", "mixed")
        assert (arq["attach_handle_type"], arq["attach_handle_info"]) == ("", {})
        assert arq["hostname"] is arq["instance_uuid"] is arq["device_rp_uuid"] is None
    unknown = plane.wire("POST", "/v2/accelerator_requests", body={"device_profile_name": "none"})
    assert (unknown.status, "none" in unknown.fault) == (404, True)


def test_a_bound_request_is_programmed_attached_and_told(plane):
    """R24, R27: the engine of `os_acc.plug` binds it; its event is sent when the state can be read."""
    plane.profile("aes", FPGA)
    (arq,) = plane.requests("aes")
    instance = new_instance()
    assert plane.bind({arq["uuid"]: rp(R1)}, instance).status == 202
    assert plane.state_of(arq["uuid"]) == "BindStarted"
    assert plane.of(instance, "&bind_state=resolved").status == 423
    assert plane.tell() == []
    plane.host_works()
    (bound,) = plane.of(instance, "&bind_state=resolved").body["arqs"]
    assert (bound["state"], bound["attach_handle_type"], bound["hostname"]) == ("Bound", "PCI", HOST)
    assert bound["attach_handle_info"] == {"domain": "0000", "bus": "3b", "device": "00", "function": "1"}
    assert bound["attach_handle_uuid"]
    assert plane.rig.agent.attach_state.region(R1).bitstream is not None
    assert plane.tell() == [(arq["uuid"], "completed")]
    assert plane.tell() == []


@pytest.mark.parametrize("word", ["VGPU", "CUSTOM_ACCELERATOR_VGPU"])
def test_a_share_of_a_gpu_is_a_mediated_device_with_its_own_uuid(tmp_path, wire, process, clock, word):
    """A3, A7: Nova creates it with that uuid; the profile may use Cyborg's name of the class."""
    plane = Plane(tmp_path, wire, process.engine("accelerator"), clock, simulated_host_with_every_device_type())
    plane.profile("share", {f"resources:{word}": "2", "trait:CUSTOM_NVIDIA_NVIDIA_592": "required"})
    instance, card = new_instance(), "0000:b1:00.0"
    plane.bind({arq["uuid"]: rp(card) for arq in plane.requests("share")}, instance)
    plane.host_works()
    bound = plane.of(instance).body["arqs"]
    shares = {mdev.uuid: mdev for mdev in (Mdev(card, "nvidia-592", slot) for slot in range(2))}
    assert {arq["attach_handle_uuid"] for arq in bound} == set(shares)
    for arq in bound:
        assert (arq["state"], arq["attach_handle_type"]) == ("Bound", "MDEV")
        assert arq["attach_handle_info"] == {
            "domain": "0000", "bus": "b1", "device": "00", "function": "0", "asked_type": "nvidia-592",
            "vgpu_mark": f"nvidia-592_{shares[arq['attach_handle_uuid']].slot}",
        }  # fmt: skip
    plane.rig.agent.run_once()  # what the host reports of it changes nothing
    assert plane.of(instance).body["arqs"] == bound


def test_several_requests_of_one_instance_have_several_handles(plane):
    """R28, R29"""
    plane.profile("mixed", FPGA, CARD)
    fpga, gpu = plane.requests("mixed")
    instance = new_instance()
    plane.bind({fpga["uuid"]: rp(R1), gpu["uuid"]: rp(GPU)}, instance)
    plane.host_works()
    handles = {arq["uuid"]: arq["attach_handle_info"]["bus"] for arq in plane.of(instance).body["arqs"]}
    assert handles == {fpga["uuid"]: "3b", gpu["uuid"]: "17"}
    assert sorted(plane.tell()) == sorted([(fpga["uuid"], "completed"), (gpu["uuid"], "completed")])


def test_the_reports_of_the_host_change_nothing_about_what_is_bound(plane):
    plane.profile("aes", FPGA)
    (arq,) = plane.requests("aes")
    instance = new_instance()
    late = plane.wire.client()
    plane.bind({arq["uuid"]: rp(R1)}, instance)
    plane.host_works()
    before = plane.of(instance).body
    plane.rig.agent.run_once()
    assert plane.of(instance).body == before
    late.report_attachments(HOST, [])
    assert plane.of(instance).body == before


def test_a_report_that_comes_before_the_job_is_done_makes_no_second_request(plane):
    plane.profile("aes", FPGA)
    (arq,) = plane.requests("aes")
    instance = new_instance()
    plane.bind({arq["uuid"]: rp(R1)}, instance)
    (job,) = plane.wire.client().claim_jobs(HOST, "worker")
    order = payload_of(JobKind(job.kind), job.payload, BindJob)
    plane.rig.agent.bind_requests(order)
    plane.rig.agent.run_once()  # it reports the handle as attached
    assert [one["uuid"] for one in plane.of(instance).body["arqs"]] == [arq["uuid"]]
    handles = plane.rig.agent.bind_requests(order)
    plane.wire.client().report_job(job.id, job.epoch, "done", {"handles": handles})
    assert plane.state_of(arq["uuid"]) == "Bound"


def test_deleting_by_instance_frees_cleans_and_may_be_repeated(plane):
    """R34"""
    plane.profile("aes", FPGA)
    (arq,) = plane.requests("aes")
    instance = new_instance()
    plane.bind({arq["uuid"]: rp(R1)}, instance)
    plane.host_works()
    for _ in range(2):
        assert plane.wire("DELETE", f"/v2/accelerator_requests?instance={instance}", role="service").status == 204
        assert plane.of(instance).body == {"arqs": []}
    assert plane.wire("DELETE", f"/v2/accelerator_requests?arqs={arq['uuid']}", role="service").status == 404
    plane.host_works()
    assert plane.rig.agent.attach_state.attachments == {}
    (again,) = plane.requests("aes")
    assert plane.bind({again["uuid"]: rp(R1)}, instance).status == 202
    plane.host_works()
    assert plane.state_of(again["uuid"]) == "Bound"


def test_what_is_deleted_before_the_host_has_bound_it_does_not_stay_there(plane):
    plane.profile("aes", FPGA)
    (arq,) = plane.requests("aes")
    instance = new_instance()
    plane.bind({arq["uuid"]: rp(R1)}, instance)
    plane.wire("DELETE", f"/v2/accelerator_requests?instance={instance}", role="service")
    plane.host_works()
    assert plane.rig.agent.attach_state.attachments == {}
    assert plane.tell() == []


def test_unbound_requests_may_be_bound_again(plane):
    plane.profile("aes", FPGA)
    (arq,) = plane.requests("aes")
    plane.bind({arq["uuid"]: rp(R1)}, new_instance())
    plane.host_works()
    removal = {
        arq["uuid"]: [{"op": "remove", "path": f"/{name}"} for name in ("hostname", "device_rp_uuid", "instance_uuid")]
    }
    assert plane.wire("PATCH", f"/v2/accelerator_requests/{arq['uuid']}", role="service", body=removal).status == 202
    assert plane.state_of(arq["uuid"]) == "Unbound"
    plane.host_works()
    assert plane.rig.agent.attach_state.attachments == {}
    plane.bind({arq["uuid"]: rp(R1)}, new_instance())
    plane.host_works()
    assert plane.state_of(arq["uuid"]) == "Bound"


def test_a_failure_is_told_until_it_is_heard_and_shown_when_nobody_waits(plane):
    """Nova starts a server without its accelerator if it finds a failure before it waits."""
    plane.profile("lost", {"resources:CUSTOM_ACCELERATOR_FPGA": "1", "accel:bitstream_id": new_instance()})
    (arq,) = plane.requests("lost")
    instance = new_instance()
    assert plane.bind({arq["uuid"]: rp(R2)}, instance).status == 202
    plane.host_works()
    assert plane.state_of(arq["uuid"]) == "BindFailed"  # to whoever asks for it by its uuid, as Nova does not
    assert plane.wire("GET", "/v2/accelerator_requests").body["arqs"][0]["state"] == "BindFailed"
    assert plane.of(instance).body["arqs"][0]["state"] == "BindStarted"
    assert plane.of(instance, "&bind_state=resolved").status == 423
    assert plane.tell() == [(arq["uuid"], "failed")]
    assert plane.tell() == []
    plane.clock.sleep(2)
    assert plane.tell() == [(arq["uuid"], "failed")]
    plane.clock.sleep(300)
    assert plane.of(instance, "&bind_state=resolved").body["arqs"][0]["state"] == "BindFailed"
    plane.tell()
    plane.clock.sleep(100)
    assert plane.tell() == []
    assert plane.wire("DELETE", f"/v2/accelerator_requests?instance={instance}", role="service").status == 204
    plane.host_works()
    assert plane.of(instance).body == {"arqs": []}


@pytest.mark.parametrize("status", ["404 Not Found", "500 Oops", "503 Later"])
def test_an_event_that_compute_does_not_take_is_sent_again(plane, status):
    plane.profile("card", CARD)
    (arq,) = plane.requests("card")
    plane.bind({arq["uuid"]: rp(GPU)}, new_instance())
    plane.host_works()
    plane.compute.status = status
    assert plane.tell() == []
    plane.compute.status = "200 OK"
    plane.clock.sleep(5)
    assert plane.tell() == [(arq["uuid"], "completed")]


def test_a_host_that_dies_while_it_binds_is_asked_again(plane):
    plane.profile("card", CARD)
    (arq,) = plane.requests("card")
    instance = new_instance()
    plane.bind({arq["uuid"]: rp(GPU)}, instance)
    assert len(plane.wire.client().claim_jobs(HOST, "the one that dies")) == 1
    plane.host_works()
    assert plane.state_of(arq["uuid"]) == "BindStarted"
    plane.clock.sleep(timedelta(minutes=2).total_seconds())
    plane.host_works()
    assert plane.state_of(arq["uuid"]) == "Bound"


def test_a_service_killed_between_its_commit_and_its_hint_has_lost_nothing(plane, hints):
    """The caller gets no answer and the host no hint: it finds the job at its next poll."""
    plane.profile("card", CARD)
    (arq,) = plane.requests("card")
    instance = new_instance()

    def die():
        raise Killed

    awake, hints.heard = hints.heard, die
    with pytest.raises(Killed):
        plane.bind({arq["uuid"]: rp(GPU)}, instance)
    assert plane.state_of(arq["uuid"]) == "BindStarted"
    hints.heard = awake
    plane.host_works()
    assert plane.state_of(arq["uuid"]) == "Bound"
    hints.heard = die
    with pytest.raises(Killed):
        plane.wire("DELETE", f"/v2/accelerator_requests?instance={instance}", role="service")
    hints.heard = awake
    plane.host_works()
    assert plane.rig.agent.attach_state.attachments == {}
    assert plane.of(instance).body == {"arqs": []}
    plane.rig.check()


def test_what_can_be_refused_at_once_is_refused_at_once(plane):
    plane.profile("card", CARD)
    plane.profile("two", CARD | {"resources:CUSTOM_ACCELERATOR_GPU": "2"})
    (arq,) = plane.requests("card")
    instance = new_instance()
    assert plane.bind({arq["uuid"]: new_instance()}, instance).status == 404
    assert plane.bind({arq["uuid"]: rp(GPU)}, instance, host="elsewhere").status == 404
    assert plane.bind({new_instance(): rp(GPU)}, instance).status == 404
    two = [one["uuid"] for one in plane.requests("two")]
    too_many = plane.bind(dict.fromkeys(two, rp(GPU)), instance)
    assert (too_many.status, "has only 1 accelerators" in too_many.fault) == (409, True)
    assert plane.bind({two[0]: rp(GPU), two[1]: rp(R1)}, instance).status == 400
    assert plane.bind({arq["uuid"]: rp(GPU)}, instance).status == 202
    (other,) = plane.requests("card")
    again = plane.bind({other["uuid"]: rp(GPU)}, instance)
    assert (again.status, "already has" in again.fault) == (400, True)
    assert plane.bind({arq["uuid"]: rp(GPU)}, new_instance()).status == 409
    assert plane.state_of(other["uuid"]) == "Initial"


@pytest.mark.parametrize(
    "operations",
    [
        [],
        [{"op": "add", "path": "/hostname", "value": "h"}],
        [{"op": "add", "path": "/state", "value": "Bound"}],
        [{"op": "add", "path": "/hostname", "value": "h"}, {"op": "remove", "path": "/hostname"}],
        [{"op": "replace", "path": "/hostname", "value": "h"}],
        [{"op": "add", "path": f"/{name}", "value": "x"} for name in ("hostname", "device_rp_uuid", "instance_uuid")],
    ],
)
def test_a_malformed_patch_is_refused(plane, operations):
    plane.profile("card", CARD)
    (arq,) = plane.requests("card")
    seen = plane.wire("PATCH", "/v2/accelerator_requests", role="service", body={arq["uuid"]: operations})
    assert seen.status == 400
    assert plane.state_of(arq["uuid"]) == "Initial"


def test_binding_is_for_services(plane):
    plane.profile("card", CARD)
    (arq,) = plane.requests("card")
    instance = new_instance()
    assert plane.bind({arq["uuid"]: rp(GPU)}, instance, role="member").status == 403
    assert plane.wire("DELETE", f"/v2/accelerator_requests?instance={instance}", role="member").status == 403
    plane.bind({arq["uuid"]: rp(GPU)}, instance)
    assert plane.wire("DELETE", f"/v2/accelerator_requests/{arq['uuid']}", role="member").status == 403
    assert plane.wire("DELETE", f"/v2/accelerator_requests/{arq['uuid']}", role="member@other").status == 404
    (unbound,) = plane.requests("card")
    assert plane.wire("DELETE", f"/v2/accelerator_requests/{unbound['uuid']}", role="member").status == 204


def test_a_profile_that_requests_are_of_stays(plane):
    plane.profile("card", CARD)
    (arq,) = plane.requests("card")
    refused = plane.wire("DELETE", "/v2/device_profiles/card")
    assert (refused.status, arq["uuid"] in refused.fault) == (409, True)
    plane.wire("DELETE", f"/v2/accelerator_requests/{arq['uuid']}")
    assert plane.wire("DELETE", "/v2/device_profiles/card").status == 204


@pytest.mark.parametrize("query", ["", "?instance=x&arqs=y"])
def test_a_deletion_says_what_to_delete(plane, query):
    assert plane.wire("DELETE", f"/v2/accelerator_requests{query}").status == 400
