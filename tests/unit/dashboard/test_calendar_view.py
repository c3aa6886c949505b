"""The view of the calendar: the positions of its bars, and the numbers in its cells."""

from datetime import UTC, datetime, timedelta

import pytest

from moorage.dashboard.views import calendar_view as view

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
WEEK = view.parse_window("2026-03-02", "7", NOW)


def wire(moment):
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}"


def calendar(*busy, **capacity):
    rows = [{"start_date": wire(start), "end_date": wire(end), "used": used} for start, end, used in busy]
    return {"capacity": capacity or {"VCPU": 8}, "busy": rows}


def at(days, hours=0):
    return WEEK.start + timedelta(days=days, hours=hours)


def period(start, end, name="a"):
    return view.CalendarPeriod(name, name, "PENDING", start, end)


@pytest.mark.parametrize("start", [None, "", "soon", "2026-13-01", "9999-99-99"])
def test_without_a_valid_date_the_window_begins_today(start):
    assert view.parse_window(start, "7", NOW).start == NOW.replace(hour=0, minute=0)


@pytest.mark.parametrize("days", [None, "", "8", "-1", "x", "\N{SUPERSCRIPT TWO}"])
def test_without_a_valid_length_the_window_is_a_week(days):
    assert view.parse_window(None, days, NOW).days == 7


def test_dates_far_from_now_are_limited():
    for text in ("9999-12-31", "0001-01-01"):
        shown = view.parse_window(text, "90", NOW)
        assert abs(shown.moved(1).end - NOW) < timedelta(days=4000)


@pytest.mark.parametrize("days", view.SPANS)
def test_the_steps_of_a_window_fill_it_completely(days):
    shown = view.parse_window("2026-03-02", str(days), NOW)
    steps = shown.steps()
    assert 24 <= len(steps) <= 31
    assert steps[-1] + shown.step == shown.end
    assert sum(tick.columns for tick in view.ticks(shown)) == len(steps)


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
    found, left_out = view.bars(
        [
            period(at(-2), at(1)),
            period(at(1), at(2)),
            period(at(0, 12), at(3)),
            period(at(6), at(9)),
            period(at(8), at(9)),
        ],
        WEEK,
    )
    assert left_out == 0
    assert [(bar.x, bar.lane) for bar in found] == [(0.0, 0), (7.143, 1), (14.286, 0), (85.714, 0)]
    assert found[-1].x + found[-1].width == pytest.approx(100)


def test_bars_beyond_the_maximum_number_of_lanes_are_left_out_and_counted():
    found, left_out = view.bars([period(at(0), at(1)) for _ in range(20)], WEEK)
    assert (len(found), left_out) == (view.MAX_LANES, 15)


def test_the_slots_of_a_reservation_on_a_host_are_shown_as_one_bar():
    slot = {"id": "r", "lease_id": "0123456789", "start_date": wire(at(1)), "end_date": wire(at(2))}
    host = {"id": "1", "hypervisor_hostname": "compute-1", "vcpus": 8, "reservable": False}
    (track,) = view.of_hosts([host], [{"resource_id": "1", "reservations": [slot] * 3}], WEEK)
    assert (track.name, track.note) == ("compute-1", "8 VCPU, not reservable")
    assert [bar.period.name for bar in track.bars] == ["lease 01234567, 3 slots"]
