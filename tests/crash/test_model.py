"""A client concludes from the present data whether a request without an answer was carried out."""

from tests.crash.model import ConsumerState, Knowledge, ProviderState, Step

HOST, CONSUMER = "host", "consumer"
BEFORE = ProviderState("host", None, 1, {"VCPU": 8})
AFTER = ProviderState("host", None, 2, {"VCPU": 8})
HOLDS = ConsumerState(1, "project", "INSTANCE", {HOST: {"VCPU": 2}})
CLAIM = Step("claim", "PUT", "/allocations/consumer", {}, {HOST: AFTER, CONSUMER: HOLDS}, {"shared": 1})


def resolved(seen):
    known = Knowledge({HOST: BEFORE}, pending=CLAIM)
    return known, list(known.resolve(seen))


def test_a_request_whose_effects_all_exist_counts_as_carried_out():
    known, wrong = resolved({HOST: AFTER, CONSUMER: HOLDS})
    assert (wrong, known.shared, known.state) == ([], {"shared": 1}, {HOST: AFTER, CONSUMER: HOLDS})


def test_a_request_without_any_effect_counts_as_not_carried_out():
    known, wrong = resolved({HOST: BEFORE})
    assert (wrong, known.shared, known.state) == ([], {}, {HOST: BEFORE})


def test_a_request_with_some_of_its_effects_is_reported_as_half_done():
    for seen in ({HOST: AFTER}, {HOST: BEFORE, CONSUMER: HOLDS}, {HOST: AFTER, CONSUMER: None}):
        _, wrong = resolved(seen)
        assert [text.partition(":")[0] for text in wrong] == ["half done"]


def test_an_acknowledged_state_that_changed_is_reported():
    known = Knowledge({HOST: AFTER, CONSUMER: None})
    assert list(known.resolve({HOST: AFTER})) == []
    assert len(list(known.resolve({HOST: BEFORE, CONSUMER: HOLDS}))) == 2
