"""The throttle of logins: which callers must wait after wrong passwords, and for how long."""

from datetime import timedelta

import pytest

from moorage.core.errors import TooManyRequests
from moorage.identity.tokens import throttle
from moorage.identity.tokens.throttle import (
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
    """How long the caller must wait; 0 if the attempt may begin, in which case it has begun."""
    try:
        logins.check(account, address)
    except TooManyRequests as error:
        return error.fields["retry_after_s"]
    return 0


def fail(logins, times=1, account="a", address=HERE):
    for _ in range(times):
        logins.check(account, address)
        logins.record_failure(account, address)


def unknown_address(number):
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def test_each_failure_after_the_first_ones_doubles_the_wait(logins, clock):
    fail(logins, FREE_FAILURES)
    waits = []
    for _ in range(9):
        waits.append(wait_s(logins))
        clock.sleep(waits[-1])
        fail(logins)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_attempts_during_the_wait_do_not_extend_it(logins, clock):
    fail(logins, FREE_FAILURES)
    assert [wait_s(logins) for _ in range(100)] == [1] * 100
    clock.sleep(1)
    assert wait_s(logins) == 0


def test_after_the_wait_one_attempt_is_allowed_and_concurrent_ones_are_not(logins, clock):
    fail(logins, FREE_FAILURES)
    clock.sleep(1)
    assert [wait_s(logins) for _ in range(100)] == [0] + [1] * 99


def test_a_hundred_concurrent_logins_without_failures_do_not_wait(logins):
    assert [wait_s(logins) for _ in range(100)] == [0] * 100


def test_a_correct_password_resets_the_failures(logins, clock):
    fail(logins, FREE_FAILURES)
    clock.sleep(1)
    logins.check("a", HERE)
    logins.record_success("a", HERE)
    fail(logins, FREE_FAILURES - 1)
    assert wait_s(logins) == 0


def test_failures_are_forgotten_after_a_while(logins, clock):
    fail(logins, FREE_FAILURES)
    clock.sleep(FORGET_AFTER.total_seconds())
    fail(logins, FREE_FAILURES - 1)
    assert wait_s(logins) == 0


def test_attacks_from_one_address_do_not_lock_out_the_account_from_other_addresses(logins, clock):
    """The attacker tries whenever the throttle allows it, for an hour."""
    for _ in range(3600):
        if not wait_s(logins):
            logins.record_failure("a", HERE)
        clock.sleep(1)
    assert wait_s(logins) > 0
    assert wait_s(logins, address=ELSEWHERE) == 0


def test_under_attack_from_many_addresses_a_known_address_has_all_free_attempts_and_an_unknown_one_has_one(logins):
    logins.check("a", HERE)
    logins.record_success("a", HERE)
    for number in range(ATTACK_FAILURES):
        fail(logins, address=unknown_address(number))
    fail(logins, address=ELSEWHERE)
    assert wait_s(logins, address=ELSEWHERE) == 1
    fail(logins, FREE_FAILURES - 1)
    assert wait_s(logins) == 0


def test_an_address_that_fails_with_many_accounts_must_wait(logins):
    logins.check("mine", HERE)
    logins.record_success("mine", HERE)
    for number in range(FREE_FAILURES_OF_ADDRESS):
        fail(logins, account=f"account {number}")
    assert wait_s(logins, account="another") == 1
    assert wait_s(logins, account="another", address=ELSEWHERE) == 0
    assert wait_s(logins, account="mine") == 0, "an account that has logged in from this address before does not wait"


def test_failures_without_an_address_count_only_for_their_account(logins):
    for number in range(FREE_FAILURES_OF_ADDRESS * 2):
        fail(logins, account=f"account {number}", address="")
    assert wait_s(logins, account="another", address="") == 0
    fail(logins, FREE_FAILURES, address="")
    assert wait_s(logins, address="") == 1


def test_a_clock_that_is_set_back_does_not_extend_the_wait(logins, clock):
    fail(logins, FREE_FAILURES)
    clock._now -= timedelta(hours=1)
    assert wait_s(logins) == 0


def test_the_memory_of_the_throttle_is_limited(logins, monkeypatch):
    monkeypatch.setattr(throttle, "MAX_ENTRIES", 100)
    for number in range(1000):
        fail(logins, account="x" * 100_000 + str(number), address=unknown_address(number))
        logins.check("a", unknown_address(number))
        logins.record_success("a", unknown_address(number))
    for kept in (logins._pairs._counts, logins._accounts._counts, logins._addresses._counts, logins._familiar):
        assert len(kept) <= 100
        assert all(len(key) == 16 for key in kept)


def test_no_wait_exceeds_a_minute(logins, clock):
    for _ in range(2000):
        wait = wait_s(logins)
        assert wait <= BACKOFF.longest_s
        clock.sleep(wait)
        if wait:
            logins.check("a", HERE)
        logins.record_failure("a", HERE)
