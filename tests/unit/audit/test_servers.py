"""Audit findings about servers and allocations, in examples; tests/system/audit/test_servers.py uses a real plane."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moorage.audit.collector import audited_server
from moorage.audit.model import (
    AuditedAccelerators,
    AuditedConsumer,
    AuditedProvider,
    AuditedServer,
    AuditSnapshot,
    Compute,
    FindingKind,
    Repair,
)
from moorage.audit.rules.findings import all_findings
from moorage.audit.rules.servers import doubtful_servers
from moorage.compute.client.values import Flavor, ServerState
from moorage.core.inventories import Inventory

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
GRACE = timedelta(minutes=10)
WHOLE = {"VCPU": 2, "MEMORY_MB": 512}
SERVER = AuditedServer("one", NOW - timedelta(days=1), WHOLE, is_plain=True)
COMPUTE = Compute(
    frozenset({"s"}), frozenset(), frozenset({"h1", "h2"}), states={"s": SERVER}, nodes={"one": "h1", "two": "h2"}
)


def snapshot(held: dict[str, dict[str, int]], compute: Compute = COMPUTE, **more: object) -> AuditSnapshot:
    """`held`: {provider of a host: allocations of server `s` there}, unchanged at the second read."""
    inventories = {"VCPU": Inventory(8), "PCPU": Inventory(8), "MEMORY_MB": Inventory(4096), "DISK_GB": Inventory(9)}
    providers = {
        uuid: AuditedProvider(uuid, name, None, uuid, inventories, {"s": held[uuid]} if uuid in held else {})
        for uuid, name in (("h1", "one"), ("h2", "two"))
    }
    consumer = AuditedConsumer("s", 1, "alpha", "ann", "INSTANCE", held, NOW - timedelta(days=1))
    return replace(AuditSnapshot(NOW, providers, {"s": consumer} if held else {}, compute), **more)


def test_a_server_with_the_allocations_of_its_flavor_on_its_host_gives_no_finding():
    assert all_findings(snapshot({"h1": WHOLE}), GRACE) == []


def test_a_server_without_allocations_is_repaired_with_those_of_its_flavor():
    (found,) = all_findings(snapshot({}), GRACE)
    assert (found.kind, found.subject, found.where) == (FindingKind.SERVER_WITHOUT_ALLOCATION, "s", "one")
    assert (found.action, found.is_safe, found.holding) == (Repair.SET_HOLDING, True, {"h1": WHOLE})
    assert found.advice == "sets its allocation there to 512 MEMORY_MB, 2 VCPU"


@pytest.mark.parametrize("held", [{"h2": WHOLE}, {"h1": WHOLE, "h2": {"VCPU": 1}}])
def test_allocations_on_another_host_are_repaired_only_if_the_finding_is_named(held):
    (found,) = all_findings(snapshot(held), GRACE)
    assert (found.kind, found.why) == (FindingKind.ALLOCATION_ELSEWHERE, "it is on one, but has allocations on two")
    assert (found.action, found.is_safe, found.holding) == (Repair.SET_HOLDING, False, {"h1": WHOLE})


@pytest.mark.parametrize(
    ("held", "why"),
    [
        ({"VCPU": 1, "MEMORY_MB": 512}, "it holds 1 VCPU instead of 2"),
        ({"MEMORY_MB": 512}, "it holds 0 VCPU instead of 2"),
        ({**WHOLE, "DISK_GB": 1}, "it holds 1 DISK_GB instead of 0"),
        ({**WHOLE, "CUSTOM_PORT": 1}, None),  # a class that the flavor does not determine, such as a port
        ({"PCPU": 2, "MEMORY_MB": 512}, None),  # the server's image may request dedicated CPUs
    ],
)
def test_allocations_with_other_amounts_than_the_flavor_are_found(held, why):
    found = all_findings(replace(snapshot({"h1": held})), GRACE)
    assert [(one.kind, one.why) for one in found if one.kind is not FindingKind.MISSING_INVENTORY] == (
        [(FindingKind.WRONG_AMOUNTS, why)] if why else []
    )


def test_allocations_of_a_server_without_host_and_a_server_on_an_unknown_host_are_found():
    nowhere = replace(COMPUTE, states={"s": replace(SERVER, node=None)})
    (found,) = all_findings(snapshot({"h2": WHOLE}, nowhere), GRACE)
    assert (found.kind, found.holding, found.is_safe) == (FindingKind.ALLOCATION_ELSEWHERE, {}, False)
    gone = replace(COMPUTE, states={"s": replace(SERVER, node="three")})
    (found,) = all_findings(snapshot({"h1": WHOLE}, gone), GRACE)
    assert (found.kind, found.where, found.action) == (FindingKind.SERVER_WITHOUT_HOST, "three", None)


def test_allocations_that_an_evacuation_left_on_a_failed_host_give_no_finding():
    away = replace(COMPUTE, evacuated={"s": frozenset({"two"})})
    assert all_findings(snapshot({"h1": WHOLE, "h2": WHOLE}, away), GRACE) == []
    (found,) = all_findings(snapshot({"h2": WHOLE}, away), GRACE)
    assert found.kind is FindingKind.SERVER_WITHOUT_ALLOCATION


def test_recently_changed_servers_and_allocations_give_no_finding():
    moved = replace(COMPUTE, states={"s": replace(SERVER, updated_at=NOW - GRACE / 2)})
    assert all_findings(snapshot({"h2": WHOLE}, moved), GRACE) == []
    written = snapshot({"h2": WHOLE})
    consumer = replace(written.consumers["s"], written_at=NOW - GRACE / 2)
    assert all_findings(replace(written, consumers={"s": consumer}), GRACE) == []


def test_the_allocations_of_the_second_read_count():
    """A move was in progress when the providers were read, and has ended before the second read."""
    read = snapshot({"h2": WHOLE})
    assert doubtful_servers(read, GRACE) == {"s"}
    now = replace(read.consumers["s"], allocations={"h1": WHOLE})
    assert all_findings(replace(read, consumers={"s": now}), GRACE) == []


@pytest.mark.parametrize(
    "because", ["has an accelerator", "is not plain", "holds what the flavor does not name", "offered by two", "none"]
)
def test_allocations_that_may_belong_to_several_providers_are_not_repaired(because):
    read = snapshot({"h2": WHOLE})
    if because == "has an accelerator":
        read = replace(read, accelerators=AuditedAccelerators(frozenset(), frozenset({"s"})))
    elif because == "is not plain":
        read = replace(read, compute=replace(COMPUTE, states={"s": replace(SERVER, is_plain=False)}))
    elif because == "holds what the flavor does not name":
        read = snapshot({"h2": {**WHOLE, "CUSTOM_PORT": 1}})
    elif because == "offered by two":
        numa = AuditedProvider("n", "numa", "h1", "h1", {"VCPU": Inventory(8)})
        read = replace(read, providers={**read.providers, "n": numa})
    else:
        read = replace(read, providers={**read.providers, "h1": replace(read.providers["h1"], inventories={})})
    found = next(one for one in all_findings(read, GRACE) if one.kind is FindingKind.ALLOCATION_ELSEWHERE)
    assert (found.action, found.is_safe) == (None, False)
    assert found.advice.startswith("nothing: the audit cannot tell which providers are right")


# --- reading a server -------------------------------------------------------------------------------------------


def state(**more: object) -> ServerState:
    flavor = Flavor("", "f", 2, 512, 10, 0, 0, {})
    return replace(ServerState("s", "ACTIVE", None, "one", NOW, flavor, has_image=True), **more)


def with_specs(**specs: str) -> ServerState:
    return state(flavor=replace(state().flavor, extra_specs=specs))


@pytest.mark.parametrize(
    "found",
    [
        None, state(task="migrating"), state(status="VERIFY_RESIZE"), state(status="ERROR"), state(status="UNKNOWN"),
        state(status="BUILD", node=None), state(status="SHELVED_OFFLOADED"),
    ],
)  # fmt: skip
def test_servers_with_an_operation_in_progress_or_without_a_host_are_not_audited(found):
    assert audited_server(found) is None


def test_a_server_that_was_never_built_needs_nothing_whatever_an_administrator_calls_it():
    read = audited_server(state(is_launched=False))
    assert (read.node, read.runs) == (None, False)


def test_stopped_and_shelved_servers_do_not_run():
    assert [audited_server(state(status=one)).runs for one in ("ACTIVE", "PAUSED", "SHUTOFF", "SHELVED")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_the_resources_of_a_flavor_are_summed_over_its_groups():
    assert audited_server(state()) == AuditedServer(
        "one", NOW, {"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 10}, is_plain=True, runs=True
    )
    in_parts = audited_server(with_specs(**{"resources:VCPU": "0", "resources1:VCPU": "2", "resources:CUSTOM_A": "3"}))
    assert in_parts.wanted == {"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 10, "CUSTOM_A": 3}
    assert not in_parts.is_plain


def test_disks_of_servers_without_image_and_invalid_flavors_are_not_audited():
    assert audited_server(state(has_image=False)) == AuditedServer(
        "one", NOW, {"VCPU": 2, "MEMORY_MB": 512}, is_plain=False, runs=True
    )
    odd = audited_server(with_specs(**{"hw:cpu_policy": "nonsense"}))
    assert (odd.wanted, odd.is_plain) == (None, False)
    assert not audited_server(with_specs(**{"accel:device_profile": "fpga"})).is_plain
