"""The conclusions of a client about a request that was not answered."""

from tests.crash.model import ConsumerState, Knowledge, ProviderState, Step

HOST, CONSUMER = "host", "consumer"
BEFORE = ProviderState("host", None, 1, {"VCPU": 8})
AFTER = ProviderState("host", None, 2, {"VCPU": 8})
HOLDS = ConsumerState(1, "project", "INSTANCE", {HOST: {"VCPU": 2}})
CLAIM = Step("claim", "PUT", "/allocations/consumer", {}, {HOST: AFTER, CONSUMER: HOLDS}, {"shared": 1})


def resolved(seen):
    known = Knowledge({HOST: BEFORE}, pending=CLAIM)
    return known, list(known.resolve(seen))


def test_all_of_it_there_means_carried_out():
    known, wrong = resolved({HOST: AFTER, CONSUMER: HOLDS})
    assert (wrong, known.shared, known.state) == ([], {"shared": 1}, {HOST: AFTER, CONSUMER: HOLDS})


def test_nothing_of_it_there_means_not_carried_out():
    known, wrong = resolved({HOST: BEFORE})
    assert (wrong, known.shared, known.state) == ([], {}, {HOST: BEFORE})


def test_a_part_of_it_is_half_done():
    for seen in ({HOST: AFTER}, {HOST: BEFORE, CONSUMER: HOLDS}, {HOST: AFTER, CONSUMER: None}):
        _, wrong = resolved(seen)
        assert [text.partition(":")[0] for text in wrong] == ["half done"]


def test_what_was_acknowledged_must_be_as_it_was():
    known = Knowledge({HOST: AFTER, CONSUMER: None})
    assert list(known.resolve({HOST: AFTER})) == []
    assert len(list(known.resolve({HOST: BEFORE, CONSUMER: HOLDS}))) == 2
