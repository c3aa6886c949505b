"""Hours of servers in a period."""

from datetime import UTC, datetime, timedelta

import pytest

from moorage.compute.model.quota import DEFAULT_PERIOD, usage_period
from moorage.core.errors import Invalid

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_without_a_period_it_is_the_last_four_weeks():
    assert usage_period(None, None, NOW) == (NOW - DEFAULT_PERIOD, NOW)


def test_what_is_to_come_is_not_used_yet():
    assert usage_period(NOW - HOUR, NOW + HOUR, NOW) == (NOW - HOUR, NOW)


def test_a_period_without_time_in_it_is_refused():
    with pytest.raises(Invalid, match="The start time cannot occur after the end time"):
        usage_period(NOW, NOW, NOW)
