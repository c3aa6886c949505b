"""A host dies during an operation without further requests: operations that do not need it end by themselves.

Resources that a server may still use there stay allocated until the host is back and has cleaned up; then waiting
operations continue.
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
    """The server; its host is `cloud.source`, another one `cloud.target`."""
    server_id = cloud.boot(flavor)
    place(cloud, server_id)
    return server_id


def place(cloud, server_id):
    name = cloud.status(server_id)[2]
    cloud.source = cloud.hosts[name]
    cloud.target = next(host for host in cloud.hosts.values() if host.name != name)


def stays_dead(cloud, host):
    """Until operations that need not wait for it have ended."""
    cloud.dies(host)
    cloud.run_for(100)


def spawns_and_dies(cloud, host):
    """It spawns a server as its last act, without reporting it."""
    spawn = host.driver.spawn

    def last(*arguments, **named):
        spawn(*arguments, **named)
        raise Killed("the machine")

    host.driver.spawn = last
    with pytest.raises(Killed):
        cloud.settle()
    stays_dead(cloud, host)


def fault(cloud, server_id):
    return cloud.show(server_id)["fault"]["message"]


def agrees(cloud, server_id, status, units=HELD):
    """With all hosts back: the server is on one host in all records, and has no open move."""
    for host in cloud.hosts.values():
        if host.agent is None:
            cloud.comes_back(host)
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


def asked_for(cloud, **more):
    """A placed server whose host does not know of it yet."""
    body = {"name": "vm", "imageRef": cloud.image, "flavorRef": "gpu", "networks": "none", **more}
    options = {"who": "root:admin", "roles": "admin"} if more else {}
    status, answer, _ = cloud.send("POST", "/v2.1/servers", {"server": body}, **options)
    assert status == 202, answer
    cloud.builder.run_once()
    place(cloud, answer["server"]["id"])
    return answer["server"]["id"]


@pytest.mark.parametrize("died_in", ["nothing", "spawn"])
def test_a_server_that_was_being_built_is_built_on_the_next_host(cloud, died_in):
    server_id = asked_for(cloud)
    if died_in == "spawn":
        spawns_and_dies(cloud, cloud.source)
    else:
        stays_dead(cloud, cloud.source)
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.target.name)
    assert (cloud.held(server_id), cloud.used(cloud.source.name)) == ({cloud.target.name: HELD}, HELD)
    agrees(cloud, server_id, "ACTIVE")


def test_where_there_is_no_next_host_it_is_an_error_that_says_so(cloud):
    server_id = asked_for(cloud, availability_zone=f"nova:{ONE}")
    stays_dead(cloud, cloud.hosts[ONE])
    assert cloud.status(server_id)[:2] == ("ERROR", None)
    assert fault(cloud, server_id) == f"Host {ONE} went down while the server was being built there."
    assert (cloud.held(server_id), cloud.used(ONE)) == ({}, HELD)
    assert cloud.admin("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    agrees(cloud, server_id, None)


def test_a_build_whose_host_is_only_cut_off_is_reported_in_vain(cloud):
    """It counted as dead but continues: its report is refused, and it removes its build before it is up."""
    server_id = asked_for(cloud)
    (job,) = cloud.service.agents.claim_jobs(cloud.source.name, "slow", 1)
    stays_dead(cloud, cloud.source)
    with cloud.engine.connect() as connection:
        query = "SELECT epoch, state FROM jobs WHERE id = ?"
        assert connection.exec_driver_sql(query, (job.id,)).one() == (job.epoch + 1, "cancelled")
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.target.name)
    agrees(cloud, server_id, "ACTIVE")


def test_after_an_outage_of_the_service_no_host_is_taken_for_dead(cloud):
    """All of them have been silent; each gets the usual time for a heartbeat."""
    server_id = asked_for(cloud)
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
    """A server of a dead host that `cloud.target` will build, but has not begun."""
    server_id = boot(cloud)
    cloud.dies(cloud.source)
    body = {} if to is None else {"host": to(cloud)}
    assert cloud.admin_act(server_id, "evacuate", body)[0] == 200
    cloud.mover.run_once()
    cloud.target = cloud.hosts[cloud.migrations()[0][3]]
    return server_id


@pytest.mark.parametrize("died_in", ["nothing", "spawn"])
def test_an_evacuation_goes_on_to_another_host(make_cloud, died_in):
    cloud = make_cloud(3)
    server_id = evacuated(cloud)
    if died_in == "spawn":
        spawns_and_dies(cloud, cloud.target)
    else:
        stays_dead(cloud, cloud.target)
    third = next(host for host in cloud.hosts.values() if host not in (cloud.source, cloud.target))
    assert cloud.status(server_id) == ("SHUTOFF", None, third.name)
    assert cloud.held(server_id) == {third.name: HELD}
    assert (cloud.used(cloud.source.name), cloud.used(cloud.target.name)) == (HELD, HELD)
    assert [row[1] for row in cloud.migrations()] == ["done", "failed"]
    name, events = cloud.actions(server_id)[0]
    assert (name, events["compute_rebuild_instance"]) == ("evacuate", "Success")
    agrees(cloud, server_id, "SHUTOFF")


def test_one_to_a_host_that_was_named_is_an_error_that_can_be_repeated(make_cloud):
    cloud = make_cloud(3)
    server_id = evacuated(cloud, to=lambda cloud: cloud.target.name)
    stays_dead(cloud, cloud.target)
    assert cloud.status(server_id) == ("ERROR", None, cloud.source.name)
    reason = f"Host {cloud.target.name} went down during the evacuation (step build-again)."
    assert fault(cloud, server_id) == reason
    assert (cloud.held(server_id), cloud.used(cloud.target.name)) == ({cloud.source.name: HELD}, HELD)
    assert cloud.actions(server_id)[0][1]["compute_rebuild_instance"] == "Error"
    cloud.admin_do(server_id, "evacuate", {})
    assert cloud.status(server_id)[:2] == ("SHUTOFF", None)
    agrees(cloud, server_id, "SHUTOFF")


def test_without_another_host_it_ends_where_it_was(cloud):
    server_id = evacuated(cloud)
    stays_dead(cloud, cloud.target)
    assert cloud.status(server_id) == ("ERROR", None, cloud.source.name)
    assert "No valid host was found" in fault(cloud, server_id)
    assert cloud.held(server_id) == {cloud.source.name: HELD}
    agrees(cloud, server_id, "ERROR")


# ------------------------------------------------------------------------------- cold and live moves


def test_a_migration_whose_destination_dies_goes_back(cloud):
    server_id = boot(cloud)
    cloud.source.write(server_id, "precious")
    assert cloud.admin_act(server_id, "migrate")[0] == 202
    cloud.step_by_step(2)
    assert cloud.status(server_id)[1] == "resize_finish"
    stays_dead(cloud, cloud.target)
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    assert (cloud.source.servers, len(cloud.source.plugged[server_id])) == ({server_id: "running"}, 1)
    assert "precious" in cloud.source.disk(server_id)
    assert (cloud.held(server_id), cloud.used(cloud.target.name)) == ({cloud.source.name: HELD}, HELD)
    assert cloud.migrations()[0][1] == "error"
    assert cloud.actions(server_id)[0][1]["compute_finish_resize"] == "Error"
    agrees(cloud, server_id, "ACTIVE")


def test_a_migration_whose_source_dies_waits_and_goes_on(cloud):
    """Its server is on that host only."""
    server_id = boot(cloud)
    assert cloud.admin_act(server_id, "migrate")[0] == 202
    cloud.step_by_step(1)
    stays_dead(cloud, cloud.source)
    assert cloud.status(server_id)[1:] == ("resize_migrating", cloud.source.name)
    cloud.comes_back(cloud.source)
    cloud.run_for(60)
    assert cloud.status(server_id)[0] == "VERIFY_RESIZE"
    cloud.do(server_id, "confirmResize")
    agrees(cloud, server_id, "ACTIVE")


def resized(cloud):
    """A server on `cloud.target` that waits for confirm or revert; `cloud.source` has its old disk."""
    server_id = boot(cloud)
    cloud.admin_do(server_id, "migrate")
    assert cloud.status(server_id) == ("VERIFY_RESIZE", None, cloud.target.name)
    return server_id


def test_it_is_reverted_without_the_host_that_it_was_resized_to(cloud):
    server_id = resized(cloud)
    cloud.dies(cloud.target)
    assert cloud.act(server_id, "revertResize")[0] == 202
    cloud.run_for(100)
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    assert (cloud.held(server_id), cloud.used(cloud.target.name)) == ({cloud.source.name: HELD}, HELD)
    agrees(cloud, server_id, "ACTIVE")


@pytest.mark.parametrize("then", ["evacuate", "return"])
def test_where_its_old_host_dies_while_it_goes_back_it_is_there(cloud, then):
    """It is nowhere else any more: it is evacuated, or that host brings it back."""
    server_id = resized(cloud)
    assert cloud.act(server_id, "revertResize")[0] == 202
    cloud.step_by_step(2)
    stays_dead(cloud, cloud.source)
    assert cloud.status(server_id) == ("ERROR", "resize_reverting", cloud.source.name)
    assert "Evacuate the server" in fault(cloud, server_id)
    assert (cloud.target.servers, cloud.used(cloud.target.name)) == ({}, {})
    if then == "evacuate":
        cloud.admin_do(server_id, "evacuate", {}, version="2.90")
        assert cloud.status(server_id) == ("ACTIVE", None, cloud.target.name)
    agrees(cloud, server_id, "ACTIVE")


@pytest.mark.parametrize("then", ["evacuate", "return"])
def test_where_its_only_host_dies_while_a_resize_in_place_is_reverted(make_cloud, then):
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
    stays_dead(cloud, cloud.source)
    assert cloud.status(server_id) == ("ERROR", "resize_reverting", cloud.source.name)
    if then == "evacuate":
        cloud.admin_do(server_id, "evacuate", {}, version="2.90")
        assert cloud.status(server_id) == ("ACTIVE", None, cloud.target.name)
    agrees(cloud, server_id, "ACTIVE")


def test_a_live_migration_whose_destination_dies_before_it_began_stays(cloud):
    server_id = boot(cloud, "small")
    assert cloud.admin_act(server_id, "os-migrateLive", LIVE)[0] == 202
    cloud.step_by_step(1)
    stays_dead(cloud, cloud.target)
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    assert (cloud.held(server_id), cloud.used(cloud.target.name)) == ({cloud.source.name: PLAIN}, PLAIN)
    agrees(cloud, server_id, "ACTIVE", PLAIN)


def test_one_that_failed_is_not_undone_at_a_dead_destination(cloud):
    server_id = boot(cloud, "small")
    cloud.source.faults.fail("hand-over", "the network is away")
    assert cloud.admin_act(server_id, "os-migrateLive", LIVE)[0] == 202
    cloud.step_by_step(3)
    assert cloud.migrations()[0][1] == "failed"
    stays_dead(cloud, cloud.target)
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    agrees(cloud, server_id, "ACTIVE", PLAIN)


@pytest.mark.parametrize("then", ["evacuate", "return"])
def test_one_that_was_handed_over_to_a_host_that_died_is_there(cloud, then):
    server_id = boot(cloud, "small")
    assert cloud.admin_act(server_id, "os-migrateLive", LIVE)[0] == 202
    cloud.step_by_step(3)
    stays_dead(cloud, cloud.target)
    assert cloud.status(server_id) == ("ERROR", None, cloud.target.name)
    assert "Evacuate the server, or reboot it hard" in fault(cloud, server_id)
    assert (cloud.held(server_id), cloud.used(cloud.source.name)) == ({cloud.target.name: PLAIN}, {})
    if then == "evacuate":
        cloud.admin_do(server_id, "evacuate", {}, version="2.90")
        assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    else:
        cloud.comes_back(cloud.target)
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


def test_an_unshelved_server_goes_on_to_another_host(cloud):
    server_id = unshelving(cloud)
    dest = dest_of(cloud)
    other = next(host for host in cloud.hosts.values() if host is not dest)
    stays_dead(cloud, dest)
    assert cloud.status(server_id) == ("ACTIVE", None, other.name)
    assert cloud.used(dest.name) == HELD
    agrees(cloud, server_id, "ACTIVE")


def test_one_to_a_host_that_was_named_is_offloaded_as_before(cloud):
    server_id = unshelving(cloud, {"host": ONE})
    stays_dead(cloud, cloud.hosts[ONE])
    assert cloud.status(server_id) == ("SHELVED_OFFLOADED", None, None)
    assert (cloud.held(server_id), cloud.used(ONE)) == ({}, HELD)
    cloud.do(server_id, "unshelve")
    assert cloud.status(server_id) == ("ACTIVE", None, TWO)
    agrees(cloud, server_id, "ACTIVE")


def test_one_whose_host_dies_once_its_image_is_made_is_offloaded_without_it(make_cloud):
    cloud = make_cloud(2, shelved_offload_time=-1)
    server_id = boot(cloud)
    cloud.do(server_id, "shelve")
    assert cloud.status(server_id) == ("SHELVED", None, cloud.source.name)
    cloud.admin_act(server_id, "shelveOffload")
    stays_dead(cloud, cloud.source)
    assert cloud.status(server_id) == ("SHELVED_OFFLOADED", None, None)
    cloud.do(server_id, "unshelve")
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.target.name)
    assert (cloud.held(server_id), cloud.used(cloud.source.name)) == ({cloud.target.name: HELD}, HELD)
    agrees(cloud, server_id, "ACTIVE")


# --------------------------------------------------------------------------------- deleted, restored


def test_a_deletion_that_was_asked_for_before_the_host_was_known_to_be_down_is_done(cloud):
    server_id = boot(cloud)
    assert cloud.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    stays_dead(cloud, cloud.source)
    assert (cloud.show(server_id), cloud.held(server_id), cloud.used(cloud.source.name)) == (None, {}, HELD)
    assert cloud.actions(server_id)[0][1]["compute_terminate_instance"] == "Success"
    agrees(cloud, server_id, None)


@pytest.mark.parametrize("dead", ["source", "target"])
@pytest.mark.parametrize("steps", [1, 2])
def test_deleted_in_the_middle_of_a_migration_one_of_its_hosts_is_not_waited_for(cloud, steps, dead):
    server_id = boot(cloud)
    cloud.admin_act(server_id, "migrate")
    cloud.step_by_step(steps)
    assert cloud.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    stays_dead(cloud, getattr(cloud, dead))
    assert (cloud.show(server_id), cloud.held(server_id)) == (None, {})
    agrees(cloud, server_id, None)


@pytest.mark.parametrize("steps", range(3))
def test_deleted_in_the_middle_of_a_way_back_its_old_host_is_not_waited_for(cloud, steps):
    """The allocations there belong to its move or to the server, depending on the progress."""
    server_id = resized(cloud)
    cloud.act(server_id, "revertResize")
    cloud.step_by_step(steps)
    assert cloud.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    stays_dead(cloud, cloud.source)
    assert (cloud.show(server_id), cloud.held(server_id), cloud.used(cloud.target.name)) == (None, {}, {})
    assert cloud.used(cloud.source.name) == HELD
    agrees(cloud, server_id, None)


def test_deleted_while_it_is_unshelved_its_destination_is_not_waited_for(cloud):
    server_id = unshelving(cloud)
    dest = dest_of(cloud)
    assert cloud.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    stays_dead(cloud, dest)
    assert (cloud.show(server_id), cloud.used(dest.name)) == (None, HELD)
    agrees(cloud, server_id, None)


def test_restored_on_a_dead_host_it_is_what_others_there_are(make_cloud):
    """It is not refused, because its owner cannot know, and time is limited. It can be evacuated, or its host starts
    it.
    """
    cloud = make_cloud(1, reclaim_instance_interval=600)
    server_id = boot_alone(cloud)
    assert cloud.act(server_id, "restore")[0] == 202
    assert cloud.status(server_id)[:2] == ("SOFT_DELETED", "restoring")
    stays_dead(cloud, cloud.hosts[ONE])
    assert cloud.status(server_id)[:2] == ("ACTIVE", None)
    cloud.run_for(1200)
    assert cloud.held(server_id) == {ONE: HELD}
    cloud.comes_back(cloud.hosts[ONE])
    cloud.run_for(60)
    assert cloud.hosts[ONE].servers == {server_id: "running"}
    agrees(cloud, server_id, "ACTIVE")


def test_restored_there_it_can_be_evacuated(make_cloud):
    cloud = make_cloud(2, reclaim_instance_interval=600)
    server_id = boot_alone(cloud)
    cloud.source, cloud.target = cloud.hosts[cloud.status(server_id)[2]], None
    cloud.act(server_id, "restore")
    stays_dead(cloud, cloud.source)
    cloud.admin_do(server_id, "evacuate", {}, version="2.90")
    assert cloud.status(server_id)[0] == "ACTIVE"
    agrees(cloud, server_id, "ACTIVE")


def boot_alone(cloud):
    """A deleted server that can be restored."""
    server_id = cloud.boot("gpu")
    cloud.send("DELETE", f"/v2.1/servers/{server_id}")
    cloud.settle()
    assert cloud.status(server_id)[:2] == ("SOFT_DELETED", None)
    return server_id


# ---------------------------------------------------------------------------- and what waits for it


@pytest.mark.parametrize(
    ("action", "argument", "task", "status"),
    [
        ("os-stop", None, "powering-off", "SHUTOFF"),
        ("rebuild", {"imageRef": "IMAGE"}, "rebuilding", "ACTIVE"),
        ("createImage", {"name": "copy"}, "image_snapshot", "ACTIVE"),
        ("shelve", None, "shelving", "SHELVED_OFFLOADED"),
    ],
)
def test_what_is_done_to_a_server_on_its_dead_host_waits_and_is_done(cloud, action, argument, task, status):
    argument = {"imageRef": cloud.image} if action == "rebuild" else argument
    server_id = boot(cloud)
    assert cloud.act(server_id, action, argument)[0] in (200, 202)
    stays_dead(cloud, cloud.source)
    assert cloud.status(server_id)[1] == task
    cloud.comes_back(cloud.source)
    cloud.run_for(60)
    assert cloud.status(server_id)[:2] == (status, None)


def test_a_host_that_never_returns_to_clean_up_after_a_migration_is_forgotten(cloud):
    server_id = resized(cloud)
    cloud.dies(cloud.source)
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
