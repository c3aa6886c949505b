"""Reading YAML with the position of each value, and within limits."""

import time

import pytest
import yaml

from moorage.agent.provider_config.rules.model import FilePosition
from moorage.agent.provider_config.rules.yaml_text import MAX_ALIASES, MAX_DEPTH, YamlFault, plain_scalar, read_yaml


def fault(data: bytes | str) -> YamlFault:
    with pytest.raises(YamlFault) as caught:
        read_yaml(data if isinstance(data, bytes) else data.encode())
    return caught.value


def test_each_value_has_its_position_and_source_text():
    document = read_yaml(b"a:\n  - 1\n  - b: 1.10\n")
    assert document.value == {"a": [1, {"b": 1.1}]}
    assert document.places[("a", 1, "b")] == FilePosition(3, 5)
    assert document.texts[("a", 1, "b")] == "1.10"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12), ("-3", -3), ("+3", 3), ("0", 0), ("1.5", 1.5), ("1e3", 1000.0), ("true", True), ("null", None), ("~", None),
        ("010", "010"), ("1_000", "1_000"), ("0x1f", "0x1f"), ("12:30", "12:30"), ("yes", "yes"), ("off", "off"),
        (".inf", ".inf"), ("1e999", "1e999"), ("9" * 30, "9" * 30), ("2001-12-14", "2001-12-14"), (".", "."), ("1.2.3", "1.2.3"),
    ],
)  # fmt: skip
def test_plain_scalars_are_read_as_in_yaml_1_2(text, value):
    assert plain_scalar(text) == value
    assert type(plain_scalar(text)) is type(value)


def test_quoted_scalars_and_those_with_a_string_tag_are_texts():
    assert read_yaml(b"['1', \"2\", !!str 3, ! 4]").value == [
        "1",
        "2",
        "3",
        "4",
    ]


def test_aliases_and_merge_keys_are_read_as_by_pyyaml():
    text = "a: &a {x: 1, y: 2}\nb: &b {y: 3}\nc: {<<: *a, x: 9}\nd: {<<: [*b, *a]}\ne: *a\nf: {<<: {z: 1}}\n"
    assert read_yaml(text.encode()).value == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("data", "problem", "place"),
    [
        ("", "is empty", FilePosition(1, 1)),
        ("# only a remark\n", "is empty", FilePosition(1, 1)),
        ("a: 1\n---\nb: 2\n", "more than one document", FilePosition(2, 1)),
        ("a: [1,\n", "is not YAML", FilePosition(2, 1)),
        ("a: 1\na: 2\n", "the key 'a' occurs twice, first in line 1", FilePosition(2, 1)),
        ("a: {b: 1, 'b': 2}\n", "the key 'b' occurs twice", FilePosition(1, 11)),
        ("a: *b\n", "has no anchor", FilePosition(1, 4)),
        ("a: &a [*a]\n", "is inside its own anchor", FilePosition(1, 8)),
        ("a: !!python/object/apply:os.system ['true']\n", "the tag", FilePosition(1, 4)),
        ("a: !mine 5\n", "the tag !mine is unknown", FilePosition(1, 4)),
        ("? [a, b]\n: c\n", "a key of a map is not a plain text", FilePosition(1, 3)),
        ("a: {<<: 5}\n", "`<<` takes a map", FilePosition(1, 5)),
        (b"a: b\nc: caf\xe9\n", "is not UTF-8", FilePosition(2, 7)),
        ("a: 1\n".encode("utf-16"), "is not UTF-8", FilePosition(1, 1)),
        ("a: b\nc: d\x07\n", "is not YAML", FilePosition(2, 5)),
        ("a: b\nc: d\x00\n", "is not YAML", FilePosition(2, 5)),
    ],
)
def test_invalid_yaml_is_refused_with_the_position_of_the_fault(data, problem, place):
    found = fault(data)
    assert problem in found.problem
    assert found.place == place
    assert found.remedy


def test_a_tab_in_the_indentation_is_refused_with_advice():
    found = fault("a:\n\tb: 1\n")
    assert found.remedy == "indent with spaces, not with tabs"
    assert found.place is not None
    assert found.place.line == 2


def test_a_byte_order_mark_is_accepted():
    assert read_yaml("a: é\n".encode("utf-8-sig")).value == {"a": "é"}


def nested_aliases() -> str:
    """Ten levels of ten: 10,000,000,000 values in 400 bytes."""
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    return "\n".join(levels)


def nested_merge_keys() -> str:
    """Maps that merge the previous one twice, a hundred levels deep."""
    return "\n".join(
        ["a0: &a0 {x0: 1}"] + [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], x{n}: 1}}" for n in range(1, 400)]
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (nested_aliases(), "after its aliases are expanded"),
        ("a: " + "[" * 100_000, f"more than {MAX_DEPTH} levels"),
        ("a: " + "{b: " * 100_000, f"more than {MAX_DEPTH} levels"),
        ("\n".join(f"{' ' * n}k{n}:" for n in range(1000)), f"more than {MAX_DEPTH} levels"),
        ("- &a 1\n" + "- *a\n" * (MAX_ALIASES + 1), f"more than {MAX_ALIASES} aliases"),
        ("- 1\n" * 150_000, "more than 100000 values"),
        (nested_merge_keys(), "more than 100000 values"),
        ("? " + "k" * 500_000 + "\n: 1\n", "a key has more than 1000 characters"),
    ],
)
def test_documents_that_expand_or_nest_without_limit_are_refused_within_ten_seconds(text, problem):
    before = time.process_time()
    assert problem in fault(text).problem
    assert time.process_time() - before < 10
