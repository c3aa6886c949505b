"""Inconsistent accelerators, requests and providers on a whole plane: found, and repaired if possible."""

import errno
import json
from datetime import timedelta

import pytest

from moorage.agent.jobs.server_build import ServerBuilder
from moorage.audit.model import FindingKind
from tests.system.audit.rig import AuditedPlane
from tests.system.planes import PlaneClients, embedded_credentials

pytestmark = pytest.mark.slow

#: Longer than an agent's periods on a virtual plane.
DAY = timedelta(days=1, hours=1)
GONE = "00000005-0000-4000-8000-000000000000"


@pytest.fixture
def plane(tmp_path):
    with AuditedPlane(tmp_path) as plane:
        yield plane


def kinds(found) -> list[tuple[FindingKind, str]]:
    return [(one.kind, one.subject) for one in found]


def fpga_server(plane) -> str:
    server = plane.create_server(flavor=plane.create_fpga_flavor())
    plane.settle()
    assert plane.accelerators_of(server)
    return server


def act(plane, server: str, action: dict) -> None:
    plane.compute.request("POST", f"/servers/{server}/action", json=action)
    plane.settle()


def ask_to_bind(plane, instance: str) -> str:
    """Creates an accelerator request of a profile and asks to bind it for an instance, as compute does; returns its
    uuid.
    """
    part = next(one for one in plane.services.accelerators.deployables() if "_R" in one.name)
    trait = next(
        name for name in plane.placement.get(f"/resource_providers/{part.rp_uuid}/traits")["traits"] if "REGION" in name
    )
    group = {"resources:CUSTOM_ACCELERATOR_FPGA": "1", f"trait:{trait}": "required"}
    plane.accelerator.request("POST", "/device_profiles", json=[{"name": "p", "groups": [group]}])
    made = plane.accelerator.request("POST", "/accelerator_requests", json={"device_profile_name": "p"})["arqs"][0]
    where = {"hostname": "compute-1", "device_rp_uuid": part.rp_uuid, "instance_uuid": instance}
    body = {made["uuid"]: [{"path": f"/{name}", "op": "add", "value": value} for name, value in where.items()]}
    service = embedded_credentials(plane.transport("/identity"), plane.state, plane.clock, user="moorage")
    PlaneClients(plane.transport, service, plane.clock).accelerator.request("PATCH", "/accelerator_requests", json=body)
    uuid: str = made["uuid"]
    return uuid


def bind(plane, instance: str) -> str:
    request = ask_to_bind(plane, instance)
    plane.settle()
    assert plane.accelerator.get(f"/accelerator_requests/{request}")["state"] == "Bound"
    return request


def test_devices_of_a_deleted_server_are_released_only_if_it_is_named(plane):
    request = bind(plane, GONE)
    assert plane.audit() == [], "it may just be being made"
    plane.pass_grace()
    found = plane.audit()
    assert kinds(found) == [(FindingKind.DEVICE_WITHOUT_SERVER, GONE)]
    assert plane.fix(found) == []
    plane.receipt_path.unlink()
    (outcome,) = plane.fix(found, GONE)
    assert outcome.is_done
    about = json.loads(plane.receipt_path.read_text().splitlines()[0])
    assert ([one["uuid"] for one in about["before"]["requests"]], about["undo"]) == ([request], [])
    plane.settle()
    assert plane.services.accelerators.requests() == []
    assert {one.state for one in plane.services.accelerators.handles("compute-1")} == {"free"}
    plane.pass_grace()
    assert plane.audit() == []


def test_devices_released_after_the_audit_are_not_released_again(plane):
    bind(plane, GONE)
    plane.pass_grace()
    found = plane.audit()
    plane.services.accelerators.delete_requests_of(GONE)
    plane.settle()
    (outcome,) = plane.fix(found, GONE)
    assert outcome.text == "left alone: it changed meanwhile"


def test_lost_accelerator_requests_are_reported_for_the_server_and_for_the_handle(plane):
    """As after a restored backup of the accelerator service, until the hosts report again."""
    server = fpga_server(plane)
    plane.pass_grace()
    with plane.broken("DELETE FROM accelerator_requests", service="accelerator"):
        found = plane.audit()
    part = next(one for one in plane.services.accelerators.deployables() if one.name == found[0].where)
    assert kinds(found) == [
        (FindingKind.SERVER_WITHOUT_DEVICE, server),
        (FindingKind.HANDLE_WITHOUT_REQUEST, part.uuid),
    ]
    plane.run_until(plane.clock.now() + DAY)
    assert plane.audit() == [], "as the findings say: the agent tells again"


def test_a_server_that_an_administrator_calls_active_after_a_failed_deletion_is_rebuilt(plane, monkeypatch):
    """The host has removed the guest and released the device when its disk is full: the deletion fails."""
    server = fpga_server(plane)
    release = ServerBuilder.detach

    def release_and_fail(builder, *arguments):
        release(builder, *arguments)
        raise OSError(errno.ENOSPC, "No space left on device", "checkpoint.json")

    monkeypatch.setattr(ServerBuilder, "detach", release_and_fail)
    plane.compute.request("DELETE", f"/servers/{server}")
    plane.settle()
    monkeypatch.undo()
    assert plane.server(server)["status"] == "ERROR"
    act(plane, server, {"os-resetState": {"state": "active"}})
    plane.pass_grace()
    (found,) = plane.audit()
    assert (found.kind, found.subject) == (FindingKind.SERVER_WITHOUT_DEVICE, server)
    assert found.advice.endswith("if its guest is gone, too, rebuild or delete it")
    act(plane, server, {"reboot": {"type": "HARD"}})
    assert plane.server(server)["status"] == "ERROR"
    assert plane.server(server)["fault"]["details"].endswith("reboot-hard: virt.no_such_domain")
    act(plane, server, {"rebuild": {"imageRef": plane.server(server)["image"]["id"]}})
    assert plane.server(server)["status"] == "ACTIVE"
    assert plane.accelerators_of(server)
    plane.pass_grace()
    assert plane.audit() == []


def test_a_deployable_whose_provider_was_deleted_is_reported_until_the_agent_recreates_it(plane):
    part = next(one for one in plane.services.accelerators.deployables() if "_R" in one.name)
    plane.pass_grace()
    plane.services.placement.delete_provider(part.rp_uuid)
    found = plane.audit()
    assert kinds(found) == [(FindingKind.DEVICE_WITHOUT_PROVIDER, part.uuid)]
    assert found[0].why == f"its resource provider {part.rp_uuid} is gone"
    plane.run_until(plane.clock.now() + DAY)
    assert plane.audit() == [], "as the finding says: the agent makes it again"


def test_a_service_without_a_list_of_handles_is_audited_without_it(plane):
    fpga_server(plane)
    plane.pass_grace()
    with plane.broken("DELETE FROM accelerator_requests", service="accelerator"):
        for status in (403, 404):
            plane.refused["accelerator"] = {"/moorage/v1/handles": status}
            assert [one.kind for one in plane.audit()] == [FindingKind.SERVER_WITHOUT_DEVICE], status
