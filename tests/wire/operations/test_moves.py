"""Servers that change hosts: shelve and unshelve, resize, cold and live migration."""

import pytest

from moorage.accelerator.drivers.simulated import FaultKind, SimulatedFault
from moorage.core.errors import Unavailable
from tests.plane import failing
from tests.wire.operations.conftest import GPU, Killed
from tests.wire.operations.test_failed_devices import set_faults

ONE, TWO = "compute-1", "compute-2"
SMALL = {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 10, GPU: 1}


@pytest.fixture
def cloud(make_cloud):
    cloud = make_cloud(2)
    cloud.flavor("large-gpu", {f"resources:{GPU}": "1"}, vcpus=4, ram=2048, disk=20)
    return cloud


@pytest.fixture
def server_id(cloud):
    server_id = cloud.boot("gpu")
    host = cloud.status(server_id)[2]
    cloud.source, cloud.target = cloud.hosts[host], cloud.hosts[TWO if host == ONE else ONE]
    return server_id


def images(cloud):
    """The names of the images besides the one that servers use."""
    return sorted(image.name for image in cloud.images.images() if image.id != cloud.image)


def limit(cloud, **limits):
    assert cloud.admin("PUT", "/v2.1/os-quota-sets/red", {"quota_set": {"force": True, **limits}})[0] == 200


def is_only_on(cloud, host, server_id, units, *, power="running"):
    other = cloud.target if host is cloud.source else cloud.source
    assert cloud.status(server_id)[1:] == (None, host.name)
    assert (host.servers, other.servers) == ({server_id: power}, {})
    assert other.plugged == {}
    assert list(host.driver.domains()[server_id].spec.pci_addresses) == host.plugged.get(server_id, [])
    assert len(host.plugged.get(server_id, [])) == units.get(GPU, 0)
    assert cloud.held(server_id) == {host.name: units}
    assert cloud.used(other.name) == {}


# --------------------------------------------------------------------------------------- shelving


def test_a_shelved_server_has_an_image_and_no_allocation(cloud, server_id):
    """R39 (accelerator-attach): devices are released when the server leaves its host, by default at once."""
    cloud.source.write(server_id, "precious")
    assert cloud.act(server_id, "shelve")[0] == 202
    assert cloud.status(server_id)[:2] == ("ACTIVE", "shelving")
    cloud.settle()
    assert cloud.status(server_id) == ("SHELVED_OFFLOADED", None, None)
    assert (cloud.source.servers, cloud.source.plugged, cloud.used(cloud.source.name)) == ({}, {}, {})
    assert cloud.held(server_id) == {}
    (image,) = [image for image in cloud.images.images() if image.name == "vm-shelved"]
    assert cloud.image_data(image.id).endswith("precious")


def test_an_unshelved_server_is_scheduled_again_and_gets_devices(cloud, server_id):
    """R40 (accelerator-attach): built like a new server, from the image of its disk, on any host."""
    cloud.do(server_id, "shelve")
    (image,) = [image for image in cloud.images.images() if image.name == "vm-shelved"]
    cloud.admin_do(server_id, "unshelve", {"availability_zone": None, "host": cloud.target.name})
    assert cloud.status(server_id)[0] == "ACTIVE"
    is_only_on(cloud, cloud.target, server_id, SMALL)
    assert cloud.target.disk(server_id).startswith(f"image {image.id}")
    assert images(cloud) == []
    assert cloud.act(server_id, "unshelve")[0] == 409


def test_the_destination_of_unshelve_depends_on_the_microversion(cloud, server_id):
    cloud.do(server_id, "shelve")
    assert cloud.act(server_id, "unshelve", {"availability_zone": "nova"}, version="2.76")[0] == 400
    assert cloud.act(server_id, "unshelve", {"host": ONE}, version="2.90")[0] == 400
    assert cloud.act(server_id, "unshelve", {"host": ONE})[0] == 403
    assert cloud.admin_act(server_id, "unshelve", {"host": "nowhere"})[0] == 400
    cloud.do(server_id, "unshelve", {"availability_zone": "nova"}, version="2.77")
    assert cloud.status(server_id)[0] == "ACTIVE"


def test_a_server_that_fits_on_no_host_stays_shelved(cloud, server_id):
    cloud.do(server_id, "shelve")
    for host in (cloud.source, cloud.target):
        host.faults.fail("spawn", "no space left")
    cloud.do(server_id, "unshelve")
    assert cloud.status(server_id) == ("SHELVED_OFFLOADED", None, None)
    assert cloud.held(server_id) == {}
    assert [host.servers for host in cloud.hosts.values()] == [{}, {}]
    cloud.source.faults.__init__()
    cloud.target.faults.__init__()
    cloud.do(server_id, "unshelve")
    assert cloud.status(server_id)[0] == "ACTIVE"


def test_a_shelved_server_that_is_deleted_leaves_no_image(cloud, server_id):
    cloud.do(server_id, "shelve")
    cloud.send("DELETE", f"/v2.1/servers/{server_id}")
    cloud.settle()
    assert (cloud.show(server_id), images(cloud)) == (None, [])


def test_a_failed_shelve_leaves_the_server_running(cloud, server_id):
    cloud.source.faults.fail("snapshot", "no space left for it")
    cloud.do(server_id, "shelve")
    assert cloud.status(server_id)[0] == "ACTIVE"
    is_only_on(cloud, cloud.source, server_id, SMALL)


def test_a_shelved_server_that_is_not_offloaded_keeps_its_allocation_and_devices(make_cloud):
    """R39 (accelerator-attach)."""
    cloud = make_cloud(1, shelved_offload_time=-1)
    server_id, host = cloud.boot("gpu"), cloud.hosts[ONE]
    plugged = host.plugged
    cloud.do(server_id, "shelve")
    assert cloud.status(server_id) == ("SHELVED", None, ONE)
    assert (host.servers[server_id], host.plugged) == ("shutoff", plugged)
    assert cloud.act(server_id, "shelveOffload")[0] == 403
    assert images(cloud) == ["vm-shelved"]
    cloud.do(server_id, "unshelve")
    assert (cloud.status(server_id)[0], host.plugged, images(cloud)) == ("ACTIVE", plugged, [])
    cloud.do(server_id, "shelve")
    cloud.admin_do(server_id, "shelveOffload")
    assert cloud.status(server_id) == ("SHELVED_OFFLOADED", None, None)
    assert (host.servers, host.plugged, cloud.used(ONE)) == ({}, {}, {})


def test_the_image_of_a_deleted_shelved_server_waits_for_the_release_and_for_no_poll(make_cloud):
    """Its deletion is the job of another task, which has found it blocked by the release, and sleeps."""
    cloud = make_cloud(1, poll_period_s=24 * 3600.0)
    server_id = cloud.boot("small")
    cloud.do(server_id, "shelve")
    is_away = True

    def answer(request, send):
        if is_away:
            raise Unavailable("no answer")
        return send()

    cloud.compute.ways["placement"].on("GET /allocations", answer)
    cloud.send("DELETE", f"/v2.1/servers/{server_id}")
    cloud.settle()
    assert images(cloud) == ["vm-shelved"]
    is_away = False
    cloud.run_for(60)
    assert (cloud.show(server_id), images(cloud)) == (None, [])


def test_a_shelved_server_is_offloaded_after_the_configured_time(make_cloud):
    cloud = make_cloud(1, shelved_offload_time=3600)
    server_id = cloud.boot("small")
    cloud.do(server_id, "shelve")
    cloud.run_for(3000)
    assert cloud.status(server_id)[0] == "SHELVED"
    cloud.run_for(1000)
    assert cloud.status(server_id)[0] == "SHELVED_OFFLOADED"


# ---------------------------------------------------------------------------- resize and migrate


def test_a_resized_server_has_allocations_on_both_hosts_until_it_is_confirmed(cloud, server_id):
    """R44 (accelerator-attach): the old flavor's devices are released, and the new flavor's are attached on the new
    host.
    """
    cloud.source.write(server_id, "precious")
    assert cloud.act(server_id, "resize", {"flavorRef": "large-gpu"})[0] == 202
    assert cloud.status(server_id)[:2] == ("RESIZE", "resize_prep")
    cloud.settle()
    assert cloud.status(server_id) == ("VERIFY_RESIZE", None, cloud.target.name)
    assert cloud.show(server_id)["flavor"]["original_name"] == "large-gpu"
    assert cloud.held(server_id) == {cloud.target.name: {"VCPU": 4, "MEMORY_MB": 2048, "DISK_GB": 20, GPU: 1}}
    assert cloud.used(cloud.source.name) == SMALL
    assert (cloud.source.servers, cloud.source.plugged) == ({server_id: "shutoff"}, {})
    assert len(cloud.target.plugged[server_id]) == 1
    (row,) = cloud.admin("GET", "/v2.1/os-migrations")[1]["migrations"]
    assert (row["migration_type"], row["status"]) == ("resize", "finished")
    assert cloud.held(row["uuid"]) == {cloud.source.name: SMALL}
    assert "precious" in cloud.image_data(cloud.target.driver.domains()[server_id].spec.image_id)


def test_a_resize_can_change_who_partitions_the_disk(cloud, server_id):
    cloud.do(server_id, "resize", {"flavorRef": "large-gpu", "OS-DCF:diskConfig": "AUTO"})
    assert (cloud.status(server_id)[0], cloud.show(server_id)["OS-DCF:diskConfig"]) == ("VERIFY_RESIZE", "AUTO")


def test_a_confirmed_resize_frees_the_old_host(cloud, server_id):
    cloud.do(server_id, "resize", {"flavorRef": "large-gpu"})
    assert cloud.act(server_id, "confirmResize")[0] == 204
    assert cloud.status(server_id)[:2] == ("ACTIVE", None)
    cloud.settle()
    is_only_on(cloud, cloud.target, server_id, {"VCPU": 4, "MEMORY_MB": 2048, "DISK_GB": 20, GPU: 1})
    assert cloud.migrations() == [("resize", "confirmed", cloud.source.name, cloud.target.name)]
    assert images(cloud) == []
    assert [name for name, _ in cloud.actions(server_id)] == ["confirmResize", "resize", "create"]
    assert cloud.act(server_id, "confirmResize")[0] == 409


def test_a_reverted_resize_restores_the_server(cloud, server_id):
    """R44, R51 (accelerator-attach): the devices are attached on the source again."""
    cloud.source.write(server_id, "precious")
    cloud.do(server_id, "resize", {"flavorRef": "large-gpu"})
    assert cloud.act(server_id, "revertResize")[0] == 202
    assert cloud.status(server_id)[:2] == ("REVERT_RESIZE", "resize_reverting")
    cloud.settle()
    assert (cloud.status(server_id)[0], cloud.show(server_id)["flavor"]["original_name"]) == ("ACTIVE", "gpu")
    is_only_on(cloud, cloud.source, server_id, SMALL)
    assert cloud.source.disk(server_id).endswith("precious")
    assert cloud.migrations() == [("resize", "reverted", cloud.source.name, cloud.target.name)]
    assert images(cloud) == []


def test_a_server_is_migrated_to_the_named_host(cloud, server_id):
    """R45 (accelerator-attach): the device is released on the old host, and one is attached on the new host."""
    assert cloud.act(server_id, "migrate")[0] == 403
    assert cloud.admin_act(server_id, "migrate", {"host": cloud.target.name}, version="2.55")[0] == 400
    assert cloud.admin_act(server_id, "migrate", {"host": cloud.source.name})[0] == 400
    cloud.admin_do(server_id, "migrate", {"host": cloud.target.name})
    cloud.do(server_id, "confirmResize")
    is_only_on(cloud, cloud.target, server_id, SMALL)
    cloud.admin_do(server_id, "migrate")
    cloud.do(server_id, "revertResize")
    is_only_on(cloud, cloud.target, server_id, SMALL)


@pytest.mark.parametrize("end", ["confirmResize", "revertResize"])
def test_a_stopped_server_stays_off_after_a_move(cloud, server_id, end):
    cloud.do(server_id, "os-stop")
    cloud.admin_do(server_id, "migrate")
    assert cloud.target.servers == {server_id: "shutoff"}
    cloud.do(server_id, end)
    assert cloud.status(server_id)[0] == "SHUTOFF"
    is_only_on(cloud, cloud.target if end == "confirmResize" else cloud.source, server_id, SMALL, power="shutoff")


def test_a_move_that_fails_after_the_death_of_its_agent_leaves_the_server_with_its_devices(cloud, server_id):
    """The fault: the first attempt had released them, and the second one started the guest with them."""
    cloud.source.plane.ways["compute"].on("PUT /agent/v1/jobs", failing(Killed("before the report")), times=1)
    assert cloud.admin_act(server_id, "migrate")[0] == 202
    with pytest.raises(Killed):
        cloud.settle()
    assert cloud.source.plugged == {}
    cloud.source.faults.fail("snapshot", "no space left for it")
    cloud.restart()
    assert cloud.status(server_id)[0] == "ACTIVE"
    is_only_on(cloud, cloud.source, server_id, SMALL)


def test_a_move_whose_devices_cannot_be_released_leaves_the_server_running(cloud, server_id):
    """The fault: the guest stayed off, and the server was shown as active."""
    cloud.source.plane.ways["os_acc"].on("POST /v1/unplug", failing(Unavailable("no answer")), times=1)
    cloud.admin_do(server_id, "migrate")
    assert cloud.status(server_id)[0] == "ACTIVE"
    is_only_on(cloud, cloud.source, server_id, SMALL)


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize(("action", "argument"), [("migrate", None), ("resize", {"flavorRef": "large-gpu"})])
def test_a_server_that_a_failed_move_leaves_off_is_in_error(cloud, server_id, action, argument, is_reset):
    """The fault: it was shown as active, but was off and had no devices, and kept their allocations."""
    for call in ("/v1/unplug", "/v1/plug"):
        cloud.source.plane.ways["os_acc"].on(f"POST {call}", failing(Unavailable("no answer")), times=1)
    assert cloud.admin_act(server_id, action, argument)[0] == 202
    cloud.step_by_step(1)
    if is_reset:
        cloud.admin_act(server_id, "os-resetState", {"state": "active"})
    cloud.settle()
    assert cloud.status(server_id) == ("ERROR", None, cloud.source.name)
    shown = cloud.show(server_id)
    assert shown["OS-EXT-STS:power_state"] == 4
    assert "could not be started again" in shown["fault"]["message"]
    assert cloud.source.servers == {server_id: "shutoff"}
    cloud.do(server_id, "reboot", {"type": "HARD"})
    assert cloud.status(server_id)[0] == "ACTIVE"
    is_only_on(cloud, cloud.source, server_id, SMALL)


def test_a_server_that_a_failed_shelving_leaves_off_is_in_error(cloud, server_id):
    cloud.source.faults.fail("snapshot", "no space left for it")
    cloud.source.faults.fail("start", "out of luck")
    cloud.do(server_id, "shelve")
    assert cloud.status(server_id) == ("ERROR", None, cloud.source.name)
    assert "could not be started again" in cloud.show(server_id)["fault"]["message"]
    assert images(cloud) == []
    cloud.do(server_id, "reboot", {"type": "HARD"})
    assert cloud.status(server_id)[0] == "ACTIVE"
    is_only_on(cloud, cloud.source, server_id, SMALL)


def test_a_server_moves_on_if_its_device_is_released_but_cannot_be_cleaned(cloud, server_id):
    """The fault: the move failed, and the server was shown as active, but was off and had no device."""
    set_faults(cloud.source, SimulatedFault("release", FaultKind.FAILS, times=1))
    (handle,) = cloud.source.plugged[server_id]
    cloud.admin_do(server_id, "migrate")
    assert cloud.status(server_id) == ("VERIFY_RESIZE", None, cloud.target.name)
    assert cloud.source.accelerators.is_quarantined(handle)
    cloud.do(server_id, "confirmResize")
    is_only_on(cloud, cloud.target, server_id, SMALL)


@pytest.mark.parametrize(("where", "call"), [("target", "spawn"), ("source", "snapshot"), ("source", "stop")])
def test_a_failed_move_leaves_the_server_on_its_host(cloud, server_id, where, call):
    """R44 (accelerator-attach): after a failure the old state is restored."""
    getattr(cloud, where).faults.fail(call, "out of luck")
    cloud.do(server_id, "resize", {"flavorRef": "large-gpu"})
    assert cloud.status(server_id)[0] == "ACTIVE"
    is_only_on(cloud, cloud.source, server_id, SMALL)
    assert cloud.migrations()[0][:2] == ("resize", "error")
    assert images(cloud) == []
    assert "Error" in cloud.actions(server_id)[0][1].values()


def test_a_migration_without_another_host_leaves_the_server_on_its_host(cloud, server_id):
    cloud.flavor("huge", vcpus=1000)
    limit(cloud, cores=-1)
    cloud.do(server_id, "resize", {"flavorRef": "huge"})
    assert cloud.status(server_id)[0] == "ACTIVE"
    is_only_on(cloud, cloud.source, server_id, SMALL)


def test_an_invalid_resize_is_refused(cloud, server_id):
    cloud.flavor("flat", disk=1)
    assert cloud.act(server_id, "resize", {"flavorRef": "gpu"})[0] == 400
    assert cloud.act(server_id, "resize", {"flavorRef": "nope"})[0] == 400
    assert cloud.act(server_id, "resize", {"flavorRef": "flat"})[0] == 400
    assert cloud.act(server_id, "confirmResize")[0] == 409
    cloud.do(server_id, "lock")
    assert cloud.admin_act(server_id, "lock")[0] == 202
    assert cloud.act(server_id, "resize", {"flavorRef": "large-gpu"})[0] == 409


def hold_as_port(cloud, host, units):
    """An allocation of the project whose consumer is not a server."""
    provider = cloud.placement.provider_by_name(host).uuid
    held = {"allocations": {provider: {"resources": units}}, "consumer_generation": None, "project_id": "red",
            "user_id": "alice", "consumer_type": "PORT"}  # fmt: skip
    cloud.placement._send("PUT", "/allocations/00000000-0000-4000-8000-00000000000a", held)


def test_a_resize_beyond_the_limits_is_refused(cloud, server_id):
    """The server counts with the larger flavor, and allocations of other consumers count, too."""
    hold_as_port(cloud, ONE, {"VCPU": 1})
    limit(cloud, cores=4, ram=1500)
    refused = "Quota exceeded for cores, ram: Requested 2, 1024, but already used 3, 1024 of 4, 1500 cores, ram"
    for who in (cloud.act, cloud.admin_act):
        code, body = who(server_id, "resize", {"flavorRef": "large-gpu"})
        assert (code, body["forbidden"]["message"]) == (403, refused)
    assert (cloud.status(server_id)[:2], cloud.migrations()) == (("ACTIVE", None), [])
    limit(cloud, cores=5, ram=2048)
    cloud.do(server_id, "resize", {"flavorRef": "large-gpu"})
    assert cloud.status(server_id)[0] == "VERIFY_RESIZE"
    limit(cloud, cores=1)
    cloud.do(server_id, "revertResize")
    assert cloud.status(server_id)[0] == "ACTIVE"


def test_an_offloaded_server_is_unshelved_only_within_the_limits(cloud, server_id):
    cloud.do(server_id, "shelve")
    hold_as_port(cloud, ONE, {"VCPU": 1})
    limit(cloud, cores=2, instances=1)
    code, body = cloud.act(server_id, "unshelve")
    refused = "Quota exceeded for cores: Requested 2, but already used 1 of 2 cores"
    assert (code, body["forbidden"]["message"]) == (403, refused)
    assert cloud.status(server_id) == ("SHELVED_OFFLOADED", None, None)
    limit(cloud, cores=3)
    cloud.do(server_id, "unshelve")
    assert cloud.status(server_id)[0] == "ACTIVE"


def test_a_server_deleted_before_the_confirmation_leaves_nothing_on_either_host(cloud, server_id):
    cloud.do(server_id, "resize", {"flavorRef": "large-gpu"})
    cloud.send("DELETE", f"/v2.1/servers/{server_id}")
    cloud.settle()
    assert cloud.show(server_id) is None
    for host in cloud.hosts.values():
        assert (host.servers, host.plugged, cloud.used(host.name)) == ({}, {}, {})
    assert images(cloud) == []


@pytest.mark.parametrize(("where", "call"), [("source", "start"), ("target", "destroy")])
def test_a_deletion_after_a_failed_reversal_leaves_nothing_on_either_host(cloud, server_id, where, call):
    """It is then on the host of its devices: the reversal was in progress, or the move had not begun."""
    cloud.admin_do(server_id, "migrate")
    getattr(cloud, where).faults.fail(call, "out of luck")
    cloud.do(server_id, "revertResize")
    assert cloud.status(server_id) == ("ERROR", None, getattr(cloud, where).name)
    assert cloud.migrations()[0][1] == "error"
    cloud.send("DELETE", f"/v2.1/servers/{server_id}")
    cloud.settle()
    assert cloud.show(server_id) is None
    for each in cloud.hosts.values():
        assert (each.servers, each.plugged, cloud.used(each.name)) == ({}, {}, {})
    assert images(cloud) == []


# --------------------------------------------------------------------------------- live migration


def test_a_server_with_accelerators_cannot_be_migrated_live(cloud, server_id):
    """R50 (accelerator-attach): refused with the reason and a remedy."""
    code, body = cloud.admin_act(server_id, "os-migrateLive", {"host": None, "block_migration": "auto"})
    assert code == 403
    assert "it has accelerators, whose state cannot be migrated. Migrate it cold." in body["forbidden"]["message"]


@pytest.mark.parametrize(("before", "status", "power"), [([], "ACTIVE", "running"), (["pause"], "PAUSED", "paused")])
def test_a_live_migration_keeps_the_servers_state(cloud, before, status, power):
    server_id = cloud.boot("small")
    source = cloud.status(server_id)[2]
    target = TWO if source == ONE else ONE
    for action in before:
        cloud.do(server_id, action)
    cloud.hosts[source].write(server_id, "precious")
    assert cloud.admin_act(server_id, "os-migrateLive", {"host": target, "block_migration": "auto"})[0] == 202
    assert cloud.status(server_id)[0] == "MIGRATING"
    cloud.settle()
    assert cloud.status(server_id) == (status, None, target)
    assert (cloud.hosts[source].servers, cloud.hosts[target].servers) == ({}, {server_id: power})
    assert cloud.hosts[target].disk(server_id).endswith("precious")
    assert (cloud.used(source), list(cloud.held(server_id))) == ({}, [target])
    assert cloud.migrations() == [("live-migration", "completed", source, target)]
    assert cloud.actions(server_id)[0][0] == "live-migration"


@pytest.mark.parametrize("call", ["receive", "hand-over"])
def test_a_failed_live_migration_leaves_the_server_running_on_its_host(cloud, call):
    server_id = cloud.boot("small")
    source = cloud.status(server_id)[2]
    for host in cloud.hosts.values():
        host.faults.fail(call, "the network is away")
    cloud.admin_do(server_id, "os-migrateLive", {"host": None, "block_migration": "auto"})
    assert cloud.status(server_id) == ("ACTIVE", None, source)
    assert [host.servers for host in cloud.hosts.values() if host.name != source] == [{}]
    assert list(cloud.held(server_id)) == [source]
    assert sum(bool(cloud.used(name)) for name in cloud.hosts) == 1


def test_a_server_handed_over_in_a_live_migration_belongs_to_the_destination(cloud):
    server_id = cloud.boot("small")
    source = cloud.status(server_id)[2]
    target = TWO if source == ONE else ONE
    cloud.hosts[target].faults.fail("take-over", "out of luck")
    cloud.admin_do(server_id, "os-migrateLive", {"host": target, "block_migration": "auto"})
    assert cloud.status(server_id) == ("ERROR", None, target)
    assert (cloud.used(source), list(cloud.held(server_id))) == ({}, [target])
    cloud.send("DELETE", f"/v2.1/servers/{server_id}")
    cloud.settle()
    assert [(host.servers, cloud.used(host.name)) for host in cloud.hosts.values()] == [({}, {})] * 2
