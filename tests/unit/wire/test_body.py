from itertools import product

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.core.errors import Invalid
from moorage.wire.body import Schema, Versioned, decode_json
from moorage.wire.call import Query
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
        schema.check(instance, str)
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


def test_a_refusal_is_in_the_words_of_the_service():
    with pytest.raises(Invalid) as caught:
        SCHEMA.check({"name": 7}, lambda error: f"{list(error.path)}: {error.message}")
    assert caught.value.message == "['name']: 7 is not of type 'string'"
    assert caught.value.error_code == "moorage.schema"


def test_of_several_schemas_the_newest_not_newer_than_the_request_applies():
    old, new = Schema({}), Schema({"type": "object"})
    rows = Versioned([(Version(1, 2), old), (Version(1, 8), None), (Version(1, 12), new)])
    expected = {1: None, 2: old, 7: old, 8: None, 11: None, 12: new, 39: new}
    assert {minor: rows.at(Version(1, minor)) for minor in expected} == expected


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "Expecting value: line 1 column 1 (char 0)"),
        (b'{"a" 1}', "Expecting ':' delimiter: line 1 column 6 (char 5)"),
        (b'{"a": \n x}', "Expecting value: line 2 column 2 (char 8)"),
    ],
)
def test_malformed_json_is_told_as_the_peers_tell_it(raw, words):
    with pytest.raises(Invalid) as caught:
        decode_json(raw)
    assert caught.value.message == f"Malformed JSON: {words}"


@pytest.mark.parametrize("raw", [b"[NaN]", b"\xff", b"[" * 100_000, b'["\\ud800"]'])
def test_what_only_one_decoder_refuses_is_refused(raw):
    with pytest.raises(Invalid, match="Malformed JSON: "):
        decode_json(raw)


@pytest.mark.parametrize(
    ("place", "bad"), list(product(["[%s]", '{"a": {"b": [%s]}}', "{%s: 1}", "%s"], ['"x\\u0000"']))
)
def test_a_nul_is_found_wherever_it_is(place, bad):
    with pytest.raises(Invalid, match="NUL"):
        decode_json((place % bad).encode())


def test_a_backslash_and_five_characters_are_no_nul():
    assert decode_json(b'["\\\\u0000"]') == ["\\u0000"]


def test_a_query_keeps_order_and_repetitions_and_takes_none_as_absent():
    query = Query("a=1&b=None&a=2&b=3&c=")
    assert query.pairs == [("a", "1"), ("b", "None"), ("a", "2"), ("b", "3"), ("c", "")]
    assert (query.first("a"), query.first("b"), query.first("c"), query.first("d")) == ("1", "3", "", None)
    assert query.every("a") == ["1", "2"]
    assert query.names() == {"a", "b", "c"}
