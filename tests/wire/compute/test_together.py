"""Servers that wait together are placed by one query to Placement and one claim; a failure affects no other server."""

import pytest
from sqlalchemy import event

from moorage.compute.scheduling import pipeline
from moorage.compute.scheduling.job_worker import LEASE_S
from moorage.core.errors import Conflict, Unavailable
from moorage.placement.client.values import decode_candidates
from moorage.wire.client import MAX_REPEATS
from tests.plane import Killed, failing
from tests.wire.compute.conftest import IMAGE, Host

ONE = {"DISK_GB": 1, "MEMORY_MB": 512, "VCPU": 1}


@pytest.fixture
def hosts(plane):
    found = [Host(plane, f"compute-{number}") for number in (1, 2, 3)]
    for one in found:
        one.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    return found


@pytest.fixture
def waiting(plane, hosts):
    """Ids of six new servers of one flavor that no builder has claimed."""
    plane.flavor("small")
    plane.builder.run_once()
    ids = [plane.boot("small", f"vm{number}") for number in range(6)]
    plane.to_placement.clear()
    return ids


def requests(plane):
    return [(request.method, request.resource.split("/")[1]) for request in plane.to_placement.requests]


def host_of(plane, server_id):
    return plane.show(server_id)["OS-EXT-SRV-ATTR:host"]


def used(plane, hosts):
    return {one.name: plane.placement.usages(one.provider.uuid)["VCPU"] for one in hosts}


def assert_placed(plane, hosts, ids):
    """Checks that all servers are placed, and that Placement has one allocation for each, on its host."""
    plane.settle(*hosts)
    assert [plane.show(one)["status"] for one in ids] == ["ACTIVE"] * len(ids)
    by_host = [host_of(plane, one) for one in ids]
    assert used(plane, hosts) == {one.name: by_host.count(one.name) for one in hosts}
    assert sorted(job["server"]["id"] for one in hosts for job in one.built) == sorted(ids)


def rival_claims(plane, host, vcpus):
    """Lets a rival claim `vcpus` of `host` between the next answer about candidates and our claim."""

    def rival_claims(request, send):
        answer = send()
        rival = [("resources", f"VCPU:{vcpus}"), ("in_tree", host.provider.uuid)]
        plane.placement.claim(plane.ids.uuid(), plane.placement.candidates(rival)[0][0], "red", "rival")
        plane.to_placement.requests.clear()
        return answer

    plane.to_placement.on("GET /allocation_candidates", rival_claims, times=1)


def test_waiting_servers_share_a_query_and_a_claim(plane, hosts, waiting):
    plane.builder.run_once()
    assert requests(plane) == [("GET", "allocation_candidates"), ("POST", "allocations")]
    assert_placed(plane, hosts, waiting)
    assert set(used(plane, hosts).values()) == {2}, "each saw what the others had taken"


def test_waiting_servers_of_different_flavors_share_the_claim(plane, hosts, waiting):
    other = plane.boot(plane.flavor("medium", vcpus=2), "other")
    plane.to_placement.clear()
    plane.builder.run_once()
    assert requests(plane) == [("GET", "allocation_candidates")] * 2 + [("POST", "allocations")]
    plane.settle(*hosts)
    assert plane.show(other)["status"] == "ACTIVE"
    assert sum(used(plane, hosts).values()) == 8


def test_only_the_servers_whose_claim_failed_are_placed_elsewhere(plane, hosts, waiting):
    rival_claims(plane, hosts[0], 15)
    plane.builder.run_once()
    assert requests(plane) == [("POST", "allocations")] + [("PUT", "allocations")] * 7
    plane.settle(*hosts)
    by_host = [host_of(plane, one) for one in waiting]
    assert sorted(by_host.count(one.name) for one in hosts) == [1, 2, 3]
    assert used(plane, hosts)["compute-1"] == 16


def test_if_only_some_servers_fit_the_others_fail_with_the_reason(plane, hosts, waiting):
    for one in hosts[1:]:
        one.offer(VCPU=1, MEMORY_MB=512, DISK_GB=1)
    hosts[0].offer(VCPU=2, MEMORY_MB=32768, DISK_GB=500)
    plane.settle(*hosts)
    shown = [plane.show(one) for one in waiting]
    assert sorted(one["status"] for one in shown) == ["ACTIVE"] * 4 + ["ERROR"] * 2
    messages = {one["fault"]["message"] for one in shown if one["status"] == "ERROR"}
    considered = "3 hosts considered; resources:DISK_GB=1 left 1; resources:VCPU=1 left 0"
    assert messages == {f"No valid host was found. {considered}."}
    assert used(plane, hosts) == {"compute-1": 2, "compute-2": 1, "compute-3": 1}


def test_servers_without_a_candidate_search_again_after_the_claims_of_the_others(plane, hosts, waiting):
    for one in hosts:
        one.offer(VCPU=1, MEMORY_MB=32768, DISK_GB=500)
    plane.builder.run_once()
    candidates, explain = ("GET", "allocation_candidates"), ("GET", "moorage")
    assert requests(plane)[:2] == [candidates, ("POST", "allocations")]
    assert requests(plane)[2:8] == [candidates, explain] * 3
    assert used(plane, hosts) == {"compute-1": 1, "compute-2": 1, "compute-3": 1}


def test_a_batch_that_fails_after_its_claims_is_scheduled_again_one_by_one(plane, hosts, waiting, monkeypatch):
    failures, select = [KeyError("nobody expected this")], pipeline.HostSelector._select

    def fails_once(*args):
        if failures:
            raise failures.pop()
        select(*args)

    monkeypatch.setattr(pipeline.HostSelector, "_select", fails_once)
    plane.builder.run_once()
    sent = requests(plane)
    assert sent.count(("POST", "allocations")) == 1, "the first claim, for all of them"
    assert sent.count(("GET", "allocations")) == 6, "each releases what it may hold"
    assert_placed(plane, hosts, waiting)


def test_a_request_whose_servers_do_not_all_fit_leaves_the_hosts_to_others(plane, hosts, waiting):
    plane.flavor("half", vcpus=8)
    body = {"name": "many", "imageRef": IMAGE, "flavorRef": "half", "networks": "none", "min_count": 7}
    assert plane.send("POST", "/v2.1/servers", {"server": body})[0] == 202
    plane.settle(*hosts)
    assert [plane.show(one)["status"] for one in waiting] == ["ACTIVE"] * 6
    many = [
        one for one in plane.admin("GET", "/v2.1/servers/detail?all_tenants=1")[2]["servers"] if "many" in one["name"]
    ]
    assert {one["status"] for one in many} == {"ERROR"}
    assert sum(used(plane, hosts).values()) == 6


def test_the_servers_of_one_request_are_claimed_together(plane, hosts):
    plane.flavor("small")
    plane.builder.run_once()
    body = {"name": "many", "imageRef": IMAGE, "flavorRef": "small", "networks": "none", "min_count": 5}
    assert plane.send("POST", "/v2.1/servers", {"server": body})[0] == 202
    plane.to_placement.clear()
    plane.builder.run_once()
    assert requests(plane) == [("GET", "allocation_candidates"), ("POST", "allocations")]
    assert sum(used(plane, hosts).values()) == 5


def test_an_invalid_request_does_not_fail_the_others(plane, hosts, waiting):
    """Its class was deleted after the server was created, so Placement refuses the whole query."""
    plane.placement.ensure_class("CUSTOM_GONE")
    odd = plane.boot(plane.flavor("odd", {"resources:CUSTOM_GONE": "1"}), "odd")
    plane.placement.delete_class("CUSTOM_GONE")
    assert_placed(plane, hosts, waiting)
    assert "CUSTOM_GONE" in plane.show(odd)["fault"]["message"]


def test_a_server_that_always_fails_does_not_block_the_others(plane, hosts, waiting, monkeypatch):
    broken, build_request = waiting[2], pipeline.build_request

    def fails_for_one(wanted, *rest):
        if wanted.server.id == broken:
            raise KeyError("what nobody has thought of")
        return build_request(wanted, *rest)

    monkeypatch.setattr(pipeline, "build_request", fails_for_one)
    settled_ones = [one for one in waiting if one != broken]
    assert_placed(plane, hosts, settled_ones)
    assert plane.show(broken)["status"] == "BUILD"
    monkeypatch.undo()
    plane.clock.sleep(LEASE_S)
    for one in hosts:
        one.register()
    plane.settle(*hosts)
    assert plane.show(broken)["status"] == "ACTIVE"


def test_an_unavailable_placement_is_queried_once_for_all_waiting_servers(plane, hosts, waiting):
    plane.to_placement.on("GET /allocation_candidates", failing(Unavailable("placement does not answer")))
    due = plane.builder.run_once()
    assert requests(plane) == [("GET", "allocation_candidates")] * (1 + MAX_REPEATS)
    assert {plane.show(one)["status"] for one in waiting} == {"BUILD"}
    plane.to_placement.clear()
    plane.clock.advance_to(due)
    assert_placed(plane, hosts, waiting)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_claim_whose_answer_was_lost_leaves_no_allocation_behind(plane, hosts, waiting, when):

    def lost(request, send):
        if when == "after":
            send()
        raise Unavailable("the connection broke")

    plane.to_placement.on("POST /allocations", lost, times=1)
    due = plane.builder.run_once()
    plane.clock.advance_to(due)
    assert_placed(plane, hosts, waiting)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("index", [0, 1], ids=["candidates", "claim"])
def test_the_servers_of_a_killed_builder_are_placed_by_another_one(plane, hosts, waiting, index, when):
    plane.to_placement.die(index, when)
    with pytest.raises(Killed):
        plane.builder.run_once()
    plane.clock.sleep(LEASE_S + 1)
    plane.succeed()
    for one in hosts:
        one.register()
    assert_placed(plane, hosts, waiting)


def test_a_builder_killed_between_two_assignments_leaves_the_rest_to_another_one(plane, hosts, waiting):
    """All are claimed; the first server's host is in the database, the second one's is not."""
    assigning, assigned = plane.builder._scheduler._committer, []
    assign = assigning.commit

    def dies(assert_placed):
        if len(assert_placed) > 1:
            raise Conflict("one of the jobs is not ours any more")
        if assigned:
            raise Killed
        assign(assert_placed)
        assigned.append(assert_placed)

    assigning.commit = dies
    with pytest.raises(Killed):
        plane.builder.run_once()
    assert sum(used(plane, hosts).values()) == 6
    plane.clock.sleep(LEASE_S + 1)
    plane.succeed()
    for one in hosts:
        one.register()
    assert_placed(plane, hosts, waiting)


def test_the_servers_of_a_builder_killed_before_its_commit_are_placed_by_another_one(plane, hosts, waiting):
    def dies(assert_placed):
        raise Killed

    plane.builder._scheduler._committer.commit = dies
    with pytest.raises(Killed):
        plane.builder.run_once()
    assert sum(used(plane, hosts).values()) == 6
    plane.clock.sleep(LEASE_S + 1)
    plane.succeed()
    for one in hosts:
        one.register()
    assert_placed(plane, hosts, waiting)


def test_a_commit_whose_answer_was_lost_keeps_the_allocations(plane, hosts, waiting):
    """The hosts are stored, but the builder does not know it, and must not release anything."""
    assigning = plane.builder._scheduler._committer
    assign = assigning.commit

    def lost(assert_placed):
        assigning.commit = assign
        assign(assert_placed)
        raise Unavailable("the connection broke")

    assigning.commit = lost
    with pytest.raises(Conflict):
        plane.builder.run_once()
    assert_placed(plane, hosts, waiting)


def test_a_job_claimed_by_another_builder_does_not_stop_the_others(plane, hosts, waiting):
    """Another builder claims one of the jobs between the claim in Placement and the transaction."""

    def taken_over(request, send):
        answer = send()
        with plane.engine.begin() as connection:
            job = f"schedule:{waiting[3]}"
            connection.exec_driver_sql("UPDATE jobs SET epoch = epoch + 1, worker = 'other' WHERE id = ?", (job,))
            assert connection.exec_driver_sql("SELECT changes()").scalar() == 1
        return answer

    plane.to_placement.on("POST /allocations", taken_over)
    plane.builder.run_once()
    shown = {one: plane.show(one)["OS-EXT-STS:task_state"] for one in waiting}
    assert shown == dict.fromkeys(waiting, "spawning") | {waiting[3]: "scheduling"}


def test_a_server_deleted_during_scheduling_keeps_no_allocation(plane, hosts, waiting):

    def deleted(request, send):
        answer = send()
        assert plane.send("DELETE", f"/v2.1/servers/{waiting[3]}")[0] == 204
        return answer

    plane.to_placement.on("POST /allocations", deleted)
    plane.builder.run_once()
    assert_placed(plane, hosts, [one for one in waiting if one != waiting[3]])
    assert plane.show(waiting[3]) is None


def test_the_number_of_statements_does_not_depend_on_the_number_of_waiting_servers(plane, hosts):
    """Six waiting servers need as many statements as two, because each statement covers all of them."""
    plane.flavor("small")
    plane.builder.run_once()

    def statements(servers):
        seen = []
        for number in range(servers):
            plane.boot("small", f"vm{number}")
        event.listen(plane.engine, "before_cursor_execute", note := lambda *call: seen.append(call[2]))
        plane.builder.run_once()
        event.remove(plane.engine, "before_cursor_execute", note)
        return [one for one in seen if not one.startswith("BEGIN")]

    two, six = statements(2), statements(6)
    assert len(six) == len(two) <= 20


def test_servers_of_a_host_deleted_during_scheduling_are_placed_elsewhere(plane, hosts, waiting):
    """It is deleted between the claim in Placement and the transaction."""

    def deleted(request, send):
        answer = send()
        with plane.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM hosts WHERE name = 'compute-1'")
        return answer

    plane.to_placement.on("POST /allocations", deleted)
    plane.builder.run_once()
    by_host = [host_of(plane, one) for one in waiting]
    assert sorted(by_host.count(one.name) for one in hosts) == [0, 3, 3]


def test_a_slow_builder_claims_for_each_server_separately(plane, hosts, waiting):
    """The jobs may soon belong to another builder, so the lease of each is extended before it continues."""

    def slow(request, send):
        answer = send()
        plane.clock.sleep(LEASE_S / 2)
        for one in hosts:
            one.register()
        return answer

    plane.to_placement.on("GET /allocation_candidates", slow, times=1)
    plane.builder.run_once()
    assert ("POST", "allocations") not in requests(plane)
    assert_placed(plane, hosts, waiting)


def test_members_of_a_server_group_are_placed_one_after_the_other(plane, hosts):
    plane.flavor("small")
    plane.builder.run_once()
    group = plane.send("POST", "/v2.1/os-server-groups", {"server_group": {"name": "apart", "policy": "anti-affinity"}})
    hints = {"group": group[2]["server_group"]["id"]}
    ids = []
    for number in range(3):
        body = {"name": f"vm{number}", "imageRef": IMAGE, "flavorRef": "small", "networks": "none"}
        ids.append(
            plane.send("POST", "/v2.1/servers", {"server": body, "os:scheduler_hints": hints})[2]["server"]["id"]
        )
    plane.to_placement.clear()
    plane.builder.run_once()
    assert requests(plane) == [("GET", "allocation_candidates")] + [("PUT", "allocations")] * 3
    assert_placed(plane, hosts, ids)
    assert set(used(plane, hosts).values()) == {1}


# ----------------------------------------------------------------------------------- the number of compared hosts


@pytest.fixture
def thirty_hosts(plane):
    found = [Host(plane, f"compute-{number:02}") for number in range(1, 31)]
    for one in found:
        one.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    return found


@pytest.fixture
def decoded(plane):
    """The number of candidates in each answer of Placement."""
    numbers = []

    def counted(request, send):
        answer = send()
        numbers.append(len(decode_candidates(answer.body)[0]))
        return answer

    plane.to_placement.on("GET /allocation_candidates", counted)
    return numbers


def builder(plane, **options):
    plane.restart(scheduler=options)
    plane.builder.run_once()


def test_each_server_compares_a_sample_of_other_hosts(plane, thirty_hosts, decoded):
    builder(plane, sample_size=4, max_placement_results=10)
    plane.flavor("small")
    ids = []
    for number in range(8):
        ids.append(plane.boot("small", f"vm{number}"))
        plane.builder.run_once()
    assert decoded == [4] * 8
    assert len({host_of(plane, one) for one in ids}) > 4


def test_the_sample_grows_with_the_number_of_waiting_servers(plane, thirty_hosts, decoded):
    builder(plane, sample_size=4, max_placement_results=25)
    plane.flavor("small")
    for number in range(6):
        plane.boot("small", f"vm{number}")
    plane.builder.run_once()
    assert decoded == [18]
    assert max(used(plane, thirty_hosts).values()) == 1


def test_the_sample_grows_to_all_hosts_if_the_filters_reject_it(plane, thirty_hosts, decoded):
    builder(plane, sample_size=4, max_placement_results=8)
    for one in thirty_hosts[:-1]:
        service = plane.admin("GET", f"/v2.1/os-services?host={one.name}")[2]["services"][0]["id"]
        assert plane.admin("PUT", f"/v2.1/os-services/{service}", {"forced_down": True})[0] == 200
    server_id = plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    assert decoded == [4, 8, 30]
    assert host_of(plane, server_id) == "compute-30"


def test_no_valid_host_is_reported_only_after_all_hosts_were_compared(plane, thirty_hosts, decoded):
    builder(plane, sample_size=4, max_placement_results=8)
    plane.clock.sleep(120)  # the heartbeats of the hosts expire
    server_id = plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    assert decoded == [4, 8, 30]
    fault = plane.show(server_id)["fault"]["message"]
    assert fault == "No valid host was found. Placement has capacity, but: 30 hosts: its compute service is down."


@pytest.mark.parametrize(
    ("options", "metadata"),
    [({"weight_multipliers": "ram=-1.0"}, {}), ({"sample_size": 0}, {}), ({}, {"cpu_weight_multiplier": "-1.0"})],
    ids=["stacking", "switched off", "an aggregate has its own"],
)
def test_with_stacking_weights_as_many_hosts_are_compared_as_the_options_allow(
    plane, thirty_hosts, decoded, options, metadata
):
    if metadata:
        made = plane.admin("POST", "/v2.1/os-aggregates", {"aggregate": {"name": "stack"}})[2]["aggregate"]
        path = f"/v2.1/os-aggregates/{made['id']}/action"
        plane.admin("POST", path, {"add_host": {"host": "compute-07"}})
        plane.admin("POST", path, {"set_metadata": {"metadata": metadata}})
    builder(plane, **({"sample_size": 4, "max_placement_results": 20} | options))
    plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    assert decoded == [20]


def test_soft_affinity_compares_all_hosts(plane, thirty_hosts, decoded):
    builder(plane, sample_size=4, max_placement_results=10, weight_multipliers="soft_affinity=10")
    plane.flavor("small")
    group = plane.send("POST", "/v2.1/os-server-groups", {"server_group": {"name": "near", "policy": "soft-affinity"}})
    hints = {"group": group[2]["server_group"]["id"]}
    ids = []
    for number in range(3):
        body = {"name": f"vm{number}", "imageRef": IMAGE, "flavorRef": "small", "networks": "none"}
        ids.append(
            plane.send("POST", "/v2.1/servers", {"server": body, "os:scheduler_hints": hints})[2]["server"]["id"]
        )
        plane.builder.run_once()
    assert decoded == [4, 30, 30]
    assert len({host_of(plane, one) for one in ids}) == 1
