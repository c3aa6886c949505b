"""Servers that wait together: one query to Placement and one claim; a failure affects no other server."""

import pytest
from sqlalchemy import event

from moorage.compute.scheduling import pipeline
from moorage.compute.scheduling.job_worker import LEASE_S
from moorage.core.errors import Conflict, Unavailable
from moorage.placement.client.candidates import decode_candidates
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
    """Ids of six new servers of one flavor that no builder has read."""
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


def settled(plane, hosts, ids):
    """All are placed, and Placement counts each once, on its host."""
    plane.settle(*hosts)
    assert [plane.show(one)["status"] for one in ids] == ["ACTIVE"] * len(ids)
    by_host = [host_of(plane, one) for one in ids]
    assert used(plane, hosts) == {one.name: by_host.count(one.name) for one in hosts}
    assert sorted(job["server"]["id"] for one in hosts for job in one.built) == sorted(ids)


def overtaken(plane, host, vcpus):
    """Between the next answer about candidates and the claim a rival claims `vcpus` of `host`."""

    def overtaken(request, send):
        answer = send()
        rival = [("resources", f"VCPU:{vcpus}"), ("in_tree", host.provider.uuid)]
        plane.placement.claim(plane.ids.uuid(), plane.placement.candidates(rival)[0][0], "red", "rival")
        plane.to_placement.requests.clear()
        return answer

    plane.to_placement.on("GET /allocation_candidates", overtaken, times=1)


def test_they_share_an_answer_and_a_claim(plane, hosts, waiting):
    plane.builder.run_once()
    assert requests(plane) == [("GET", "allocation_candidates"), ("POST", "allocations")]
    settled(plane, hosts, waiting)
    assert set(used(plane, hosts).values()) == {2}, "each saw what the others had taken"


def test_flavors_that_differ_share_the_claim(plane, hosts, waiting):
    other = plane.boot(plane.flavor("medium", vcpus=2), "other")
    plane.to_placement.clear()
    plane.builder.run_once()
    assert requests(plane) == [("GET", "allocation_candidates")] * 2 + [("POST", "allocations")]
    plane.settle(*hosts)
    assert plane.show(other)["status"] == "ACTIVE"
    assert sum(used(plane, hosts).values()) == 8


def test_whoever_is_overtaken_goes_elsewhere_and_the_others_keep_what_they_chose(plane, hosts, waiting):
    overtaken(plane, hosts[0], 15)
    plane.builder.run_once()
    assert requests(plane) == [("POST", "allocations")] + [("PUT", "allocations")] * 7
    plane.settle(*hosts)
    by_host = [host_of(plane, one) for one in waiting]
    assert sorted(by_host.count(one.name) for one in hosts) == [1, 2, 3]
    assert used(plane, hosts)["compute-1"] == 16


def test_when_only_some_fit_they_get_places_and_the_others_the_reason(plane, hosts, waiting):
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


def test_several_of_one_request_that_do_not_all_fit_leave_their_room_to_others(plane, hosts, waiting):
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


def test_several_of_one_request_are_claimed_for_together(plane, hosts):
    plane.flavor("small")
    plane.builder.run_once()
    body = {"name": "many", "imageRef": IMAGE, "flavorRef": "small", "networks": "none", "min_count": 5}
    assert plane.send("POST", "/v2.1/servers", {"server": body})[0] == 202
    plane.to_placement.clear()
    plane.builder.run_once()
    assert requests(plane) == [("GET", "allocation_candidates"), ("POST", "allocations")]
    assert sum(used(plane, hosts).values()) == 5


def test_a_request_that_cannot_be_meant_fails_alone(plane, hosts, waiting):
    """Its class was deleted after the server was created: Placement refuses the whole query."""
    plane.placement.ensure_class("CUSTOM_GONE")
    odd = plane.boot(plane.flavor("odd", {"resources:CUSTOM_GONE": "1"}), "odd")
    plane.placement.delete_class("CUSTOM_GONE")
    settled(plane, hosts, waiting)
    assert "CUSTOM_GONE" in plane.show(odd)["fault"]["message"]


def test_one_that_always_fails_does_not_stand_before_the_others(plane, hosts, waiting, monkeypatch):
    broken, build_request = waiting[2], pipeline.build_request

    def fails_for_one(wanted, *rest):
        if wanted.server.id == broken:
            raise KeyError("what nobody has thought of")
        return build_request(wanted, *rest)

    monkeypatch.setattr(pipeline, "build_request", fails_for_one)
    settled_ones = [one for one in waiting if one != broken]
    settled(plane, hosts, settled_ones)
    assert plane.show(broken)["status"] == "BUILD"
    monkeypatch.undo()
    plane.clock.sleep(LEASE_S)
    for one in hosts:
        one.register()
    plane.settle(*hosts)
    assert plane.show(broken)["status"] == "ACTIVE"


def test_placement_being_away_is_asked_once_for_all_of_them(plane, hosts, waiting):
    plane.to_placement.on("GET /allocation_candidates", failing(Unavailable("placement does not answer")))
    due = plane.builder.run_once()
    assert requests(plane) == [("GET", "allocation_candidates")] * (1 + MAX_REPEATS)
    assert {plane.show(one)["status"] for one in waiting} == {"BUILD"}
    plane.to_placement.clear()
    plane.clock.advance_to(due)
    settled(plane, hosts, waiting)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_answer_to_the_claim_that_got_lost_leaves_nothing_behind(plane, hosts, waiting, when):

    def lost(request, send):
        if when == "after":
            send()
        raise Unavailable("the connection broke")

    plane.to_placement.on("POST /allocations", lost, times=1)
    due = plane.builder.run_once()
    plane.clock.advance_to(due)
    settled(plane, hosts, waiting)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("index", [0, 1], ids=["candidates", "claim"])
def test_a_builder_that_is_killed_is_made_up_for(plane, hosts, waiting, index, when):
    plane.to_placement.die(index, when)
    with pytest.raises(Killed):
        plane.builder.run_once()
    plane.clock.sleep(LEASE_S + 1)
    plane.succeed()
    for one in hosts:
        one.register()
    settled(plane, hosts, waiting)


def test_killed_between_two_of_them_the_one_is_built_and_the_others_are_placed_anew(plane, hosts, waiting):
    """All are claimed, the first has its host in the database, the second has not."""
    assigning, assigned = plane.builder._scheduler._committer, []
    assign = assigning.commit

    def dies(settled):
        if len(settled) > 1:
            raise Conflict("one of the jobs is not ours any more")
        if assigned:
            raise Killed
        assign(settled)
        assigned.append(settled)

    assigning.commit = dies
    with pytest.raises(Killed):
        plane.builder.run_once()
    assert sum(used(plane, hosts).values()) == 6
    plane.clock.sleep(LEASE_S + 1)
    plane.succeed()
    for one in hosts:
        one.register()
    settled(plane, hosts, waiting)


def test_a_builder_that_is_killed_before_it_writes_down_any_host_is_made_up_for(plane, hosts, waiting):
    def dies(settled):
        raise Killed

    plane.builder._scheduler._committer.commit = dies
    with pytest.raises(Killed):
        plane.builder.run_once()
    assert sum(used(plane, hosts).values()) == 6
    plane.clock.sleep(LEASE_S + 1)
    plane.succeed()
    for one in hosts:
        one.register()
    settled(plane, hosts, waiting)


def test_an_answer_to_the_commit_that_got_lost_does_no_harm(plane, hosts, waiting):
    """The hosts are stored, but the builder does not know: it must release nothing."""
    assigning = plane.builder._scheduler._committer
    assign = assigning.commit

    def lost(settled):
        assigning.commit = assign
        assign(settled)
        raise Unavailable("the connection broke")

    assigning.commit = lost
    with pytest.raises(Conflict):
        plane.builder.run_once()
    settled(plane, hosts, waiting)


def test_one_that_another_builder_has_by_now_does_not_stop_the_others(plane, hosts, waiting):
    """Between the claim in Placement and the transaction another builder took one of the jobs."""

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


def test_one_that_was_deleted_meanwhile_keeps_nothing(plane, hosts, waiting):

    def deleted(request, send):
        answer = send()
        assert plane.send("DELETE", f"/v2.1/servers/{waiting[3]}")[0] == 204
        return answer

    plane.to_placement.on("POST /allocations", deleted)
    plane.builder.run_once()
    settled(plane, hosts, [one for one in waiting if one != waiting[3]])
    assert plane.show(waiting[3]) is None


def test_no_statement_is_for_one_server_alone(plane, hosts):
    """Six waiting servers cost as many statements as two, because each statement covers all."""
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


def test_a_host_that_is_deleted_meanwhile_gets_none_and_the_others_keep_what_they_chose(plane, hosts, waiting):
    """Between the claim in Placement and the transaction."""

    def deleted(request, send):
        answer = send()
        with plane.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM hosts WHERE name = 'compute-1'")
        return answer

    plane.to_placement.on("POST /allocations", deleted)
    plane.builder.run_once()
    by_host = [host_of(plane, one) for one in waiting]
    assert sorted(by_host.count(one.name) for one in hosts) == [0, 3, 3]


def test_a_builder_that_took_too_long_claims_nothing_together(plane, hosts, waiting):
    """Its jobs may soon be another's, so each claim is extended before it continues."""

    def slow(request, send):
        answer = send()
        plane.clock.sleep(LEASE_S / 2)
        for one in hosts:
            one.register()
        return answer

    plane.to_placement.on("GET /allocation_candidates", slow, times=1)
    plane.builder.run_once()
    assert ("POST", "allocations") not in requests(plane)
    settled(plane, hosts, waiting)


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
    settled(plane, hosts, ids)
    assert set(used(plane, hosts).values()) == {1}


# ------------------------------------------------------------------------------------------------ how many are compared


@pytest.fixture
def crowd(plane):
    found = [Host(plane, f"compute-{number:02}") for number in range(1, 31)]
    for one in found:
        one.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    return found


@pytest.fixture
def decoded(plane):
    """The candidates in each answer of Placement."""
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


def test_few_hosts_are_compared_and_others_for_each_server(plane, crowd, decoded):
    builder(plane, sample_size=4, max_placement_results=10)
    plane.flavor("small")
    ids = []
    for number in range(8):
        ids.append(plane.boot("small", f"vm{number}"))
        plane.builder.run_once()
    assert decoded == [4] * 8
    assert len({host_of(plane, one) for one in ids}) > 4


def test_several_that_wait_compare_as_many_more(plane, crowd, decoded):
    builder(plane, sample_size=4, max_placement_results=25)
    plane.flavor("small")
    for number in range(6):
        plane.boot("small", f"vm{number}")
    plane.builder.run_once()
    assert decoded == [18]
    assert max(used(plane, crowd).values()) == 1


def test_where_the_filters_leave_none_of_them_all_are_looked_at(plane, crowd, decoded):
    builder(plane, sample_size=4, max_placement_results=8)
    for one in crowd[:-1]:
        service = plane.admin("GET", f"/v2.1/os-services?host={one.name}")[2]["services"][0]["id"]
        assert plane.admin("PUT", f"/v2.1/os-services/{service}", {"forced_down": True})[0] == 200
    server_id = plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    assert decoded == [4, 8, 30]
    assert host_of(plane, server_id) == "compute-30"


def test_before_there_is_no_valid_host_all_were_looked_at(plane, crowd, decoded):
    builder(plane, sample_size=4, max_placement_results=8)
    plane.clock.sleep(120)  # no heartbeat meanwhile
    server_id = plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    assert decoded == [4, 8, 30]
    fault = plane.show(server_id)["fault"]["message"]
    assert fault == "No valid host was found. Placement has room, but: 30 hosts: its compute service is down."


@pytest.mark.parametrize(
    ("options", "metadata"),
    [({"weight_multipliers": "ram=-1.0"}, {}), ({"sample_size": 0}, {}), ({}, {"cpu_weight_multiplier": "-1.0"})],
    ids=["stacking", "switched off", "an aggregate has its own"],
)
def test_who_is_drawn_to_few_hosts_compares_as_many_as_the_operator_allows(plane, crowd, decoded, options, metadata):
    if metadata:
        made = plane.admin("POST", "/v2.1/os-aggregates", {"aggregate": {"name": "stack"}})[2]["aggregate"]
        path = f"/v2.1/os-aggregates/{made['id']}/action"
        plane.admin("POST", path, {"add_host": {"host": "compute-07"}})
        plane.admin("POST", path, {"set_metadata": {"metadata": metadata}})
    builder(plane, **({"sample_size": 4, "max_placement_results": 20} | options))
    plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    assert decoded == [20]


def test_soft_affinity_finds_its_host_among_any_number(plane, crowd, decoded):
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
