"""Conditions of a query that follow from aggregates, as in Nova's request filters."""

import pytest

from moorage.scheduler.flavor_resources import FlavorFields, request_for, required_platform, scheduling_properties
from moorage.scheduler.prefilters import (
    AggregateRules,
    AggregateView,
    LegacyReservation,
    NoOpenAggregate,
    aggregate_conditions,
    legacy_reservation,
)

EAST = AggregateView("e", {"availability_zone": "east"})
WEST = AggregateView("w", {"availability_zone": "west"})
RED = AggregateView("r", {"filter_tenant_id": "red", "filter_tenant_id2": "pink"})
FAST = AggregateView("f", {"trait:CUSTOM_FAST": "required", "trait:CUSTOM_OLD": "no"})
ALL = [EAST, WEST, RED, FAST]


def found(zone=None, project="red", specs=None, aggregates=ALL, reservation=None, **rules):
    request = request_for(FlavorFields(1, 64, 1, extra_specs=specs or {}))
    return aggregate_conditions(
        aggregates, AggregateRules(**rules), request, zone=zone, default_zone="nova", project_id=project,
        reservation=reservation,
    )  # fmt: skip


def values(*arguments, **options):
    return list(found(*arguments, **options))


def test_a_requested_zone_becomes_a_condition_on_its_aggregates():
    assert found("east") == {"in:e": "availability zone east"}
    assert values("east", aggregates=[*ALL, AggregateView("e2", {"availability_zone": "east"})]) == ["in:e,e2"]
    assert found("north") == NoOpenAggregate("no host is in availability zone north")


def test_the_default_zone_consists_of_hosts_in_no_other_zone():
    assert values("nova") == ["!in:e,w"]
    assert values("nova", aggregates=[RED]) == []
    assert values("nova", aggregates=[*ALL, AggregateView("n", {"availability_zone": "nova"})]) == ["in:n"]


def test_projects_are_limited_to_their_aggregates_only_if_the_option_is_on():
    assert values() == []
    on = {"limit_tenants_to_placement_aggregate": True}
    assert values(**on) == values(project="pink", **on) == ["in:r"]
    assert values(project="blue", **on) == []
    assert isinstance(found(project="blue", placement_aggregate_required_for_tenants=True, **on), NoOpenAggregate)


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ({}, ["!in:f"]),
        ({"trait:CUSTOM_FAST": "required"}, []),
        ({"root_required": "CUSTOM_FAST"}, []),
        ({"trait:CUSTOM_FAST": "forbidden"}, ["!in:f"]),
    ],
)
def test_an_isolated_aggregate_is_excluded_unless_its_traits_are_required(specs, expected):
    assert values(specs=specs) == []
    assert values(specs=specs, enable_isolated_aggregate_filtering=True) == expected


def test_all_conditions_apply_together():
    every = {"limit_tenants_to_placement_aggregate": True, "enable_isolated_aggregate_filtering": True}
    assert values("east", **every) == ["in:e", "in:r", "!in:f"]


def test_only_older_reservations_are_restricted_to_an_aggregate():
    """R27, R28 (instance-reservation): by the flavor's older key, or by the hint; the flavor's key comes first."""
    key = "aggregate_instance_extra_specs:reservation"
    assert legacy_reservation({"resources:CUSTOM_RESERVATION_A": "1"}, {}) is None
    assert legacy_reservation({key: ""}, {"reservation": ""}) is None
    assert legacy_reservation({}, {"reservation": ["a"]}) is None
    assert legacy_reservation({key: "a"}, {"reservation": "b"}) == LegacyReservation("a", is_hinted=False)
    assert legacy_reservation({}, {"reservation": "b"}) == LegacyReservation("b", is_hinted=True)


def test_an_older_reservation_is_found_by_metadata_and_a_hinted_one_by_name_and_owner():
    """R27, R28 (instance-reservation): the user chooses the hint, so the aggregate must be the project's own."""
    of_flavor = AggregateView("a1", {"reservation": "a"}, name="a")
    of_project = AggregateView("b1", {"blazar:owner": "red", "reservation": "c"}, name="b")
    aggregates = [of_flavor, of_project, AggregateView("pool", {}, name="freepool")]

    def asked(name, *, is_hinted, project="red"):
        reservation = LegacyReservation(name, is_hinted=is_hinted)
        return found(project=project, aggregates=aggregates, reservation=reservation)

    assert asked("a", is_hinted=False) == {"in:a1": "hosts of reservation a"}
    assert asked("b", is_hinted=True) == {"in:b1": "hosts of reservation b"}
    for name, is_hinted, project in (
        ("b", False, "red"), ("a", True, "red"), ("b", True, "blue"), ("c", True, "red"), ("freepool", True, "red"),
    ):  # fmt: skip
        refused = NoOpenAggregate(f"the project has no hosts of reservation {name} now")
        assert asked(name, is_hinted=is_hinted, project=project) == refused


def test_only_the_scheduling_properties_of_an_image_are_kept():
    needs = scheduling_properties({"trait:CUSTOM_A": "required", "hw_architecture": "arm64", "os_distro": "debian"})
    assert needs == {"trait:CUSTOM_A": "required", "hw_architecture": "arm64"}
    assert required_platform(needs) == ("aarch64", None)
    assert required_platform({"architecture": "x86_64"}) == ("x86_64", None)
    assert required_platform({"img_hv_type": "KVM"}) == (None, "qemu")
    assert required_platform({}) == (None, None)


def test_a_request_with_a_zone_needs_the_aggregates_whatever_the_options():
    """R28 (instance-reservation): without a zone and with Nova's defaults, nothing is read."""
    assert AggregateRules().apply_to("az-1")
    assert not AggregateRules().apply_to(None)
