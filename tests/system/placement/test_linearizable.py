"""The checker accepts linearizable histories and rejects others."""

from dataclasses import dataclass
from functools import partial
from random import Random

import pytest

from tests.system.placement.calls import Call, Held, Offered, about_provider, consumer_step, provider_step
from tests.system.placement.linearizable import Impossible, violation

PROVIDER, OTHER = "p", "q"
CONSUMERS = ("a", "b")


@dataclass(frozen=True)
class Register:
    start: float
    end: float | None
    wrote: int | None = None
    read: int | None = None

    @property
    def only_reads(self):
        return self.wrote is None


def step(state, call):
    if call.wrote is not None:
        return call.wrote
    if call.read != state:
        raise Impossible
    return state


def test_overlapping_calls_may_take_effect_in_either_order():
    write = Register(0, 10, wrote=1)
    assert violation([write, Register(1, 2, read=0), Register(3, 4, read=1)], 0, step) is None
    assert violation([write, Register(1, 2, read=1), Register(3, 4, read=1)], 0, step) is None


def test_a_read_after_a_newer_read_must_not_see_the_old_value():
    write = Register(0, 10, wrote=1)
    late = Register(3, 4, read=0)
    assert violation([write, Register(1, 2, read=1), late], 0, step).call is late


def test_a_read_after_an_acknowledged_write_must_see_it():
    stale = Register(2, 3, read=0)
    found = violation([Register(0, 1, wrote=1), stale], 0, step)
    assert found.call is stale
    assert found.states == [1]


def test_a_call_without_an_answer_may_or_may_not_have_taken_effect():
    lost = Register(0, None, wrote=1)
    assert violation([lost, Register(1, 2, read=0), Register(3, 4, read=1)], 0, step) is None
    assert violation([lost, Register(1, 2, read=1), Register(3, 4, read=0)], 0, step) is not None


def test_one_wrong_read_in_a_long_history_is_found():
    random, calls, value = Random(1), [], 0
    for moment in range(600):
        if random.random() < 0.5:
            value = random.randint(1, 5)
            taken = {"wrote": value}
        else:
            taken = {"read": value}
        calls.append(Register(moment - 3 * random.random(), moment + 3 * random.random(), **taken))
    assert violation(calls, 0, step) is None
    wrong = Register(300.1, 300.2, read=99)
    assert violation([*calls, wrong], 0, step).call is wrong


def claim(start, end, consumer, generation, amount, status=204, refusal="", provider=PROVIDER):
    allocations = {provider: {"resources": {"VCPU": amount}}} if amount else {}
    body = {consumer: {"allocations": allocations, "consumer_generation": generation}}
    answer = {"errors": [{"detail": refusal}]} if refusal else {}
    return Call("claim", "", start, end, status, body, answer)


def usages(start, end, generation, used):
    return Call(
        "usages", PROVIDER, start, end, 200, {}, {"resource_provider_generation": generation, "usages": {"VCPU": used}}
    )


def offer(start, end, generation, total, status=200):
    body = {"resource_provider_generation": generation, "inventories": {"VCPU": {"total": total}}}
    return Call("offer", PROVIDER, start, end, status, body, {} if status == 200 else {"errors": [{"detail": ""}]})


def on_provider(*calls, total=4):
    initial = Offered(1, frozenset({("VCPU", total)}))
    found = violation(about_provider(PROVIDER, calls), initial, partial(provider_step, PROVIDER))
    everything = violation(calls, initial, partial(provider_step, PROVIDER))
    assert (found is None) == (everything is None)
    return found


FULL = f"Unable to create allocation for 'VCPU' on resource provider '{PROVIDER}'. The requested amount would exceed the capacity."
FULL = FULL.replace(f"'{PROVIDER}'", "'abc'")


def test_claims_within_capacity_are_explained():
    assert on_provider(claim(0, 2, "a", None, 2), claim(1, 3, "b", None, 2), usages(4, 5, 3, 4)) is None


def test_overbooking_is_found():
    assert on_provider(claim(0, 2, "a", None, 3), claim(1, 3, "b", None, 2)) is not None


def test_a_claim_above_a_reduced_inventory_may_shrink_but_not_grow():
    shrink = offer(2, 3, 2, 1)
    assert on_provider(claim(0, 1, "a", None, 4), shrink, claim(4, 5, "a", 1, 3)) is None
    assert on_provider(claim(0, 1, "a", None, 3), shrink, claim(4, 5, "a", 1, 4)) is not None


def test_a_lost_claim_is_found_by_the_next_read():
    assert on_provider(claim(0, 1, "a", None, 2), usages(2, 3, 2, 0)) is not None


def test_two_accepted_writes_with_one_generation_are_found():
    assert on_provider(offer(0, 2, 1, 8), offer(1, 3, 1, 9)) is not None
    assert on_provider(offer(0, 2, 1, 8), offer(1, 3, 1, 9, status=409)) is None


def test_a_refusal_without_a_reason_is_found():
    assert on_provider(offer(0, 2, 1, 8, status=409)) is not None
    refused = claim(0, 1, "a", None, 2, 409, FULL.replace("abc", "def"), provider="def")
    initial = Offered(1, frozenset({("VCPU", 4)}))
    assert violation([refused], initial, partial(provider_step, "def")) is not None
    assert (
        violation([refused], initial._replace(totals=frozenset({("VCPU", 1)})), partial(provider_step, "def")) is None
    )


def test_a_claim_accepted_with_an_old_consumer_generation_is_found():
    """Both claims of one consumer are acknowledged as its first one."""
    both = [claim(0, 2, "a", None, 1), claim(1, 3, "a", None, 2)]
    assert violation(both, None, partial(consumer_step, "a")) is not None


@pytest.mark.parametrize(("shown", "explained"), [(2, True), (1, False)])
def test_a_read_must_show_the_last_acknowledged_claim_of_a_consumer(shown, explained):
    allocations = {PROVIDER: {"resources": {"VCPU": shown}}}
    read = Call("holdings", "a", 4, 5, 200, {}, {"allocations": allocations, "consumer_generation": 2})
    found = violation([claim(0, 1, "a", None, 1), claim(2, 3, "a", 1, 2), read], None, partial(consumer_step, "a"))
    assert (found is None) == explained


def test_a_consumer_starts_with_generation_one():
    assert consumer_step("a", None, claim(0, 1, "a", None, 2)) == Held(1, frozenset({(PROVIDER, "VCPU", 2)}))
