"""Texts from outside are parsed to numbers and times, or are a `ValueError`."""

from datetime import UTC, datetime, timedelta

import pytest

from moorage.core.parsing import EARLIEST, LATEST, parse_time, parse_whole_number


@pytest.mark.parametrize("text", ["", "-1", "+1", " 1", "1.0", "\u0662", "\u00b2", "9" * 5000])
def test_a_text_that_is_no_whole_number_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"digits"):
        parse_whole_number(text)


def test_a_whole_number_may_exceed_64_bits():
    assert parse_whole_number("0" * 9 + str(2**64)) == 2**64


@pytest.mark.parametrize(
    "text", ["", "soon", "2026-02-30", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "9" * 5000]
)
def test_a_time_that_does_not_exist_in_utc_is_a_value_error(text):
    with pytest.raises(ValueError, match=r".+"):
        parse_time(text)


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31T23:59:59.999999Z"])
def test_the_earliest_and_latest_times_allow_calculations(text):
    found = parse_time(text)
    assert found in (EARLIEST, LATEST)
    assert found - timedelta(weeks=50) < found < found + timedelta(weeks=50)


def test_a_time_of_another_zone_is_converted_to_utc():
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert parse_time("2026-03-01T14:00:00+02:00") == parse_time("2026-03-01T14:00:00 02:00") == noon
    assert parse_time("2026-03-01 12:00") == noon
    with pytest.raises(ValueError, match="no time zone"):
        parse_time("2026-03-01 12:00", zone=None)
