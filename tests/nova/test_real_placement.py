"""Moorage's reservation service with a real Nova and a real Placement, through their public APIs (U7)."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.nova.conftest import HOSTS, a_cloud
from tests.system.planes import until

pytestmark = pytest.mark.nova


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    with a_cloud(tmp_path_factory.mktemp("real"), real_placement=True) as cloud:
        clients = cloud.clients

        def ready():
            rows = clients.compute.get("/os-hypervisors")["hypervisors"]
            names = {row["name"] for row in clients.placement.get("/resource_providers")["resource_providers"]}
            return {row["hypervisor_hostname"] for row in rows} == set(HOSTS) <= names

        until(ready, timeout_s=90)
        for name in HOSTS:
            clients.reservation.request("POST", "/v1/os-hosts", json={"name": name})
        yield clients


def boot(clients, flavor):
    """(id, status, host)"""
    server = clients.create_server(flavor=flavor)
    clients.wait_for_status(server, "ACTIVE", "ERROR")
    shown = clients.server(server)
    return server, shown["status"], shown["OS-EXT-SRV-ATTR:host"]


def set_host(clients, name, status):
    services = clients.compute.get("/os-services")["services"]
    (service,) = [row["id"] for row in services if (row["host"], row["binary"]) == (name, "nova-compute")]
    clients.compute.request("PUT", f"/os-services/{service}", json={"status": status})


def class_of(flavor):
    return f"CUSTOM_RESERVATION_{flavor.replace('-', '_').upper()}"


def total(clients, host, flavor):
    rows = clients.placement.get("/resource_providers")["resource_providers"]
    (uuid,) = [row["uuid"] for row in rows if row["name"] == f"blazar_{host}"]
    inventories = clients.placement.get(f"/resource_providers/{uuid}/inventories")["inventories"]
    return inventories.get(class_of(flavor), {}).get("total")


def test_a_lease_starts_runs_servers_is_healed_and_leaves_nothing_behind(clients):
    """U7, B10: from the request to the end, with a host that is disabled meanwhile; nothing is left behind."""
    now = datetime.now(UTC)
    lease = clients.create_lease(start=now + timedelta(minutes=1), end=now + timedelta(hours=2), amount=2)
    flavor = clients.reservation_id(lease)
    until(lambda: clients.lease(lease)["status"] in ("ACTIVE", "ERROR"), timeout_s=120)
    assert clients.lease(lease)["status"] == "ACTIVE"
    (first,) = [name for name in HOSTS if total(clients, name, flavor) == 2]
    (other,) = {*HOSTS} - {first}
    server, status, host = boot(clients, flavor)
    assert (status, host) == ("ACTIVE", first)
    assert clients.allocations(server)[class_of(flavor)] == 1

    set_host(clients, first, "disabled")
    until(lambda: total(clients, other, flavor) == 2, timeout_s=60)
    until(lambda: clients.lease(lease)["status"] == "ACTIVE")
    shown = clients.lease(lease)
    assert (shown["degraded"], shown["reservations"][0]["resources_changed"]) == (True, True)
    assert total(clients, first, flavor) == 1, "what its server holds"
    moved, status, host = boot(clients, flavor)
    assert (status, host) == ("ACTIVE", other)
    set_host(clients, first, "enabled")
    until(lambda: not clients.lease(lease)["degraded"], timeout_s=60)

    clients.reservation.request("DELETE", f"/v1/leases/{lease}")
    until(lambda: clients.server(server) is None and clients.server(moved) is None, timeout_s=60)
    gone = f"/resource_classes/{class_of(flavor)}"
    classes = clients.placement
    until(lambda: gone.rsplit("/", 1)[1] not in str(classes.get("/resource_classes")), timeout_s=60)
    flavors = clients.compute.get("/flavors?is_public=None")["flavors"]
    assert flavor not in [each["id"] for each in flavors]
