"""Audit findings about unused classes and traits, in examples; tests/system/audit/test_unused.py uses a real plane."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moorage.audit.model import (
    AuditedAccelerators,
    AuditedNames,
    AuditedProvider,
    AuditSnapshot,
    Compute,
    FindingKind,
    Repair,
    Reservations,
)
from moorage.audit.rules.findings import all_findings
from moorage.core.inventories import Inventory
from moorage.core.names import reservation_class

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
ONE = "4d17d41a-830d-47b2-91c7-4f9fc0ae611e"
CLASS, FPGA, TRAIT = reservation_class(ONE), "CUSTOM_ACCELERATOR_FPGA", "CUSTOM_FPGA_INTEL_FUNCTION_1"
NOTHING = AuditSnapshot(
    NOW,
    {"h": AuditedProvider("h", "host", None, "h", {"VCPU": Inventory(1)})},
    {},
    Compute(frozenset(), frozenset(), frozenset({"h"})),
    AuditedAccelerators(frozenset(), frozenset()),
    Reservations(frozenset(), frozenset(), frozenset()),
    AuditedNames(frozenset({"VCPU", "CUSTOM_MINE", CLASS, FPGA}), frozenset({"CUSTOM_OWN", TRAIT}), frozenset()),
)


def unused(snapshot: AuditSnapshot) -> list[tuple[FindingKind, str]]:
    found = [
        one
        for one in all_findings(snapshot, timedelta(0))
        if one.kind in (FindingKind.UNUSED_CLASS, FindingKind.UNUSED_TRAIT)
    ]
    assert all(one.is_safe for one in found)
    assert {one.action for one in found} <= {Repair.DELETE_CLASS, Repair.DELETE_TRAIT}
    return [(one.kind, one.subject) for one in found]


def test_only_classes_and_traits_that_moorage_creates_are_unused():
    assert unused(NOTHING) == [
        (FindingKind.UNUSED_CLASS, FPGA),
        (FindingKind.UNUSED_CLASS, CLASS),
        (FindingKind.UNUSED_TRAIT, TRAIT),
    ]


def test_a_class_or_trait_that_a_flavor_or_profile_requests_is_not_unused():
    assert unused(replace(NOTHING, names=replace(NOTHING.names, asked_for=frozenset({CLASS, FPGA, TRAIT})))) == []


@pytest.mark.parametrize("because", ["offered", "held", "reserved"])
def test_a_class_with_inventory_allocations_or_a_reservation_is_not_unused(because):
    host, use = NOTHING.providers["h"], {CLASS: Inventory(1)}
    changed = {
        "offered": {"providers": {"h": replace(host, inventories=use)}},
        "held": {"providers": {"h": replace(host, held={"s": {CLASS: 1}})}},
        "reserved": {"reservations": replace(NOTHING.reservations, reservations=frozenset({ONE}))},
    }[because]
    assert (FindingKind.UNUSED_CLASS, CLASS) not in unused(replace(NOTHING, **changed))


@pytest.mark.parametrize("service", ["compute", "accelerators", "reservations", "names"])
def test_if_a_service_was_not_read_nothing_counts_as_unused(service):
    assert unused(replace(NOTHING, **{service: None})) == []
