"""A real Nova with Moorage in place of Placement, Blazar and Cyborg."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.nova.conftest import HOSTS
from tests.system.planes import AES, until

pytestmark = pytest.mark.nova

#: Time limit of a build: longer than Nova itself waits for an accelerator (60 s), so that Nova's own error is seen.
BUILD_S = 120.0
#: Time limit for writes of Nova and our agent to Placement; both write periodically.
PUBLISHED_S = 60.0


@pytest.fixture(scope="module", autouse=True)
def hosts(cloud):
    """Waits until both computes are registered with Nova's scheduler."""

    def found():
        rows = cloud.clients.compute.get("/os-hypervisors")["hypervisors"]
        return {row["hypervisor_hostname"] for row in rows}, set(providers(cloud.clients))

    def ready():
        computes, names = found()
        return computes == set(HOSTS) <= names

    until(ready, timeout_s=90, seen=found)


def providers(clients):
    """{name: uuid}"""
    return {row["name"]: row["uuid"] for row in clients.placement.get("/resource_providers")["resource_providers"]}


def traits_of(clients, provider):
    return set(clients.placement.get(f"/resource_providers/{provider}/traits")["traits"])


def boot(clients, flavor, **options):
    server = clients.create_server(flavor=flavor, **options)
    clients.wait_for_status(server, "ACTIVE", "ERROR", timeout_s=BUILD_S)
    return server


def delete(clients, server):
    clients.compute.request("DELETE", f"/servers/{server}")
    clients.wait_until_gone(server)
    until(lambda: not clients.allocations(server))


def test_hosts_of_nova_register_themselves_with_their_provider_files(cloud):
    """Nova creates the provider first, then writes inventories and traits in separate requests."""
    mole = providers(cloud.clients)["mole"]

    def found():
        inventories = cloud.clients.placement.get(f"/resource_providers/{mole}/inventories")["inventories"]
        return inventories.get("CUSTOM_X", {}).get("total"), traits_of(cloud.clients, mole)

    def published():
        total, traits = found()
        return total == 4 and {"CUSTOM_TIDAL", "OWNER_NOVA", "COMPUTE_NODE"} <= traits

    until(published, timeout_s=PUBLISHED_S, seen=found)


def test_a_custom_class_is_allocated_and_released_with_a_server(cloud):
    clients = cloud.clients
    flavor = clients.create_flavor("x", **{"resources:CUSTOM_X": "2", "trait:CUSTOM_TIDAL": "required"})
    servers = [boot(clients, flavor) for _ in range(3)]
    states = [clients.server(server)["status"] for server in servers]
    assert states == ["ACTIVE", "ACTIVE", "ERROR"]
    assert clients.allocations(servers[0]) == {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1, "CUSTOM_X": 2}
    for server in servers:
        delete(clients, server)


def test_a_flavor_without_cpu_memory_and_disk_allocates_only_its_class(cloud):
    clients = cloud.clients
    zeros = {f"resources:{name}": "0" for name in ("VCPU", "MEMORY_MB", "DISK_GB")}
    server = boot(clients, clients.create_flavor("metal", **zeros, **{"resources:CUSTOM_X": "1"}))
    assert clients.allocations(server) == {"CUSTOM_X": 1}
    delete(clients, server)


def test_the_stock_client_boots_a_server(cloud):
    image = cloud.clients.create_image(visibility="public", name="tiny")
    flavor = cloud.clients.create_flavor("small")
    (created,) = cloud.openstack(
        ["server", "create", "--flavor", flavor, "--image", image, "--nic", "none", "--wait", "-f", "json", "first"]
    )
    assert created.document["status"] == "ACTIVE"
    delete(cloud.clients, created.document["id"])


@pytest.mark.parametrize("answer", ["confirmResize", "revertResize"])
def test_a_resize_keeps_both_allocations_until_it_is_confirmed_or_reverted(cloud, answer):
    clients = cloud.clients
    small, large = clients.create_flavor(f"small-{answer}"), f"large-{answer}"
    body = {"id": large, "name": large, "vcpus": 2, "ram": 128, "disk": 1}
    clients.compute.request("POST", "/flavors", json={"flavor": body})
    server = boot(clients, small)
    clients.compute.request("POST", f"/servers/{server}/action", json={"resize": {"flavorRef": large}})
    clients.wait_for_status(server, "VERIFY_RESIZE", "ERROR")
    assert clients.allocations(server)["VCPU"] == 2
    migration = clients.compute.get(f"/os-migrations?instance_uuid={server}")["migrations"][0]["uuid"]
    assert clients.allocations(migration)["VCPU"] == 1
    clients.compute.request("POST", f"/servers/{server}/action", json={answer: None})
    clients.wait_for_status(server, "ACTIVE", "ERROR")
    until(lambda: not clients.allocations(migration))
    assert clients.allocations(server)["VCPU"] == (2 if answer == "confirmResize" else 1)
    delete(clients, server)


def test_shelve_releases_the_allocation_and_unshelve_claims_again(cloud):
    clients = cloud.clients
    server = boot(clients, clients.create_flavor("shelved"))
    clients.compute.request("POST", f"/servers/{server}/action", json={"shelve": None})
    clients.wait_for_status(server, "SHELVED_OFFLOADED", "ERROR")
    until(lambda: not clients.allocations(server))
    clients.compute.request("POST", f"/servers/{server}/action", json={"unshelve": None})
    clients.wait_for_status(server, "ACTIVE", "ERROR")
    assert clients.allocations(server)["VCPU"] == 1
    delete(clients, server)


def test_aggregates_and_disabled_services_of_nova_are_written_to_placement(cloud):
    clients = cloud.clients
    quay = providers(clients)["quay"]
    aggregate = clients.compute.request("POST", "/os-aggregates", json={"aggregate": {"name": "north"}})["aggregate"]
    clients.compute.request("POST", f"/os-aggregates/{aggregate['id']}/action", json={"add_host": {"host": "quay"}})
    until(lambda: aggregate["uuid"] in clients.placement.get(f"/resource_providers/{quay}/aggregates")["aggregates"])
    service = next(
        row["id"]
        for row in clients.compute.get("/os-services")["services"]
        if (row["host"], row["binary"]) == ("quay", "nova-compute")
    )

    def is_disabled():
        return "COMPUTE_STATUS_DISABLED" in traits_of(clients, quay)

    clients.compute.request("PUT", f"/os-services/{service}", json={"status": "disabled"})
    until(is_disabled)
    clients.compute.request("PUT", f"/os-services/{service}", json={"status": "enabled"})
    until(lambda: not is_disabled())


def test_servers_with_a_leases_flavor_run_on_the_hosts_that_it_reserves(cloud):
    """Neither a server nor an unconfirmed resize on the lease delays its end."""
    clients = cloud.clients
    clients.reservation.request("POST", "/v1/os-hosts", json={"name": "quay"})
    now = datetime.now(UTC)
    lease = clients.create_lease(start=now + timedelta(minutes=1), end=now + timedelta(hours=2), amount=2)
    until(lambda: clients.lease(lease)["status"] in ("ACTIVE", "ERROR"), timeout_s=120)
    assert clients.lease(lease)["status"] == "ACTIVE"
    flavor = clients.reservation_id(lease)
    server, resized = boot(clients, flavor), boot(clients, flavor)
    shown = clients.server(server)
    assert (shown["status"], shown["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", "quay")
    reserved = f"CUSTOM_RESERVATION_{flavor.replace('-', '_').upper()}"
    assert clients.allocations(server)[reserved] == 1
    ordinary = clients.create_flavor("elsewhere", **{"trait:CUSTOM_RESERVATION_HOST": "forbidden"})
    elsewhere = boot(clients, ordinary)
    assert clients.server(elsewhere)["OS-EXT-SRV-ATTR:host"] == "mole"
    delete(clients, elsewhere)
    one_too_many = boot(clients, flavor)
    assert clients.server(one_too_many)["status"] == "ERROR"
    clients.compute.request("POST", f"/servers/{resized}/action", json={"resize": {"flavorRef": ordinary}})
    clients.wait_for_status(resized, "VERIFY_RESIZE", "ERROR")
    clients.reservation.request("DELETE", f"/v1/leases/{lease}")
    until(lambda: not clients.reservation.get("/v1/leases")["leases"], timeout_s=120)
    assert clients.server(server) is None
    shown = clients.server(resized)
    assert (shown["status"], shown["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", "mole")
    delete(clients, resized)


def test_a_device_profile_gives_the_server_its_accelerator(cloud):
    """R33, R34, and Nova's side of the contract: profile, requests, binding, event, deletion."""
    clients = cloud.clients

    region, region_trait = first_region(clients)
    clients.create_image(
        AES.encode() * 100,
        name="aes",
        function_uuid=AES,
        region_uuid=region_trait.partition("_REGION_")[2].replace("_", "-").lower(),
        tags=["FPGA"],
        visibility="public",
    )
    profile = {"resources:CUSTOM_ACCELERATOR_FPGA": "1", f"trait:{region_trait}": "required", "accel:function_id": AES}
    clients.accelerator.request("POST", "/device_profiles", json=[{"name": "aes", "groups": [profile]}])
    server = boot(clients, clients.create_flavor("fpga", **{"accel:device_profile": "aes"}))
    assert clients.server(server)["status"] == "ACTIVE", clients.server(server).get("fault")
    (arq,) = clients.accelerator.get(f"/accelerator_requests?instance={server}")["arqs"]
    assert (arq["state"], arq["hostname"], arq["device_rp_uuid"]) == ("Bound", "mole", region)
    assert clients.allocations(server)["CUSTOM_ACCELERATOR_FPGA"] == 1
    delete(clients, server)
    until(lambda: not clients.accelerator.get(f"/accelerator_requests?instance={server}")["arqs"])
    function = f"CUSTOM_FPGA_INTEL_FUNCTION_{AES.replace('-', '_').upper()}"
    until(lambda: function in traits_of(clients, region), seen=lambda: traits_of(clients, region))


def first_region(clients):
    """(uuid, trait of its type) of a region of the host with accelerators; waits until our agent has created both."""

    def regions():
        return {name: uuid for name, uuid in providers(clients).items() if name.startswith("mole_") and "_R" in name}

    def first():
        if not (found := regions()):
            return None
        uuid = min(found.items())[1]
        types = [trait for trait in traits_of(clients, uuid) if "_REGION_" in trait]
        return (uuid, *types) if len(types) == 1 else None

    def seen():
        return {name: traits_of(clients, uuid) for name, uuid in regions().items()} or sorted(providers(clients))

    return until(first, timeout_s=PUBLISHED_S, seen=seen)
