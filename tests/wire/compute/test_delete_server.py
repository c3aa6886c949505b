"""A deletion works at any moment, and in the end nothing of the server is left."""

import pytest


def assert_gone(plane, host, server_id):
    nothing_used = not any(plane.placement.usages(host.provider.uuid).values())
    return plane.show(server_id) is None and plane.placement.allocations(server_id) == {} and nothing_used


def delete(plane, server_id, **options):
    return plane.send("DELETE", f"/v2.1/servers/{server_id}", **options)[0]


def test_an_active_server_is_destroyed_on_its_host_before_its_allocation_is_deleted(plane, host):
    """R34 (accelerator-attach): deletion detaches on the host first, and then deletes the allocation."""
    server_id = plane.boot(plane.flavor("small"))
    plane.settle(host)
    assert delete(plane, server_id) == 204
    assert plane.show(server_id)["OS-EXT-STS:task_state"] == "deleting"
    job = host.claim()[0]
    assert (job.kind, job.payload["server"]["id"]) == ("destroy", server_id)
    assert plane.placement.allocations(server_id) != {}  # kept until the host has destroyed the guest
    host.report(job)
    plane.builder.run_once()
    assert assert_gone(plane, host, server_id)


def before_the_builder(plane, host):
    pass


def between_builder_and_host(plane, host):
    plane.builder.run_once()


def after_the_build(plane, host):
    plane.settle(host)


def after_a_failed_build(plane, host):
    host.fails["build"] = "no space"
    plane.settle(host)


@pytest.mark.parametrize(
    "moment", [before_the_builder, between_builder_and_host, after_the_build, after_a_failed_build]
)
def test_a_server_can_be_deleted_at_any_moment(plane, host, moment):
    server_id = plane.boot(plane.flavor("small"))
    moment(plane, host)
    assert delete(plane, server_id) == 204
    plane.settle(host)
    assert assert_gone(plane, host, server_id)


def test_a_server_can_be_deleted_while_its_host_builds_it(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    building = host.claim()[0]
    assert delete(plane, server_id) == 204
    assert host.claim(worker=2) == []  # the jobs of one server are done one at a time
    host.report(building)
    assert plane.show(server_id)["OS-EXT-STS:task_state"] == "deleting"
    plane.settle(host)
    assert assert_gone(plane, host, server_id)


def test_a_server_can_be_deleted_while_its_build_fails(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    building = host.claim()[0]
    delete(plane, server_id)
    host.fails["build"] = "no space"
    host.report(building)
    plane.settle(host)
    assert assert_gone(plane, host, server_id)


def test_a_deletion_between_claim_and_assignment_releases_the_claim(plane, host):
    plane.builder.run_once()
    server_id = plane.boot(plane.flavor("small"))

    def claimed_then_deleted(request, send):
        answer = send()
        assert delete(plane, server_id) == 204
        return answer

    plane.to_placement.on("PUT /allocations/", claimed_then_deleted, times=1)
    plane.settle(host)
    assert assert_gone(plane, host, server_id)
    assert host.built == []


def test_a_reset_during_scheduling_releases_the_claim(plane, host):
    plane.builder.run_once()
    server_id = plane.boot(plane.flavor("small"))

    def claimed_then_reset(request, send):
        answer = send()
        plane.act(server_id, "os-resetState", {"state": "error"}, who="root:admin", roles="admin")
        return answer

    plane.to_placement.on("PUT /allocations/", claimed_then_reset, times=1)
    plane.settle(host)
    assert plane.show(server_id)["status"] == "ERROR"
    assert plane.placement.allocations(server_id) == {}


def test_a_server_without_a_host_is_deleted_at_once(plane, host):
    server_id = plane.boot(plane.flavor("huge", vcpus=1000))
    plane.builder.run_once()
    assert plane.show(server_id)["status"] == "ERROR"
    delete(plane, server_id)
    plane.builder.run_once()
    assert assert_gone(plane, host, server_id)


def test_a_repeated_deletion_changes_nothing(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.settle(host)
    assert [delete(plane, server_id), delete(plane, server_id)] == [204, 204]
    assert len(host.claim()) == 1


def test_a_failed_deletion_ends_in_error_and_can_be_repeated(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.settle(host)
    host.fails["destroy"] = "the device does not let go"
    delete(plane, server_id)
    plane.settle(host)
    server = plane.show(server_id)
    assert (server["status"], server["fault"]["message"]) == ("ERROR", "the device does not let go")
    assert plane.placement.allocations(server_id) != {}
    delete(plane, server_id)
    plane.settle(host)
    assert assert_gone(plane, host, server_id)


def test_administrators_can_list_deleted_servers(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.settle(host)
    delete(plane, server_id)
    plane.settle(host)
    path = "/v2.1/servers/detail?deleted=True&all_tenants=True"
    listed = plane.admin("GET", path)[2]["servers"]
    assert [(server["id"], server["status"]) for server in listed] == [(server_id, "DELETED")]
    assert plane.send("GET", "/v2.1/servers/detail?deleted=True")[2]["servers"] == []
    actions = plane.send("GET", f"/v2.1/servers/{server_id}/os-instance-actions")[2]["instanceActions"]
    assert [action["action"] for action in actions] == ["delete", "create"]
