from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from moorage.core.backoff import Backoff


def test_each_pause_is_twice_the_one_before_up_to_the_longest():
    backoff = Backoff(first_s=1.0, longest_s=30.0)
    assert [backoff.pause_s(failures) for failures in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]


def test_the_factor_of_the_pauses_can_be_set():
    backoff = Backoff(first_s=0.1, longest_s=1.6, factor=4)
    assert [backoff.pause_s(failures) for failures in range(1, 5)] == [0.1, 0.4, 1.6, 1.6]


def test_without_a_failure_there_is_no_pause():
    assert Backoff(first_s=1.0, longest_s=30.0).pause_s(0) == 0
    assert Backoff(first_s=1.0, longest_s=30.0).pause_s(-3) == 0


def test_a_maximum_below_the_first_pause_limits_it():
    assert Backoff(first_s=5.0, longest_s=2.0).pause_s(1) == 2


def test_a_random_fraction_varies_a_pause_between_half_and_one_and_a_half_times():
    backoff = Backoff(first_s=5.0, longest_s=300.0)
    assert [backoff.pause_s(1, fraction) for fraction in (0.0, 0.25, 0.5)] == [2.5, 3.75, 5.0]
    assert 7.4 < backoff.pause_s(1, 0.999) < 7.5
    assert backoff.pause_s(100, 0.0) == 150


@given(st.floats(0.01, 100), st.floats(0.01, 10_000), st.floats(1, 10))
def test_pauses_never_decrease_and_never_exceed_the_maximum(first_s, longest_s, factor):
    backoff = Backoff(first_s, longest_s, factor)
    pauses = [backoff.pause_s(failures) for failures in (*range(80), 10**6)]
    assert all(earlier <= later for earlier, later in pairwise(pauses))
    assert max(pauses) <= longest_s
