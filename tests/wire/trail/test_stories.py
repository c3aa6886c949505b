"""The content of entries about changes: who, what, on which resource, in which request."""

import base64

import pytest

from moorage.identity.first_start.first_credentials import first_credentials
from moorage.telemetry.logs import global_request
from tests.plane import InProcessPlane
from tests.wire.dashboard.site import Site

PROVIDER = "5a4f2a9e-7b0d-4c3e-8f6a-9d1b2c3e4f50"
CONSUMERS = ["1b8d9a3c-2e4f-4a5b-8c6d-7e8f9a0b1c2d", "2c9e0b4d-3f5a-4b6c-9d7e-8f9a0b1c2d3e"]


def one(noted):
    (entry,) = noted
    return entry


def test_an_entry_has_the_caller_and_the_address(trailed):
    headers = {"x-forwarded-for": "192.0.2.7"}  # requests in this process count as a proxy's
    trailed.token("admin")
    answer, noted = trailed.noted("POST", "/image/v2/images", {"name": "a"}, headers=headers)
    entry = one(noted)
    assert answer.status == 201
    initiator = entry["initiator"]
    assert (initiator["name"], initiator["project_name"], initiator["roles"]) == ("admin", "admin", ["admin"])
    assert initiator["id"] != "admin"
    assert initiator["host"] == {"address": "192.0.2.7"}
    assert "is_service" not in initiator
    assert entry["target"] == {"typeURI": "image/images", "id": answer.body["id"]}
    assert (entry["action"], entry["outcome"], entry["reason"]["reasonCode"]) == ("image:add_image", "success", "201")


#: In order, because each needs the objects of the previous ones. (method, path, body, microversion, action, target)
CHANGED = [
    (
        "POST",
        "/placement/resource_providers",
        {"name": "made", "uuid": PROVIDER},
        "1.39",
        "placement:resource_providers:create",
        {"typeURI": "placement/resource_providers", "id": PROVIDER},
    ),
    (
        "POST",
        f"/placement/resource_providers/{PROVIDER}/inventories",
        {"resource_class": "VCPU", "total": 2, "resource_provider_generation": 0},
        "1.39",
        "placement:resource_providers:inventories:create",
        {"typeURI": "placement/resource_providers/inventories", "id": PROVIDER},
    ),
    (
        "PUT",
        f"/placement/resource_providers/{PROVIDER}/inventories/VCPU",
        {"total": 4, "resource_provider_generation": 1},
        "1.39",
        "placement:resource_providers:inventories:update",
        {"typeURI": "placement/resource_providers/inventories", "id": PROVIDER, "part": "VCPU"},
    ),
    (
        "POST",
        "/placement/allocations",
        {
            consumer: {
                "allocations": {PROVIDER: {"resources": {"VCPU": 1}}},
                "project_id": "p",
                "user_id": "u",
                "consumer_generation": None,
                "consumer_type": "INSTANCE",
            }
            for consumer in CONSUMERS
        },
        "1.39",
        "placement:allocations:manage",
        {"typeURI": "placement/allocations", "id": CONSUMERS[0], "ids": CONSUMERS},
    ),
    (
        "POST",
        "/compute/v2.1/flavors",
        {"flavor": {"name": "f", "id": "the-flavor", "vcpus": 1, "ram": 64, "disk": 1}},
        "2.96",
        "os_compute_api:os-flavor-manage:create",
        {"typeURI": "compute/flavors", "id": "the-flavor"},
    ),
    (
        "POST",
        "/compute/v2.1/flavors/the-flavor/os-extra_specs",
        {"extra_specs": {"hw:cpu_policy": "shared"}},
        "2.96",
        "os_compute_api:os-flavor-extra-specs:create",
        {"typeURI": "compute/flavors/os-extra_specs", "id": "the-flavor"},
    ),
    (
        "POST",
        "/compute/v2.1/os-aggregates",
        {"aggregate": {"name": "agg"}},
        "2.96",
        "os_compute_api:os-aggregates:create",
        {"typeURI": "compute/os-aggregates", "id": "1"},
    ),
    (
        "POST",
        "/compute/v2.1/os-aggregates/1/action",
        {"set_metadata": {"metadata": {"a": "b"}}},
        "2.96",
        "os_compute_api:os-aggregates:action/set_metadata",
        {"typeURI": "compute/os-aggregates", "id": "1"},
    ),
    (
        "POST",
        "/accelerator/v2/device_profiles",
        [{"name": "p", "groups": [{"resources:CUSTOM_ACCELERATOR_FPGA": "1"}]}],
        "2.0",
        "cyborg:device_profile:create",
        {"typeURI": "accelerator/device_profiles"},
    ),
    (
        "PUT",
        "/reservation/v1/limits/demo",
        {"limits": {"now": {"VCPU": 4}}},
        "1.1",
        "moorage:limits:put",
        {"typeURI": "reservation/limits", "id": "demo"},
    ),
    (
        "POST",
        "/moorage/v1/clock",
        {"advance_s": 1},
        None,
        "moorage:clock:advance",
        {"typeURI": "rehearsal/clock"},
    ),
]


def test_an_entry_has_the_action_and_the_target(trailed):
    trailed.token("admin")
    for method, path, body, version, action, target in CHANGED:
        answer, noted = trailed.noted(method, path, body, version=version)
        assert answer.status < 300, answer.body
        entry = one(noted)
        assert (entry["action"], entry["outcome"]) == (action, "success")
        assert {name: entry["target"].get(name) for name in target} == target


def test_an_entry_has_the_ids_named_by_a_query(trailed):
    trailed.token("admin")
    query = ",".join(CONSUMERS)
    _, noted = trailed.noted("DELETE", f"/accelerator/v2/accelerator_requests?arqs={query}", version="2.0")
    assert one(noted)["target"]["ids"] == CONSUMERS


@pytest.fixture
def arq(trailed):
    """An accelerator request of the project demo."""
    profile = {"name": "fpga", "groups": [{"resources:CUSTOM_ACCELERATOR_FPGA": "1"}]}
    trailed.send("POST", "/accelerator/v2/device_profiles", [profile], version="2.0")
    wanted = {"device_profile_name": "fpga"}
    made = trailed.send("POST", "/accelerator/v2/accelerator_requests", wanted, user="demo", version="2.0")
    return made.body["arqs"][0]["uuid"]


def test_a_partly_successful_request_is_not_recorded_as_failed(trailed, arq):
    """One accelerator request is deleted, the other one is missing: the answer is 404, as Cyborg's."""
    for query, outcome in ((f"{arq},{CONSUMERS[0]}", ("success", "204")), (CONSUMERS[0], ("failure", "404"))):
        path = f"/accelerator/v2/accelerator_requests?arqs={query}"
        answer, noted = trailed.noted("DELETE", path, user="demo", version="2.0")
        entry = one(noted)
        assert (answer.status, entry["outcome"], entry["reason"]["reasonCode"]) == (404, *outcome)
        assert entry["reason"]["code"] == "moorage.not_found"


def test_a_long_query_does_not_push_caller_and_target_out_of_the_entry(trailed, arq):
    """The query is so long that the entry is truncated: each of these characters takes 6 bytes of JSON."""
    junk = ",".join(["%01" * 255] * 25)
    foreign = ",".join(CONSUMERS * 15)
    path = f"/accelerator/v2/accelerator_requests?value={junk}&x={foreign}&arqs={arq}"
    answer, noted = trailed.noted("DELETE", path, user="demo", version="2.0")
    entry = one(noted)
    assert answer.status == 204
    assert (entry["initiator"]["name"], len(entry["initiator"]["id"])) == ("demo", 32)
    assert (entry["action"], entry["request_id"]) == ("cyborg:arq:delete", answer.headers["x-openstack-request-id"])
    assert entry["target"]["id"] == arq


def test_an_entry_of_a_service_is_marked_and_has_the_original_request_id(trailed):
    image = trailed.send("POST", "/image/v2/images", {"name": "i", "disk_format": "raw", "container_format": "bare"})
    uploaded = trailed.send(
        "PUT",
        f"/image/v2/images/{image.body['id']}/file",
        b"bytes",
        headers={"content-type": "application/octet-stream"},
    )
    assert uploaded.status == 204
    flavor = {"flavor": {"name": "s", "id": "small", "vcpus": 1, "ram": 64, "disk": 1}}
    trailed.send("POST", "/compute/v2.1/flavors", flavor, version="2.96")
    server = {"server": {"name": "s", "flavorRef": "small", "imageRef": image.body["id"], "networks": "none"}}
    answer, noted = trailed.noted("POST", "/compute/v2.1/servers", server, version="2.96")
    assert answer.status == 202
    server_id = answer.body["server"]["id"]
    assert one(noted)["target"]["id"] == server_id
    since = trailed.size
    earlier = global_request.set("req-of-a-request-that-this-thread-handled-before")
    trailed.plane.task("compute.build").run_once()
    global_request.reset(earlier)
    built = trailed.send("GET", f"/compute/v2.1/servers/{server_id}", version="2.96").body["server"]
    assert (built["OS-EXT-STS:task_state"], built.get("fault")) == ("spawning", None)
    caused = [
        entry
        for entry in trailed.entries(since)
        if entry.get("global_request_id") == answer.headers["x-openstack-request-id"]
    ]
    claimed = [entry for entry in caused if entry["observer"]["typeURI"] == "service/placement"]
    assert [entry["target"]["id"] for entry in claimed] == [server_id]
    assert (claimed[0]["initiator"]["name"], claimed[0]["initiator"]["is_service"]) == ("moorage", True)
    trailed.token("admin")
    answer, noted = trailed.noted(
        "POST", f"/compute/v2.1/servers/{server_id}/action", {"os-stop": None}, version="2.96"
    )
    assert one(noted)["action"] == "os_compute_api:servers:action/os-stop"
    assert one(noted)["reason"]["reasonCode"] == str(answer.status)


def test_successful_and_failed_logins_are_recorded(trailed):
    def of(answer, since):
        request_id = answer.headers["x-openstack-request-id"]
        return one([entry for entry in trailed.entries(since) if entry["request_id"] == request_id])

    since = trailed.size
    entry = of(trailed.log_in("demo", "wrong", "demo"), since)
    assert (entry["outcome"], entry["reason"]) == (
        "failure",
        {"reasonType": "HTTP", "reasonCode": "401", "code": "identity.password"},
    )
    assert entry["initiator"]["name"] == "demo"
    entry = of(trailed.log_in("demo", trailed.password("demo"), "demo"), since)
    assert (entry["outcome"], entry["initiator"]["project_name"]) == ("success", "demo")
    entry = of(trailed.log_in("hunter2", "x"), since)
    assert entry["outcome"] == "failure"
    assert "name" not in entry["initiator"], "what is no name of anybody may be a password"


def test_requests_of_the_dashboard_are_recorded_with_their_user(trailed):
    site = Site(trailed.plane.plane.app)
    since = trailed.size
    assert site.sign_in("demo", "wrong").status_code == 401
    assert site.sign_in("demo", trailed.password("demo")).status_code == 303
    failed, done = (entry for entry in trailed.entries(since) if entry["observer"]["typeURI"] == "service/dashboard")
    assert (failed["action"], failed["outcome"], failed["reason"]["reasonCode"]) == (
        "dashboard:POST /sign-in",
        "failure",
        "401",
    )
    assert (done["outcome"], done["initiator"]["name"], done["initiator"]["project_name"]) == (
        "success",
        "demo",
        "demo",
    )
    asked = [entry for entry in trailed.entries(since) if entry["observer"]["typeURI"] == "service/identity"]
    assert [entry["global_request_id"] for entry in asked] == [failed["request_id"], done["request_id"]]
    since = trailed.size
    site.post("/leases/new", what="nonsense")
    entry = trailed.entries(since)[-1]
    assert (entry["initiator"]["name"], entry["action"]) == ("demo", "dashboard:POST /leases/new")


def basic(name, password):
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def test_a_wrong_password_in_a_header_is_recorded_on_every_route(tmp_path):
    with InProcessPlane(
        tmp_path,
        "identity,placement",
        authenticator=None,
        credentials=None,
        identity={"mode": "http_basic"},
    ) as plane:
        path = tmp_path / "trail.jsonl"
        for where, status in (("/placement/traits", 401), ("/placement/", 200)):
            before = len(path.read_bytes()) if path.exists() else 0
            answer = plane.send("GET", where, who=None, roles=None, headers=basic("admin", "wrong"))
            assert answer.status == status
            assert b'"placement:authenticate","outcome":"failure"' in path.read_bytes()[before:]
        before = len(path.read_bytes())
        good = basic("admin", first_credentials(tmp_path, "admin")[0])
        assert plane.send("GET", "/placement/traits", who=None, roles=None, headers=good, version="1.39").status == 200
        assert len(path.read_bytes()) == before


def test_in_mode_none_no_caller_is_marked_as_a_service(tmp_path):
    with InProcessPlane(
        tmp_path,
        "placement",
        authenticator=None,
        credentials=None,
        identity={"mode": "none"},
        url="http://127.0.0.1:8778",
    ) as plane:
        answer = plane.send("PUT", "/placement/traits/CUSTOM_A", version="1.39", who=None, roles=None)
        assert answer.status == 201
        text = (tmp_path / "trail.jsonl").read_text()
        assert '"id":"admin"' in text
        assert "is_service" not in text


def test_without_a_trail_no_file_is_created(tmp_path):
    with InProcessPlane(tmp_path, "placement", trail={"enabled": False}) as plane:
        assert plane.send("PUT", "/placement/traits/CUSTOM_A", version="1.39").status == 201
    assert list(tmp_path.glob("trail*")) == []


def test_routine_requests_of_agents_are_recorded_only_if_configured_or_refused(tmp_path):
    with InProcessPlane(tmp_path, "placement,image,compute") as plane:
        host = {
            "provider_uuid": PROVIDER,
            "hypervisor_type": "x",
            "vcpus": 1,
            "memory_mb": 1,
            "local_gb": 1,
        }
        path = "/compute/agent/v1/hosts/compute-9"
        assert plane.send("PUT", path, host).status == 204
        assert not (tmp_path / "trail.jsonl").exists()
        assert plane.send("PUT", path, host, who="a:b", roles="member").status == 403
        assert '"route":"PUT /agent/v1/hosts/{host}"' in (tmp_path / "trail.jsonl").read_text()
