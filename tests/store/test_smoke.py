"""A plane on each database: the four services write rows and read them.

This is the only test of `make test` that needs PostgreSQL and MariaDB; the rest of this directory tests single
statements.
"""

from contextlib import ExitStack
from datetime import timedelta

import pytest

from tests.migrated import schema_of
from tests.plane import SERVICE, InProcessPlane
from tests.servers import temporary_database
from tests.store.conftest import on_every_database
from tests.system.planes import PlaneClients

SERVICES = ("placement", "compute", "accelerator", "reservation")
CONSUMER = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def plane(tmp_path, kind):
    with ExitStack() as stack:
        urls = {name: stack.enter_context(temporary_database(kind, schema_of(name))) for name in SERVICES}
        services = "image,agent," + ",".join(SERVICES)
        yield stack.enter_context(InProcessPlane(tmp_path, services, database=urls, agent={"host": "compute-1"}))


@pytest.mark.core
@on_every_database
def test_every_service_writes_and_reads_its_rows(plane):
    clients = PlaneClients(plane.transport, SERVICE, plane.clock)
    plane.settle()

    provider = clients.placement.request("POST", "/resource_providers", json={"name": "shelf"})
    shelf = f"/resource_providers/{provider['uuid']}"
    offered = {"resource_provider_generation": 0, "inventories": {"DISK_GB": {"total": 8}}}
    clients.placement.request("PUT", f"{shelf}/inventories", json=offered)
    held = {"allocations": {provider["uuid"]: {"resources": {"DISK_GB": 3}}}, "consumer_generation": None}
    owner = {"project_id": "red", "user_id": "alice", "consumer_type": "INSTANCE"}
    clients.placement.request("PUT", f"/allocations/{CONSUMER}", json=held | owner)
    assert clients.placement.get(f"{shelf}/usages")["usages"] == {"DISK_GB": 3}

    clients.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
    start = plane.clock.now() + timedelta(hours=1)
    lease = clients.create_lease(start=start, end=start + timedelta(hours=1), amount=1)
    plane.run_until(start + timedelta(minutes=1))
    assert clients.lease(lease)["status"] == "ACTIVE"

    server = clients.create_server(flavor=clients.reservation_id(lease))
    plane.settle()
    assert clients.server(server)["status"] == "ACTIVE"

    profile = [{"name": "fp1", "groups": [{"resources:FPGA": "1"}]}]
    clients.accelerator.request("POST", "/device_profiles", json=profile)
    assert [one["name"] for one in clients.accelerator.get("/device_profiles")["device_profiles"]] == ["fp1"]
