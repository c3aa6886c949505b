"""Servers with accelerators from a device profile change flavor and host."""

import pytest

from tests.wire.operations.conftest import GPU

ONE, TWO = "compute-1", "compute-2"
FPGA = "CUSTOM_ACCELERATOR_FPGA"
SIZE = {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 10}


def profile(cloud, name, *groups):
    status, body, _ = cloud.accelerator("POST", "/v2/device_profiles", [{"name": name, "groups": list(groups)}])
    assert status == 201, body
    return name


@pytest.fixture
def cloud(make_cloud):
    cloud = make_cloud(2, accelerators=True)
    profile(cloud, "one-gpu", {f"resources:{GPU}": "1"})
    profile(cloud, "two-gpus", {f"resources:{GPU}": "1"}, {f"resources:{GPU}": "1"})
    for name in ("one-gpu", "two-gpus"):
        cloud.flavor(f"with-{name}", {"accel:device_profile": name})
    return cloud


@pytest.fixture
def server_id(cloud):
    server_id = cloud.boot("with-one-gpu")
    host = cloud.status(server_id)[2]
    cloud.source, cloud.target = cloud.hosts[host], cloud.hosts[TWO if host == ONE else ONE]
    return server_id


def bound(cloud, server_id):
    """[(host, state)] of the accelerator requests of a server."""
    cloud.run_for(60)
    rows = cloud.accelerator("GET", f"/v2/accelerator_requests?instance={server_id}")[1]["arqs"]
    return sorted((row["hostname"], row["state"]) for row in rows)


def gpus(cloud, consumer):
    return {host: units.get(GPU, 0) for host, units in cloud.held(consumer).items()}


def counts(cloud, server_id):
    return [len(host.plugged.get(server_id, ())) for host in (cloud.source, cloud.target)]


def test_a_resized_server_gets_the_devices_of_the_new_flavors_profile(cloud, server_id):
    """R44 (accelerator-attach): the old host releases its devices, and the new host binds the new flavor's number."""
    assert bound(cloud, server_id) == [(cloud.source.name, "Bound")]
    cloud.do(server_id, "resize", {"flavorRef": "with-two-gpus"})
    assert cloud.status(server_id) == ("VERIFY_RESIZE", None, cloud.target.name)
    assert (counts(cloud, server_id), gpus(cloud, server_id)) == ([0, 2], {cloud.target.name: 2})
    assert bound(cloud, server_id) == [(cloud.target.name, "Bound")] * 2
    (move,) = cloud.admin("GET", "/v2.1/os-migrations")[1]["migrations"]
    assert gpus(cloud, move["uuid"]) == {cloud.source.name: 1}  # reserved for the server until it is confirmed


def test_a_confirmed_resize_frees_the_old_devices(cloud, server_id):
    cloud.do(server_id, "resize", {"flavorRef": "with-two-gpus"})
    cloud.do(server_id, "confirmResize")
    assert (counts(cloud, server_id), cloud.used(cloud.source.name)) == ([0, 2], {})
    assert bound(cloud, server_id) == [(cloud.target.name, "Bound")] * 2


def test_a_reverted_resize_restores_the_old_devices(cloud, server_id):
    cloud.do(server_id, "resize", {"flavorRef": "with-two-gpus"})
    cloud.do(server_id, "revertResize")
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    assert (counts(cloud, server_id), cloud.used(cloud.target.name)) == ([1, 0], {})
    assert gpus(cloud, server_id) == {cloud.source.name: 1}
    assert bound(cloud, server_id) == [(cloud.source.name, "Bound")]


def test_a_server_can_be_resized_to_and_from_a_flavor_without_a_profile(cloud, server_id):
    cloud.flavor("larger", vcpus=3)
    cloud.do(server_id, "resize", {"flavorRef": "larger"})
    cloud.do(server_id, "confirmResize")
    assert (counts(cloud, server_id), bound(cloud, server_id)) == ([0, 0], [])
    assert cloud.held(server_id) == {cloud.target.name: {**SIZE, "VCPU": 3}}
    cloud.do(server_id, "resize", {"flavorRef": "with-two-gpus"})
    cloud.do(server_id, "confirmResize")
    assert (counts(cloud, server_id), bound(cloud, server_id)) == ([2, 0], [(cloud.source.name, "Bound")] * 2)


def test_a_resize_uses_the_profile_as_it_was_at_the_request(cloud, server_id):
    """A profile that is deleted and created again meanwhile does not affect existing servers."""
    cloud.do(server_id, "resize", {"flavorRef": "with-two-gpus"})
    cloud.do(server_id, "confirmResize")
    assert cloud.accelerator("DELETE", "/v2/device_profiles?value=two-gpus")[0] == 204
    cloud.admin_do(server_id, "migrate")
    cloud.do(server_id, "confirmResize")
    assert counts(cloud, server_id) == [2, 0]


def test_a_resize_without_enough_devices_leaves_the_server_unchanged(cloud, server_id):
    cloud.flavor("many", {"accel:device_profile": profile(cloud, "many-gpus", {f"resources:{GPU}": "64"})})
    cloud.do(server_id, "resize", {"flavorRef": "many"})
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    assert (counts(cloud, server_id), gpus(cloud, server_id)) == ([1, 0], {cloud.source.name: 1})
    assert bound(cloud, server_id) == [(cloud.source.name, "Bound")]


def test_a_failed_resize_attaches_the_old_devices_again(cloud, server_id):
    """R44 (accelerator-attach): the old flavor's devices are attached again."""
    cloud.target.faults.fail("spawn", "out of luck")
    cloud.do(server_id, "resize", {"flavorRef": "with-two-gpus"})
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    assert (counts(cloud, server_id), cloud.used(cloud.target.name)) == ([1, 0], {})
    assert bound(cloud, server_id) == [(cloud.source.name, "Bound")]


def test_a_missing_profile_is_refused_at_once(cloud, server_id):
    cloud.flavor("nowhere", {"accel:device_profile": "nope"})
    code, body = cloud.act(server_id, "resize", {"flavorRef": "nowhere"})
    assert (code, "there is no device profile of this name" in body["badRequest"]["message"]) == (400, True)
    assert (cloud.status(server_id)[:2], cloud.migrations()) == (("ACTIVE", None), [])


def test_a_class_that_no_host_offers_is_refused_at_once(cloud, server_id):
    cloud.flavor("unknown", {"accel:device_profile": profile(cloud, "unknown", {"resources:CUSTOM_NOWHERE": "1"})})
    code, body = cloud.act(server_id, "resize", {"flavorRef": "unknown"})
    assert (code, "no resource class CUSTOM_NOWHERE" in body["badRequest"]["message"]) == (400, True)


def test_the_limits_count_the_resources_of_the_profile(cloud, server_id):
    limits = {"quota_set": {"force": True, f"class:{GPU}": 1}}
    assert cloud.admin("PUT", "/v2.1/os-quota-sets/red", limits)[0] == 200
    code, body = cloud.act(server_id, "resize", {"flavorRef": "with-two-gpus"})
    assert (code, f"Quota exceeded for class:{GPU}" in body["forbidden"]["message"]) == (403, True)


def test_a_server_with_a_device_profile_cannot_be_migrated_live(cloud, server_id):
    """R50 (accelerator-attach): the state of accelerators cannot be migrated."""
    assert cloud.admin_act(server_id, "os-migrateLive", {"host": None, "block_migration": "auto"})[0] == 403
