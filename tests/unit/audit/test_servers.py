"""Findings about servers and allocations in small examples; tests/system/audit/test_servers.py has a real plane."""

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
    """`held`: {host's provider: allocations of s there}, the same at the second read."""
    inventories = {"VCPU": Inventory(8), "PCPU": Inventory(8), "MEMORY_MB": Inventory(4096), "DISK_GB": Inventory(9)}
    providers = {
        uuid: AuditedProvider(uuid, name, None, uuid, inventories, {"s": held[uuid]} if uuid in held else {})
        for uuid, name in (("h1", "one"), ("h2", "two"))
    }
    consumer = AuditedConsumer("s", 1, "alpha", "ann", "INSTANCE", held, NOW - timedelta(days=1))
    return replace(AuditSnapshot(NOW, providers, {"s": consumer} if held else {}, compute), **more)


def test_a_server_that_holds_its_flavor_on_its_host_is_right():
    assert all_findings(snapshot({"h1": WHOLE}), GRACE) == []


def test_a_server_that_holds_nothing_is_given_what_its_flavor_says():
    (found,) = all_findings(snapshot({}), GRACE)
    assert (found.kind, found.subject, found.where) == (FindingKind.SERVER_WITHOUT_ALLOCATION, "s", "one")
    assert (found.action, found.is_safe, found.holding) == (Repair.SET_HOLDING, True, {"h1": WHOLE})
    assert found.advice == "sets its allocation there to 512 MEMORY_MB, 2 VCPU"


@pytest.mark.parametrize("held", [{"h2": WHOLE}, {"h1": WHOLE, "h2": {"VCPU": 1}}])
def test_what_is_held_on_another_host_is_changed_only_by_name(held):
    (found,) = all_findings(snapshot(held), GRACE)
    assert (found.kind, found.why) == (FindingKind.ALLOCATION_ELSEWHERE, "it is on one, but has allocations on two")
    assert (found.action, found.is_safe, found.holding) == (Repair.SET_HOLDING, False, {"h1": WHOLE})


@pytest.mark.parametrize(
    ("held", "why"),
    [
        ({"VCPU": 1, "MEMORY_MB": 512}, "it holds 1 VCPU instead of 2"),
        ({"MEMORY_MB": 512}, "it holds 0 VCPU instead of 2"),
        ({**WHOLE, "DISK_GB": 1}, "it holds 1 DISK_GB instead of 0"),
        ({**WHOLE, "CUSTOM_PORT": 1}, None),  # of something that is not the flavor's
        ({"PCPU": 2, "MEMORY_MB": 512}, None),  # of its image
    ],
)
def test_other_amounts_than_the_flavors(held, why):
    found = all_findings(replace(snapshot({"h1": held})), GRACE)
    assert [(one.kind, one.why) for one in found if one.kind is not FindingKind.MISSING_INVENTORY] == (
        [(FindingKind.WRONG_AMOUNTS, why)] if why else []
    )


def test_a_server_on_no_host_that_holds_something_and_one_on_a_host_that_is_not():
    nowhere = replace(COMPUTE, states={"s": replace(SERVER, node=None)})
    (found,) = all_findings(snapshot({"h2": WHOLE}, nowhere), GRACE)
    assert (found.kind, found.holding, found.is_safe) == (FindingKind.ALLOCATION_ELSEWHERE, {}, False)
    gone = replace(COMPUTE, states={"s": replace(SERVER, node="three")})
    (found,) = all_findings(snapshot({"h1": WHOLE}, gone), GRACE)
    assert (found.kind, found.where, found.action) == (FindingKind.SERVER_WITHOUT_HOST, "three", None)


def test_what_an_evacuation_left_on_a_host_that_is_away_is_right():
    away = replace(COMPUTE, evacuated={"s": frozenset({"two"})})
    assert all_findings(snapshot({"h1": WHOLE, "h2": WHOLE}, away), GRACE) == []
    (found,) = all_findings(snapshot({"h2": WHOLE}, away), GRACE)
    assert found.kind is FindingKind.SERVER_WITHOUT_ALLOCATION


def test_servers_and_holdings_that_just_changed_are_not_judged():
    moved = replace(COMPUTE, states={"s": replace(SERVER, updated_at=NOW - GRACE / 2)})
    assert all_findings(snapshot({"h2": WHOLE}, moved), GRACE) == []
    written = snapshot({"h2": WHOLE})
    consumer = replace(written.consumers["s"], written_at=NOW - GRACE / 2)
    assert all_findings(replace(written, consumers={"s": consumer}), GRACE) == []


def test_what_it_holds_when_looked_at_again_counts():
    """A move was in progress when providers were read, and has ended since."""
    read = snapshot({"h2": WHOLE})
    assert doubtful_servers(read, GRACE) == {"s"}
    now = replace(read.consumers["s"], allocations={"h1": WHOLE})
    assert all_findings(replace(read, consumers={"s": now}), GRACE) == []


@pytest.mark.parametrize(
    "because", ["has an accelerator", "is not plain", "holds what the flavor does not name", "offered by two", "none"]
)
def test_what_belongs_in_several_places_is_for_people(because):
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


# --- what is read of a server -----------------------------------------------------------------------------------


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
def test_servers_that_something_is_done_to_are_not_judged(found):
    assert audited_server(found) is None


def test_what_is_off_does_not_run():
    assert [audited_server(state(status=one)).runs for one in ("ACTIVE", "PAUSED", "SHUTOFF", "SHELVED")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_what_a_flavor_says_is_summed_over_its_groups():
    assert audited_server(state()) == AuditedServer(
        "one", NOW, {"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 10}, is_plain=True, runs=True
    )
    in_parts = audited_server(with_specs(**{"resources:VCPU": "0", "resources1:VCPU": "2", "resources:CUSTOM_A": "3"}))
    assert in_parts.wanted == {"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 10, "CUSTOM_A": 3}
    assert not in_parts.is_plain


def test_a_disk_that_may_be_a_volume_and_a_flavor_that_cannot_be_read_are_not_judged():
    assert audited_server(state(has_image=False)) == AuditedServer(
        "one", NOW, {"VCPU": 2, "MEMORY_MB": 512}, is_plain=False, runs=True
    )
    odd = audited_server(with_specs(**{"hw:cpu_policy": "nonsense"}))
    assert (odd.wanted, odd.is_plain) == (None, False)
    assert not audited_server(with_specs(**{"accel:device_profile": "fpga"})).is_plain
