"""The comparison of two records finds the differences that it should find, and ignores the others."""

import json

import pytest

from tests.conformance.compare import differences
from tests.conformance.explained import explanation_of

HOST = "9dc02eca-21a2-5a0a-84ff-eed60fd3d185"


def exchange(body, *, status=200, sent="", **headers):
    return {
        "file": "a.yaml",
        "test": "t",
        "method": "GET",
        "target": "/resource_providers",
        "headers": {"openstack-api-version": "placement 1.39", "user-agent": "x"},
        "body": sent,
        "status": status,
        "response_headers": {name.replace("_", "-"): value for name, value in headers.items()},
        "response_body": body if isinstance(body, str) else json.dumps(body),
    }


@pytest.fixture
def differing(tmp_path):
    """A function that compares two records: {what: (upstream's, ours)}."""

    def differing(upstream, ours):
        paths = []
        for name, exchanges in (("upstream", upstream), ("ours", ours)):
            paths.append(tmp_path / name)
            paths[-1].write_text("\n".join(json.dumps(one) for one in exchanges))
        return {one.what: (one.upstream, one.ours) for one in differences(*paths)}

    return differing


def test_values_that_differ_in_every_run_are_ignored(differing):
    def answer(request, day, port, made):
        location = f"http://127.0.0.1:{port}/resource_providers/{made}"
        body = {"providers": [made, HOST] if port == 1 else [HOST, made], "request_id": f"req-{request}"}
        return exchange(body, location=location, last_modified=f"Fri, {day} Nov 2026 19:24:05 GMT", server=str(port))

    one = answer("0c576d6a-0264-567b-aa3a-775aebfbdea8", 20, 1, "11111111-1111-4111-8111-111111111111")
    two = answer("82f4383d-4986-58cc-8e2f-64c715a2e683", 21, 2, "22222222-2222-4222-8222-222222222222")
    assert differing([one, one], [two, two]) == {}


@pytest.mark.parametrize(
    ("ours", "what"),
    [
        (exchange([1, 1], vary="x"), {"body": ([1, 2], [1, 1])}),
        (exchange([1, 2, 2], vary="x"), {"body": ([1, 2], [1, 2, 2])}),
        (exchange([2, 1], status=201, vary="x"), {"status": (200, 201)}),
        (exchange([2, 1]), {"vary": ("x", None)}),
        (exchange([2, 1], vary="x", allow="GET"), {"allow": (None, "GET")}),
    ],
)
def test_every_other_difference_is_found(differing, ours, what):
    assert differing([exchange([1, 2], vary="x")], [ours]) == what


def test_records_with_different_requests_are_not_compared(differing):
    with pytest.raises(ValueError, match=r"a\.yaml"):
        differing([exchange([], sent='{"a": 1}')], [exchange([], sent='{"a": 2}')])
    with pytest.raises(ValueError, match=r"a\.yaml"):
        differing([exchange([]), exchange([])], [exchange([])])
    assert differing([exchange([], sent='{"a": 1, "b": 2}')], [exchange([], sent='{"b": 2, "a": 1}')]) == {}


@pytest.mark.parametrize(
    ("status", "upstream", "ours", "heading"),
    [
        (400, "No such trait B, A", "No such trait A, B", "Names in another order"),
        (400, "No such trait B, A", "No such trait A, C", None),
        (403, "Denied.\n\n placement:traits:list  ", "Denied.\n\n Go away  ", None),
        (404, "No such thing", "Nothing", None),
    ],
)
def test_an_explanation_covers_only_its_own_difference(tmp_path, status, upstream, ours, heading):
    for name, detail in (("upstream", upstream), ("ours", ours)):
        (tmp_path / name).write_text(json.dumps(exchange({"errors": [{"detail": detail}]}, status=status)))
    [difference] = differences(tmp_path / "upstream", tmp_path / "ours")
    explanation = explanation_of(difference)
    assert (explanation and explanation.heading) == heading
