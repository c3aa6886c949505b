from datetime import UTC, datetime

import pytest

from moorage.reservation.calendar import Calendar, HostCapacity, Usage

DAYS = [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 8)]
ONE = {"VCPU": 1}


def calendar(*usages: Usage, cores: int = 8) -> Calendar:
    return Calendar([HostCapacity(1, {"VCPU": cores, "MEMORY_MB": 1024})], usages)


def test_a_period_does_not_hold_its_end():
    """A16 (instance-reservation): half-open periods; back to back on a full host is possible (D5: the peer refuses)."""
    full = calendar(Usage(1, DAYS[0], DAYS[1], {"VCPU": 8}))
    assert full.slots(ONE, DAYS[1], DAYS[2]).tolist() == [8]
    assert full.slots(ONE, DAYS[0], DAYS[1]).tolist() == [0]


def test_neighbours_that_meet_inside_the_window_do_not_add_up():
    """D5: the peer answers 2 or 3 here, depending on the order of the rows."""
    two = calendar(Usage(1, DAYS[0], DAYS[1], {"VCPU": 2}), Usage(1, DAYS[1], DAYS[2], {"VCPU": 5}))
    assert two.slots(ONE, DAYS[0], DAYS[2]).tolist() == [3]


def test_usage_outside_the_window_does_not_count():
    busy = calendar(Usage(1, DAYS[0], DAYS[1], {"VCPU": 8}), Usage(1, DAYS[4], DAYS[5], {"VCPU": 8}))
    assert busy.slots(ONE, DAYS[2], DAYS[3]).tolist() == [8]


def test_the_scarcest_resource_decides():
    assert calendar().slots({"VCPU": 1, "MEMORY_MB": 512}, DAYS[0], DAYS[1]).tolist() == [2]


def test_a_resource_that_no_host_has_fits_nowhere():
    assert calendar().slots({"VGPU": 1}, DAYS[0], DAYS[1]).tolist() == [0]


def test_an_instance_larger_than_max_unit_fits_nowhere():
    host = HostCapacity(1, {"VCPU": 64}, {"VCPU": 16})
    assert Calendar([host], []).slots({"VCPU": 32}, DAYS[0], DAYS[1]).tolist() == [0]
    assert Calendar([host], []).slots({"VCPU": 16}, DAYS[0], DAYS[1]).tolist() == [4]


def test_an_overcommitted_host_has_no_slots_rather_than_negative_ones():
    shrunk = calendar(Usage(1, DAYS[0], DAYS[1], {"VCPU": 8}), cores=4)
    assert shrunk.slots(ONE, DAYS[0], DAYS[1]).tolist() == [0]


def test_a_request_for_nothing_has_no_answer():
    with pytest.raises(ValueError, match="nothing"):
        calendar().slots({"VCPU": 0}, DAYS[0], DAYS[1])


def test_usage_of_a_class_that_was_not_there_before_is_taken_in():
    changed = calendar().with_usage([Usage(1, DAYS[0], DAYS[1], {"VCPU": 3, "VGPU": 1})])
    assert changed.slots(ONE, DAYS[0], DAYS[1]).tolist() == [5]
    assert changed.slots({"VGPU": 1}, DAYS[0], DAYS[1]).tolist() == [0]


def test_seconds_are_rounded_so_that_a_period_never_looks_shorter():
    late = DAYS[1].replace(microsecond=1)
    assert calendar(Usage(1, DAYS[0], late, {"VCPU": 8})).slots(ONE, DAYS[1], DAYS[2]).tolist() == [0]


def test_there_may_be_no_host_at_all():
    assert Calendar([], []).slots(ONE, DAYS[0], DAYS[1]).tolist() == []
