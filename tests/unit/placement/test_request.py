"""Parsing of queries for candidates, and OpenStack Placement's messages for invalid ones."""

import textwrap
import urllib.parse

import pytest

from moorage.core.errors import Invalid
from moorage.placement.search import request as request_module
from moorage.placement.search.query import (
    AggregateFilter,
    TraitFilter,
    canonical_uuid,
    looks_like_uuid,
    parse_member_of,
    parse_resources,
    parse_traits,
)
from moorage.placement.search.request import RequestGroup, parse_request

A, B = "4d17d41a-830d-47b2-91c7-4f9fc0ae611e", "5e28e52b-941e-48c3-a2d8-5fa0d1bf722f"
NEWEST = (1, 39)


def test_a_query_is_parsed_to_request_groups():
    request = parse_request(
        [
            ("resources", "VCPU:2,MEMORY_MB:512"),
            ("required", "HW_CPU_X86_VMX,!CUSTOM_SLOW"),
            ("required", "in:CUSTOM_A,CUSTOM_B"),
            ("member_of", f"in:{A},{B}"),
            ("resources_NET", "SRIOV_NET_VF:1"),
            ("in_tree_NET", A),
            ("required_NUMA", "HW_NUMA_ROOT"),
            ("same_subtree", "_NET,_NUMA"),
            ("group_policy", "none"),
            ("root_required", "CUSTOM_A,!CUSTOM_B"),
            ("limit", "7"),
        ],
        NEWEST,
    )
    assert request.groups == (
        RequestGroup(
            "",
            {"VCPU": 2, "MEMORY_MB": 512},
            TraitFilter(
                (frozenset({"HW_CPU_X86_VMX"}), frozenset({"CUSTOM_A", "CUSTOM_B"})), frozenset({"CUSTOM_SLOW"})
            ),
            AggregateFilter((frozenset({A, B}),)),
        ),
        RequestGroup("_NET", {"SRIOV_NET_VF": 1}, in_tree=A),
        RequestGroup("_NUMA", {}, TraitFilter((frozenset({"HW_NUMA_ROOT"}),))),
    )
    assert (request.limit, request.group_policy, request.nested) == (7, "none", True)
    assert (request.root_required, request.root_forbidden) == ({"CUSTOM_A"}, {"CUSTOM_B"})
    assert request.same_subtrees == (frozenset({"_NET", "_NUMA"}),)


def test_the_example_in_the_modules_docstring_is_what_it_says():
    text = textwrap.dedent(request_module.__doc__.partition("``?")[2])
    query, _, code = text.partition("`` is\n\n")
    example = eval(textwrap.dedent(code.partition("\n\n")[0]), vars(request_module))
    assert parse_request(urllib.parse.parse_qsl(query), NEWEST) == example


def test_before_1_29_requests_are_not_nested():
    assert not parse_request([("resources", "VCPU:1")], (1, 28)).nested


def test_before_1_33_only_numeric_suffixes_are_read():
    pairs = [("resources1", "VCPU:1"), ("resources_A", "VCPU:1"), ("group_policy", "none")]
    assert [group.suffix for group in parse_request(pairs, (1, 32)).groups] == ["1"]
    assert [group.suffix for group in parse_request(pairs, (1, 33)).groups] == ["1", "_A"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Got: empty string."),
        ("VCPU", "Got: VCPU."),
        ("VCPU:1:2", "Got: VCPU:1:2."),
        ("VCPU:fred", "Requested resource VCPU expected positive integer amount. Got: fred."),
        ("VCPU:-2", "Requested resource VCPU requires amount >= 1. Got: -2."),
        ("VCPU:0", "requires amount >= 1"),
    ],
)
def test_invalid_resources_are_refused_with_the_peers_message(text, words):
    with pytest.raises(Invalid) as caught:
        parse_resources(text)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("values", "version", "words"),
    [
        (["A,,B"], (1, 18), "of the form: HW_CPU_X86_VMX,CUSTOM_MAGIC. Got an empty trait in: A,,B"),
        (["!A"], (1, 21), "of the form: HW_CPU_X86_VMX,CUSTOM_MAGIC. Got: !A"),
        (["!"], (1, 22), "of the form: HW_CPU_X86_VMX,!CUSTOM_MAGIC. Got an empty trait in: !"),
        (["in:A"], (1, 38), "only supported since microversion 1.39"),
        (["in:A,"], NEWEST, "Got an empty trait in: in:A,"),
        (["in:A,!B"], NEWEST, "does not support forbidden traits"),
    ],
)
def test_invalid_traits_are_refused_with_the_peers_message(values, version, words):
    with pytest.raises(Invalid) as caught:
        parse_traits(values, version)
    assert words in caught.value.message


def test_repeated_required_parameters_all_count_only_from_1_39_on():
    values = ["A", "!!B"]
    assert parse_traits(values, (1, 38)) == TraitFilter((), frozenset({"B"}))
    assert parse_traits(values, NEWEST) == TraitFilter((frozenset({"A"}),), frozenset({"B"}))


@pytest.mark.parametrize(
    ("values", "version", "words"),
    [
        ([A, B], (1, 23), "Multiple member_of parameters are not supported"),
        ([f"!{A}"], (1, 31), "Forbidden member_of parameters are not supported"),
        ([f"{A},{B}"], NEWEST, "must be prefixed with the 'in:' or '!in:' keyword"),
        (["in:nobody"], NEWEST, "contain valid UUID(s). Got: nobody"),
    ],
)
def test_invalid_member_of_is_refused_with_the_peers_message(values, version, words):
    with pytest.raises(Invalid) as caught:
        parse_member_of(values, version)
    assert words in caught.value.message


def test_repeated_member_of_is_parsed_to_required_and_forbidden_aggregates():
    assert parse_member_of([f"in:{A},{B}", A, f"!in:{B}"], NEWEST) == AggregateFilter(
        (frozenset({A, B}), frozenset({A})), frozenset({B})
    )


@pytest.mark.parametrize(
    ("pairs", "version", "code", "words"),
    [
        ([], (1, 35), None, "At least one request group (`resources` or `resources{$S}`) is required."),
        ([("required", "A")], (1, 35), None, "Found the following orphaned traits keys: required"),
        ([("member_of", A)], (1, 35), None, "orphaned member_of keys: member_of"),
        ([("in_tree", A)], (1, 35), None, "All request groups must specify resources."),
        ([], NEWEST, "placement.query.missing_value", "There must be at least one resources"),
        (
            [("resources1", "VCPU:1"), ("resources2", "VCPU:1")],
            NEWEST,
            None,
            'The "group_policy" parameter is required',
        ),
        (
            [("resources", "VCPU:1"), ("required1", "A")],
            NEWEST,
            "placement.query.bad_value",
            "Resourceless suffixed group request should be specified in `same_subtree` query param: bad group(s) - ['1']",
        ),
        (
            [("resources1", "VCPU:1"), ("same_subtree", "1,")],
            NEWEST,
            "placement.query.bad_value",
            "Empty string (unsuffixed group) can not be specified in `same_subtree` ",
        ),
        (
            [("resources1", "VCPU:1"), ("same_subtree", "1,2")],
            NEWEST,
            "placement.query.bad_value",
            "Real suffixes should be specified in `same_subtree`: ['2'] not found in ['1'].",
        ),
        (
            [("resources", "VCPU:1"), ("root_required", "A"), ("root_required", "B")],
            NEWEST,
            "placement.query.duplicate_key",
            "may be specified only once",
        ),
        (
            [("resources", "VCPU:1"), ("root_required", "A,!A")],
            NEWEST,
            "placement.query.bad_value",
            "Conflicting required and forbidden traits found in root_required: A",
        ),
        (
            [("resources", "VCPU:1"), ("required", "in:A,B"), ("required", "!A,!B")],
            NEWEST,
            None,
            "found in the following traits keys: required: (A, B)",
        ),
    ],
)
def test_invalid_combinations_of_parameters_are_refused_with_the_peers_message(pairs, version, code, words):
    with pytest.raises(Invalid) as caught:
        parse_request(pairs, version)
    assert words in caught.value.message
    assert caught.value.error_code == (code or "moorage.invalid")


@pytest.mark.parametrize("text", [A, A.upper(), A.replace("-", ""), f"{{{A}}}", f"urn:uuid:{A}"])
def test_uuids_are_accepted_in_several_forms_and_normalized(text):
    assert looks_like_uuid(text)
    assert canonical_uuid(text) == A, "one form is kept"


@pytest.mark.parametrize("text", ["", "x", A[:-1], f"{A}\n", None, 7])
def test_other_values_are_not_accepted_as_uuids(text):
    assert not looks_like_uuid(text)
