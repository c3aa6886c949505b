"""`tests.plane`: the properties of an in-process plane on which other tests rely."""

from datetime import timedelta

import pytest

from moorage.core.errors import StartError, Unavailable
from moorage.wire.transports import ClientResponse
from tests.plane import URL, InProcessPlane, Killed, failing

IMAGE_AWAY = {"image": "http://nowhere"}


def make_provider(plane, name="rp"):
    body = {"name": name}
    return plane.send("POST", "/placement/resource_providers", body, version="1.39").status


def names(plane):
    rows = plane.client("placement").get("/resource_providers")["resource_providers"]
    return [row["name"] for row in rows]


def test_a_plane_has_only_the_requested_services(tmp_path):
    with InProcessPlane(tmp_path, "placement") as plane:
        assert list(plane.plane.built) == ["placement"]
        assert plane.send("GET", "/compute/v2.1/servers").status == 404


def test_a_request_has_the_given_caller_and_roles(tmp_path):
    with InProcessPlane(tmp_path, "placement") as plane:
        assert plane.send("GET", "/placement/resource_providers", who=None).status == 401
        assert plane.send("GET", "/placement/resource_providers", who="alice:red", roles="member").status == 403
        assert plane.send("GET", "/placement/resource_providers").body == {"resource_providers": []}


def test_options_of_services_can_be_set(tmp_path):
    with InProcessPlane(tmp_path, "placement,compute", endpoints=IMAGE_AWAY, compute={"quota_cores": 7}) as plane:
        limits = plane.send("GET", "/compute/v2.1/limits", who="alice:red", roles="member").body
        assert limits["limits"]["absolute"]["maxTotalCores"] == 7


def test_an_invalid_option_of_a_plane_is_a_start_error(tmp_path):
    with pytest.raises(StartError, match="history_s"):
        InProcessPlane(tmp_path, "placement", placement={"history_s": 1})


def test_a_restarted_plane_has_the_data_on_its_disk(tmp_path):
    with InProcessPlane(tmp_path, "placement") as plane:
        make_provider(plane)
        service, transport = plane.service("placement"), plane.transport("/placement")
        plane.restart()
        assert plane.service("placement") is not service
        assert names(plane) == ["rp"]
        assert transport.send("GET", "/", {}).status == 200


def test_a_plane_that_was_killed_does_not_answer(tmp_path):
    with InProcessPlane(tmp_path, "placement") as plane:
        plane.kill()
        with pytest.raises(Unavailable):
            plane.send("GET", "/placement/")


def test_planes_beside_each_other_share_databases_and_can_call_each_other(tmp_path):
    with InProcessPlane(tmp_path, "placement") as first:
        second = first.beside("second", "placement")
        make_provider(first)
        assert names(second) == ["rp"]
        compute = first.beside("third", "compute", endpoints=IMAGE_AWAY)
        assert compute.task("compute.build").run_once() > first.clock.now()
        assert "PUT" in {request.method for request in compute.ways["placement"].requests}
        first.kill()
        second.kill()
        with pytest.raises(Unavailable):
            first.cloud.reach(f"{URL}/placement").send("GET", "/", {})


def test_background_tasks_run_in_virtual_time(tmp_path):
    with InProcessPlane(tmp_path, "placement,image,compute,accelerator,agent") as plane:
        plane.settle()
        plane.ways["compute"].clear()
        plane.run_for(60)
        heartbeat, *_ = plane.ways["compute"].requests
        assert (heartbeat.method, heartbeat.path) == ("PUT", "/agent/v1/hosts/compute-1")


@pytest.mark.parametrize(("when", "is_there"), [("before", False), ("after", True)])
def test_a_plane_can_be_killed_before_or_after_a_request(tmp_path, when, is_there):
    with InProcessPlane(tmp_path, "placement,image,compute") as plane:
        plane.ways["placement"].die(0, when)
        with pytest.raises(Killed):
            plane.task("compute.build").run_once()
        (trait,) = plane.ways["placement"].requests
        seen = plane.send("GET", f"/placement{trait.path}", version="1.39")
        assert (trait.method, seen.status == 204) == ("PUT", is_there)
        plane.ways["placement"].clear()
        plane.task("compute.build").run_once()


def test_a_test_can_replace_the_responses_of_a_service(tmp_path):
    with InProcessPlane(tmp_path, "placement,image,compute") as plane:
        plane.ways["placement"].around = lambda request, send: ClientResponse(503, {}, b"{}")
        assert plane.task("compute.build").run_once() > plane.clock.now()
        plane.ways["placement"].clear()
        assert plane.ways["placement"].requests == []


def test_a_fault_can_be_limited_to_some_requests_and_a_number_of_times(tmp_path):
    with InProcessPlane(tmp_path, "placement,image,compute") as plane:
        way, noted = plane.ways["placement"], []
        way.on("GET /", lambda request, send: noted.append(request) or send())
        way.on("PUT /traits/", failing(Unavailable("placement is away")), times=4)  # a client repeats it thrice
        now = plane.clock.now()
        assert plane.task("compute.build").run_once() - now < timedelta(minutes=1), "the task must run again soon"
        assert plane.task("compute.build").run_once() - now > timedelta(minutes=1)
        assert noted == []


def test_a_host_can_be_a_separate_plane(tmp_path):
    with InProcessPlane(tmp_path, "placement,image,compute,accelerator") as plane:
        host = plane.beside("compute-7", "agent", agent={"host": "compute-7"})
        assert "compute-7" in names(plane)
        plane.settle()
        assert host.service("hypervisor").domains() == {}
        assert len(host.ways["os_acc"].requests) == 1
