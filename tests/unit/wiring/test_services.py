"""Options of services that depend on whether time is real or virtual."""

from datetime import UTC, datetime, timedelta

import pytest

from moorage.core.clock import AdjustableClock, SystemClock, VirtualClock
from moorage.reservation.events.parallel_requests import REQUESTS_AT_ONCE
from moorage.wiring.services import requests_at_once
from tests.simulation.part import PartClock

WORLD = VirtualClock(datetime(2026, 3, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("clock", "expected"),
    [
        (SystemClock(), REQUESTS_AT_ONCE),
        (AdjustableClock(timedelta(0)), REQUESTS_AT_ONCE),
        (WORLD, 1),
        (PartClock(WORLD), 1),
    ],
)
def test_requests_are_sent_in_parallel_only_in_real_time(clock, expected):
    """The order in which threads end varies, but a seed of the simulation must always give the same events."""
    assert requests_at_once(clock) == expected
