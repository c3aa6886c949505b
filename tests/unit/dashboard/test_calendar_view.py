"""The view of the calendar: the positions and colours of its bars, and the numbers in its cells."""

from datetime import UTC, datetime, timedelta

import pytest

from moorage.dashboard.views import calendar_view as view
from moorage.dashboard.views.calendar_period import parse_period

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
WEEK = parse_period("2026-03-02", None, "7", NOW)


def wire(moment):
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}"


def calendar(*busy, **capacity):
    rows = [{"start_date": wire(start), "end_date": wire(end), "used": used} for start, end, used in busy]
    return {"capacity": capacity or {"VCPU": 8}, "busy": rows}


def at(days, hours=0):
    return WEEK.start + timedelta(days=days, hours=hours)


def period(start, end, name="a"):
    return view.LeasePeriod(name, name, "PENDING", start, end)


def row(*periods, maker=None):
    return (maker or view.TrackMaker(WEEK)).track("row", "", periods)


def test_cells_show_the_usage_and_look_full_or_empty_only_if_they_are():
    ((_, (row,)),), more = view.heat_rows(
        calendar((at(0), at(1), {"VCPU": 1}), (at(1), at(2), {"VCPU": 8}), (at(2), at(7), {})), WEEK
    )
    assert more == 0
    assert [cell.used for cell in row.cells] == [1] * 4 + [8] * 4 + [0] * 20
    assert {cell.level for cell in row.cells[4:8]} == {5}
    assert {cell.level for cell in row.cells[8:]} == {0}
    ((_, (row,)),), _ = view.heat_rows(calendar((at(0), at(7), {"VCPU": 9_999}), VCPU=10_000), WEEK)
    assert (row.cells[0].percent, row.cells[0].level) == (99, 4)
    ((_, (row,)),), _ = view.heat_rows(calendar((at(0), at(7), {"VCPU": 1}), VCPU=10_000), WEEK)
    assert (row.cells[0].percent, row.cells[0].level) == (1, 1)


def test_resource_classes_are_grouped_by_kind_and_limited_in_number():
    capacity = {"CUSTOM_GOLD": 1, "HOSTS": 1, "VCPU": 1, "CUSTOM_ACCELERATOR_FPGA": 1, "MEMORY_MB": 1, "PGPU": 1}
    groups, _ = view.heat_rows(calendar(**capacity), WEEK)
    assert [(kind, [row.name for row in rows]) for kind, rows in groups] == [
        ("Hosts", ["HOSTS"]),
        ("Processors, memory, disk", ["VCPU", "MEMORY_MB"]),
        ("Accelerators", ["CUSTOM_ACCELERATOR_FPGA", "PGPU"]),
        ("Custom classes", ["CUSTOM_GOLD"]),
    ]
    groups, more = view.heat_rows(calendar(**{f"CUSTOM_{number}": 1 for number in range(100)}), WEEK)
    assert (sum(len(rows) for _, rows in groups), more) == (view.MAX_CLASSES, 60)


def test_bars_are_placed_by_their_period_and_do_not_overlap():
    made = row(
        period(at(-2), at(1)),
        period(at(1), at(2)),
        period(at(0, 12), at(3)),
        period(at(6), at(9)),
        period(at(8), at(9)),
    )
    assert (made.left_out, made.lanes) == (0, 2)
    assert [(bar.x, bar.lane) for bar in made.bars] == [(0.0, 0), (7.143, 1), (14.286, 0), (85.714, 0)]
    assert made.bars[-1].x + made.bars[-1].width == pytest.approx(100)


def test_bars_beyond_the_maximum_number_of_lanes_are_left_out_and_counted():
    many = [period(at(0), at(1)) for _ in range(20)]
    assert (len(row(*many).bars), row(*many).left_out) == (view.MAX_LANES, 15)
    assert row(*many, maker=view.TrackMaker(WEEK, view.ALL_LANES)).left_out == 0


def test_neighbours_differ_in_colour_and_a_lease_has_one_colour_in_all_rows():
    maker = view.TrackMaker(WEEK)
    first = row(*(period(at(day), at(day + 1), f"lease {day}") for day in range(view.HUES)), maker=maker)
    assert sorted(bar.hue for bar in first.bars) == list(range(view.HUES))
    second = row(period(at(0), at(1), "lease 3"), period(at(1), at(2), "new"), maker=maker)
    assert second.bars[0].hue == first.bars[3].hue
    assert second.bars[1].hue != second.bars[0].hue


def test_the_slots_of_a_reservation_on_a_host_are_shown_as_one_bar():
    slot = {"id": "r", "lease_id": "1", "lease_name": "thesis", "lease_status": "ACTIVE", "project_id": "p",
            "start_date": wire(at(1)), "end_date": wire(at(2))}  # fmt: skip
    host = {"id": "1", "hypervisor_hostname": "compute-1", "vcpus": 8, "reservable": False}
    allocations = [{"resource_id": "1", "reservations": [slot] * 3}]
    (track,) = view.of_hosts([host], allocations, {"p": "physics"}.__getitem__, view.TrackMaker(WEEK))
    assert (track.name, track.note) == ("compute-1", "8 VCPU, not reservable")
    (bar,) = track.bars
    assert bar.period == view.LeasePeriod("1", "thesis", "ACTIVE", at(1), at(2), "physics", "3 slots")
