"""The audit's findings, compared with a slow check of each provider and consumer."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from moorage.audit.model import (
    AuditedAccelerators,
    AuditedConsumer,
    AuditedProvider,
    AuditSnapshot,
    Compute,
    FindingKind,
    Repair,
    Reservations,
)
from moorage.audit.rules.findings import all_findings
from moorage.placement.client.placement_client import Inventory

NOW = datetime(2026, 3, 1, tzinfo=UTC)
GRACE = timedelta(minutes=10)
CLASSES = ("VCPU", "CUSTOM_A")
CONSUMERS = ("c0", "c1", "c2", "c3")
PROVIDERS = ("p0", "p1", "p2", "p3")

amounts = st.integers(-1, 6)
inventories = st.builds(
    Inventory, total=amounts, reserved=amounts, min_unit=amounts, max_unit=amounts, step_size=amounts,
    allocation_ratio=st.sampled_from([-1.0, 0.0, 0.5, 1.0, 1.5]),
)  # fmt: skip
ages = st.integers(0, 20).map(lambda minutes: NOW - timedelta(minutes=minutes))


def some(names):
    return st.frozensets(st.sampled_from(names))


@st.composite
def snapshots(draw) -> AuditSnapshot:
    providers = {}
    for uuid in draw(some(PROVIDERS)):
        held = draw(
            st.dictionaries(
                st.sampled_from(CONSUMERS), st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 4), min_size=1)
            )
        )
        providers[uuid] = AuditedProvider(
            uuid,
            draw(st.sampled_from([uuid, f"blazar_{uuid}"])),
            draw(st.none() | st.sampled_from(PROVIDERS)),
            draw(st.sampled_from(PROVIDERS)),
            draw(st.dictionaries(st.sampled_from(CLASSES), inventories)),
            held,
            draw(st.booleans()),
            draw(st.booleans()),
            draw(some(("g0", "g1"))),
        )
    consumers = {}
    for uuid in draw(some(CONSUMERS)):
        allocations = {one.uuid: one.held[uuid] for one in providers.values() if uuid in one.held}
        kind = draw(st.sampled_from(["INSTANCE", "MIGRATION", "unknown", "OTHER"]))
        consumers[uuid] = AuditedConsumer(uuid, 1, "p", "u", kind, allocations, draw(ages))
    return AuditSnapshot(
        NOW,
        providers,
        consumers,
        draw(st.none() | st.builds(Compute, some(CONSUMERS), some(CONSUMERS), some(PROVIDERS))),
        draw(st.none() | st.builds(AuditedAccelerators, some(PROVIDERS), some(CONSUMERS))),
        draw(st.none() | st.builds(Reservations, some(CONSUMERS), some(CONSUMERS), some(PROVIDERS))),
    )


def used(provider: AuditedProvider, name: str) -> int:
    return sum(resources.get(name, 0) for resources in provider.held.values())


@given(snapshots())
def test_inventory_and_capacity_findings_equal_a_slow_calculation(snapshot):
    found = {(one.kind, one.subject, one.resource_class) for one in all_findings(snapshot, GRACE)}
    for provider in snapshot.providers.values():
        for name in CLASSES:
            inventory = provider.inventories.get(name)
            is_missing = inventory is None and used(provider, name) > 0
            assert ((FindingKind.MISSING_INVENTORY, provider.uuid, name) in found) == is_missing
            if inventory is None:
                continue
            is_possible = (
                inventory.total >= 1
                and 0 <= inventory.reserved <= inventory.total
                and 1 <= inventory.min_unit <= inventory.max_unit
                and inventory.step_size >= 1
                and inventory.allocation_ratio > 0
            )
            assert ((FindingKind.IMPOSSIBLE_INVENTORY, provider.uuid, name) in found) == (not is_possible)
            capacity = (inventory.total - inventory.reserved) * Fraction(inventory.allocation_ratio)
            is_over = is_possible and used(provider, name) > capacity
            assert ((FindingKind.OVER_CAPACITY, provider.uuid, name) in found) == is_over


@given(snapshots())
def test_a_consumer_is_released_only_if_no_service_knows_it(snapshot):
    for finding in all_findings(snapshot, GRACE):
        if finding.kind is not FindingKind.UNKNOWN_CONSUMER:
            continue
        uuid = finding.subject
        assert any(uuid in provider.held for provider in snapshot.providers.values())
        assert uuid not in snapshot.compute.servers | snapshot.compute.migrations
        if snapshot.reservations is not None:
            assert uuid not in snapshot.reservations.leases | snapshot.reservations.reservations
        assert NOW - snapshot.consumers[uuid].written_at >= GRACE
        if finding.is_safe:
            assert finding.action is Repair.RELEASE
            assert snapshot.consumers[uuid].type == "INSTANCE"
            assert snapshot.accelerators is None or uuid not in snapshot.accelerators.instances


@given(snapshots())
def test_every_old_consumer_that_no_service_knows_is_found(snapshot):
    found = {one.subject for one in all_findings(snapshot, GRACE) if one.kind is FindingKind.UNKNOWN_CONSUMER}
    for uuid, consumer in snapshot.consumers.items():
        is_known = (
            snapshot.compute is None
            or uuid in snapshot.compute.servers
            or uuid in snapshot.compute.migrations
            or (snapshot.reservations is not None and uuid in snapshot.reservations.leases)
            or (snapshot.reservations is not None and uuid in snapshot.reservations.reservations)
        )
        is_old = NOW - consumer.written_at >= GRACE
        assert (uuid in found) == (not is_known and is_old and bool(consumer.allocations))


@given(snapshots())
def test_no_repair_deletes_a_provider_or_an_inventory_in_use(snapshot):
    for finding in all_findings(snapshot, GRACE):
        if finding.action is Repair.DELETE_PROVIDER:
            assert not finding.is_safe
            assert not snapshot.providers[finding.subject].held
            assert all(one.parent_uuid != finding.subject for one in snapshot.providers.values())
        if finding.action is Repair.DROP_INVENTORY:
            assert used(snapshot.providers[finding.subject], finding.resource_class) == 0


@given(snapshots())
def test_findings_do_not_depend_on_the_order_of_providers_and_consumers(snapshot):
    turned = AuditSnapshot(
        snapshot.now,
        dict(reversed(snapshot.providers.items())),
        dict(reversed(snapshot.consumers.items())),
        snapshot.compute,
        snapshot.accelerators,
        snapshot.reservations,
    )
    assert all_findings(turned, GRACE) == all_findings(snapshot, GRACE)
