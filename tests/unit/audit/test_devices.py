"""Audit findings about accelerators, in small examples; tests/system/audit/test_devices.py uses a real plane."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moorage.audit.model import (
    AuditedAccelerators,
    AuditedDeployable,
    AuditedProvider,
    AuditedRequest,
    AuditedServer,
    AuditSnapshot,
    Compute,
    FindingKind,
    Repair,
)
from moorage.audit.rules.findings import all_findings
from moorage.core.inventories import Inventory

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
GRACE = timedelta(minutes=10)
OLD = NOW - GRACE
SERVER = AuditedServer("one", OLD, None, is_plain=False, runs=True)
PART = AuditedDeployable("part", "one_card", "d", OLD)
BOUND = AuditedRequest("arq", "s", "d", "one", OLD, is_made_here=True)
HELD = {"s": {"CUSTOM_FPGA": 1}}


def snapshot(part: AuditedDeployable = PART, request: AuditedRequest | None = BOUND, **more: object) -> AuditSnapshot:
    device = AuditedProvider("d", "one_card", "h", "h", {"CUSTOM_FPGA": Inventory(1)}, HELD, is_device=True)
    requests = () if request is None else (request,)
    instances = frozenset(one.server for one in requests)
    return replace(
        AuditSnapshot(
            NOW,
            {"h": AuditedProvider("h", "one", None, "h"), "d": device},
            {},
            Compute(frozenset({"s"}), frozenset(), frozenset({"h"}), states={"s": SERVER}, nodes={"one": "h"}),
            AuditedAccelerators(frozenset({"d"}), instances, (part,), requests),
        ),
        **more,
    )


def test_a_device_that_is_allocated_bound_and_attached_gives_no_finding():
    assert all_findings(snapshot(), GRACE) == []


@pytest.mark.parametrize(("is_made_here", "action"), [(True, Repair.FREE_DEVICES), (False, None)])
def test_devices_of_a_deleted_server_are_found_and_never_freed_automatically(is_made_here, action):
    gone = replace(BOUND, server="x", is_made_here=is_made_here)
    found = next(
        one for one in all_findings(snapshot(request=gone), GRACE) if one.kind is FindingKind.DEVICE_WITHOUT_SERVER
    )
    assert (found.subject, found.where, found.action, found.is_safe) == ("x", "one", action, False)
    young = snapshot(request=replace(gone, changed_at=NOW - GRACE / 2))
    assert FindingKind.DEVICE_WITHOUT_SERVER not in {one.kind for one in all_findings(young, GRACE)}


def test_without_the_compute_service_there_are_no_findings_about_servers_devices():
    assert all_findings(snapshot(request=None, compute=None), GRACE) == []


@pytest.mark.parametrize("request_", [None, replace(BOUND, provider_uuid="other")])
def test_a_running_server_with_an_allocated_but_unbound_device_is_found(request_):
    (found,) = all_findings(snapshot(request=request_), GRACE)
    assert (found.kind, found.subject, found.where) == (FindingKind.SERVER_WITHOUT_DEVICE, "s", "one_card")
    assert (found.action, found.why.split(",")[0]) == (None, "it runs and has 1 CUSTOM_FPGA allocated there")


@pytest.mark.parametrize("server", [replace(SERVER, runs=False), replace(SERVER, updated_at=NOW - GRACE / 2)])
def test_a_stopped_or_recently_changed_server_with_an_unbound_device_is_not_found(server):
    whole = snapshot(request=None)
    assert all_findings(replace(whole, compute=replace(whole.compute, states={"s": server})), GRACE) == []


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (replace(PART, attached=("0000:17:00.0",)), FindingKind.HANDLE_WITHOUT_REQUEST),
        (replace(PART, provider_uuid="gone"), FindingKind.DEVICE_WITHOUT_PROVIDER),
        (replace(PART, provider_uuid=None), FindingKind.DEVICE_WITHOUT_PROVIDER),
    ],
)
def test_a_deployable_with_an_unknown_attachment_or_provider_is_found(part, kind):
    (found,) = all_findings(snapshot(part), GRACE)
    assert (found.kind, found.subject, found.where, found.action) == (kind, "part", "one_card", None)
    assert all_findings(snapshot(replace(part, changed_at=NOW - GRACE / 2)), GRACE) == []
