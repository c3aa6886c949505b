"""Placement's own test suite against our placement, over HTTP, on every database."""

import pytest

from tests.conformance.conform import FILES, TESTS, compare, our_servers, run_suite
from tests.conformance.explained import EXPLAINED, explanation_of
from tests.conftest import DATABASES

pytestmark = [pytest.mark.slow, pytest.mark.conformance]


SQLITE, *SERVERS = DATABASES


@pytest.mark.parametrize("database", [pytest.param(SQLITE, marks=pytest.mark.core), *SERVERS])
def test_the_whole_suite_passes(database):
    with our_servers(database) as urls:
        report = run_suite(urls)
    assert not report.others, report.text
    assert (report.files, report.passed) == (FILES, TESTS)


def test_the_whole_suite_passes_with_our_http_server():
    with our_servers("sqlite", front="server") as urls:
        report = run_suite(urls, "--relax-malformed-http")
    assert not report.others, report.text
    assert (report.files, report.passed) == (FILES, TESTS)


def test_every_answer_equals_upstreams_or_the_difference_is_explained():
    found = [(difference, explanation_of(difference)) for difference in compare()]
    unexplained = [str(difference) for difference, explanation in found if explanation is None]
    assert not unexplained, "\n".join(unexplained)
    seen = {explanation.heading for _, explanation in found}
    assert {one.heading for one in EXPLAINED if not one.by_chance} <= seen, "an explanation of nothing"
