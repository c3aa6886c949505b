"""When a host calls `os_acc.plug` and `os_acc.unplug`, and in which order with the calls of its hypervisor."""

import pytest

from tests.wire.operations.conftest import GPU

#: The calls of the accelerator agent and of the hypervisor that concern a guest's devices.
CALLS = {
    "before POST /v1/plug": "plug",
    "before POST /v1/unplug": "unplug",
    **{f"before {call}": call for call in ("spawn", "power", "rebuild", "rescue", "unrescue", "destroy")},
}


@pytest.fixture
def cloud(make_cloud):
    cloud = make_cloud(2, reclaim_instance_interval=3600)
    cloud.flavor("large-gpu", {f"resources:{GPU}": "1"}, vcpus=4, ram=2048, disk=20)
    return cloud


def calls_of(cloud, work, *arguments):
    """The calls that `work(*arguments)` causes, in order."""
    cloud.points.passed.clear()
    work(*arguments)
    return " ".join(CALLS[label] for label in cloud.points.passed if label in CALLS)


def attached(cloud):
    """{server: devices} of all hosts"""
    return {server: devices for host in cloud.hosts.values() for server, devices in host.plugged.items()}


def delete(cloud, server_id):
    assert cloud.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    cloud.settle()


@pytest.mark.parametrize(
    ("before", "action", "argument", "calls"),
    [
        ([], "lock", None, ""),
        (["lock"], "unlock", None, ""),
        ([], "pause", None, "power"),
        (["pause"], "unpause", None, "power"),
        ([], "suspend", None, "power"),
        (["suspend"], "resume", None, "power"),
        ([], "reboot", {"type": "SOFT"}, "power"),
        ([], "os-stop", None, "power"),
        (["os-stop"], "os-start", None, "plug power"),
        ([], "reboot", {"type": "HARD"}, "plug power"),
    ],
)
def test_an_operation_that_keeps_accelerators_does_not_unplug_them(cloud, before, action, argument, calls):
    """R20, R35, R36, R37, R38, R42 (accelerator-attach): `plug` before a start returns the devices that were kept."""
    server_id = cloud.boot("gpu")
    had = attached(cloud)
    assert len(had[server_id]) == 1
    for earlier in before:
        cloud.do(server_id, earlier)
    assert calls_of(cloud, cloud.do, server_id, action, argument) == calls
    assert attached(cloud) == had


def test_plug_comes_before_the_definition_and_unplug_after_the_guest_is_off(cloud):
    """R20, R30, R33, R34, R39, R40, R41, R44 (accelerator-attach): start, shelve, unshelve, deletion and restore, resize
    and cold migration.
    """
    assert calls_of(cloud, cloud.boot, "gpu") == "plug spawn"
    (server_id,) = attached(cloud)
    assert calls_of(cloud, cloud.do, server_id, "shelve") == "power destroy unplug"
    assert attached(cloud) == {}
    assert calls_of(cloud, cloud.do, server_id, "unshelve") == "plug spawn"
    assert list(attached(cloud)) == [server_id]
    for action, argument in (("resize", {"flavorRef": "large-gpu"}), ("migrate", None)):
        begin = cloud.status(server_id)[2]
        assert calls_of(cloud, cloud.admin_do, server_id, action, argument) == "power unplug plug spawn"
        assert (cloud.hosts[begin].plugged, list(attached(cloud))) == ({}, [server_id])
        assert calls_of(cloud, cloud.do, server_id, "confirmResize") == "destroy unplug"
    assert calls_of(cloud, delete, cloud, server_id) == "power"
    assert calls_of(cloud, cloud.do, server_id, "restore") == "plug power"
    assert calls_of(cloud, cloud.do, server_id, "forceDelete") == "destroy unplug"
    assert attached(cloud) == {}
