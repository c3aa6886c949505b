"""Which callers wait after wrong passwords, and how long."""

from datetime import timedelta

import pytest

from moorage.core.errors import TooManyRequests
from moorage.identity import throttle
from moorage.identity.throttle import (
    ATTACK_FAILURES,
    BACKOFF,
    FORGET_AFTER,
    FREE_FAILURES,
    FREE_FAILURES_OF_ADDRESS,
    LoginThrottle,
)

HERE, ELSEWHERE = "192.0.2.1", "198.51.100.7"


@pytest.fixture
def logins(clock):
    return LoginThrottle(clock)


def wait_s(logins, account="a", address=HERE):
    """0 if the attempt may begin."""
    try:
        logins.check(account, address)
    except TooManyRequests as error:
        return error.fields["retry_after_s"]
    return 0


def fail(logins, times=1, account="a", address=HERE):
    for _ in range(times):
        logins.check(account, address)
        logins.record_failure(account, address)


def stranger(number):
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def test_each_failure_after_the_first_ones_doubles_the_wait(logins, clock):
    fail(logins, FREE_FAILURES)
    waits = []
    for _ in range(9):
        waits.append(wait_s(logins))
        clock.sleep(waits[-1])
        fail(logins)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_asking_while_one_must_wait_makes_nothing_longer(logins, clock):
    fail(logins, FREE_FAILURES)
    assert [wait_s(logins) for _ in range(100)] == [1] * 100
    clock.sleep(1)
    assert wait_s(logins) == 0


def test_who_had_to_wait_has_one_try_and_not_a_hundred_at_once(logins, clock):
    fail(logins, FREE_FAILURES)
    clock.sleep(1)
    assert [wait_s(logins) for _ in range(100)] == [0] + [1] * 99


def test_a_script_that_signs_in_a_hundred_times_at_once_waits_for_nothing(logins):
    assert [wait_s(logins) for _ in range(100)] == [0] * 100


def test_a_right_password_ends_it(logins, clock):
    fail(logins, FREE_FAILURES)
    clock.sleep(1)
    logins.check("a", HERE)
    logins.record_success("a", HERE)
    fail(logins, FREE_FAILURES - 1)
    assert wait_s(logins) == 0


def test_it_is_forgotten(logins, clock):
    fail(logins, FREE_FAILURES)
    clock.sleep(FORGET_AFTER.total_seconds())
    fail(logins, FREE_FAILURES - 1)
    assert wait_s(logins) == 0


def test_a_stranger_keeps_nobody_out_who_comes_from_elsewhere(logins, clock):
    """An attacker tries whenever it may, for an hour."""
    for _ in range(3600):
        if not wait_s(logins):
            logins.record_failure("a", HERE)
        clock.sleep(1)
    assert wait_s(logins) > 0
    assert wait_s(logins, address=ELSEWHERE) == 0


def test_under_attack_from_many_places_an_unknown_address_has_one_free_try_and_a_known_one_all(logins):
    logins.check("a", HERE)
    logins.record_success("a", HERE)
    for number in range(ATTACK_FAILURES):
        fail(logins, address=stranger(number))
    fail(logins, address=ELSEWHERE)
    assert wait_s(logins, address=ELSEWHERE) == 1
    fail(logins, FREE_FAILURES - 1)
    assert wait_s(logins) == 0


def test_who_tries_one_password_with_many_accounts_waits(logins):
    logins.check("mine", HERE)
    logins.record_success("mine", HERE)
    for number in range(FREE_FAILURES_OF_ADDRESS):
        fail(logins, account=f"account {number}")
    assert wait_s(logins, account="another") == 1
    assert wait_s(logins, account="another", address=ELSEWHERE) == 0
    assert wait_s(logins, account="mine") == 0, "whoever has signed in from there before"


def test_an_address_that_says_nothing_is_not_counted(logins):
    for number in range(FREE_FAILURES_OF_ADDRESS * 2):
        fail(logins, account=f"account {number}", address="")
    assert wait_s(logins, account="another", address="") == 0
    fail(logins, FREE_FAILURES, address="")
    assert wait_s(logins, address="") == 1


def test_a_clock_that_is_set_back_keeps_nobody_out(logins, clock):
    fail(logins, FREE_FAILURES)
    clock._now -= timedelta(hours=1)
    assert wait_s(logins) == 0


def test_it_needs_no_more_memory_however_many_come(logins, monkeypatch):
    monkeypatch.setattr(throttle, "MAX_ENTRIES", 100)
    for number in range(1000):
        fail(logins, account="x" * 100_000 + str(number), address=stranger(number))
        logins.check("a", stranger(number))
        logins.record_success("a", stranger(number))
    for kept in (logins._pairs._counts, logins._accounts._counts, logins._addresses._counts, logins._familiar):
        assert len(kept) <= 100
        assert all(len(key) == 16 for key in kept)


def test_nobody_waits_longer_than_a_minute(logins, clock):
    for _ in range(2000):
        wait = wait_s(logins)
        assert wait <= BACKOFF.longest_s
        clock.sleep(wait)
        if wait:
            logins.check("a", HERE)
        logins.record_failure("a", HERE)
