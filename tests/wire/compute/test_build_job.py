"""The scheduler over HTTP: aggregates, images, retries on other hosts, all or none, races, and an unreachable
Placement.
"""

import dataclasses
import json

import pytest

from moorage.agent.jobs.server_build import failure_report
from moorage.compute.scheduling import build_retries
from moorage.core.errors import Invalid, Unavailable
from moorage.wire.transports import ClientResponse
from os_acc import exception as os_acc
from tests.images import put_image
from tests.plane import failing
from tests.wire.compute.conftest import IMAGE, Host

SMALL = {"DISK_GB": 1, "MEMORY_MB": 512, "VCPU": 1}


@pytest.fixture
def hosts(plane, host):
    others = [Host(plane, f"compute-{number}") for number in (2, 3)]
    for one in others:
        one.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    return [host, *others]


def aggregate(plane, name, *hosts, zone=None, **metadata):
    body = {"aggregate": {"name": name, "availability_zone": zone}}
    made = plane.admin("POST", "/v2.1/os-aggregates", body)[2]["aggregate"]
    path = f"/v2.1/os-aggregates/{made['id']}/action"
    for one in hosts:
        assert plane.admin("POST", path, {"add_host": {"host": one.name}})[0] == 200
    if metadata:
        plane.admin("POST", path, {"set_metadata": {"metadata": metadata}})
    return made


def host_of(plane, server_id):
    return plane.show(server_id)["OS-EXT-SRV-ATTR:host"]


def message_of(plane, server_id):
    return plane.send("GET", f"/v2.1/servers/{server_id}")[2]["server"]["fault"]["message"]


def image(plane, size_bytes=None, **properties):
    """Creates an image with these properties; the image service reports `size_bytes`."""
    image_id = plane.ids.uuid()
    put_image(plane.process.client("image"), image_id, "demanding", data=b"1", properties=properties)

    def larger(request, send):
        answer = send()
        return dataclasses.replace(answer, body=json.dumps(json.loads(answer.body) | {"size": size_bytes}).encode())

    if size_bytes is not None:
        plane.process.ways["image"].on(f"GET /v2/images/{image_id}", larger)
    return image_id


# ------------------------------------------------------------------------------------------- aggregates


def test_aggregates_are_written_to_placement_and_limit_the_candidates(plane, hosts):
    east = aggregate(plane, "east", hosts[2], zone="east")
    plane.builder.run_once()
    assert plane.placement.aggregates(hosts[2].provider.uuid)[1] == {east["uuid"]}
    plane.flavor("small")
    ids = [plane.boot("small", f"vm{number}", availability_zone="east") for number in range(2)]
    plane.settle(*hosts)
    assert {host_of(plane, one) for one in ids} == {"compute-3"}
    plane.admin("POST", f"/v2.1/os-aggregates/{east['id']}/action", {"remove_host": {"host": "compute-3"}})
    plane.builder.run_once()
    assert plane.placement.aggregates(hosts[2].provider.uuid)[1] == set()


def test_foreign_aggregates_are_kept_and_missing_ones_are_written_at_the_next_start(plane, hosts):
    others = "11111111-2222-4333-8444-555555555555"
    generation, _ = plane.placement.aggregates(hosts[0].provider.uuid)
    plane.placement.set_aggregates(hosts[0].provider.uuid, generation, {others})
    made = aggregate(plane, "rack", hosts[0])
    plane.builder.run_once()
    assert plane.placement.aggregates(hosts[0].provider.uuid)[1] == {others, made["uuid"]}
    generation, _ = plane.placement.aggregates(hosts[0].provider.uuid)
    plane.placement.set_aggregates(hosts[0].provider.uuid, generation, {others})
    plane.another("next").task("compute.build").run_once()
    assert plane.placement.aggregates(hosts[0].provider.uuid)[1] == {others, made["uuid"]}


def test_servers_of_a_project_are_placed_only_in_its_aggregates(plane, hosts):
    aggregate(plane, "ours", hosts[1], filter_tenant_id="red")
    plane.restart(
        scheduler={"limit_tenants_to_placement_aggregate": True, "placement_aggregate_required_for_tenants": True}
    )
    plane.flavor("small")
    ours, theirs = plane.boot("small"), plane.boot("small", who="bob:blue")
    plane.settle(*hosts)
    assert host_of(plane, ours) == "compute-2"
    assert plane.show(theirs)["fault"]["message"] == (
        "No valid host was found. no aggregate is assigned to the project, and its servers may only be in such an aggregate."
    )


def test_weight_multipliers_of_an_aggregate_stack_servers_on_its_hosts(plane, hosts):
    """The metadata makes weights negative, so the fuller host weighs more."""
    aggregate(plane, "stack", *hosts, **{f"{name}_weight_multiplier": "-1.0" for name in ("ram", "cpu", "disk")})
    plane.flavor("small")
    ids = []
    for number in range(3):
        ids.append(plane.boot("small", f"vm{number}"))
        plane.settle(*hosts)
    assert len({host_of(plane, one) for one in ids}) == 1


# ----------------------------------------------------------------------------------------------- images


def test_an_image_that_needs_more_than_the_flavor_has_is_refused(plane, host):
    plane.flavor("small")  # 512 MB, 1 GB

    def refusal(**changes):
        wanted = image(plane, **changes)
        body = {"server": {"name": "vm", "imageRef": wanted, "flavorRef": "small", "networks": "none"}}
        status, _, document = plane.send("POST", "/v2.1/servers", body)
        return status, document.get("badRequest", {}).get("message", "")

    assert refusal(min_ram=1024)[0] == 400
    assert "the image needs 1024 MB" in refusal(min_ram=1024)[1]
    assert "minimum size is 2147483648 bytes" in refusal(min_disk=2)[1]
    assert "image is 2147483648 bytes" in refusal(size_bytes=2 << 30)[1]
    assert refusal(min_ram=512, min_disk=1, size_bytes=1 << 30)[0] == 202


def test_an_image_for_other_processors_finds_no_host(plane, host):
    plane.agent._http.request(
        "PUT",
        "/agent/v1/hosts/compute-1",
        json={
            "provider_uuid": host.provider.uuid, "hypervisor_type": "QEMU", "vcpus": 16, "memory_mb": 32768,
            "local_gb": 500, "cpu_info": {"arch": "x86_64"},
        },
    )  # fmt: skip
    server_id = plane.boot(plane.flavor("small"), imageRef=image(plane, hw_architecture="aarch64"))
    plane.settle(host)
    assert message_of(plane, server_id).endswith("1 host: the image is for aarch64 processors.")


def test_a_class_unknown_to_placement_is_refused_at_once(plane, host):
    plane.flavor("odd", {"resources:CUSTOM_NOWHERE": "1"})
    body = {"server": {"name": "vm", "imageRef": IMAGE, "flavorRef": "odd", "networks": "none"}}
    status, _, document = plane.send("POST", "/v2.1/servers", body)
    assert (status, "Placement has no resource class CUSTOM_NOWHERE" in document["badRequest"]["message"]) == (
        400,
        True,
    )
    plane.placement.ensure_class("CUSTOM_NOWHERE")
    assert plane.send("POST", "/v2.1/servers", body)[0] == 202


# ---------------------------------------------------------------------------------------------- retries


def test_a_failed_build_goes_to_the_next_host(plane, hosts):
    for one in hosts:
        one.fails["build"] = "the disk is broken"
    hosts[2].fails.clear()
    server_id = plane.boot(plane.flavor("small"))
    for _ in range(4):
        plane.settle(*hosts)
    shown = plane.show(server_id)
    assert (shown["status"], "fault" in shown) == ("ACTIVE", False)
    assert shown["OS-EXT-SRV-ATTR:host"] == host_of(plane, server_id)
    held = plane.placement.allocations(server_id)
    on = next(one for one in hosts if one.name == shown["OS-EXT-SRV-ATTR:host"])
    assert held == {on.provider.uuid: SMALL}
    assert sum(plane.placement.usages(one.provider.uuid).get("VCPU", 0) for one in hosts) == 1
    assert on.built[-1]["selected_rp"] == {"": [on.provider.uuid]}


#: Errors of os_acc and of our own code that mean that the request itself is at fault.
REQUEST_FAULT_CODES = (
    os_acc.BadRequest("vendor in instance_info must be text, not int"),
    Invalid("a guest needs memory"),
)


def failed_once(plane, hosts, error):
    """(a server whose first build failed with `error`, as a host reports it; the number of hosts that were tried)"""
    sentence, code = failure_report(error)
    server_id = plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    (job,) = (job for one in hosts for job in one.claim())
    plane.agent.report_job(job.id, job.epoch, "failed", {"error": sentence, "code": code})
    plane.settle(*hosts)
    return plane.show(server_id), sum(len(one.built) for one in hosts)


@pytest.mark.parametrize("error", REQUEST_FAULT_CODES, ids=lambda error: type(error).__name__)
def test_a_build_that_every_host_would_refuse_is_not_retried(plane, hosts, error):
    shown, built = failed_once(plane, hosts, error)
    assert (shown["status"], built) == ("ERROR", 0)
    assert error.message in shown["fault"]["message"]


def test_a_build_that_another_host_may_accept_is_retried(plane, hosts):
    shown, built = failed_once(plane, hosts, os_acc.NoCapacity("all handles are taken"))
    assert (shown["status"], built) == ("ACTIVE", 1)


def test_every_error_code_that_ends_the_retries_is_reported_by_hosts():
    assert {failure_report(error)[1] for error in REQUEST_FAULT_CODES} == build_retries.REQUEST_FAULT_CODES


def test_after_failures_on_all_hosts_the_fault_says_so_and_nothing_stays_allocated(plane, hosts):
    more = [Host(plane, "compute-4")]
    more[0].offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    for one in [*hosts, *more]:
        one.fails["build"] = f"{one.name} is broken"
    server_id = plane.boot(plane.flavor("small"))
    for _ in range(4):
        plane.settle(*hosts, *more)
    shown = plane.show(server_id)
    assert shown["status"] == "ERROR"
    assert shown["fault"]["message"].startswith(
        "Exceeded maximum number of retries. Exhausted all hosts available for retrying build failures for instance "
    )
    assert sum(1 for one in [*hosts, *more] if not one.fails) == 3  # max_attempts is three, and there are four hosts
    assert plane.placement.allocations(server_id) == {}


def test_a_host_with_failed_builds_is_chosen_last(plane, hosts):
    broken = hosts[0]
    for one in hosts[1:]:
        one.offer(VCPU=8, MEMORY_MB=16384, DISK_GB=250)
    broken.fails["build"] = "out of order"
    first = plane.boot(plane.flavor("small"))
    plane.settle(*hosts)
    plane.settle(*hosts)
    assert host_of(plane, first) != broken.name
    broken.fails.clear()
    second = plane.boot("small")
    plane.settle(*hosts)
    assert host_of(plane, second) != broken.name  # although it is the largest and the emptiest


def test_a_server_deleted_between_two_tries_leaves_no_allocation(plane, hosts):
    for one in hosts:
        one.fails["build"] = "no"
    server_id = plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    for one in hosts:
        one.work()
    assert plane.show(server_id)["OS-EXT-STS:task_state"] == "scheduling"
    assert plane.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    for _ in range(3):
        plane.settle(*hosts)
    assert plane.show(server_id) is None
    assert all(plane.placement.usages(one.provider.uuid).get("VCPU", 0) == 0 for one in hosts)


# -------------------------------------------------------------------------------------- all or none, races


def many(plane, count, flavor="small"):
    body = {
        "server": {"name": "vm", "imageRef": IMAGE, "flavorRef": flavor, "networks": "none", "min_count": count},
    }
    status, _, document = plane.send("POST", "/v2.1/servers", body)
    assert status == 202, document
    return {one["name"]: one["id"] for one in plane.send("GET", "/v2.1/servers")[2]["servers"]}


def test_servers_of_one_request_are_placed_all_or_none(plane, host):
    plane.flavor("small", vcpus=6)
    ids = many(plane, 3)
    plane.settle(host)
    shown = [plane.show(one) for one in ids.values()]
    assert {one["status"] for one in shown} == {"ERROR"}
    assert len({one["fault"]["message"] for one in shown}) == 1
    assert shown[0]["fault"]["message"].startswith("No valid host was found. ")
    assert plane.placement.usages(host.provider.uuid) == dict.fromkeys(SMALL, 0)


def test_a_deleted_server_of_a_request_does_not_stop_the_others(plane, host):
    plane.flavor("small")
    ids = many(plane, 3)
    plane.send("DELETE", f"/v2.1/servers/{ids['vm-2']}")
    plane.settle(host)
    assert [plane.show(ids[name]) and plane.show(ids[name])["status"] for name in ("vm-1", "vm-2", "vm-3")] == [
        "ACTIVE", None, "ACTIVE",
    ]  # fmt: skip
    assert plane.placement.usages(host.provider.uuid)["VCPU"] == 2


def test_a_claim_that_no_longer_fits_is_tried_on_the_next_host(plane, hosts):
    server_id = plane.boot(plane.flavor("small"))
    refused = []

    def too_late(request, send):
        refused.extend(json.loads(request.body)["allocations"])
        error = {"status": 409, "code": "placement.undefined_code", "detail": "somebody was quicker"}
        return ClientResponse(409, {"content-type": "application/json"}, json.dumps({"errors": [error]}).encode())

    plane.to_placement.on("PUT /allocations/", too_late, times=9)  # one more than a round tries
    plane.settle(*hosts)
    assert plane.show(server_id)["status"] == "ACTIVE"
    assert len(set(refused)) == 3


def test_an_unavailable_placement_is_not_reported_as_a_lack_of_hosts(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    inside = "http://127.0.0.1:1 does not answer"
    away = failing(Unavailable(inside, url="http://127.0.0.1:1"))
    plane.to_placement.on("GET /allocation_candidates", away)
    plane.builder.run_once()
    assert plane.show(server_id)["status"] == "BUILD"
    plane.to_placement.clear()
    plane.clock.sleep(2)
    plane.settle(host)
    assert plane.show(server_id)["status"] == "ACTIVE"
    plane.to_placement.on("GET /allocation_candidates", away)
    server_id = plane.boot("small", "second")
    for _ in range(12):
        plane.builder.run_once()
        plane.clock.sleep(61)
    message = message_of(plane, server_id)
    assert message == "The server could not be scheduled: the placement service does not answer; try again later"
    assert inside in plane.show(server_id)["fault"]["details"], "which administrators are shown"
    assert "No valid host" not in message


def test_a_postponed_build_is_tried_again_after_1_to_60_seconds(plane, host):
    plane.boot(plane.flavor("small"))
    plane.to_placement.on("GET /allocation_candidates", failing(Unavailable("no", url="http://127.0.0.1:1")))
    pauses = []
    for _ in range(8):
        due = plane.builder.run_once()
        pauses.append((due - plane.clock.now()).total_seconds())
        plane.clock.advance_to(due)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
