"""A device of a running server fails: its owner sees a fault, the server is left alone, and recovers with the device."""

import logging

import pytest

from moorage.accelerator.drivers.simulated import FaultControl, FaultKind, SimulatedFault
from moorage.core.errors import Unavailable
from moorage.wire.client import MAX_REPEATS
from tests.plane import failing
from tests.wire.operations.conftest import GPU
from tests.wire.operations.test_device_profiles import profile

#: How many times the agent's client sends a request that gets no answer.
TRIES = 1 + MAX_REPEATS


@pytest.fixture
def cloud(make_cloud):
    cloud = make_cloud(1, accelerators=True)
    profile(cloud, "one-gpu", {f"resources:{GPU}": "1"})
    cloud.flavor("with-gpu", {"accel:device_profile": "one-gpu"})
    return cloud


@pytest.fixture
def host(cloud):
    (host,) = cloud.hosts.values()
    return host


@pytest.fixture
def server_id(cloud, host):
    return cloud.boot("with-gpu")


def card_of(host, server_id):
    """The address of the card whose handle the server has."""
    (handle,) = host.plugged[server_id]
    devices = host.accelerators.attach_state.devices
    return next(device.pci_id for device in devices for part in device.deployables if handle in part.handles)


def set_faults(host, *faults):
    """From now on, the host's simulated cards have these faults; the host looks at its devices."""
    (driver,) = (unit.driver for unit in list(host.accelerators._registry._deployables.values())[:1])
    driver.order(FaultControl(faults=faults))
    host.plane.task("resources").run_once()
    host.cloud.settle()


def sick(card, kind="sick", verb="health"):
    return SimulatedFault(verb, FaultKind(kind), at=card, times=0)


def seen_by_owner(cloud, server_id):
    return cloud.send("GET", f"/v2.1/servers/{server_id}")[1]["server"]


@pytest.mark.parametrize(("verb", "kind", "word"), [("health", "sick", "failed"), ("discover", "vanishes", "gone")])
def test_the_owner_of_a_server_sees_that_its_device_has_failed(cloud, host, server_id, caplog, verb, kind, word):
    card, before = card_of(host, server_id), host.plugged[server_id]
    caplog.set_level(logging.WARNING)
    set_faults(host, sick(card, kind, verb))
    shown = seen_by_owner(cloud, server_id)
    assert (shown["status"], shown["OS-EXT-STS:vm_state"], shown["OS-EXT-STS:task_state"]) == ("ERROR", "error", None)
    assert shown["OS-EXT-STS:power_state"] == 1, "the guest runs"
    assert "a device has failed: GPU" in shown["fault"]["message"]
    assert f"({word})" in shown["fault"]["message"]
    assert host.name not in shown["fault"]["message"]
    assert "details" not in shown["fault"]
    assert host.name in cloud.show(server_id)["fault"]["details"]
    assert (host.servers[server_id], host.plugged[server_id]) == ("running", before)
    assert "a device of a server has failed" in [record.message for record in caplog.records]
    set_faults(host)
    shown = seen_by_owner(cloud, server_id)
    assert (shown["status"], shown.get("fault")) == ("ACTIVE", None)
    assert host.servers[server_id] == "running"


def test_servers_with_other_devices_are_not_affected(cloud, host, server_id):
    other = cloud.boot("with-gpu")
    set_faults(host, sick(card_of(host, server_id)))
    assert cloud.status(server_id)[0] == "ERROR"
    assert cloud.status(other)[0] == "ACTIVE"


def test_a_paused_server_is_paused_again_when_its_device_works(cloud, host, server_id):
    cloud.do(server_id, "pause")
    set_faults(host, sick(card_of(host, server_id)))
    assert cloud.status(server_id)[0] == "ERROR"
    set_faults(host)
    assert cloud.status(server_id)[0] == "PAUSED"


def test_a_server_that_is_busy_gets_its_fault_afterwards(cloud, host, server_id):
    """So does one that its owner has rebooted: the device is still sick."""
    set_faults(host, sick(card_of(host, server_id)))
    cloud.do(server_id, "reboot", {"type": "HARD"})
    cloud.run_for(61)
    assert cloud.status(server_id)[:2] == ("ERROR", None)


def test_another_error_of_a_server_is_not_cleared(cloud, host, server_id):
    cloud.admin_do(server_id, "os-resetState", {"state": "error"})
    set_faults(host, sick(card_of(host, server_id)))
    set_faults(host)
    assert cloud.status(server_id)[0] == "ERROR"


def test_the_server_can_be_deleted(cloud, host, server_id):
    set_faults(host, sick(card_of(host, server_id)))
    assert cloud.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    cloud.settle()
    assert cloud.show(server_id) is None


def test_a_device_that_was_repaired_while_the_agent_was_off_is_noticed(cloud, host, server_id):
    set_faults(host, sick(card_of(host, server_id)))
    (driver,) = (unit.driver for unit in list(host.accelerators._registry._deployables.values())[:1])
    driver.order(FaultControl())
    host.start()
    cloud.settle()
    assert cloud.status(server_id)[0] == "ACTIVE"


def test_the_report_is_repeated_while_compute_does_not_answer(cloud, host, server_id):
    way = host.plane.ways["compute"]
    way.on("PUT /agent/v1/hosts/compute-1/device-faults", failing(Unavailable("compute is away")), times=TRIES)
    set_faults(host, sick(card_of(host, server_id)))
    assert cloud.status(server_id)[0] == "ACTIVE"
    cloud.run_for(11)
    assert cloud.status(server_id)[0] == "ERROR"


def test_a_host_cannot_report_servers_of_others(cloud, server_id):
    body = {"servers": {server_id: ["GPU x (failed)"]}}
    headers = {"x-auth-token": "host:compute-9", "x-moorage-host": "compute-9"}
    path = "/compute/agent/v1/hosts/{}/device-faults"
    send = cloud.compute.send
    assert send("PUT", path.format("compute-1"), body, who=None, roles=None, headers=headers).status == 403
    assert send("PUT", path.format("compute-9"), body, who=None, roles=None, headers=headers).status == 204
    assert cloud.status(server_id)[0] == "ACTIVE"


def test_the_device_list_shows_the_health_and_its_time(cloud, host, server_id):
    card = card_of(host, server_id)

    def health():
        host.plane.task("accelerator-agent").run_once()
        rows = cloud.accelerator("GET", "/v2/devices")[1]["devices"]
        return next(row["std_board_info"] for row in rows if f'"{card}"' in row["std_board_info"])

    healthy = health()
    assert '"health": "ok"' in healthy
    cloud.run_for(100)
    assert health() == healthy, "the time is that of the change"
    set_faults(host, sick(card))
    now = cloud.control.clock.now()
    assert f'"health": "failed", "health_since": "{now.isoformat(timespec="seconds")}"' in health()
