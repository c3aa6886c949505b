"""The builder is killed at each step and another one continues: nothing is allocated twice, no server stays in
BUILD.
"""

import pytest

from moorage.compute.scheduling.job_worker import LEASE_S, MAX_ATTEMPTS
from moorage.core.errors import Conflict, Unavailable
from moorage.placement.client.placement_client import Candidate
from moorage.placement.client.values import decode_candidates
from moorage.wire.transports import ClientResponse
from tests.plane import Killed, failing
from tests.wire.compute.conftest import Host

AWAY = Unavailable("placement does not answer")
ONE = {"DISK_GB": 1, "MEMORY_MB": 512, "VCPU": 1}


def die_at(plane, index, when):
    """Kills the builder at its `index`-th request to Placement from now on."""
    plane.to_placement.die(index, when)
    with pytest.raises(Killed):
        plane.builder.run_once()
    plane.clock.sleep(LEASE_S + 1)
    plane.succeed()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("index", [0, 1], ids=["candidates", "claim"])
def test_a_server_is_built_once_although_its_builder_was_killed(plane, host, index, when):
    plane.builder.run_once()
    server_id = plane.boot(plane.flavor("small"))
    die_at(plane, index, when)
    host.register()
    plane.settle(host)
    assert plane.show(server_id)["status"] == "ACTIVE"
    assert plane.placement.allocations(server_id) == {host.provider.uuid: ONE}
    assert plane.placement.usages(host.provider.uuid) == ONE
    assert len(host.built) == 1


def test_a_builder_killed_after_its_commit_loses_only_the_hint(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.hints.is_deadly = True
    with pytest.raises(Killed):
        plane.builder.run_once()
    plane.hints.is_deadly = False
    host.work()
    assert plane.show(server_id)["status"] == "ACTIVE"
    assert plane.placement.usages(host.provider.uuid) == ONE


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("index", [0, 1, 2], ids=["candidates", "explain", "release"])
def test_a_server_without_a_host_ends_in_error_although_its_builder_was_killed(plane, host, index, when):
    plane.builder.run_once()
    server_id = plane.boot(plane.flavor("huge", vcpus=1000))
    die_at(plane, index, when)
    host.register()
    plane.settle(host)
    assert plane.show(server_id)["status"] == "ERROR"
    assert plane.placement.usages(host.provider.uuid) == dict.fromkeys(ONE, 0)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_release_interrupted_by_a_kill_is_completed(plane, host, when):
    server_id = plane.boot(plane.flavor("small"))
    plane.settle(host)
    plane.send("DELETE", f"/v2.1/servers/{server_id}")
    host.work()
    die_at(plane, 0, when)
    plane.settle(host)
    assert plane.show(server_id) is None
    assert plane.placement.usages(host.provider.uuid) == dict.fromkeys(ONE, 0)


@pytest.mark.parametrize("index", [0, 1], ids=["candidates", "claim"])
def test_a_server_deleted_after_its_builder_was_killed_leaves_no_allocation(plane, host, index):
    plane.builder.run_once()
    server_id = plane.boot(plane.flavor("small"))
    die_at(plane, index, "after")
    assert plane.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    plane.settle(host)
    assert plane.show(server_id) is None
    assert plane.placement.allocations(server_id) == {}
    assert host.built == []


def test_a_builder_whose_lease_expired_changes_nothing(plane, host):
    """The first builder stops after its claim, its successor builds, and then the first one continues."""
    plane.builder.run_once()
    server_id = plane.boot(plane.flavor("small"))
    successor = plane.another().task("compute.build")

    def slow(request, send):
        answer = send()
        plane.clock.sleep(LEASE_S + 1)
        host.register()
        successor.run_once()
        return answer

    plane.to_placement.on("PUT /allocations/", slow, times=1)
    plane.builder.run_once()
    plane.settle(host)
    assert plane.show(server_id)["status"] == "ACTIVE"
    assert plane.placement.usages(host.provider.uuid) == ONE
    assert len(host.built) == 1


def test_an_agent_that_died_during_a_build_repeats_it(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    first = host.claim()[0]
    assert host.claim(worker=2) == []
    plane.clock.sleep(61)
    second = host.claim(worker=2)[0]
    assert (second.id, second.epoch) == (first.id, first.epoch + 1)
    with pytest.raises(Conflict) as late:
        host.report(first)
    assert late.value.error_code == "jobs.fenced"
    host.report(second)
    host.report(second)  # the report is repeated, because its answer was lost
    assert plane.show(server_id)["status"] == "ACTIVE"


def test_a_job_that_kills_its_agent_repeatedly_fails(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    for _ in range(10):
        assert host.claim()
        plane.clock.sleep(61)
    assert host.claim(worker=2) == []
    for _ in range(2):
        plane.builder.run_once()
        plane.mover.run_once()
    assert plane.show(server_id)["status"] == "ERROR"
    assert "given up after 10 attempts" in plane.show(server_id)["fault"]["message"]
    # It is unknown how far the build came, so the host cleans up first.
    assert plane.placement.usages(host.provider.uuid) == ONE
    plane.settle(host)
    assert plane.placement.usages(host.provider.uuid) == dict.fromkeys(ONE, 0)


def test_nothing_is_built_before_placement_answers(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.to_placement.on("PUT /traits/", failing(AWAY))
    assert plane.builder.run_once() > plane.clock.now()
    plane.to_placement.clear()
    plane.settle(host)
    assert plane.show(server_id)["status"] == "ACTIVE"


def test_an_unavailable_placement_is_not_reported_as_a_lack_of_hosts(plane, host):
    plane.builder.run_once()
    server_id = plane.boot(plane.flavor("small"))
    plane.to_placement.on("GET /allocation_candidates", failing(AWAY))
    due = plane.builder.run_once()
    assert (due - plane.clock.now()).total_seconds() == 1.0
    assert plane.show(server_id)["status"] == "BUILD"
    plane.to_placement.clear()
    plane.clock.advance_to(due)
    plane.settle(host)
    assert plane.show(server_id)["status"] == "ACTIVE"


def test_a_job_that_always_fails_does_not_block_the_others(plane, host):
    plane.builder.run_once()
    gone = plane.boot(plane.flavor("small"), "gone")
    plane.settle(host)
    plane.send("DELETE", f"/v2.1/servers/{gone}")
    host.work()

    plane.to_placement.on(f"PUT /allocations/{gone}", lambda request, send: ClientResponse(403, {}, b"no"))
    plane.builder.run_once()
    other = plane.boot("small", "other")
    plane.settle(host)
    assert plane.show(other)["status"] == "ACTIVE"
    plane.to_placement.clear()
    plane.clock.sleep(60)
    plane.settle(host)
    assert plane.show(gone) is None


def test_a_long_outage_of_placement_ends_in_an_error_that_names_it(plane, host):
    plane.builder.run_once()
    server_id = plane.boot(plane.flavor("small"))
    plane.to_placement.on("GET /allocation_candidates", failing(AWAY))
    for _ in range(MAX_ATTEMPTS):
        assert plane.show(server_id)["status"] == "BUILD"
        plane.clock.advance_to(plane.builder.run_once() or plane.clock.now())
    fault = plane.show(server_id)["fault"]["message"]
    assert fault == "The server could not be scheduled: placement does not answer"


def claim_by_rival(plane, rival_takes):
    """Makes the next answer about candidates outdated: meanwhile a rival claims on the first candidate."""

    def overtaken(request, send):
        answer = send()
        found, _ = decode_candidates(answer.body)
        first = min(found, key=lambda candidate: candidate.root_uuid != rival_takes.provider.uuid)
        plane.placement.claim(plane.ids.uuid(), first, "red", "rival")
        return answer

    plane.to_placement.on("GET /allocation_candidates", overtaken, times=1)


def test_after_a_rivals_claim_on_one_host_the_next_host_is_claimed(plane):
    small, large = Host(plane, "compute-1"), Host(plane, "compute-2")
    small.offer(VCPU=1, MEMORY_MB=65536, DISK_GB=500)
    large.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    busy = Candidate({large.provider.uuid: {"VCPU": 8}}, {}, large.provider.uuid)
    plane.placement.claim(plane.ids.uuid(), busy, "red", "somebody")  # so the small host is the better one
    server_id = plane.boot(plane.flavor("small"))
    claim_by_rival(plane, small)
    plane.settle(small, large)
    assert plane.show(server_id)["OS-EXT-SRV-ATTR:host"] == "compute-2"


def test_after_a_rivals_claim_on_the_last_host_the_fault_names_the_missing_resource(plane, host):
    """S2: a race never surfaces as a conflict."""
    host.offer(VCPU=1, MEMORY_MB=32768, DISK_GB=500)
    server_id = plane.boot(plane.flavor("small"))
    claim_by_rival(plane, host)
    plane.settle(host)
    fault = plane.show(server_id)["fault"]["message"]
    assert fault == "No valid host was found. 1 host considered; resources:VCPU=1 left 0."
