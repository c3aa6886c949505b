"""A host dies and its servers are built on other hosts; later it comes back."""

import pytest

from moorage.compute.client.compute_client import ComputeClient
from moorage.core.errors import Conflict
from tests.wire.operations.conftest import GPU, Killed

ONE, TWO = "compute-1", "compute-2"
HELD = {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 10, GPU: 1}


@pytest.fixture
def cloud(make_cloud):
    return make_cloud(2)


@pytest.fixture
def server_id(cloud):
    server_id = cloud.boot("gpu")
    host = cloud.status(server_id)[2]
    cloud.source, cloud.target = cloud.hosts[host], cloud.hosts[TWO if host == ONE else ONE]
    return server_id


def hypervisor_state(cloud, name):
    rows = cloud.admin("GET", "/v2.1/os-hypervisors/detail")[1]["hypervisors"]
    return next(row["state"] for row in rows if row["hypervisor_hostname"] == name)


def test_a_server_of_a_host_that_is_up_cannot_be_evacuated(cloud, server_id):
    code, body = cloud.admin_act(server_id, "evacuate", {})
    assert (code, body["badRequest"]["message"]) == (400, f"Compute service of {cloud.source.name} is still in use.")
    assert cloud.act(server_id, "evacuate", {})[0] == 403


def test_an_evacuated_server_has_allocations_on_both_hosts_until_its_old_host_is_back(cloud, server_id):
    """R46 (accelerator-attach): the device is attached again elsewhere; nobody gets its resources on the dead host
    meanwhile.
    """
    cloud.take_down(cloud.source)
    assert cloud.admin_act(server_id, "evacuate", {})[0] == 200
    assert cloud.status(server_id)[0] == "REBUILD"
    cloud.settle()
    assert cloud.status(server_id) == ("SHUTOFF", None, cloud.target.name)
    assert cloud.target.servers == {server_id: "shutoff"}
    assert len(cloud.target.plugged[server_id]) == 1
    assert cloud.held(server_id) == {cloud.target.name: HELD}
    assert cloud.used(cloud.source.name) == HELD
    assert cloud.migrations() == [("evacuation", "done", cloud.source.name, cloud.target.name)]
    cloud.do(server_id, "os-start")
    assert cloud.target.servers == {server_id: "running"}


def test_an_evacuated_server_is_started_before_microversion_2_95(cloud, server_id):
    cloud.take_down(cloud.source)
    body = cloud.admin_do(server_id, "evacuate", {"onSharedStorage": "False"}, version="2.13")
    assert list(body) == ["adminPass"]
    assert cloud.status(server_id)[0] == "ACTIVE"


def test_a_returning_host_cleans_up_before_it_offers_resources(cloud, server_id):
    """R46 (accelerator-attach): the old host cleans its device when it returns, before it offers it."""
    cloud.take_down(cloud.source)
    cloud.admin_do(server_id, "evacuate", {})
    cloud.bring_back(cloud.source)
    assert (hypervisor_state(cloud, cloud.source.name), cloud.source.servers) == ("down", {server_id: "running"})
    seen = []
    clean = cloud.source.driver.destroy

    def destroy(uuid):
        seen.append((uuid, hypervisor_state(cloud, cloud.source.name), cloud.used(cloud.source.name)))
        return clean(uuid)

    cloud.source.driver.destroy = destroy
    cloud.settle()
    assert seen == [(server_id, "down", HELD)]
    assert (cloud.source.servers, cloud.source.plugged, cloud.used(cloud.source.name)) == ({}, {}, {})
    cloud.run_for(60)
    assert hypervisor_state(cloud, cloud.source.name) == "up"
    assert cloud.migrations()[0][1] == "completed"
    assert cloud.target.plugged.keys() == {server_id}


def test_a_returning_host_gets_no_job_before_it_has_cleaned_up(cloud, server_id):
    """A server for that host waits until the old one is removed there."""
    other = cloud.boot("small")
    if cloud.status(other)[2] != cloud.source.name:
        cloud.admin_do(other, "migrate", {"host": cloud.source.name})
        cloud.do(other, "confirmResize")
    cloud.take_down(cloud.source)
    cloud.act(other, "os-stop")
    cloud.admin_do(server_id, "evacuate", {})
    order = []
    cloud.bring_back(cloud.source)
    for name in ("destroy", "power"):
        call = getattr(cloud.source.driver, name)
        setattr(cloud.source.driver, name, lambda *a, name=name, call=call: (order.append(name), call(*a))[1])
    cloud.run_for(60)
    assert order[0] == "destroy"
    assert "power" in order
    assert cloud.status(other)[0] == "SHUTOFF"


def test_the_late_report_of_a_disconnected_agent_is_refused(cloud, server_id):
    """It had a job of the server when it was cut off. Its report an hour later is refused, and it cleans up."""
    host = cloud.source
    cloud.act(server_id, "reboot", {"type": "HARD"})
    (job,) = cloud.service.agents.claim_jobs(host.name, "zombie", 1)
    cloud.forget_waits()
    cloud.take_down(host)
    assert cloud.status(server_id)[1] == "rebooting_hard"
    cloud.admin_do(server_id, "evacuate", {})
    assert cloud.status(server_id) == ("SHUTOFF", None, cloud.target.name)
    cloud.clock.sleep(3600)
    with pytest.raises(Conflict) as late:
        ComputeClient(cloud.client("compute")).report_job(job.id, job.epoch, "done", {"devices": []})
    assert late.value.error_code == "jobs.fenced"
    assert cloud.status(server_id) == ("SHUTOFF", None, cloud.target.name)
    cloud.bring_back(host)
    cloud.run_for(60)
    assert (host.servers, host.plugged, cloud.used(host.name)) == ({}, {}, {})
    assert cloud.target.plugged.keys() == {server_id}


def test_an_evacuation_without_a_suitable_host_ends_in_an_error_and_can_be_repeated(cloud, server_id):
    cloud.take_down(cloud.source)
    cloud.target.faults.fail("spawn", "no space left")
    cloud.admin_do(server_id, "evacuate", {})
    server = cloud.show(server_id)
    assert (server["status"], server["OS-EXT-SRV-ATTR:host"]) == ("ERROR", cloud.source.name)
    assert "no space left" in server["fault"]["message"]
    assert cloud.held(server_id) == {cloud.source.name: HELD}
    assert (cloud.target.servers, cloud.target.plugged, cloud.used(cloud.target.name)) == ({}, {}, {})
    cloud.admin_do(server_id, "evacuate", {"host": cloud.target.name})
    assert cloud.status(server_id) == ("SHUTOFF", None, cloud.target.name)


def test_an_evacuated_server_deleted_before_its_host_is_back_leaves_nothing(cloud, server_id):
    cloud.take_down(cloud.source)
    cloud.admin_do(server_id, "evacuate", {})
    cloud.send("DELETE", f"/v2.1/servers/{server_id}")
    cloud.settle()
    assert cloud.show(server_id) is None
    assert cloud.used(cloud.target.name) == {}
    cloud.bring_back(cloud.source)
    cloud.run_for(60)
    assert (cloud.source.servers, cloud.source.plugged, cloud.used(cloud.source.name)) == ({}, {}, {})


def service_of(cloud, host):
    rows = cloud.admin("GET", "/v2.1/os-services")[1]["services"]
    return next(f"/v2.1/os-services/{row['id']}" for row in rows if row["host"] == host.name)


def test_a_host_is_not_forced_up_before_it_has_cleaned_up(cloud, server_id):
    path = service_of(cloud, cloud.source)
    cloud.source.stop()
    cloud.forget_waits()
    assert cloud.admin("PUT", path, {"forced_down": True})[0] == 200
    cloud.admin_do(server_id, "evacuate", {})
    code, body, _ = cloud.admin("PUT", path, {"forced_down": False})
    assert (code, "has not cleaned up what is" in body["badRequest"]["message"]) == (400, True)
    named = {"host": cloud.source.name, "binary": "nova-compute", "forced_down": False}
    assert cloud.admin("PUT", "/v2.1/os-services/force-down", named, version="2.52")[0] == 400
    assert cloud.admin("PUT", path, {"forced_down": True, "status": "enabled"})[0] == 200
    cloud.bring_back(cloud.source)
    cloud.run_for(60)
    assert (cloud.migrations()[0][1], hypervisor_state(cloud, cloud.source.name)) == ("completed", "down")
    assert cloud.admin("PUT", path, {"forced_down": False})[0] == 200
    assert hypervisor_state(cloud, cloud.source.name) == "up"


def test_a_host_with_a_server_moving_from_or_to_it_cannot_be_deleted(cloud, server_id):
    cloud.admin_do(server_id, "migrate", {"host": cloud.target.name})
    code, body, _ = cloud.admin("DELETE", service_of(cloud, cloud.source))
    assert code == 409
    assert (
        f"moves of the servers {server_id} from or to this host are not over." in body["conflictingRequest"]["message"]
    )
    cloud.do(server_id, "revertResize")
    cloud.admin_act(server_id, "migrate", {"host": cloud.target.name})
    cloud.mover.run_once()  # from now on the migration has an allocation at its destination
    assert cloud.status(server_id)[2] == cloud.source.name
    assert cloud.admin("DELETE", service_of(cloud, cloud.target))[0] == 409
    cloud.settle()
    cloud.do(server_id, "confirmResize")
    assert cloud.admin("DELETE", service_of(cloud, cloud.source))[0] == 204


def test_deleting_a_dead_host_deletes_the_allocations_on_it(cloud, server_id):
    cloud.take_down(cloud.source)
    cloud.admin_do(server_id, "evacuate", {})
    move = cloud.admin("GET", "/v2.1/os-migrations")[1]["migrations"][0]["uuid"]
    assert cloud.held(move) == {cloud.source.name: HELD}
    assert cloud.admin("DELETE", service_of(cloud, cloud.source))[0] == 204
    cloud.settle()
    assert (cloud.held(move), cloud.placement.provider_by_name(cloud.source.name)) == ({}, None)
    cloud.bring_back(cloud.source)  # unexpectedly, the host returns
    cloud.run_for(120)
    assert (cloud.source.servers, hypervisor_state(cloud, cloud.source.name)) == ({}, "up")
    assert (cloud.used(cloud.source.name), cloud.migrations()[0][1]) == ({}, "completed")
    assert cloud.status(server_id)[2] == cloud.target.name


# ------------------------------------------------------------------------- the destination dies, too


@pytest.fixture
def stranded(make_cloud):
    """A function that returns (cloud, server): the server's host and the destination of its evacuation are dead.
    `died_in`: see `strand`.
    """
    return lambda died_in: strand(make_cloud(3), died_in)


def strand(cloud, died_in):
    """`died_in`: the last act of the destination for the server: ``nothing``, ``claim`` the job, or ``spawn``."""
    server_id = cloud.boot("gpu")
    first = cloud.status(server_id)[2]
    others = [host for name, host in cloud.hosts.items() if name != first]
    cloud.source, (cloud.target, cloud.third) = cloud.hosts[first], others
    cloud.take_down(cloud.source)
    assert cloud.admin_act(server_id, "evacuate", {"host": cloud.target.name})[0] == 200
    if died_in != "spawn":
        cloud.mover.run_once()
        cloud.claimed = cloud.service.agents.claim_jobs(cloud.target.name, "slow", 1) if died_in == "claim" else []
        cloud.forget_waits()
    else:
        spawn = cloud.target.driver.spawn

        def last(*arguments, **named):
            spawn(*arguments, **named)
            raise Killed("the machine")

        cloud.target.driver.spawn = last
        with pytest.raises(Killed):
            cloud.settle()
    cloud.take_down(cloud.target)
    assert cloud.status(server_id) == ("REBUILD", "rebuild_spawning", cloud.source.name)
    assert (cloud.used(cloud.source.name), cloud.used(cloud.target.name)) == (HELD, HELD)
    return cloud, server_id


def all_come_back(cloud):
    """Brings all hosts back; leftovers must be removed before a host counts as up."""
    cloud.bring_back(cloud.target)
    assert hypervisor_state(cloud, cloud.target.name) == "down"
    cloud.bring_back(cloud.source)
    cloud.run_for(120)
    for host in (cloud.source, cloud.target):
        assert (host.servers, host.plugged, cloud.used(host.name)) == ({}, {}, {})
        assert hypervisor_state(cloud, host.name) == "up"


@pytest.mark.parametrize("died_in", ["nothing", "spawn"])
def test_a_second_evacuation_works_after_the_death_of_the_first_destination(stranded, died_in):
    """As in Nova, which evacuates in any task state. The resources on the second dead host are not offered either."""
    cloud, server_id = stranded(died_in)
    cloud.admin_do(server_id, "evacuate", {})
    assert cloud.status(server_id) == ("SHUTOFF", None, cloud.third.name)
    assert cloud.third.plugged.keys() == {server_id}
    assert cloud.held(server_id) == {cloud.third.name: HELD}
    assert (cloud.used(cloud.source.name), cloud.used(cloud.target.name)) == (HELD, HELD)
    assert [row[1] for row in cloud.migrations()] == ["done", "failed"]
    all_come_back(cloud)
    assert cloud.status(server_id) == ("SHUTOFF", None, cloud.third.name)


def test_a_second_evacuation_without_a_host_ends_in_an_error_and_can_be_repeated(stranded):
    cloud, server_id = stranded("nothing")
    cloud.take_down(cloud.third)
    cloud.admin_do(server_id, "evacuate", {})
    assert cloud.status(server_id) == ("ERROR", None, cloud.source.name)
    assert cloud.held(server_id) == {cloud.source.name: HELD}
    cloud.bring_back(cloud.third)
    cloud.run_for(60)
    cloud.admin_do(server_id, "evacuate", {})
    assert cloud.status(server_id) == ("SHUTOFF", None, cloud.third.name)
    all_come_back(cloud)


@pytest.mark.parametrize("died_in", ["nothing", "spawn"])
def test_a_server_is_deleted_at_once_although_the_destination_is_dead_too(stranded, died_in):
    cloud, server_id = stranded(died_in)
    assert (deletes(cloud, server_id), cloud.show(server_id)) == (204, None)
    assert (cloud.held(server_id), cloud.used(cloud.source.name), cloud.used(cloud.target.name)) == ({}, HELD, HELD)
    all_come_back(cloud)


def test_the_report_of_a_slow_first_destination_is_refused_and_it_cleans_up(stranded):
    cloud, server_id = stranded("claim")
    (job,) = cloud.claimed
    cloud.admin_do(server_id, "evacuate", {})
    with pytest.raises(Conflict) as late:
        ComputeClient(cloud.client("compute")).report_job(job.id, job.epoch, "done", {"devices": []})
    assert late.value.error_code == "jobs.fenced"
    assert cloud.status(server_id) == ("SHUTOFF", None, cloud.third.name)
    all_come_back(cloud)


# ------------------------------------------------------------------------- deleted while its host is down


def listed(cloud):
    return [server["id"] for server in cloud.send("GET", "/v2.1/servers")[1]["servers"]]


def deletes(cloud, server_id):
    code = cloud.send("DELETE", f"/v2.1/servers/{server_id}")[0]
    cloud.settle()
    return code


def test_a_server_of_a_dead_host_is_deleted_at_once(cloud, server_id):
    """Its resources there are not offered until the host has cleaned up, because the host may still run the server."""
    cloud.take_down(cloud.source)
    assert (deletes(cloud, server_id), cloud.show(server_id), listed(cloud)) == (204, None, [])
    assert (cloud.held(server_id), cloud.used(cloud.source.name)) == ({}, HELD)
    name, events = cloud.actions(server_id)[0]
    assert (name, events["compute_terminate_instance"]) == ("delete", "Success")
    assert cloud.migrations() == []
    usage = cloud.admin("GET", "/v2.1/os-quota-sets/red/detail")[1]["quota_set"]
    assert (usage["instances"]["in_use"], usage["cores"]["in_use"]) == (0, 0)
    assert deletes(cloud, server_id) == 404


def test_leftovers_of_a_deleted_server_are_removed_before_its_host_counts_as_up(cloud, server_id):
    cloud.take_down(cloud.source)
    deletes(cloud, server_id)
    cloud.bring_back(cloud.source)
    assert (hypervisor_state(cloud, cloud.source.name), cloud.source.servers) == ("down", {server_id: "running"})
    seen = []
    clean = cloud.source.driver.destroy

    def destroy(uuid):
        seen.append((uuid, hypervisor_state(cloud, cloud.source.name), cloud.used(cloud.source.name)))
        return clean(uuid)

    cloud.source.driver.destroy = destroy
    cloud.settle()
    assert seen == [(server_id, "down", HELD)]
    assert (cloud.source.servers, cloud.source.plugged, cloud.used(cloud.source.name)) == ({}, {}, {})
    cloud.run_for(60)
    assert hypervisor_state(cloud, cloud.source.name) == "up"


def test_a_deletion_sent_before_the_host_counted_as_down_can_be_repeated_afterwards(cloud, server_id):
    cloud.source.stop()
    cloud.forget_waits()
    assert deletes(cloud, server_id) == 204
    assert cloud.status(server_id)[1] == "deleting"
    cloud.run_for(120)
    assert (deletes(cloud, server_id), cloud.show(server_id)) == (204, None)
    cloud.bring_back(cloud.source)
    cloud.run_for(60)
    assert (cloud.source.servers, cloud.used(cloud.source.name)) == ({}, {})


def test_a_late_report_of_the_host_does_not_change_a_deleted_server(cloud, server_id):
    cloud.act(server_id, "reboot", {"type": "HARD"})
    (job,) = cloud.service.agents.claim_jobs(cloud.source.name, "zombie", 1)
    cloud.forget_waits()
    cloud.take_down(cloud.source)
    deletes(cloud, server_id)
    with pytest.raises(Conflict) as late:
        ComputeClient(cloud.client("compute")).report_job(job.id, job.epoch, "done", {"devices": []})
    assert (late.value.error_code, cloud.show(server_id)) == ("jobs.fenced", None)


def test_deleting_the_service_of_a_dead_host_deletes_everything_of_it(cloud, server_id):
    cloud.take_down(cloud.source)
    deletes(cloud, server_id)
    assert cloud.admin("DELETE", service_of(cloud, cloud.source))[0] == 204
    cloud.settle()
    assert cloud.placement.provider_by_name(cloud.source.name) is None


def test_a_deleted_server_with_an_unconfirmed_resize_is_removed_from_both_hosts(cloud, server_id):
    cloud.admin_do(server_id, "migrate")
    cloud.take_down(cloud.target)
    assert (deletes(cloud, server_id), cloud.show(server_id)) == (204, None)
    assert (cloud.source.servers, cloud.used(cloud.source.name), cloud.used(cloud.target.name)) == ({}, {}, HELD)
    cloud.bring_back(cloud.target)
    cloud.run_for(60)
    assert (cloud.target.servers, cloud.target.plugged, cloud.used(cloud.target.name)) == ({}, {}, {})


@pytest.fixture
def kept(make_cloud):
    """(cloud, server, its host); deleted servers are kept for an hour."""
    cloud = make_cloud(1, reclaim_instance_interval=3600)
    return cloud, cloud.boot("gpu"), cloud.hosts[ONE]


@pytest.mark.parametrize("when", ["after", "before"])
def test_a_soft_deletion_on_a_dead_host_takes_effect_at_once_and_stops_the_guest_later(kept, when):
    """`when`: the request comes after the host counts as down, or once before and once after that."""
    cloud, server_id, host = kept
    if when == "before":
        host.stop()
        cloud.forget_waits()
        assert deletes(cloud, server_id) == 204
        assert cloud.status(server_id)[:2] == ("ACTIVE", "soft-deleting")
        cloud.run_for(120)
    else:
        cloud.take_down(host)
    assert (deletes(cloud, server_id), listed(cloud)) == (204, [])
    assert cloud.status(server_id)[:2] == ("SOFT_DELETED", None)
    assert cloud.used(ONE) == HELD
    cloud.bring_back(host)
    cloud.run_for(60)
    assert (cloud.status(server_id)[:2], host.servers) == (("SOFT_DELETED", None), {server_id: "shutoff"})
    cloud.do(server_id, "restore")
    assert (cloud.status(server_id)[0], host.servers) == ("ACTIVE", {server_id: "running"})


def test_a_soft_deleted_server_on_a_dead_host_is_reclaimed(kept):
    cloud, server_id, host = kept
    cloud.take_down(host)
    deletes(cloud, server_id)
    cloud.run_for(3800)
    assert (cloud.show(server_id), cloud.used(ONE)) == (None, HELD)
    cloud.bring_back(host)
    cloud.run_for(60)
    assert (host.servers, cloud.used(ONE)) == ({}, {})


def test_a_soft_deleted_server_on_a_dead_host_can_be_deleted_permanently(kept):
    cloud, server_id, host = kept
    cloud.take_down(host)
    assert deletes(cloud, server_id) == 204
    cloud.do(server_id, "forceDelete")
    assert (cloud.show(server_id), cloud.used(ONE)) == (None, HELD)
    cloud.bring_back(host)
    cloud.run_for(60)
    assert (host.servers, cloud.used(ONE)) == ({}, {})


def test_a_host_counts_as_down_until_its_leftovers_are_removed(cloud, server_id):
    cloud.take_down(cloud.source)
    cloud.admin_do(server_id, "evacuate", {})
    cloud.bring_back(cloud.source)
    cloud.source.faults.fail("destroy", "the guest does not let go")
    cloud.run_for(30)
    assert hypervisor_state(cloud, cloud.source.name) == "down"
    cloud.run_for(3700)
    assert hypervisor_state(cloud, cloud.source.name) == "up"
    assert cloud.source.servers == {}
