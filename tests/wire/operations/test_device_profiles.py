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


def test_the_new_flavors_profile_is_what_it_gets(cloud, server_id):
    """R44 (accelerator-attach): released on the old host, and the new flavor's number bound on the new one."""
    assert bound(cloud, server_id) == [(cloud.source.name, "Bound")]
    cloud.do(server_id, "resize", {"flavorRef": "with-two-gpus"})
    assert cloud.status(server_id) == ("VERIFY_RESIZE", None, cloud.target.name)
    assert (counts(cloud, server_id), gpus(cloud, server_id)) == ([0, 2], {cloud.target.name: 2})
    assert bound(cloud, server_id) == [(cloud.target.name, "Bound")] * 2
    (move,) = cloud.admin("GET", "/v2.1/os-migrations")[1]["migrations"]
    assert gpus(cloud, move["uuid"]) == {cloud.source.name: 1}  # until it is confirmed nobody else gets it


def test_confirmed_the_old_ones_are_free(cloud, server_id):
    cloud.do(server_id, "resize", {"flavorRef": "with-two-gpus"})
    cloud.do(server_id, "confirmResize")
    assert (counts(cloud, server_id), cloud.used(cloud.source.name)) == ([0, 2], {})
    assert bound(cloud, server_id) == [(cloud.target.name, "Bound")] * 2


def test_reverted_it_has_the_old_ones_again(cloud, server_id):
    cloud.do(server_id, "resize", {"flavorRef": "with-two-gpus"})
    cloud.do(server_id, "revertResize")
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    assert (counts(cloud, server_id), cloud.used(cloud.target.name)) == ([1, 0], {})
    assert gpus(cloud, server_id) == {cloud.source.name: 1}
    assert bound(cloud, server_id) == [(cloud.source.name, "Bound")]


def test_to_and_from_a_flavor_without_a_profile(cloud, server_id):
    cloud.flavor("larger", vcpus=3)
    cloud.do(server_id, "resize", {"flavorRef": "larger"})
    cloud.do(server_id, "confirmResize")
    assert (counts(cloud, server_id), bound(cloud, server_id)) == ([0, 0], [])
    assert cloud.held(server_id) == {cloud.target.name: {**SIZE, "VCPU": 3}}
    cloud.do(server_id, "resize", {"flavorRef": "with-two-gpus"})
    cloud.do(server_id, "confirmResize")
    assert (counts(cloud, server_id), bound(cloud, server_id)) == ([2, 0], [(cloud.source.name, "Bound")] * 2)


def test_what_the_profile_said_when_it_was_resized_counts(cloud, server_id):
    """A profile that is deleted and created again meanwhile does not affect existing servers."""
    cloud.do(server_id, "resize", {"flavorRef": "with-two-gpus"})
    cloud.do(server_id, "confirmResize")
    assert cloud.accelerator("DELETE", "/v2/device_profiles?value=two-gpus")[0] == 204
    cloud.admin_do(server_id, "migrate")
    cloud.do(server_id, "confirmResize")
    assert counts(cloud, server_id) == [2, 0]


def test_no_host_with_so_many_leaves_it_as_it_was(cloud, server_id):
    cloud.flavor("many", {"accel:device_profile": profile(cloud, "many-gpus", {f"resources:{GPU}": "64"})})
    cloud.do(server_id, "resize", {"flavorRef": "many"})
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    assert (counts(cloud, server_id), gpus(cloud, server_id)) == ([1, 0], {cloud.source.name: 1})
    assert bound(cloud, server_id) == [(cloud.source.name, "Bound")]


def test_a_failure_on_the_way_gives_the_old_ones_back(cloud, server_id):
    """R44 (accelerator-attach): the old flavor's devices are attached again."""
    cloud.target.faults.fail("spawn", "out of luck")
    cloud.do(server_id, "resize", {"flavorRef": "with-two-gpus"})
    assert cloud.status(server_id) == ("ACTIVE", None, cloud.source.name)
    assert (counts(cloud, server_id), cloud.used(cloud.target.name)) == ([1, 0], {})
    assert bound(cloud, server_id) == [(cloud.source.name, "Bound")]


def test_a_profile_that_is_not_there_is_refused_at_once(cloud, server_id):
    cloud.flavor("nowhere", {"accel:device_profile": "nope"})
    code, body = cloud.act(server_id, "resize", {"flavorRef": "nowhere"})
    assert (code, "there is no device profile of this name" in body["badRequest"]["message"]) == (400, True)
    assert (cloud.status(server_id)[:2], cloud.migrations()) == (("ACTIVE", None), [])


def test_a_class_that_no_host_offers_is_refused_at_once(cloud, server_id):
    cloud.flavor("unknown", {"accel:device_profile": profile(cloud, "unknown", {"resources:CUSTOM_NOWHERE": "1"})})
    code, body = cloud.act(server_id, "resize", {"flavorRef": "unknown"})
    assert (code, "no resource class CUSTOM_NOWHERE" in body["badRequest"]["message"]) == (400, True)


def test_the_limits_count_what_the_profile_asks_for(cloud, server_id):
    limits = {"quota_set": {"force": True, f"class:{GPU}": 1}}
    assert cloud.admin("PUT", "/v2.1/os-quota-sets/red", limits)[0] == 200
    code, body = cloud.act(server_id, "resize", {"flavorRef": "with-two-gpus"})
    assert (code, f"Quota exceeded for class:{GPU}" in body["forbidden"]["message"]) == (403, True)


def test_live_it_does_not_go(cloud, server_id):
    """R50 (accelerator-attach): the state of accelerators cannot be migrated."""
    assert cloud.admin_act(server_id, "os-migrateLive", {"host": None, "block_migration": "auto"})[0] == 403
