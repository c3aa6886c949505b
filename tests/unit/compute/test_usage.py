"""The period of a usage report."""

from datetime import UTC, datetime, timedelta

import pytest

from moorage.compute.model.quota import DEFAULT_PERIOD, usage_period
from moorage.core.errors import Invalid

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_the_default_period_of_a_usage_report_is_the_last_four_weeks():
    assert usage_period(None, None, NOW) == (NOW - DEFAULT_PERIOD, NOW)


def test_the_period_of_a_usage_report_ends_now_at_the_latest():
    assert usage_period(NOW - HOUR, NOW + HOUR, NOW) == (NOW - HOUR, NOW)


def test_an_empty_period_of_a_usage_report_is_refused():
    with pytest.raises(Invalid, match="The start time cannot occur after the end time"):
        usage_period(NOW, NOW, NOW)
