"""Placement's own tests against our placement, over HTTP, on every database."""

import pytest

from tests.conformance.conform import FILES, TESTS, our_servers, run_suite
from tests.conftest import DATABASES

pytestmark = [pytest.mark.slow, pytest.mark.conformance]


@pytest.mark.parametrize("database", DATABASES)
def test_the_whole_suite_passes(database):
    with our_servers(database) as urls:
        report = run_suite(urls)
    assert not report.others, report.text
    assert (report.files, report.passed) == (FILES, TESTS)


def test_the_whole_suite_passes_behind_the_front_end_that_users_have():
    with our_servers("sqlite", front="granian") as urls:
        report = run_suite(urls, "--relax-malformed-http")
    assert not report.others, report.text
    assert (report.files, report.passed) == (FILES, TESTS)
