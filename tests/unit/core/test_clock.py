from datetime import UTC, datetime, timedelta

import pytest

from moorage.core.clock import AdjustableClock, SystemClock, VirtualClock

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("clock", [SystemClock(), AdjustableClock(), VirtualClock(NOON)])
def test_the_time_of_every_clock_has_the_zone_utc(clock):
    assert clock.now().tzinfo is UTC


def test_virtual_time_passes_only_by_sleep_and_advance_to():
    clock = VirtualClock(NOON)
    assert clock.now() == clock.now() == NOON
    clock.sleep(0.5)
    assert clock.now() == NOON + timedelta(seconds=0.5)
    clock.advance_to(NOON + timedelta(days=30))
    assert clock.now() == NOON + timedelta(days=30)


def test_virtual_time_does_not_go_back():
    clock = VirtualClock(NOON)
    clock.advance_to(NOON - timedelta(hours=1))
    assert clock.now() == NOON


def test_an_adjustable_clock_runs_on_after_it_was_advanced():
    clock, plain = AdjustableClock(), SystemClock()
    clock.advance(3600)
    clock.advance(60)
    assert timedelta(seconds=3659) < clock.now() - plain.now() < timedelta(seconds=3661)


def test_an_adjustable_clock_calls_its_listeners_after_it_was_advanced():
    clock = AdjustableClock()
    seen = []
    clock.on_advance.append(lambda: seen.append(clock.now()))
    before = clock.now()
    clock.advance(3600)
    assert seen[0] - before >= timedelta(seconds=3600)


def test_an_adjustable_clock_cannot_be_moved_back():
    with pytest.raises(ValueError, match="forwards"):
        AdjustableClock().advance(-1)


def test_an_adjustable_clock_saves_the_new_time_before_anyone_sees_it():
    """A process may die as soon as it has begun what is due at the new time. At its restart, the time must not go
    back.
    """
    seen = []
    clock = AdjustableClock(timedelta(hours=1), lambda offset: seen.append((offset, clock.offset)))
    clock.advance(3600)
    assert seen == [(timedelta(hours=2), timedelta(hours=1))]
    assert clock.offset == timedelta(hours=2)


def test_an_adjustable_clock_that_cannot_save_the_new_time_keeps_the_old_one():
    def save(_offset):
        raise OSError("no space left on device")

    clock = AdjustableClock(save=save)
    with pytest.raises(OSError, match="no space"):
        clock.advance(3600)
    assert clock.offset == timedelta(0)
