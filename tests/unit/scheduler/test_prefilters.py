"""Conditions of a query that follow from aggregates, as in Nova's request filters."""

import pytest

from moorage.scheduler.flavor_resources import FlavorFields, request_for, required_platform, scheduling_properties
from moorage.scheduler.prefilters import AggregateRules, AggregateView, NoOpenAggregate, aggregate_conditions

EAST = AggregateView("e", {"availability_zone": "east"})
WEST = AggregateView("w", {"availability_zone": "west"})
RED = AggregateView("r", {"filter_tenant_id": "red", "filter_tenant_id2": "pink"})
FAST = AggregateView("f", {"trait:CUSTOM_FAST": "required", "trait:CUSTOM_OLD": "no"})
ALL = [EAST, WEST, RED, FAST]


def found(zone=None, project="red", specs=None, aggregates=ALL, **rules):
    request = request_for(FlavorFields(1, 64, 1, extra_specs=specs or {}))
    return aggregate_conditions(
        aggregates, AggregateRules(**rules), request, zone=zone, default_zone="nova", project_id=project
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


def test_only_the_scheduling_properties_of_an_image_are_kept():
    needs = scheduling_properties({"trait:CUSTOM_A": "required", "hw_architecture": "arm64", "os_distro": "debian"})
    assert needs == {"trait:CUSTOM_A": "required", "hw_architecture": "arm64"}
    assert required_platform(needs) == ("aarch64", None)
    assert required_platform({"architecture": "x86_64"}) == ("x86_64", None)
    assert required_platform({"img_hv_type": "KVM"}) == (None, "qemu")
    assert required_platform({}) == (None, None)
