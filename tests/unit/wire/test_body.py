from itertools import product

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.core.errors import Invalid
from moorage.wire.body import Schema, VersionedSchema, decode_json
from moorage.wire.http import Query
from moorage.wire.microversion import Version

DOCUMENT = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z]+$", "maxLength": 5},
        "total": {"type": "integer", "minimum": 1},
        "id": {"type": "string", "format": "even"},
    },
    "required": ["name"],
    "additionalProperties": False,
}
SCHEMA = Schema(DOCUMENT, formats={"even": lambda text: len(text) % 2 == 0})


def accepts(schema, instance):
    try:
        schema.validate(instance, str)
    except Invalid:
        return False
    return True


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["name", "total", "id", "other"]),
        st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text("ABc", max_size=6),
    )
)
def test_the_compiled_schema_agrees_with_jsonschema(instance):
    checker = jsonschema.FormatChecker()
    checker.checks("even")(lambda text: not isinstance(text, str) or len(text) % 2 == 0)
    slow = jsonschema.Draft202012Validator(DOCUMENT, format_checker=checker)
    assert accepts(SCHEMA, instance) == slow.is_valid(instance)


def test_the_message_of_a_schema_error_is_formatted_by_the_service():
    with pytest.raises(Invalid) as caught:
        SCHEMA.validate({"name": 7}, lambda error: f"{list(error.path)}: {error.message}")
    assert caught.value.message == "['name']: 7 is not of type 'string'"
    assert caught.value.error_code == "moorage.schema"


def test_the_schema_of_the_highest_microversion_up_to_the_requested_one_applies():
    old, new = Schema({}), Schema({"type": "object"})
    rows = VersionedSchema([(Version(1, 2), old), (Version(1, 8), None), (Version(1, 12), new)])
    expected = {1: None, 2: old, 7: old, 8: None, 11: None, 12: new, 39: new}
    assert {minor: rows.for_version(Version(1, minor)) for minor in expected} == expected


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "Expecting value: line 1 column 1 (char 0)"),
        (b'{"a" 1}', "Expecting ':' delimiter: line 1 column 6 (char 5)"),
        (b'{"a": \n x}', "Expecting value: line 2 column 2 (char 8)"),
    ],
)
def test_the_error_for_malformed_json_has_the_text_of_pythons_decoder(raw, words):
    with pytest.raises(Invalid) as caught:
        decode_json(raw)
    assert caught.value.message == f"Malformed JSON: {words}"


@pytest.mark.parametrize("raw", [b"[NaN]", b"\xff", b"[" * 100_000, b'["\\ud800"]'])
def test_json_that_only_one_of_two_decoders_refuses_is_refused(raw):
    with pytest.raises(Invalid, match="Malformed JSON: "):
        decode_json(raw)


@pytest.mark.parametrize(
    ("place", "bad"), list(product(["[%s]", '{"a": {"b": [%s]}}', "{%s: 1}", "%s"], ['"x\\u0000"']))
)
def test_a_nul_character_is_refused_anywhere_in_a_document(place, bad):
    with pytest.raises(Invalid, match="NUL"):
        decode_json((place % bad).encode())


def test_an_escaped_backslash_before_u0000_is_no_nul_character():
    assert decode_json(b'["\\\\u0000"]') == ["\\u0000"]


def test_a_query_keeps_order_and_repetitions_and_the_value_none_counts_as_absent():
    query = Query("a=1&b=None&a=2&b=3&c=")
    assert query.pairs == [("a", "1"), ("b", "None"), ("a", "2"), ("b", "3"), ("c", "")]
    assert (query.first("a"), query.first("b"), query.first("c"), query.first("d")) == ("1", "3", "", None)
    assert query.every("a") == ["1", "2"]
    assert query.names() == {"a", "b", "c"}


# --- hostile bodies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_deeper_than_a_hundred_levels_is_refused(opening, closing):
    assert decode_json(opening * 100 + b"1" + closing * 100)
    with pytest.raises(Invalid, match="nested more than 100 levels deep"):
        decode_json(opening * 101 + b"1" + closing * 101)


def test_many_lists_side_by_side_are_accepted():
    assert decode_json(b"[" + b",".join([b"[]"] * 500) + b"]") == [[]] * 500


def test_deep_nesting_with_a_nul_character_is_refused_without_recursion():
    with pytest.raises(Invalid):
        decode_json(b"[" * 1000 + rb'"\u0000"' + b"]" * 1000)


@pytest.mark.parametrize(
    "instance",
    [
        ["long"] * 100_000,
        {"name": "A" * 1_000_000},
        {f"key {number}": number for number in range(50_000)},
        {"name": list(range(100_000))},
        {"name": {"deep": [["x" * 1000] * 1000]}},
    ],
    ids=["list", "text", "keys", "values", "nested"],
)
def test_the_error_for_a_large_document_does_not_contain_it(instance):
    with pytest.raises(Invalid) as caught:
        SCHEMA.validate(instance, str)
    assert len(caught.value.message) < 1100


def test_the_error_for_a_large_document_has_the_fault_and_its_path():
    with pytest.raises(Invalid) as caught:
        SCHEMA.validate({"name": [0] * 20_000}, lambda error: f"{list(error.path)}: {error.message}")
    assert caught.value.message == "['name']: (a large document) is not of type \"string\""


def test_the_fault_in_a_very_large_document_is_not_located():
    with pytest.raises(Invalid) as caught:
        SCHEMA.validate({"name": [0] * 1_000_000}, lambda error: error.message)
    assert caught.value.message == "does not match the schema; the document is too large to locate the fault"
