"""A host dies during an operation, and no further request arrives: operations that do not need the host end by
themselves.

Resources that a server may still use on that host stay allocated until the host is back and has cleaned up; then
waiting operations continue.
"""

import pytest

from tests.wire.operations.conftest import GPU, Killed

ONE, TWO = "compute-1", "compute-2"
HELD = {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 10, GPU: 1}
PLAIN = {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 10}
LIVE = {"host": None, "block_migration": "auto"}


@pytest.fixture
def cloud(make_cloud):
    return make_cloud(2)


def boot(cloud, flavor="gpu"):
    """Creates a server; its host is `cloud.source`, and another host `cloud.target`."""
    server_id = cloud.boot(flavor)
    place(cloud, server_id)
    return server_id


def place(cloud, server_id):
    name = cloud.status(server_id)[2]
    cloud.source = cloud.hosts[name]
    cloud.target = next(host for host in cloud.hosts.values() if host.name != name)


def leave_dead(cloud, host):
    """Stops the host until the operations that need not wait for it have ended."""
    cloud.take_down(host)
    cloud.run_for(100)


def spawn_and_die(cloud, host):
    """The host spawns a server as its last act, and does not report it."""
    spawn = host.driver.spawn

    def last(*arguments, **named):
        spawn(*arguments, **named)
        raise Killed("the machine")

    host.driver.spawn = last
    with pytest.raises(Killed):
        cloud.settle()
    leave_dead(cloud, host)


def fault(cloud, server_id):
    return cloud.show(server_id)["fault"]["message"]


def agrees(cloud, server_id, status, units=HELD):
    """Brings all hosts back, and checks that the server is on one host in all records and has no open move."""
    for host in cloud.hosts.values():
        if host.agent is None:
            cloud.bring_back(host)
    cloud.run_for(130)
    shown, task, name = cloud.status(server_id) or (None, None, None)
    assert (shown, task) == (status, None)
    for host in cloud.hosts.values():
        if host.name == name:
            assert list(host.servers) == [server_id]
            assert len(host.plugged.get(server_id, ())) == units.get(GPU, 0)
        else:
            assert (host.servers, host.plugged, cloud.used(host.name)) == ({}, {}, {})
    assert cloud.held(server_id) == ({name: units} if name else {})
    with cloud.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM moves WHERE is_open").scalar() == 0
        assert connection.exec_driver_sql("SELECT count(*) FROM jobs WHERE open_queue IS NOT NULL").scalar() == 0
    states = cloud.admin("GET", "/v2.1/os-hypervisors/detail")[1]["hypervisors"]
    assert {row["state"] for row in states} == {"up"}


# ------------------------------------------------------------------------------------------- create


def assigned_server(cloud, **more):
    """A server for which a host was chosen, but whose host has not claimed the job."""
    body = {"name": "vm", "imageRef": cloud.image, "flavorRef": "gpu", "networks": "none", **more}
    options = {"who": "root:admin", "roles": "admin"} if more else {}
    status, answer, _ = cloud.send("POST", "/v2.1/servers", {"server": body}, **options)
    assert status == 202, answer
    cloud.builder.run_once()
    place(cloud, answer["server"]["id"])
    return answer["server"]["id"]


@pytest.mark.parametrize("died_in", ["nothing", "spawn"])
def test_a_server_whose_host_dies_during_the_build_is_built_on_the_next_host(cloud, died_in):
    server_id = assigned_server(cloud)
    if died_in == "spawn":
        spawn_and_die(cloud, cloud.source)
    else:
        leave_dead(cloud, cloud.source)
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.target.name)
    assert (cloud.held(server_id), cloud.used(cloud.source.name)) == ({cloud.target.name: HELD}, HELD)
    agrees(cloud, server_id, "ACTIVE")


def test_a_build_without_a_next_host_ends_in_an_error_that_names_the_dead_host(cloud):
    server_id = assigned_server(cloud, availability_zone=f"nova:{ONE}")
    leave_dead(cloud, cloud.hosts[ONE])
    assert cloud.status(server_id)[:2] == ("ERROR", None)
    assert fault(cloud, server_id) == f"Host {ONE} went down while the server was being built there."
    assert (cloud.held(server_id), cloud.used(ONE)) == ({}, HELD)
    assert cloud.admin("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    agrees(cloud, server_id, None)


def test_the_report_of_a_host_that_was_only_disconnected_is_refused(cloud):
    """The host counted as down but continues. Its report is refused, and it removes its build before it counts as
    up.
    """
    server_id = assigned_server(cloud)
    (job,) = cloud.service.agents.claim_jobs(cloud.source.name, "slow", 1)
    leave_dead(cloud, cloud.source)
    with cloud.engine.connect() as connection:
        query = "SELECT epoch, state FROM jobs WHERE id = ?"
        assert connection.exec_driver_sql(query, (job.id,)).one() == (job.epoch + 1, "cancelled")
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.target.name)
    agrees(cloud, server_id, "ACTIVE")


def test_after_an_outage_of_compute_no_host_counts_as_dead(cloud):
    """All hosts were silent during the outage; each gets the usual time for a heartbeat."""
    server_id = assigned_server(cloud)
    cloud.clock.sleep(3600)
    cloud.compute.restart()
    cloud.dead_hosts.run_once()
    cloud.clock.sleep(40)
    cloud.dead_hosts.run_once()
    assert cloud.status(server_id) == ("BUILD", "spawning", cloud.source.name)
    cloud.forget_waits()
    cloud.run_for(120)
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)


# --------------------------------------------------------------------------------------- evacuation


def evacuated(cloud, to=None):
    """A server of a dead host that `cloud.target` will build, but has not begun to build."""
    server_id = boot(cloud)
    cloud.take_down(cloud.source)
    body = {} if to is None else {"host": to(cloud)}
    assert cloud.admin_act(server_id, "evacuate", body)[0] == 200
    cloud.mover.run_once()
    cloud.target = cloud.hosts[cloud.migrations()[0][3]]
    return server_id


@pytest.mark.parametrize("died_in", ["nothing", "spawn"])
def test_an_evacuation_whose_destination_dies_continues_on_another_host(make_cloud, died_in):
    cloud = make_cloud(3)
    server_id = evacuated(cloud)
    if died_in == "spawn":
        spawn_and_die(cloud, cloud.target)
    else:
        leave_dead(cloud, cloud.target)
    third = next(host for host in cloud.hosts.values() if host not in (cloud.source, cloud.target))
    assert cloud.status(server_id) == ("SHUTOFF", None, third.name)
    assert cloud.held(server_id) == {third.name: HELD}
    assert (cloud.used(cloud.source.name), cloud.used(cloud.target.name)) == (HELD, HELD)
    assert [row[1] for row in cloud.migrations()] == ["done", "failed"]
    name, events = cloud.actions(server_id)[0]
    assert (name, events["compute_rebuild_instance"]) == ("evacuate", "Success")
    agrees(cloud, server_id, "SHUTOFF")


def test_an_evacuation_to_a_named_host_that_dies_ends_in_an_error_and_can_be_repeated(make_cloud):
    cloud = make_cloud(3)
    server_id = evacuated(cloud, to=lambda cloud: cloud.target.name)
    leave_dead(cloud, cloud.target)
    assert cloud.status(server_id) == ("ERROR", None, cloud.source.name)
    reason = f"Host {cloud.target.name} went down during the evacuation (step build-again)."
    assert fault(cloud, server_id) == reason
    assert (cloud.held(server_id), cloud.used(cloud.target.name)) == ({cloud.source.name: HELD}, HELD)
    assert cloud.actions(server_id)[0][1]["compute_rebuild_instance"] == "Error"
    cloud.admin_do(server_id, "evacuate", {})
    assert cloud.status(server_id)[:2] == ("SHUTOFF", None)
    agrees(cloud, server_id, "SHUTOFF")


def test_an_evacuation_without_another_host_leaves_the_server_on_its_dead_host(cloud):
    server_id = evacuated(cloud)
    leave_dead(cloud, cloud.target)
    assert cloud.status(server_id) == ("ERROR", None, cloud.source.name)
    assert "No valid host was found" in fault(cloud, server_id)
    assert cloud.held(server_id) == {cloud.source.name: HELD}
    agrees(cloud, server_id, "ERROR")


# ------------------------------------------------------------------------------- cold and live moves


def test_a_migration_whose_destination_dies_is_reverted(cloud):
    server_id = boot(cloud)
    cloud.source.write(server_id, "precious")
    assert cloud.admin_act(server_id, "migrate")[0] == 202
    cloud.step_by_step(2)
    assert cloud.status(server_id)[1] == "resize_finish"
    leave_dead(cloud, cloud.target)
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    assert (cloud.source.servers, len(cloud.source.plugged[server_id])) == ({server_id: "running"}, 1)
    assert "precious" in cloud.source.disk(server_id)
    assert (cloud.held(server_id), cloud.used(cloud.target.name)) == ({cloud.source.name: HELD}, HELD)
    assert cloud.migrations()[0][1] == "error"
    assert cloud.actions(server_id)[0][1]["compute_finish_resize"] == "Error"
    agrees(cloud, server_id, "ACTIVE")


def test_a_migration_whose_source_dies_continues_when_the_source_is_back(cloud):
    """The server is only on that host."""
    server_id = boot(cloud)
    assert cloud.admin_act(server_id, "migrate")[0] == 202
    cloud.step_by_step(1)
    leave_dead(cloud, cloud.source)
    assert cloud.status(server_id)[1:] == ("resize_migrating", cloud.source.name)
    cloud.bring_back(cloud.source)
    cloud.run_for(60)
    assert cloud.status(server_id)[0] == "VERIFY_RESIZE"
    cloud.do(server_id, "confirmResize")
    agrees(cloud, server_id, "ACTIVE")


def resized(cloud):
    """A server on `cloud.target` that waits for confirm or revert; `cloud.source` still has its old disk."""
    server_id = boot(cloud)
    cloud.admin_do(server_id, "migrate")
    assert cloud.status(server_id) == ("VERIFY_RESIZE", None, cloud.target.name)
    return server_id


def test_a_resize_is_reverted_although_its_destination_is_dead(cloud):
    server_id = resized(cloud)
    cloud.take_down(cloud.target)
    assert cloud.act(server_id, "revertResize")[0] == 202
    cloud.run_for(100)
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    assert (cloud.held(server_id), cloud.used(cloud.target.name)) == ({cloud.source.name: HELD}, HELD)
    agrees(cloud, server_id, "ACTIVE")


@pytest.mark.parametrize("then", ["evacuate", "return"])
def test_a_server_whose_old_host_dies_during_a_revert_can_be_evacuated_or_returns_with_the_host(cloud, then):
    """The server is on no other host any more: it is evacuated, or that host brings it back."""
    server_id = resized(cloud)
    assert cloud.act(server_id, "revertResize")[0] == 202
    cloud.step_by_step(2)
    leave_dead(cloud, cloud.source)
    assert cloud.status(server_id) == ("ERROR", "resize_reverting", cloud.source.name)
    assert "Evacuate the server" in fault(cloud, server_id)
    assert (cloud.target.servers, cloud.used(cloud.target.name)) == ({}, {})
    if then == "evacuate":
        cloud.admin_do(server_id, "evacuate", {}, version="2.90")
        assert cloud.status(server_id) == ("ACTIVE", None, cloud.target.name)
    agrees(cloud, server_id, "ACTIVE")


@pytest.mark.parametrize("then", ["evacuate", "return"])
def test_a_server_whose_host_dies_during_the_revert_of_a_resize_in_place_can_be_evacuated_or_returns(make_cloud, then):
    cloud = make_cloud(2, allow_resize_to_same_host=True)
    cloud.flavor("tall-gpu", {f"resources:{GPU}": "1"}, disk=20)
    server_id = boot(cloud)
    path = next(
        f"/v2.1/os-services/{row['id']}"
        for row in cloud.admin("GET", "/v2.1/os-services")[1]["services"]
        if row["host"] == cloud.target.name
    )
    cloud.admin("PUT", path, {"status": "disabled"})
    cloud.do(server_id, "resize", {"flavorRef": "tall-gpu"})
    cloud.admin("PUT", path, {"status": "enabled"})
    assert cloud.status(server_id) == ("VERIFY_RESIZE", None, cloud.source.name)
    assert cloud.act(server_id, "revertResize")[0] == 202
    leave_dead(cloud, cloud.source)
    assert cloud.status(server_id) == ("ERROR", "resize_reverting", cloud.source.name)
    if then == "evacuate":
        cloud.admin_do(server_id, "evacuate", {}, version="2.90")
        assert cloud.status(server_id) == ("ACTIVE", None, cloud.target.name)
    agrees(cloud, server_id, "ACTIVE")


def test_a_live_migration_whose_destination_dies_before_its_start_leaves_the_server_on_its_host(cloud):
    server_id = boot(cloud, "small")
    assert cloud.admin_act(server_id, "os-migrateLive", LIVE)[0] == 202
    cloud.step_by_step(1)
    leave_dead(cloud, cloud.target)
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    assert (cloud.held(server_id), cloud.used(cloud.target.name)) == ({cloud.source.name: PLAIN}, PLAIN)
    agrees(cloud, server_id, "ACTIVE", PLAIN)


def test_a_failed_live_migration_does_not_wait_for_its_dead_destination(cloud):
    server_id = boot(cloud, "small")
    cloud.source.faults.fail("hand-over", "the network is away")
    assert cloud.admin_act(server_id, "os-migrateLive", LIVE)[0] == 202
    cloud.step_by_step(3)
    assert cloud.migrations()[0][1] == "failed"
    leave_dead(cloud, cloud.target)
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    agrees(cloud, server_id, "ACTIVE", PLAIN)


@pytest.mark.parametrize("then", ["evacuate", "return"])
def test_a_live_migrated_server_whose_destination_dies_is_in_error_on_that_host(cloud, then):
    server_id = boot(cloud, "small")
    assert cloud.admin_act(server_id, "os-migrateLive", LIVE)[0] == 202
    cloud.step_by_step(3)
    leave_dead(cloud, cloud.target)
    assert cloud.status(server_id) == ("ERROR", None, cloud.target.name)
    assert "Evacuate the server, or reboot it hard" in fault(cloud, server_id)
    assert (cloud.held(server_id), cloud.used(cloud.source.name)) == ({cloud.target.name: PLAIN}, {})
    if then == "evacuate":
        cloud.admin_do(server_id, "evacuate", {}, version="2.90")
        assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    else:
        cloud.bring_back(cloud.target)
        cloud.run_for(60)
        cloud.do(server_id, "reboot", {"type": "HARD"})
    agrees(cloud, server_id, "ACTIVE", PLAIN)


# ------------------------------------------------------------------------------------------ shelved


def unshelving(cloud, body=None):
    server_id = boot(cloud)
    cloud.do(server_id, "shelve")
    assert cloud.status(server_id)[0] == "SHELVED_OFFLOADED"
    options = {"who": "root:admin", "roles": "admin"} if body else {}
    assert cloud.act(server_id, "unshelve", body, **options)[0] == 202
    cloud.mover.run_once()
    return server_id


def dest_of(cloud):
    with cloud.engine.connect() as connection:
        query = "SELECT dest_host FROM moves WHERE is_open"
        return cloud.hosts[connection.exec_driver_sql(query).scalar()]


def test_an_unshelved_server_whose_destination_dies_continues_on_another_host(cloud):
    server_id = unshelving(cloud)
    dest = dest_of(cloud)
    other = next(host for host in cloud.hosts.values() if host is not dest)
    leave_dead(cloud, dest)
    assert cloud.status(server_id) == ("ACTIVE", None, other.name)
    assert cloud.used(dest.name) == HELD
    agrees(cloud, server_id, "ACTIVE")


def test_a_server_unshelved_to_a_named_host_that_dies_is_offloaded_again(cloud):
    server_id = unshelving(cloud, {"host": ONE})
    leave_dead(cloud, cloud.hosts[ONE])
    assert cloud.status(server_id) == ("SHELVED_OFFLOADED", None, None)
    assert (cloud.held(server_id), cloud.used(ONE)) == ({}, HELD)
    cloud.do(server_id, "unshelve")
    assert cloud.status(server_id) == ("ACTIVE", None, TWO)
    agrees(cloud, server_id, "ACTIVE")


def test_a_shelved_server_whose_host_dies_after_the_snapshot_is_offloaded(make_cloud):
    cloud = make_cloud(2, shelved_offload_time=-1)
    server_id = boot(cloud)
    cloud.do(server_id, "shelve")
    assert cloud.status(server_id) == ("SHELVED", None, cloud.source.name)
    cloud.admin_act(server_id, "shelveOffload")
    leave_dead(cloud, cloud.source)
    assert cloud.status(server_id) == ("SHELVED_OFFLOADED", None, None)
    cloud.do(server_id, "unshelve")
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.target.name)
    assert (cloud.held(server_id), cloud.used(cloud.source.name)) == ({cloud.target.name: HELD}, HELD)
    agrees(cloud, server_id, "ACTIVE")


# --------------------------------------------------------------------------------- deleted, restored


def test_a_deletion_requested_shortly_before_the_host_counted_as_down_is_completed(cloud):
    server_id = boot(cloud)
    assert cloud.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    leave_dead(cloud, cloud.source)
    assert (cloud.show(server_id), cloud.held(server_id), cloud.used(cloud.source.name)) == (None, {}, HELD)
    assert cloud.actions(server_id)[0][1]["compute_terminate_instance"] == "Success"
    agrees(cloud, server_id, None)


@pytest.mark.parametrize("dead", ["source", "target"])
@pytest.mark.parametrize("steps", [1, 2])
def test_a_server_deleted_during_a_migration_does_not_wait_for_a_dead_host(cloud, steps, dead):
    server_id = boot(cloud)
    cloud.admin_act(server_id, "migrate")
    cloud.step_by_step(steps)
    assert cloud.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    leave_dead(cloud, getattr(cloud, dead))
    assert (cloud.show(server_id), cloud.held(server_id)) == (None, {})
    agrees(cloud, server_id, None)


@pytest.mark.parametrize("steps", range(3))
def test_a_server_deleted_during_a_revert_does_not_wait_for_its_dead_old_host(cloud, steps):
    """Depending on the progress, the allocations there belong to the move or to the server."""
    server_id = resized(cloud)
    cloud.act(server_id, "revertResize")
    cloud.step_by_step(steps)
    assert cloud.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    leave_dead(cloud, cloud.source)
    assert (cloud.show(server_id), cloud.held(server_id), cloud.used(cloud.target.name)) == (None, {}, {})
    assert cloud.used(cloud.source.name) == HELD
    agrees(cloud, server_id, None)


def test_a_server_deleted_while_it_is_unshelved_does_not_wait_for_its_dead_destination(cloud):
    server_id = unshelving(cloud)
    dest = dest_of(cloud)
    assert cloud.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    leave_dead(cloud, dest)
    assert (cloud.show(server_id), cloud.used(dest.name)) == (None, HELD)
    agrees(cloud, server_id, None)


def test_a_server_restored_on_a_dead_host_is_in_the_state_of_the_other_servers_there(make_cloud):
    """The restore is accepted, because the owner cannot know the state of the host, and the time for it is limited. The
    server can be evacuated, or its host starts it later.
    """
    cloud = make_cloud(1, reclaim_instance_interval=600)
    server_id = boot_alone(cloud)
    assert cloud.act(server_id, "restore")[0] == 202
    assert cloud.status(server_id)[:2] == ("SOFT_DELETED", "restoring")
    leave_dead(cloud, cloud.hosts[ONE])
    assert cloud.status(server_id)[:2] == ("ACTIVE", None)
    cloud.run_for(1200)
    assert cloud.held(server_id) == {ONE: HELD}
    cloud.bring_back(cloud.hosts[ONE])
    cloud.run_for(60)
    assert cloud.hosts[ONE].servers == {server_id: "running"}
    agrees(cloud, server_id, "ACTIVE")


def test_a_server_restored_on_a_dead_host_can_be_evacuated(make_cloud):
    cloud = make_cloud(2, reclaim_instance_interval=600)
    server_id = boot_alone(cloud)
    cloud.source, cloud.target = cloud.hosts[cloud.status(server_id)[2]], None
    cloud.act(server_id, "restore")
    leave_dead(cloud, cloud.source)
    cloud.admin_do(server_id, "evacuate", {}, version="2.90")
    assert cloud.status(server_id)[0] == "ACTIVE"
    agrees(cloud, server_id, "ACTIVE")


def boot_alone(cloud):
    """A deleted server that can be restored, on the only host."""
    server_id = cloud.boot("gpu")
    cloud.send("DELETE", f"/v2.1/servers/{server_id}")
    cloud.settle()
    assert cloud.status(server_id)[:2] == ("SOFT_DELETED", None)
    return server_id


# ---------------------------------------------------------------------- operations that wait for the host


@pytest.mark.parametrize(
    ("action", "argument", "task", "status"),
    [
        ("os-stop", None, "powering-off", "SHUTOFF"),
        ("rebuild", {"imageRef": "IMAGE"}, "rebuilding", "ACTIVE"),
        ("createImage", {"name": "copy"}, "image_snapshot", "ACTIVE"),
        ("shelve", None, "shelving", "SHELVED_OFFLOADED"),
    ],
)
def test_an_action_on_a_server_of_a_dead_host_is_done_when_the_host_is_back(cloud, action, argument, task, status):
    argument = {"imageRef": cloud.image} if action == "rebuild" else argument
    server_id = boot(cloud)
    assert cloud.act(server_id, action, argument)[0] in (200, 202)
    leave_dead(cloud, cloud.source)
    assert cloud.status(server_id)[1] == task
    cloud.bring_back(cloud.source)
    cloud.run_for(60)
    assert cloud.status(server_id)[:2] == (status, None)


def test_a_dead_host_with_leftovers_of_a_migration_can_be_deleted(cloud):
    server_id = resized(cloud)
    cloud.take_down(cloud.source)
    cloud.do(server_id, "confirmResize")
    assert cloud.status(server_id)[0] == "ACTIVE"
    assert cloud.used(cloud.source.name) == HELD
    path = next(
        f"/v2.1/os-services/{row['id']}"
        for row in cloud.admin("GET", "/v2.1/os-services")[1]["services"]
        if row["host"] == cloud.source.name
    )
    assert cloud.admin("DELETE", path)[0] == 204
    cloud.settle()
    assert cloud.placement.provider_by_name(cloud.source.name) is None
    agrees(cloud, server_id, "ACTIVE")
