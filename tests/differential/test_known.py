"""Each fault of upstream in docs/wire/differences.md still exists: a script shows it and no unexplained difference."""

import pytest

from tests.differential.known import KNOWN, explanation_of
from tests.differential.scripts import AGGREGATES, CONSUMERS, NOWHERE, PROVIDERS, SHARING
from tests.differential.sides import Asked

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

FIRST, SECOND, THIRD, FOURTH, *_ = PROVIDERS


def provider(uuid, parent=None):
    return Asked("POST", "/resource_providers", body={"name": uuid, "uuid": uuid, "parent_provider_uuid": parent})


def set_up(uuid, part, generation, value):
    body = {"resource_provider_generation": generation, part: value}
    return Asked("PUT", f"/resource_providers/{uuid}/{part}", body=body)


def offer(uuid, generation=0, **totals):
    inventories = {name: {"total": total} for name, total in totals.items()}
    return set_up(uuid, "inventories", generation, inventories)


def wish(generation=None, **allocations):
    return {
        "allocations": {uuid: {"resources": amounts} for uuid, amounts in allocations.items()},
        "project_id": "red",
        "user_id": "alice",
        "consumer_generation": generation,
        "consumer_type": "INSTANCE",
    }


def search(query, version="1.39"):
    return Asked("GET", f"/allocation_candidates?{query}", version)


CONSUMER = f"/allocations/{CONSUMERS[0]}"

SCRIPTS = {
    # A provider shared from within one tree, and one that is shared with another tree that it alone can serve.
    "A search among shared providers that are not roots": [
        provider(FIRST),
        provider(SECOND),
        provider(THIRD, SECOND),
        offer(FIRST, VCPU=4),
        offer(THIRD, VGPU=4),
        set_up(THIRD, "traits", 1, [SHARING]),
        set_up(THIRD, "aggregates", 2, [AGGREGATES[0]]),
        set_up(FIRST, "aggregates", 1, [AGGREGATES[0]]),
        search("resources=VCPU:1,VGPU:1", "1.28"),
        search("resources=VCPU:1,VGPU:1"),
    ],
    "Amounts of another candidate": [
        provider(FIRST),
        provider(SECOND, FIRST),
        offer(FIRST, VGPU=8),
        offer(SECOND, VGPU=8, VCPU=8),
        search("resources=VGPU:1,VCPU:1&resources1=VGPU:1"),
        search("resources=VGPU:1,VCPU:1&resources1=VGPU:1&group_policy=none"),
    ],
    "Consumers that hold nothing": [
        Asked("PUT", CONSUMER, body=wish(**{NOWHERE: {"VCPU": 1}})),
        Asked("PUT", CONSUMER, body=wish()),
        Asked("POST", "/allocations", body={CONSUMERS[1]: wish(), CONSUMERS[2]: wish(**{NOWHERE: {"VCPU": 1}})}),
        Asked("POST", "/allocations", body={CONSUMERS[1]: wish()}),
    ],
    "A wrong name that the peer does not reach": [
        provider(FIRST),
        search(f"resources=VCPU:1&member_of={AGGREGATES[0]}&resources1=CUSTOM_NO:1"),
        Asked("GET", f"/resource_providers?resources=CUSTOM_NO:1&member_of={AGGREGATES[0]}"),
    ],
    "Which of several faults is told": [
        provider(FIRST),
        search("resources=CUSTOM_NO:1&root_required=CUSTOM_NOT"),
    ],
    "A provider that moved has no time": [
        provider(FIRST),
        provider(SECOND),
        provider(THIRD, FIRST),
        Asked("PUT", f"/resource_providers/{THIRD}", body={"name": THIRD, "parent_provider_uuid": SECOND}),
    ],
}


@pytest.mark.parametrize("heading", [one.heading for one in KNOWN if not one.by_chance])
def test_the_known_fault_of_upstream_still_exists(twins, heading):
    found = [(found.difference, explanation_of(found.difference)) for found in twins.differences(SCRIPTS[heading])]
    assert [str(difference) for difference, explanation in found if explanation is None] == []
    assert heading in {explanation.heading for _, explanation in found}
