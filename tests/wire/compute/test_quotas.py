"""Limits of projects: shown, set, and never exceeded, on any resource class and by concurrent requests."""

import threading

import pytest

from moorage.options.compute import ComputeOptions
from tests.wire.compute.conftest import IMAGE, NO_LIMITS

PATH = "/v2.1/os-quota-sets/red"


@pytest.fixture
def compute_options():
    """The default limits of the plane."""
    defaults = ComputeOptions()
    return {name: getattr(defaults, name) for name in NO_LIMITS}


def limit(plane, **limits):
    status, _, document = plane.admin("PUT", PATH, {"quota_set": {**limits, "force": True}})
    assert status == 200, document
    return document["quota_set"]


def ask(plane, flavor, name="vm", **more):
    body = {"server": {"name": name, "imageRef": IMAGE, "flavorRef": flavor, "networks": "none", **more}}
    status, _, document = plane.send("POST", "/v2.1/servers", body)
    return document["forbidden"]["message"] if status == 403 else document["server"]["id"]


def in_use(plane, name):
    return plane.send("GET", f"{PATH}/detail")[2]["quota_set"].get(name, {"in_use": None})["in_use"]


def test_the_default_limits_are_those_of_nova(plane):
    quota = plane.send("GET", PATH, version="2.57")[2]["quota_set"]
    assert quota == {
        "id": "red", "instances": 10, "cores": 20, "ram": 51200, "key_pairs": 100, "metadata_items": 128,
        "server_groups": 10, "server_group_members": 10,
    }  # fmt: skip
    assert {"floating_ips", "injected_files"} < set(plane.send("GET", PATH, version="2.35")[2]["quota_set"])
    assert plane.send("GET", f"{PATH}/defaults")[2]["quota_set"]["cores"] == 20
    assert plane.send("PUT", PATH, {"quota_set": {"cores": 1}})[0] == 403
    assert plane.send("GET", "/v2.1/os-quota-sets/blue")[0] == 403


def test_a_limit_is_set_shown_enforced_and_reset(plane, host):
    plane.flavor("small")
    assert limit(plane, instances=1)["instances"] == 1
    ask(plane, "small")
    assert ask(plane, "small") == "Quota exceeded for instances: Requested 1, but already used 1 of 1 instances"
    assert plane.admin("DELETE", PATH)[0] == 202
    assert plane.send("GET", PATH)[2]["quota_set"]["instances"] == 10
    assert len(ask(plane, "small")) == 36


def test_a_refusal_names_each_exceeded_limit_with_the_used_and_requested_amounts(plane, host):
    plane.flavor("small", vcpus=2, ram=512)
    limit(plane, cores=3, ram=600)
    ask(plane, "small")
    refused = "Quota exceeded for cores, ram: Requested 2, 512, but already used 2, 512 of 3, 600 cores, ram"
    assert ask(plane, "small") == refused


def test_any_resource_class_can_have_a_limit(plane, host):
    host.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500, CUSTOM_GOLD=9)
    plane.flavor("gold", {"resources:CUSTOM_GOLD": "2", "resources:VCPU": "0"}, vcpus=8)
    assert limit(plane, **{"class:CUSTOM_GOLD": 3})["class:CUSTOM_GOLD"] == 3
    server_id = ask(plane, "gold")
    assert (in_use(plane, "class:CUSTOM_GOLD"), in_use(plane, "cores")) == (
        2,
        0,
    )  # the flavor shows 8 and requests none
    assert "Quota exceeded for class:CUSTOM_GOLD: Requested 2, but already used 2 of 3" in ask(plane, "gold")
    plane.settle(host)
    assert in_use(plane, "class:CUSTOM_GOLD") == 2  # the same after Placement has the allocation, too
    plane.send("DELETE", f"/v2.1/servers/{server_id}")
    plane.settle(host)
    assert len(ask(plane, "gold")) == 36
    assert plane.admin("PUT", PATH, {"quota_set": {"class:lower": 3}})[0] == 400
    assert plane.admin("PUT", PATH, {"quota_set": {"colour": 3}})[0] == 400


def test_the_limits_of_the_default_quota_class_apply_to_all_projects(plane):
    changed = {"quota_class_set": {"cores": 5, "class:PCPU": 2}}
    assert plane.admin("PUT", "/v2.1/os-quota-class-sets/default", changed)[2]["quota_class_set"]["cores"] == 5
    quota = plane.send("GET", PATH)[2]["quota_set"]
    assert (quota["cores"], quota["class:PCPU"]) == (5, 2)
    limit(plane, cores=7)
    assert plane.send("GET", PATH)[2]["quota_set"]["cores"] == 7
    assert plane.send("GET", f"{PATH}/defaults")[2]["quota_set"]["cores"] == 5
    assert plane.admin("PUT", "/v2.1/os-quota-class-sets/other", changed)[0] == 400
    assert plane.admin("GET", "/v2.1/os-quota-class-sets/default")[2]["quota_class_set"]["id"] == "default"


def test_a_limit_below_the_usage_needs_force(plane, host):
    ask(plane, plane.flavor("small", vcpus=4))
    status, _, document = plane.admin("PUT", PATH, {"quota_set": {"cores": 3}})
    assert status == 400
    assert "must be greater than or equal to already used and reserved 4." in document["badRequest"]["message"]
    assert limit(plane, cores=3)["cores"] == 3
    assert plane.admin("PUT", PATH, {"quota_set": {"cores": -1}})[2]["quota_set"]["cores"] == -1
    assert plane.admin("PUT", f"{PATH}?user_id=bob", {"quota_set": {"cores": 9}})[0] == 501


def test_of_several_servers_as_many_are_created_as_the_limit_allows(plane, host):
    plane.flavor("small")
    limit(plane, instances=3)
    ask(plane, "small", min_count=2, max_count=9)
    assert len(plane.send("GET", "/v2.1/servers")[2]["servers"]) == 3
    assert "Requested 2, but already used 3 of 3 instances" in ask(plane, "small", min_count=2, max_count=3)


def test_allocations_of_other_consumers_of_the_project_count(plane, host):
    """Allocations of consumers other than servers, for example network ports."""
    plane.flavor("small", vcpus=2)
    limit(plane, cores=5)
    held = {"allocations": {host.provider.uuid: {"resources": {"VCPU": 3}}}, "consumer_generation": None,
            "project_id": "red", "user_id": "alice", "consumer_type": "PORT"}  # fmt: skip
    plane.placement._send("PUT", "/allocations/00000000-0000-4000-8000-00000000000a", held)
    ask(plane, "small")
    plane.settle(host)  # now it is in Placement, and still counted once
    assert in_use(plane, "cores") == 5
    assert "already used 5 of 5 cores" in ask(plane, "small")


def test_placement_is_not_queried_if_no_requested_class_is_limited(plane, host):
    """Placement sums all allocations of a project, which for 20,000 servers is most of the request's cost."""
    plane.flavor("small", vcpus=2)
    ask(plane, "small")
    asked = [request for request in plane.to_placement.requests if request.path.startswith("/usages")]
    limit(plane, cores=-1, ram=-1)
    ask(plane, "small")
    assert [request for request in plane.to_placement.requests if request.path.startswith("/usages")] == asked
    assert len(asked) == 1


def test_concurrent_requests_do_not_exceed_a_limit(plane, host):
    plane.flavor("small")
    limit(plane, instances=7)
    answers = []

    def make(number):
        for attempt in range(4):
            answers.append(ask(plane, "small", f"vm-{number}-{attempt}"))

    threads = [threading.Thread(target=make, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = [answer for answer in answers if not answer.startswith("Quota")]
    assert (len(made), len(answers)) == (7, 20)
    assert len(plane.send("GET", "/v2.1/servers")[2]["servers"]) == 7


def test_metadata_and_keypairs_have_limits(plane, host):
    limit(plane, metadata_items=1, key_pairs=1)
    plane.flavor("small")
    assert ask(plane, "small", metadata={"a": "1", "b": "2"}) == "Maximum number of metadata items exceeds 1"

    def add(name):
        body = {"keypair": {"name": name, "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINq5"}}
        return plane.send("POST", "/v2.1/os-keypairs", body)

    assert add("one")[0] == 201
    status, _, document = add("two")
    assert (status, document["forbidden"]["message"]) == (403, "Quota exceeded, too many key pairs.")


def test_the_limits_show_the_usage(plane, host):
    ask(plane, plane.flavor("small", vcpus=2))
    absolute = plane.send("GET", "/v2.1/limits", version="2.57")[2]["limits"]["absolute"]
    assert (absolute["maxTotalCores"], absolute["totalCoresUsed"], absolute["totalInstancesUsed"]) == (20, 2, 1)


def test_a_request_may_create_a_thousand_servers_at_most(plane):
    """Otherwise billions would be created in memory before the limits are checked, and any member could stop the
    service.
    """
    plane.flavor("small")
    limit(plane, instances=3, cores=-1, ram=-1)
    ask(plane, "small", max_count=2**31 - 1)
    assert in_use(plane, "instances") == 3, "as many as the limit allows"
    limit(plane, instances=-1)
    body = {"server": {"name": "vm", "imageRef": IMAGE, "flavorRef": "small", "networks": "none", "max_count": 1001}}
    status, _, refused = plane.send("POST", "/v2.1/servers", body)
    assert (status, "at most 1000 servers" in refused["badRequest"]["message"]) == (400, True)
    assert in_use(plane, "instances") == 3
