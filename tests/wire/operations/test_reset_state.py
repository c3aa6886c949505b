"""An administrator resets a server during a move, or its host dies: the move still ends."""

import pytest

from moorage.core.errors import Unavailable
from tests.plane import failing
from tests.wire.operations.conftest import GPU

ONE, TWO = "compute-1", "compute-2"
HELD = {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 10, GPU: 1}
PLAIN = {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 10}
#: Hosts poll for jobs once an hour, and repeat a cleanup then.
AWHILE = 3700


@pytest.fixture
def cloud(make_cloud):
    return make_cloud(2)


def boot(cloud, flavor):
    server_id = cloud.boot(flavor)
    host = cloud.status(server_id)[2]
    cloud.source, cloud.target = cloud.hosts[host], cloud.hosts[TWO if host == ONE else ONE]
    return server_id


def reset(cloud, server_id, state="error"):
    assert cloud.admin_act(server_id, "os-resetState", {"state": state})[0] == 202


def agrees(cloud, server_id, status, units=HELD):
    """Checks that the server is on one host in all records, has allocations for its devices, and has no open move."""
    shown, task, name = cloud.status(server_id)
    assert (shown, task) == (status, None)
    for host in cloud.hosts.values():
        if host.name == name:
            assert list(host.servers) == [server_id]
            assert len(host.plugged.get(server_id, ())) == units.get(GPU, 0)
        else:
            assert (host.servers, host.plugged, cloud.used(host.name)) == ({}, {}, {})
    assert cloud.held(server_id) == {name: units}
    assert [image.id for image in cloud.images.images()] == [cloud.image]
    with cloud.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM moves WHERE is_open").scalar() == 0
    return cloud.hosts[name]


@pytest.mark.parametrize("state", ["active", "error"])
@pytest.mark.parametrize("done", range(4))
def test_a_migration_is_reverted_when_its_server_is_reset(cloud, done, state):
    server_id = boot(cloud, "gpu")
    assert cloud.admin_act(server_id, "migrate")[0] == 202
    cloud.step_by_step(done)
    waited = cloud.status(server_id)[0] == "VERIFY_RESIZE"
    reset(cloud, server_id, state)
    cloud.settle()
    host = agrees(cloud, server_id, state.upper())
    assert host is (cloud.target if waited else cloud.source)
    assert host.servers == {server_id: "running"}
    assert cloud.migrations()[0][1] in (("confirmed",) if waited else ("error", "reverted"))
    cloud.do(server_id, "reboot", {"type": "HARD"})
    assert cloud.status(server_id)[0] == "ACTIVE"


@pytest.mark.parametrize("fault", [None, "spawn"])
@pytest.mark.parametrize("state", ["active", "error"])
def test_a_server_that_is_reset_while_it_is_built_runs_or_is_in_error_without_resources(cloud, state, fault):
    """The fault: it was ACTIVE, without a guest and with allocations, if the build failed after the reset."""
    if fault is not None:
        for host in cloud.hosts.values():
            host.faults.fail(fault, "out of luck")
    server_id = cloud.begin_boot("gpu")
    cloud.compute.task("compute.build").run_once()
    name = cloud.status(server_id)[2]
    assert name is not None
    reset(cloud, server_id, state)
    cloud.settle()
    if fault is None:
        assert agrees(cloud, server_id, state.upper()).servers == {server_id: "running"}
        reset(cloud, server_id, "active")
        cloud.do(server_id, "reboot", {"type": "HARD"})
        assert agrees(cloud, server_id, "ACTIVE").name == name
    else:
        assert cloud.status(server_id)[0] == "ERROR"
        assert "out of luck" in cloud.show(server_id)["fault"]["message"]
        assert cloud.held(server_id) == {}
        assert [(host.servers, host.plugged) for host in cloud.hosts.values()] == [({}, {}), ({}, {})]


@pytest.mark.parametrize("done", range(3))
def test_a_resize_in_place_is_reverted_when_its_server_is_reset(make_cloud, done):
    cloud = make_cloud(1, allow_resize_to_same_host=True)
    cloud.flavor("large-gpu", {f"resources:{GPU}": "1"}, vcpus=4, disk=20)
    server_id = cloud.boot("gpu")
    assert cloud.act(server_id, "resize", {"flavorRef": "large-gpu"})[0] == 202
    cloud.step_by_step(done)
    reset(cloud, server_id)
    cloud.settle()
    assert agrees(cloud, server_id, "ERROR").driver.domains()[server_id].spec.vcpus == 2


@pytest.mark.parametrize("done", range(4))
def test_a_revert_continues_when_its_server_is_reset(cloud, done):
    server_id = boot(cloud, "gpu")
    cloud.admin_do(server_id, "migrate")
    assert cloud.act(server_id, "revertResize")[0] == 202
    cloud.step_by_step(done)
    reset(cloud, server_id, "active")
    cloud.settle()
    assert agrees(cloud, server_id, "ACTIVE") is cloud.source


@pytest.mark.parametrize(
    ("action", "faults", "where"),
    [
        ("migrate", [("target", "spawn"), ("source", "start")], "source"),
        ("revertResize", [("target", "destroy")], "target"),
        ("revertResize", [("source", "start")], "source"),
        ("os-migrateLive", [("target", "take-over")], "target"),
    ],
)
def test_a_stopped_move_ends_when_its_server_is_reset(cloud, action, faults, where):
    """The move stopped after its failure. The reset removes its leftovers, and the server can be moved again."""
    units = PLAIN if action == "os-migrateLive" else HELD
    server_id = boot(cloud, "small" if units is PLAIN else "gpu")
    if action == "revertResize":
        cloud.admin_do(server_id, "migrate")
    for host, call in faults:
        getattr(cloud, host).faults.fail(call, "out of luck")
    cloud.admin_do(server_id, action, {"host": None, "block_migration": "auto"} if units is PLAIN else None)
    assert cloud.status(server_id) == ("ERROR", None, getattr(cloud, where).name)
    reset(cloud, server_id, "active")
    cloud.settle()
    assert agrees(cloud, server_id, "ACTIVE", units) is getattr(cloud, where)
    cloud.do(server_id, "reboot", {"type": "HARD"})
    cloud.admin_do(server_id, "migrate")
    assert cloud.status(server_id)[0] == "VERIFY_RESIZE"


@pytest.mark.parametrize(
    ("action", "faults"),
    [
        ("migrate", [("target", "spawn"), ("source", "start")]),
        ("os-migrateLive", [("source", "hand-over")]),
    ],
)
def test_a_server_that_a_move_leaves_in_error_on_its_host_has_its_allocations_there(cloud, action, faults):
    """The fault: it had those of the destination, also after a reboot or a rebuild had made it active again."""
    units = PLAIN if action == "os-migrateLive" else HELD
    server_id = boot(cloud, "small" if units is PLAIN else "gpu")
    for host, call in faults:
        getattr(cloud, host).faults.fail(call, "out of luck")
    if units is PLAIN:
        cloud.target.plane.ways["os_acc"].on("POST /v1/unplug", failing(Unavailable("no answer")), times=1)
    cloud.admin_do(server_id, action, {"host": None, "block_migration": "auto"} if units is PLAIN else None)
    assert cloud.status(server_id) == ("ERROR", None, cloud.source.name)
    cloud.run_for(AWHILE)
    agrees(cloud, server_id, "ERROR", units)
    cloud.do(server_id, "reboot", {"type": "HARD"})
    assert agrees(cloud, server_id, "ACTIVE", units) is cloud.source
    assert cloud.migrations()[0][1] == "error"


def test_the_disk_of_a_stopped_resize_in_place_is_kept(make_cloud):
    """The reversal had to build the server again from the image in transit, and failed; the host's files are kept."""
    cloud = make_cloud(1, allow_resize_to_same_host=True)
    cloud.flavor("large-gpu", {f"resources:{GPU}": "1"}, vcpus=4, disk=20)
    server_id = cloud.boot("gpu")
    (host,) = cloud.hosts.values()
    host.faults.fail("rebuild", "out of luck", times=2)
    cloud.do(server_id, "resize", {"flavorRef": "large-gpu"})
    assert cloud.status(server_id)[0] == "ERROR"
    assert cloud.held(server_id) == {host.name: HELD}
    reset(cloud, server_id, "active")
    cloud.settle()
    assert cloud.held(server_id) == {host.name: HELD}
    assert [image.name for image in cloud.images.images() if image.id != cloud.image] == ["vm-moving"]
    cloud.do(server_id, "resize", {"flavorRef": "large-gpu"})
    assert cloud.status(server_id)[0] == "VERIFY_RESIZE"


@pytest.mark.parametrize("done", range(5))
def test_a_live_migration_whose_server_is_reset_ends_on_one_host(cloud, done):
    """After its host was told to hand it over, the migration cannot be reverted; the server stays where it runs."""
    server_id = boot(cloud, "small")
    assert cloud.admin_act(server_id, "os-migrateLive", {"host": None, "block_migration": "auto"})[0] == 202
    cloud.step_by_step(done)
    reset(cloud, server_id, "active")
    cloud.settle()
    host = agrees(cloud, server_id, "ACTIVE", PLAIN)
    assert host is (cloud.source if done < 2 else cloud.target)
    assert host.servers == {server_id: "running"}


def comes_back(cloud, host):
    cloud.bring_back(host)
    cloud.run_for(60)


@pytest.mark.parametrize("done", range(3))
def test_an_evacuation_whose_server_is_reset_ends(cloud, done):
    """Before it is built elsewhere it stays on its old host, afterwards it is on the new one."""
    server_id = boot(cloud, "gpu")
    cloud.take_down(cloud.source)
    assert cloud.admin_act(server_id, "evacuate", {})[0] == 200
    cloud.step_by_step(done)
    reset(cloud, server_id)
    cloud.settle()
    comes_back(cloud, cloud.source)
    assert agrees(cloud, server_id, "ERROR") is (cloud.source if done == 0 else cloud.target)


def test_a_server_whose_migration_is_being_reverted_cannot_be_moved(cloud):
    server_id = boot(cloud, "gpu")
    cloud.admin_act(server_id, "migrate")
    reset(cloud, server_id, "active")
    code, body = cloud.admin_act(server_id, "migrate")
    assert (code, "has a migration that is not over" in body["conflictingRequest"]["message"]) == (409, True)
    cloud.settle()
    cloud.admin_do(server_id, "migrate")
    assert cloud.status(server_id)[0] == "VERIFY_RESIZE"


@pytest.mark.parametrize("done", range(3))
def test_a_server_whose_host_dies_during_a_migration_can_be_evacuated(cloud, done):
    """It has a destination already, or has left its host. If it was built elsewhere, the migration ends there."""
    server_id = boot(cloud, "gpu")
    cloud.admin_act(server_id, "migrate")
    cloud.step_by_step(done)
    cloud.take_down(cloud.source)
    if done == 2:
        assert cloud.status(server_id)[0] == "VERIFY_RESIZE"
        return
    assert cloud.admin_act(server_id, "evacuate", {}, version="2.90")[0] == 200
    cloud.settle()
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.target.name)
    comes_back(cloud, cloud.source)
    agrees(cloud, server_id, "ACTIVE")


def test_a_server_whose_host_dies_during_a_live_migration_can_be_evacuated(cloud):
    server_id = boot(cloud, "small")
    cloud.admin_act(server_id, "os-migrateLive", {"host": None, "block_migration": "auto"})
    cloud.step_by_step(2)
    cloud.take_down(cloud.source)
    assert cloud.admin_act(server_id, "evacuate", {}, version="2.90")[0] == 200
    cloud.settle()
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.target.name)
    comes_back(cloud, cloud.source)
    agrees(cloud, server_id, "ACTIVE", PLAIN)


@pytest.mark.parametrize("done", range(8))
def test_a_server_deleted_during_a_reversal_leaves_nothing_on_either_host(cloud, done):
    server_id = boot(cloud, "gpu")
    cloud.admin_do(server_id, "migrate")
    cloud.act(server_id, "revertResize")
    cloud.step_by_step(done)
    cloud.send("DELETE", f"/v2.1/servers/{server_id}")
    cloud.settle()
    assert cloud.show(server_id) is None
    for host in cloud.hosts.values():
        assert (host.servers, host.plugged, cloud.used(host.name)) == ({}, {}, {})
    assert [image.id for image in cloud.images.images()] == [cloud.image]


def after_the_claim(cloud, work):
    """Runs `work` once between a claim and its commit; appends its result to a list."""
    answers = []
    around = cloud.points.around

    def and_then(label, call):
        result = around(label, call)
        is_claim = label.startswith(("PUT /allocations/", "POST /allocations"))
        if is_claim and not answers and cloud.used(cloud.doomed.name):
            answers.append(None)
            answers[0] = work()
        return result

    cloud.points.around = and_then
    return answers


def test_a_host_deleted_between_claim_and_commit_gets_no_server(cloud):
    """Neither a new server nor a moving one: the new one is placed elsewhere, the moving one stays."""
    server_id = boot(cloud, "small")
    path = next(
        f"/v2.1/os-services/{row['id']}"
        for row in cloud.admin("GET", "/v2.1/os-services")[1]["services"]
        if row["host"] == cloud.target.name
    )
    cloud.target.stop()
    cloud.forget_waits()
    cloud.doomed = cloud.target
    deleted = after_the_claim(cloud, lambda: cloud.admin("DELETE", path))
    cloud.admin_do(server_id, "migrate")
    assert [answer[0] for answer in deleted] == [204]
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    assert cloud.held(server_id) == {cloud.source.name: PLAIN}


def test_a_host_deleted_while_a_server_is_assigned_to_it_does_not_get_the_server(make_cloud):
    cloud = make_cloud(1)
    (row,) = cloud.admin("GET", "/v2.1/os-services")[1]["services"]
    cloud.hosts[ONE].stop()
    cloud.forget_waits()
    cloud.doomed = cloud.hosts[ONE]
    deleted = after_the_claim(cloud, lambda: cloud.admin("DELETE", f"/v2.1/os-services/{row['id']}"))
    server_id = cloud.boot("small")
    assert [answer[0] for answer in deleted] == [204]
    assert cloud.status(server_id) == ("ERROR", None, None)
    assert cloud.held(server_id) == {}


@pytest.mark.parametrize(
    ("action", "argument"),
    [
        ("rebuild", {"imageRef": None}), ("reboot", {"type": "HARD"}), ("os-stop", None), ("shelve", None),
        ("rescue", {}), ("migrate", None), ("resize", {"flavorRef": "small"}),
    ],
)  # fmt: skip
def test_an_operation_on_a_server_that_was_reset_during_its_deletion_makes_no_guest(cloud, action, argument):
    """The fault: it was carried out after the deletion, and the deleted server had a guest and devices."""
    server_id = boot(cloud, "gpu")
    cloud.send("DELETE", f"/v2.1/servers/{server_id}")
    reset(cloud, server_id, "active")
    if action == "rebuild":
        argument = {"imageRef": cloud.image}
    assert cloud.admin_act(server_id, action, argument)[0] in (200, 202)
    cloud.settle()
    cloud.run_for(AWHILE)
    assert cloud.show(server_id) is None
    for host in cloud.hosts.values():
        assert (host.servers, host.plugged, cloud.used(host.name)) == ({}, {}, {})
    assert [image.id for image in cloud.images.images()] == [cloud.image]
    with cloud.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT kind, state FROM jobs WHERE open_queue IS NOT NULL").all() == []
        assert connection.exec_driver_sql("SELECT count(*) FROM moves WHERE is_open").scalar() == 0


@pytest.mark.parametrize("state", ["active", "error"])
@pytest.mark.parametrize(
    ("action", "argument"),
    [(None, None), ("reboot", {"type": "HARD"}), ("rebuild", {"imageRef": None}), ("shelve", None), ("migrate", None)],
)
def test_a_server_that_is_reset_while_it_is_offloaded_is_offloaded(make_cloud, action, argument, state):
    """The fault: it stayed ACTIVE on its host, which had deleted the guest; its image in the project was of no use."""
    cloud = make_cloud(2, shelved_offload_time=-1)
    server_id = boot(cloud, "gpu")
    cloud.do(server_id, "shelve")
    assert cloud.admin_act(server_id, "shelveOffload")[0] == 202
    reset(cloud, server_id, state)
    if action == "rebuild":
        argument = {"imageRef": cloud.image}
    is_tried = action is not None and cloud.admin_act(server_id, action, argument)[0] in (200, 202)
    assert is_tried == (action is not None and (state == "active" or action in ("reboot", "rebuild")))
    cloud.settle()
    assert cloud.status(server_id) == ("SHELVED_OFFLOADED", None, None)
    assert cloud.held(server_id) == {}
    assert [(host.servers, host.plugged) for host in cloud.hosts.values()] == [({}, {}), ({}, {})]
    if is_tried:
        (result,) = set(cloud.actions(server_id)[0][1].values())
        assert result == "Error"
    cloud.do(server_id, "unshelve")
    agrees(cloud, server_id, "ACTIVE")


def test_a_server_that_is_reset_while_it_is_shelved_leaves_no_image_behind(make_cloud):
    cloud = make_cloud(1, shelved_offload_time=-1)
    server_id = cloud.boot("gpu")
    for _ in range(2):
        assert cloud.act(server_id, "shelve")[0] == 202
        reset(cloud, server_id, "active")
        cloud.settle()
    assert [image.name for image in cloud.images.images()].count("vm-shelved") == 1
    cloud.send("DELETE", f"/v2.1/servers/{server_id}")
    cloud.settle()
    assert [image.id for image in cloud.images.images()] == [cloud.image]
