"""The period of the calendar: what the address asks for, its columns and the labels of its axis."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.errors import Invalid
from moorage.dashboard.views.calendar_period import LENGTHS, MAX_DAYS, around_now, parse_period, ticks

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def period(start=None, end=None, days=None):
    return parse_period(start, end, days, NOW)


@pytest.mark.parametrize("start", [None, "", "soon", "2026-13-01", "2026-03-01T00:00+01:00"])
@pytest.mark.parametrize(
    ("days", "begins"),
    [("1", "2026-03-01 07:00"), ("7", "2026-03-01 00:00"), ("30", "2026-02-26 00:00"), ("90", "2026-02-18 00:00")],
)
def test_without_a_valid_start_the_period_begins_shortly_before_now(start, days, begins):
    shown = period(start, days=days)
    assert f"{shown.start:%Y-%m-%d %H:%M}" == begins
    assert shown.end - shown.start == timedelta(days=int(days))


@pytest.mark.parametrize("days", [None, "", "8", "-1", "x", "\N{SUPERSCRIPT TWO}"])
def test_without_a_valid_length_the_period_is_a_week(days):
    assert (period(days=days).days, period(days=days).end - period(days=days).start) == (7, 7 * DAY)


def test_dates_far_from_now_are_limited():
    for text in ("9999-12-31", "0001-01-01"):
        assert abs(period(text, days="90").moved(1).end - NOW) < timedelta(days=4000)


@pytest.mark.parametrize("days", LENGTHS)
def test_the_columns_fill_the_period_and_the_labels_cover_the_columns(days):
    shown = period("2026-03-02", days=str(days))
    steps = shown.steps()
    assert 24 <= len(steps) <= 31
    assert steps[-1] + shown.step == shown.end
    assert sum(tick.columns for tick in ticks(shown)) == len(steps)


@pytest.mark.parametrize(
    ("start", "end", "columns", "step"),
    [
        ("2026-03-01T08:00", "2026-03-01T09:00", 4, HOUR / 4),
        ("2026-03-01T08:10", "2026-03-01T20:05", 25, HOUR / 2),
        ("2026-03-01T17:30", "2026-03-03T12:00", 22, 2 * HOUR),
        ("2026-03-01", "2026-03-11", 20, 12 * HOUR),
        ("2026-03-01T13:00", "2027-03-02", 31, 12 * DAY),
        ("2026-03-01T00:10", "2026-03-01T07:55", 16, HOUR / 2),
    ],
)
def test_any_period_is_shown_in_whole_columns_that_contain_it(start, end, columns, step):
    shown = period(start, end)
    assert (len(shown.steps()), shown.step, shown.days) == (columns, step, 0)
    asked = [datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (start, end)]
    assert shown.start <= asked[0] < shown.start + shown.step
    assert shown.end - shown.step < asked[1] <= shown.end
    assert shown.steps()[0] == shown.start
    assert sum(tick.columns for tick in ticks(shown)) == columns


@pytest.mark.parametrize(
    ("start", "end", "says"),
    [
        ("2026-03-02", "2026-03-01", "To: must be after From"),
        ("2026-03-02", "2026-03-02", "To: must be after From"),
        ("2026-03-02", "2027-03-10", f"by less than {MAX_DAYS} days"),
        ("soon", "2026-03-04", "From: soon is not a date and time"),
        ("2050-01-01", "2050-01-08", "From: must be within 3,650 days"),
        (None, "2025-01-01", "To: must be after From"),
        (None, "9999-12-31", f"by less than {MAX_DAYS} days|within 3,650 days"),
        ("2026-03-02", "tomorrow", "To: tomorrow is not a date and time"),
    ],
)
def test_an_end_that_is_wrong_is_refused(start, end, says):
    with pytest.raises(Invalid, match=says):
        period(start, end)


@given(st.integers(-5_000_000, 5_000_000), st.integers(1, (MAX_DAYS - 1) * 1440), st.sampled_from(["", *LENGTHS]))
def test_the_address_of_a_period_leads_to_it_again_and_the_next_one_follows(start, length, days):
    """`start`: minutes from now, `length`: minutes."""
    begin = NOW + timedelta(minutes=start)
    texts = [f"{moment:%Y-%m-%dT%H:%M}" for moment in (begin, begin + timedelta(minutes=length))]
    shown = period(texts[0], days=str(days)) if days else period(*texts)
    assert period(**shown.address) == shown
    assert shown.moved(1).start == shown.end
    assert period(**shown.moved(1).address) == shown.moved(1)
    assert len(shown.steps()) <= 31
    assert days or shown.start <= begin < begin + timedelta(minutes=length) <= shown.end


def test_now_leads_a_period_back_without_changing_its_length():
    shown = period("2026-05-01T08:00", "2026-05-01T16:00")
    back = around_now(shown, NOW)
    assert (back.start, back.end - back.start) == (NOW.replace(hour=9, minute=0), 8 * HOUR)


def test_a_label_without_room_is_left_out_and_phones_show_at_most_seven():
    shown = period("2026-03-01T18:00", days="7")
    texts = [tick.text for tick in ticks(shown)]
    assert texts == ["", "Mon 2", "Tue 3", "Wed 4", "Thu 5", "Fri 6", "Sat 7", "Sun 8"]
    for days in LENGTHS:
        assert sum(not tick.is_minor for tick in ticks(period("2026-03-02", days=str(days)))) <= 7
    assert [tick.text for tick in ticks(period("2026-03-01T22:00", days="1"))][:3] == ["22:00", "Mon 2", "02:00"]
    month = [tick.text for tick in ticks(period("2026-02-26", days="30"))]
    assert month == ["26 Feb", "2 Mar", "9 Mar", "16 Mar", "23 Mar"], "weeks begin on Monday"
