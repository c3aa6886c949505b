"""Requests that fit the published document, and others: no answer is a 5xx, and every answer fits the document."""

from collections import Counter

import pytest
import schemathesis
from hypothesis import assume, given
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from moorage.placement.api.handlers.answers import VERSIONS
from tests.fuzz.walks import CPU_S, can_be_sent, timed, walk_of
from tests.fuzz.world import World, fed_document, trouble_with

RESTOCK_EVERY = 20

#: An invalid request may have another microversion than the document; then only `trouble_with` checks its answer.
CHECKS = {
    GenerationMode.POSITIVE: [status_code_conformance, content_type_conformance, response_schema_conformance],
    GenerationMode.NEGATIVE: [not_a_server_error],
}
MINORS = [VERSIONS.maximum.minor, *range(VERSIONS.maximum.minor)]
EXAMPLES = walk_of(1000)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("fuzzed"))


@pytest.fixture(params=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
def mode(request):
    return request.param


@pytest.fixture
def operations(world, mode):
    """{minor: operations of this microversion}"""
    found = {}
    for minor in MINORS:
        schema = schemathesis.openapi.from_dict(fed_document(minor, texts=mode is GenerationMode.POSITIVE))
        schema.app = world.app
        found[minor] = [result.ok() for result in schema.get_all_operations()]
    return found


def test_every_answer_matches_the_openapi_document(world, operations, mode):
    strategies = {}
    statuses = []
    asked = set()

    @EXAMPLES
    @given(st.data())
    def walk(data):
        minor = data.draw(st.sampled_from(MINORS))
        operation = data.draw(st.sampled_from(operations[minor]))
        if (key := (minor, operation.label)) not in strategies:
            strategies[key] = operation.as_strategy(generation_mode=mode)
        case = data.draw(strategies[key])
        assume(can_be_sent(case))
        asked.add(operation.label)
        if len(statuses) % RESTOCK_EVERY == 0:
            world.stock()
        answer, took = timed(case.call)
        statuses.append(answer.status_code)
        case.validate_response(answer, checks=CHECKS[mode])
        trouble = trouble_with(answer.status_code, answer.headers.get("content-type", [""])[0], answer.content)
        assert trouble is None, case.as_curl_command()
        assert took < CPU_S, case.as_curl_command()

    walk()
    if mode is GenerationMode.POSITIVE:  # a route without parameters and body has no invalid requests
        assert asked == {operation.label for some in operations.values() for operation in some}, "every route is walked"
    # A test in which every request is refused shows nothing.
    assert set(statuses) >= ({200, 204, 400, 404, 409} if mode is GenerationMode.POSITIVE else {200, 400, 404}), (
        Counter(statuses)
    )
