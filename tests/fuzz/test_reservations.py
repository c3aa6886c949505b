"""Requests that fit the published document, and others: no answer is a 5xx, and every answer fits the document (G9)."""

from collections import Counter

import pytest
import schemathesis
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.fuzz.reservation_world import SOUND, World, fed_document, trouble_with
from tests.fuzz.walks import CPU_S, can_be_sent, timed, walk_of

RESTOCK_EVERY = 25

#: Minor versions of valid requests. Invalid ones may have another version; then only `trouble_with` checks their
#: answers.
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
MINORS = [1, 0]
EXAMPLES = walk_of(600)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("fuzzed"))


def with_existing_ids(world, data, case):
    """Sometimes replaces an id by an existing one."""
    for name, there in (("lease_id", world.leases), ("hold_id", world.holds)):
        if name in case.path_parameters and data.draw(st.booleans()):
            case.path_parameters[name] = there[0]
    if isinstance(case.body, dict) and "hold_id" in case.body and data.draw(st.booleans()):
        case.body["hold_id"] = world.holds[0]


def operations_of(world, minor, *, values):
    schema = schemathesis.openapi.from_dict(fed_document(minor, values=values))
    schema.app = world.app
    return [result.ok() for result in schema.get_all_operations()]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
def test_every_answer_matches_the_openapi_document(world, mode):
    positive = mode is GenerationMode.POSITIVE
    operations = {minor: operations_of(world, minor, values=positive) for minor in MINORS}
    strategies, statuses, asked = {}, [], set()

    def request(data, minor, operation):
        if (key := (minor, operation.label)) not in strategies:
            strategies[key] = operation.as_strategy(generation_mode=mode)
        case = data.draw(strategies[key])
        if len(statuses) % RESTOCK_EVERY == 0:
            world.stock()
        with_existing_ids(world, data, case)
        if positive and operation.label in SOUND and data.draw(st.booleans()):
            case.body = data.draw(st.sampled_from(SOUND[operation.label]))
        assume(can_be_sent(case))
        asked.add(operation.label)
        answer, took = timed(case.call)
        statuses.append(answer.status_code)
        if positive:
            case.validate_response(answer, checks=CHECKS)
        trouble = trouble_with(answer.status_code, answer.headers.get("content-type", [""])[0], answer.content)
        assert trouble is None, case.as_curl_command()
        assert took < CPU_S, case.as_curl_command()

    @EXAMPLES
    @given(st.data())
    def walk(data):
        minor = data.draw(st.sampled_from(MINORS))
        request(data, minor, data.draw(st.sampled_from(operations[minor])))

    @settings(EXAMPLES, max_examples=1)
    @given(st.data())
    def walk_to(minor, operation, data):
        request(data, minor, operation)

    walk()
    for minor, operation in [(minor, one) for minor, some in operations.items() for one in some]:
        if operation.label not in asked:  # chance may have chosen it already
            walk_to(minor, operation)
    # A test in which every request is refused shows nothing.
    assert set(statuses) >= ({200, 201, 204, 400, 404, 409} if positive else {200, 400, 404}), Counter(statuses)
