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
from moorage.agent.jobs.job_task import HostQueue, JobsTask
from moorage.compute.client.compute_client import ComputeClient
from moorage.jobs.contract import BindJob, JobKind, payload_of
from moorage.wire.client import NoCredentials, ServiceClient
from moorage.wire.transports import InProcessTransport
from tests.unit.accelerator.rig import AES, GPU, HOST, R1, R2, TYPE_R1, Killed, Rig, new_instance, rp

FPGA = {"resources:CUSTOM_ACCELERATOR_FPGA": "1", "accel:function_id": AES}
CARD = {"resources:CUSTOM_ACCELERATOR_GPU": "1"}


class Compute:
    """Stands for Nova: its route for external events, which records the requests."""

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
        queue = HostQueue(HOST, wire.client(), poll_period_s=1, what="accelerator jobs")
        self._jobs = JobsTask(queue, 1, AcceleratorRunner(self.rig.agent, keep_alive_period_s=10), clock)

    def run_host(self) -> None:
        while self._jobs.run_once() <= self.clock.now():
            pass

    def send_events(self) -> list:
        """Sends the pending events; returns those that compute received."""
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


def test_a_profile_creates_one_request_per_unit(plane):
    plane.profile("mixed", FPGA, CARD | {"resources:CUSTOM_ACCELERATOR_GPU": "2"})
    arqs = plane.requests("mixed")
    assert [arq["device_profile_group_id"] for arq in arqs] == [0, 1, 1]
    for arq in arqs:
        assert (arq["state"], arq["device_profile_name"]) == ("Initial", "mixed")
        assert (arq["attach_handle_type"], arq["attach_handle_info"]) == ("", {})
        assert arq["hostname"] is arq["instance_uuid"] is arq["device_rp_uuid"] is None
    unknown = plane.wire("POST", "/v2/accelerator_requests", body={"device_profile_name": "none"})
    assert (unknown.status, "none" in unknown.fault) == (404, True)


def test_binding_a_request_programs_and_attaches_the_device_and_sends_an_event(plane):
    """R24, R27: the code of `os_acc.plug` binds it; the event is sent once the API shows the state."""
    plane.profile("aes", FPGA)
    (arq,) = plane.requests("aes")
    instance = new_instance()
    assert plane.bind({arq["uuid"]: rp(R1)}, instance).status == 202
    assert plane.state_of(arq["uuid"]) == "BindStarted"
    assert plane.of(instance, "&bind_state=resolved").status == 423
    assert plane.send_events() == []
    plane.run_host()
    (bound,) = plane.of(instance, "&bind_state=resolved").body["arqs"]
    assert (bound["state"], bound["attach_handle_type"], bound["hostname"]) == ("Bound", "PCI", HOST)
    assert bound["attach_handle_info"] == {
        "domain": "0000", "bus": "3b", "device": "00", "function": "1", "physical_network": None,
    }  # fmt: skip
    assert bound["attach_handle_uuid"]
    assert plane.rig.agent.attach_state.region(R1).bitstream is not None
    assert plane.send_events() == [(arq["uuid"], "completed")]
    assert plane.send_events() == []


@pytest.mark.parametrize("word", ["VGPU", "CUSTOM_ACCELERATOR_VGPU"])
def test_a_share_of_a_gpu_is_bound_as_a_mediated_device_with_its_own_uuid(tmp_path, wire, process, clock, word):
    """A3, A7: Nova creates the mediated device with this uuid; the profile may use Cyborg's name of the class."""
    plane = Plane(tmp_path, wire, process.engine("accelerator"), clock, simulated_host_with_every_device_type())
    plane.profile("share", {f"resources:{word}": "2", "trait:CUSTOM_NVIDIA_NVIDIA_592": "required"})
    instance, card = new_instance(), "0000:b1:00.0"
    plane.bind({arq["uuid"]: rp(card) for arq in plane.requests("share")}, instance)
    plane.run_host()
    bound = plane.of(instance).body["arqs"]
    shares = {mdev.uuid: mdev for mdev in (Mdev(card, "nvidia-592", slot) for slot in range(2))}
    assert {arq["attach_handle_uuid"] for arq in bound} == set(shares)
    for arq in bound:
        assert (arq["state"], arq["attach_handle_type"]) == ("Bound", "MDEV")
        assert arq["attach_handle_info"] == {
            "domain": "0000", "bus": "b1", "device": "00", "function": "0", "asked_type": "nvidia-592",
            "vgpu_mark": f"nvidia-592_{shares[arq['attach_handle_uuid']].slot}",
        }  # fmt: skip
    plane.rig.agent.run_once()  # the host's next report must not change it
    assert plane.of(instance).body["arqs"] == bound


def test_several_requests_of_one_instance_get_different_handles(plane):
    """R28, R29"""
    plane.profile("mixed", FPGA, CARD)
    fpga, gpu = plane.requests("mixed")
    instance = new_instance()
    plane.bind({fpga["uuid"]: rp(R1), gpu["uuid"]: rp(GPU)}, instance)
    plane.run_host()
    handles = {arq["uuid"]: arq["attach_handle_info"]["bus"] for arq in plane.of(instance).body["arqs"]}
    assert handles == {fpga["uuid"]: "3b", gpu["uuid"]: "17"}
    assert sorted(plane.send_events()) == sorted([(fpga["uuid"], "completed"), (gpu["uuid"], "completed")])


def test_reports_of_the_host_do_not_change_bound_requests(plane):
    plane.profile("aes", FPGA)
    (arq,) = plane.requests("aes")
    instance = new_instance()
    late = plane.wire.client()
    plane.bind({arq["uuid"]: rp(R1)}, instance)
    plane.run_host()
    before = plane.of(instance).body
    plane.rig.agent.run_once()
    assert plane.of(instance).body == before
    late.report_attachments(HOST, [])
    assert plane.of(instance).body == before


def test_a_report_before_the_end_of_the_job_creates_no_second_request(plane):
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


def test_deleting_the_requests_of_an_instance_frees_and_cleans_the_devices_and_may_be_repeated(plane):
    """R34"""
    plane.profile("aes", FPGA)
    (arq,) = plane.requests("aes")
    instance = new_instance()
    plane.bind({arq["uuid"]: rp(R1)}, instance)
    plane.run_host()
    for _ in range(2):
        assert plane.wire("DELETE", f"/v2/accelerator_requests?instance={instance}", role="service").status == 204
        assert plane.of(instance).body == {"arqs": []}
    assert plane.wire("DELETE", f"/v2/accelerator_requests?arqs={arq['uuid']}", role="service").status == 404
    plane.run_host()
    assert plane.rig.agent.attach_state.attachments == {}
    (again,) = plane.requests("aes")
    assert plane.bind({again["uuid"]: rp(R1)}, instance).status == 202
    plane.run_host()
    assert plane.state_of(again["uuid"]) == "Bound"


def test_a_request_deleted_while_it_is_being_bound_leaves_nothing_on_the_host(plane):
    plane.profile("aes", FPGA)
    (arq,) = plane.requests("aes")
    instance = new_instance()
    plane.bind({arq["uuid"]: rp(R1)}, instance)
    plane.wire("DELETE", f"/v2/accelerator_requests?instance={instance}", role="service")
    plane.run_host()
    assert plane.rig.agent.attach_state.attachments == {}
    assert plane.send_events() == []


def test_unbound_requests_may_be_bound_again(plane):
    plane.profile("aes", FPGA)
    (arq,) = plane.requests("aes")
    plane.bind({arq["uuid"]: rp(R1)}, new_instance())
    plane.run_host()
    removal = {
        arq["uuid"]: [{"op": "remove", "path": f"/{name}"} for name in ("hostname", "device_rp_uuid", "instance_uuid")]
    }
    assert plane.wire("PATCH", f"/v2/accelerator_requests/{arq['uuid']}", role="service", body=removal).status == 202
    assert plane.state_of(arq["uuid"]) == "Unbound"
    plane.run_host()
    assert plane.rig.agent.attach_state.attachments == {}
    plane.bind({arq["uuid"]: rp(R1)}, new_instance())
    plane.run_host()
    assert plane.state_of(arq["uuid"]) == "Bound"


def test_the_event_of_a_failed_binding_is_repeated_and_the_failure_is_shown_afterwards(plane):
    """Nova starts a server without its accelerator if it finds a failure before it waits for the event."""
    plane.profile("lost", {"resources:CUSTOM_ACCELERATOR_FPGA": "1", "accel:bitstream_id": new_instance()})
    (arq,) = plane.requests("lost")
    instance = new_instance()
    assert plane.bind({arq["uuid"]: rp(R2)}, instance).status == 202
    plane.run_host()
    assert plane.state_of(arq["uuid"]) == "BindFailed"  # read by the request's uuid, which Nova does not do
    assert plane.wire("GET", "/v2/accelerator_requests").body["arqs"][0]["state"] == "BindFailed"
    assert plane.of(instance).body["arqs"][0]["state"] == "BindStarted"
    assert plane.of(instance, "&bind_state=resolved").status == 423
    assert plane.send_events() == [(arq["uuid"], "failed")]
    assert plane.send_events() == []
    plane.clock.sleep(2)
    assert plane.send_events() == [(arq["uuid"], "failed")]
    plane.clock.sleep(300)
    assert plane.of(instance, "&bind_state=resolved").body["arqs"][0]["state"] == "BindFailed"
    plane.send_events()
    plane.clock.sleep(100)
    assert plane.send_events() == []
    assert plane.wire("DELETE", f"/v2/accelerator_requests?instance={instance}", role="service").status == 204
    plane.run_host()
    assert plane.of(instance).body == {"arqs": []}


@pytest.mark.parametrize("status", ["404 Not Found", "500 Oops", "503 Later"])
def test_an_event_that_compute_refuses_is_sent_again(plane, status):
    plane.profile("card", CARD)
    (arq,) = plane.requests("card")
    plane.bind({arq["uuid"]: rp(GPU)}, new_instance())
    plane.run_host()
    plane.compute.status = status
    assert plane.send_events() == []
    plane.compute.status = "200 OK"
    plane.clock.sleep(5)
    assert plane.send_events() == [(arq["uuid"], "completed")]


def test_a_binding_is_repeated_if_the_host_died_during_it(plane):
    plane.profile("card", CARD)
    (arq,) = plane.requests("card")
    instance = new_instance()
    plane.bind({arq["uuid"]: rp(GPU)}, instance)
    assert len(plane.wire.client().claim_jobs(HOST, "the one that dies")) == 1
    plane.run_host()
    assert plane.state_of(arq["uuid"]) == "BindStarted"
    plane.clock.sleep(timedelta(minutes=2).total_seconds())
    plane.run_host()
    assert plane.state_of(arq["uuid"]) == "Bound"


def test_a_service_killed_between_its_commit_and_its_hint_loses_no_job(plane, hints):
    """The caller gets no answer and the host no hint; the host finds the job at its next poll."""
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
    plane.run_host()
    assert plane.state_of(arq["uuid"]) == "Bound"
    hints.heard = die
    with pytest.raises(Killed):
        plane.wire("DELETE", f"/v2/accelerator_requests?instance={instance}", role="service")
    hints.heard = awake
    plane.run_host()
    assert plane.rig.agent.attach_state.attachments == {}
    assert plane.of(instance).body == {"arqs": []}
    plane.rig.check()


def test_a_binding_that_cannot_succeed_is_refused_at_once(plane):
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


def test_only_services_may_bind_requests(plane):
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


def test_a_profile_with_requests_cannot_be_deleted(plane):
    plane.profile("card", CARD)
    (arq,) = plane.requests("card")
    refused = plane.wire("DELETE", "/v2/device_profiles/card")
    assert (refused.status, arq["uuid"] in refused.fault) == (409, True)
    plane.wire("DELETE", f"/v2/accelerator_requests/{arq['uuid']}")
    assert plane.wire("DELETE", "/v2/device_profiles/card").status == 204


def test_a_profile_can_be_deleted_right_after_its_requests(plane):
    """The host has not released the device yet; the request is gone for every caller."""
    plane.profile("card", CARD)
    (arq,) = plane.requests("card")
    instance = new_instance()
    plane.bind({arq["uuid"]: rp(GPU)}, instance)
    plane.run_host()
    assert plane.wire("DELETE", f"/v2/accelerator_requests?instance={instance}", role="service").status == 204
    assert plane.wire("DELETE", "/v2/device_profiles/card").status == 204
    plane.profile("card", CARD)
    (other,) = plane.requests("card")
    plane.run_host()
    assert plane.rig.held.handles == {}
    assert [one["uuid"] for one in plane.wire("GET", "/v2/accelerator_requests").body["arqs"]] == [other["uuid"]]


def test_an_administrator_without_a_service_token_binds_and_unbinds_nothing(plane):
    """As Cyborg 17: Nova would not know of the change."""
    plane.profile("card", CARD)
    (arq,) = plane.requests("card")
    instance = new_instance()
    refused = plane.bind({arq["uuid"]: rp(GPU)}, instance, role="admin")
    assert (refused.status, "service token" in refused.fault) == (403, True)
    assert plane.bind({arq["uuid"]: rp(GPU)}, instance, role="admin+service").status == 202
    plane.run_host()
    removal = {arq["uuid"]: [{"op": "remove", "path": "/instance_uuid"}]}
    one = f"/v2/accelerator_requests/{arq['uuid']}"
    assert plane.wire("PATCH", one, role="admin", body=removal).status == 403
    assert plane.state_of(arq["uuid"]) == "Bound"
    # An administrator may delete it, unlike in Cyborg: that is how `moorage audit` repairs.
    assert plane.wire("DELETE", f"/v2/accelerator_requests?instance={instance}", role="admin").status == 204


@pytest.mark.parametrize("query", ["", "?instance=x&arqs=y"])
def test_a_deletion_without_a_valid_selection_is_refused(plane, query):
    assert plane.wire("DELETE", f"/v2/accelerator_requests{query}").status == 400
