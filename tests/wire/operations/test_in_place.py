"""Resize on the server's own host, with Nova's option for it."""

import pytest

from tests.wire.operations.conftest import GPU

ONE = "compute-1"
OLD = {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 10, GPU: 1}
NEW = {"VCPU": 4, "MEMORY_MB": 2048, "DISK_GB": 20, GPU: 1}
BOTH = {name: OLD[name] + NEW[name] for name in OLD}


@pytest.fixture
def cloud(make_cloud):
    cloud = make_cloud(1, allow_resize_to_same_host=True)
    cloud.flavor("large-gpu", {f"resources:{GPU}": "1"}, vcpus=4, ram=2048, disk=20)
    cloud.host = cloud.hosts[ONE]
    return cloud


@pytest.fixture
def server_id(cloud):
    server_id = cloud.boot("gpu")
    cloud.host.write(server_id, "precious")
    return server_id


def guest(cloud, server_id):
    """(vcpus, power, the devices in its definition and as attached)"""
    domain = cloud.host.driver.domains()[server_id]
    assert list(domain.spec.pci_addresses) == cloud.host.plugged.get(server_id, [])
    return domain.spec.vcpus, domain.power.value, len(domain.spec.pci_addresses)


def images(cloud):
    return [image.name for image in cloud.images.images() if image.id != cloud.image]


def test_a_resize_in_place_has_both_allocations_until_it_is_confirmed(cloud, server_id):
    cloud.do(server_id, "resize", {"flavorRef": "large-gpu"})
    assert cloud.status(server_id) == ("VERIFY_RESIZE", None, ONE)
    assert guest(cloud, server_id) == (4, "running", 1)
    assert (cloud.held(server_id), cloud.used(ONE)) == ({ONE: NEW}, BOTH)
    cloud.do(server_id, "confirmResize")
    assert cloud.status(server_id) == ("ACTIVE", None, ONE)
    assert (guest(cloud, server_id), cloud.used(ONE)) == ((4, "running", 1), NEW)
    assert (cloud.migrations(), images(cloud)) == ([("resize", "confirmed", ONE, ONE)], [])


def test_a_reverted_resize_in_place_restores_the_old_disk(cloud, server_id):
    cloud.do(server_id, "resize", {"flavorRef": "large-gpu"})
    (kept,) = [image for image in cloud.images.images() if image.id != cloud.image]
    assert cloud.image_data(kept.id).endswith("precious")
    cloud.host.write(server_id, "later")
    cloud.do(server_id, "revertResize")
    assert cloud.status(server_id) == ("ACTIVE", None, ONE)
    assert (guest(cloud, server_id), cloud.held(server_id), cloud.used(ONE)) == ((2, "running", 1), {ONE: OLD}, OLD)
    assert (cloud.migrations(), images(cloud)) == ([("resize", "reverted", ONE, ONE)], [])
    assert cloud.host.disk(server_id).startswith(f"image {kept.id}")
    assert "later" not in cloud.host.disk(server_id)


@pytest.mark.parametrize("end", ["confirmResize", "revertResize"])
def test_a_stopped_server_stays_off_after_a_resize_in_place(cloud, server_id, end):
    cloud.do(server_id, "os-stop")
    cloud.do(server_id, "resize", {"flavorRef": "large-gpu"})
    cloud.do(server_id, end)
    assert cloud.status(server_id)[0] == "SHUTOFF"
    assert guest(cloud, server_id)[1] == "shutoff"


@pytest.mark.parametrize("call", ["stop", "snapshot", "rebuild"])
def test_a_failed_resize_in_place_leaves_the_server_unchanged(cloud, server_id, call):
    cloud.host.faults.fail(call, "out of luck", times=1)
    cloud.do(server_id, "resize", {"flavorRef": "large-gpu"})
    assert cloud.status(server_id) == ("ACTIVE", None, ONE)
    assert (guest(cloud, server_id), cloud.held(server_id), cloud.used(ONE)) == ((2, "running", 1), {ONE: OLD}, OLD)
    assert (cloud.migrations()[0][1], images(cloud)) == ("error", [])


def test_a_server_deleted_before_the_confirmation_leaves_nothing(cloud, server_id):
    cloud.do(server_id, "resize", {"flavorRef": "large-gpu"})
    cloud.do(server_id, "forceDelete")
    assert (cloud.host.servers, cloud.host.plugged, cloud.used(ONE), images(cloud)) == ({}, {}, {}, [])


def test_a_resize_in_place_without_capacity_for_both_leaves_the_server_unchanged(cloud, server_id):
    total = cloud.placement.inventories(cloud.placement.provider_by_name(ONE).uuid)[1]["MEMORY_MB"].total
    cloud.admin("PUT", "/v2.1/os-quota-sets/red", {"quota_set": {"force": True, "ram": -1}})
    cloud.flavor("whole", ram=total)
    cloud.do(server_id, "resize", {"flavorRef": "whole"})
    assert (cloud.status(server_id)[0], guest(cloud, server_id)) == ("ACTIVE", (2, "running", 1))
    assert cloud.held(server_id) == {ONE: OLD}


def test_a_cold_migration_uses_another_host_despite_the_option(cloud, server_id):
    """As in Nova: the option is for resizes; a cold migration to the same host would change nothing."""
    cloud.admin_do(server_id, "migrate")
    assert (cloud.status(server_id)[0], cloud.held(server_id)) == ("ACTIVE", {ONE: OLD})
    assert cloud.migrations()[0][1] == "error"


def test_without_the_option_a_resize_uses_another_host(make_cloud):
    cloud = make_cloud(1)
    cloud.flavor("large", vcpus=4)
    server_id = cloud.boot("small")
    cloud.do(server_id, "resize", {"flavorRef": "large"})
    assert cloud.status(server_id)[0] == "ACTIVE"
    (_, events), *_ = cloud.actions(server_id)
    assert events == {"conductor_migrate_server": "Error"}
