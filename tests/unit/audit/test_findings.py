"""Audit findings, in small examples; tests/system/audit uses a real plane."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moorage.audit.model import (
    INCOMPLETE,
    AuditedAccelerators,
    AuditedConsumer,
    AuditedProvider,
    AuditSnapshot,
    Compute,
    FindingKind,
    Owner,
    Repair,
    Reservations,
    root_by_provider,
)
from moorage.audit.rules.findings import all_findings, capacity, suspect_consumers, too_young_consumers
from moorage.placement.client.placement_client import Inventory

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
GRACE = timedelta(minutes=10)
LEASED = "4d17d41a-830d-47b2-91c7-4f9fc0ae611e"
CLASS = "CUSTOM_RESERVATION_4D17D41A_830D_47B2_91C7_4F9FC0AE611E"


def provider(uuid: str, parent: str | None = None, root: str | None = None, **more: object) -> AuditedProvider:
    return AuditedProvider(uuid, f"{uuid}-name", parent, root or uuid, **more)


def consumer(uuid: str, **more: object) -> AuditedConsumer:
    made = AuditedConsumer(uuid, 1, "alpha", "ann", "INSTANCE", {"h": {"VCPU": 1}}, NOW - timedelta(days=1))
    return replace(made, **more)


def snapshot(
    *providers: AuditedProvider, consumers: tuple[AuditedConsumer, ...] = (), **services: object
) -> AuditSnapshot:
    given = {
        "compute": Compute(frozenset({"s"}), frozenset({"m"}), frozenset({"h"})),
        "accelerators": AuditedAccelerators(frozenset({"d"}), frozenset()),
        "reservations": Reservations(frozenset({"l"}), frozenset({LEASED}), frozenset({"h-name"})),
    } | services
    return AuditSnapshot(NOW, {one.uuid: one for one in providers}, {one.uuid: one for one in consumers}, **given)


def host(**more: object) -> AuditedProvider:
    return provider("h", inventories={"VCPU": Inventory(8)}, **more)


def kinds(found) -> list[tuple[FindingKind, str]]:
    return [(one.kind, one.subject) for one in found]


def test_a_consistent_plane_has_no_findings():
    whole = snapshot(
        host(held={"s": {"VCPU": 2}, "m": {"VCPU": 1}, "l": {"VCPU": 1}}),
        provider("d", "h", "h", is_device=True),
        AuditedProvider("b", "blazar_h-name", "h", "h", {CLASS: Inventory(3)}),
        provider("disk", is_sharing=True, aggregates=frozenset({"g"})),
    )
    root = replace(whole.providers["h"], aggregates=frozenset({"g"}))
    assert all_findings(replace(whole, providers={**whole.providers, "h": root}), GRACE) == []


@pytest.mark.parametrize(
    ("type_", "is_safe"), [("INSTANCE", True), ("unknown", False), ("MIGRATION", False), ("CONTAINER", False)]
)
def test_only_unknown_consumers_of_type_instance_are_safe_to_release(type_, is_safe):
    (found,) = all_findings(snapshot(host(held={"x": {"VCPU": 1}}), consumers=(consumer("x", type=type_),)), GRACE)
    assert (found.kind, found.subject, found.action, found.is_safe) == (
        FindingKind.UNKNOWN_CONSUMER, "x", Repair.RELEASE, is_safe
    )  # fmt: skip
    assert found.where == "h-name"


def test_a_consumer_with_an_accelerator_is_never_released():
    attached = AuditedAccelerators(frozenset(), frozenset({"x"}))
    whole = snapshot(host(held={"x": {"VCPU": 1}}), consumers=(consumer("x"),), accelerators=attached)
    (found,) = all_findings(whole, GRACE)
    assert (found.action, found.is_safe) == (None, False)


def test_a_consumer_younger_than_the_grace_period_is_not_found():
    young = consumer("x", written_at=NOW - GRACE + timedelta(seconds=1))
    whole = snapshot(host(held={"x": {"VCPU": 1}}), consumers=(young,))
    assert all_findings(whole, GRACE) == []
    assert too_young_consumers(whole, GRACE) == {"x"}
    old = consumer("x", written_at=NOW - GRACE)
    assert kinds(all_findings(replace(whole, consumers={"x": old}), GRACE)) == [(FindingKind.UNKNOWN_CONSUMER, "x")]


def test_without_the_compute_service_there_are_no_findings_about_consumers():
    whole = snapshot(host(held={"x": {"VCPU": 1}}), consumers=(consumer("x"),), compute=None)
    assert suspect_consumers(whole) == frozenset()
    assert all_findings(whole, GRACE) == []


def test_an_incomplete_consumer_is_repaired_with_the_owner_from_compute():
    knows = Compute(frozenset({"s"}), frozenset(), frozenset({"h"}), {"s": Owner("alpha", "ann")})
    lost_inventories = consumer("s", project_id=INCOMPLETE)
    (found,) = all_findings(
        snapshot(host(held={"s": {"VCPU": 1}}), consumers=(lost_inventories,), compute=knows), GRACE
    )
    assert (found.kind, found.action, found.is_safe, found.owner) == (
        FindingKind.INCOMPLETE_CONSUMER, Repair.SET_OWNER, True, Owner("alpha", "ann")
    )  # fmt: skip


@pytest.mark.parametrize(
    ("inventory", "used", "kind"),
    [
        (Inventory(8), 8, None),
        (Inventory(8), 9, FindingKind.OVER_CAPACITY),
        (Inventory(8, reserved=8), 0, None),
        (Inventory(8, reserved=8), 1, FindingKind.OVER_CAPACITY),
        (Inventory(8, allocation_ratio=1.5), 12, None),
        (Inventory(7, allocation_ratio=1.5), 11, FindingKind.OVER_CAPACITY),
        (Inventory(8, reserved=9), 0, FindingKind.IMPOSSIBLE_INVENTORY),
        (Inventory(8, min_unit=5, max_unit=4), 0, FindingKind.IMPOSSIBLE_INVENTORY),
        (Inventory(8, step_size=0), 0, FindingKind.IMPOSSIBLE_INVENTORY),
        (Inventory(8, allocation_ratio=-1.0), 0, FindingKind.IMPOSSIBLE_INVENTORY),
        (Inventory(8, reserved=-1), 0, FindingKind.IMPOSSIBLE_INVENTORY),
    ],
)
def test_usage_above_capacity_and_invalid_inventories_are_found(inventory, used, kind):
    whole = snapshot(provider("h", inventories={"VCPU": inventory}, held={"s": {"VCPU": used}} if used else {}))
    found = all_findings(whole, GRACE)
    assert kinds(found) == ([] if kind is None else [(kind, "h")])
    assert all(one.action is None for one in found), "only an operator can correct an inventory"


def test_allocations_of_a_class_without_inventory_are_found():
    (found,) = all_findings(snapshot(host(held={"s": {"CUSTOM_X": 3}})), GRACE)
    assert (found.kind, found.why) == (FindingKind.MISSING_INVENTORY, "3 CUSTOM_X in use by s, but it offers none")


def test_a_root_provider_without_owner_is_found_and_deleted_only_if_it_is_named():
    (found,) = all_findings(snapshot(host(), provider("x", aggregates=frozenset({"g"}))), GRACE)
    assert (found.kind, found.subject, found.action, found.is_safe) == (
        FindingKind.OWNERLESS_PROVIDER, "x", Repair.DELETE_PROVIDER, False
    )  # fmt: skip


def test_a_provider_without_owner_that_is_in_use_cannot_be_deleted():
    (found,) = all_findings(
        snapshot(host(), provider("x", inventories={"A": Inventory(1)}, held={"s": {"A": 1}})), GRACE
    )
    assert (found.kind, found.action) == (FindingKind.OWNERLESS_PROVIDER, None)


def test_a_child_provider_belongs_to_the_owner_of_its_root():
    assert all_findings(snapshot(host(), provider("numa", "h", "h")), GRACE) == []


def test_providers_of_missing_devices_and_of_hosts_that_are_not_reserved_are_found():
    left = provider("gone", "h", "h", is_device=True)
    blazar = AuditedProvider("b", "blazar_old", "h", "h")
    assert kinds(all_findings(snapshot(host(), left, blazar), GRACE)) == [
        (FindingKind.OWNERLESS_PROVIDER, "b"),
        (FindingKind.OWNERLESS_PROVIDER, "gone"),
    ]


@pytest.mark.parametrize(("held", "is_safe"), [({}, True), ({"s": {CLASS: 1}}, False)])
def test_an_inventory_without_a_lease_is_safe_to_remove_unless_it_is_in_use(held, is_safe):
    nobody = Reservations(frozenset(), frozenset(), frozenset({"h-name"}))
    leftover = AuditedProvider("b", "blazar_h-name", "h", "h", {CLASS: Inventory(3)}, held)
    (found,) = all_findings(snapshot(host(), leftover, reservations=nobody), GRACE)
    assert (found.kind, found.is_safe, found.resource_class) == (FindingKind.OWNERLESS_INVENTORY, is_safe, CLASS)


def test_a_root_that_differs_from_the_root_of_the_parents_is_found():
    moved = provider("a", "h", "old")
    found = all_findings(snapshot(host(), moved, provider("b", "a", "h")), GRACE)
    assert kinds(found) == [(FindingKind.WRONG_ROOT, "a")]
    assert found[0].why == "its parents lead to h-name (h), its root is old"


def test_a_loop_of_parents_does_not_hang_the_search_for_roots():
    loop = {one.uuid: one for one in (provider("a", "b"), provider("b", "a"), provider("c", "a"))}
    assert root_by_provider(loop) == {"a": "a", "b": "b", "c": "c"}


def test_the_capacity_of_an_inventory_is_rounded_down():
    assert capacity(Inventory(7, reserved=1, allocation_ratio=1.25)) == 7


# --- missing inventories of running reservations ----------------------------------------------------------------

RUNNING = Reservations(frozenset(), frozenset({LEASED}), frozenset({"h-name"}), {LEASED: {"h-name": 3}})


def lost_inventories(*providers: AuditedProvider):
    return [
        one
        for one in all_findings(snapshot(*providers, reservations=RUNNING), GRACE)
        if one.kind is FindingKind.LOST_INVENTORY
    ]


def test_a_running_reservation_with_its_inventory_gives_no_finding():
    assert lost_inventories(host(), AuditedProvider("b", "blazar_h-name", "h", "h", {CLASS: Inventory(3)})) == []


@pytest.mark.parametrize("left", [(), (AuditedProvider("b", "blazar_h-name", "h", "h", {"VCPU": Inventory(1)}),)])
def test_the_missing_inventory_of_a_running_reservation_is_safe_to_create_again(left):
    (found,) = lost_inventories(host(), *left)
    assert (found.subject, found.where, found.host, found.resource_class) == (LEASED, "blazar_h-name", "h-name", CLASS)
    assert (found.action, found.is_safe, found.advice) == (Repair.MAKE_INVENTORY, True, f"offers 3 {CLASS} there")


def test_a_missing_inventory_whose_host_has_a_wrong_provider_is_found_with_advice():
    (found,) = lost_inventories()
    assert (found.action, found.is_safe) == (None, False)
    assert found.advice.startswith("nothing: h-name has no provider either; start its compute service")
    (found,) = lost_inventories(host(), provider("x"), AuditedProvider("b", "blazar_h-name", "x", "x"))
    assert (found.action, found.is_safe) == (None, False)
    assert found.advice.startswith("nothing: the provider is not below h-name's (h)")
