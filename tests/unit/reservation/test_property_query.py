import pytest

from moorage.core.errors import Invalid
from moorage.reservation.model.property_query import matches, parse, properties_of

HOST = {"rack": "9", "gpu": "True", "vcpus": "16"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("  ", True),
        ("[]", True),
        ('["=", "$rack", "9"]', True),
        ('["==", "$gpu", "True"]', True),
        ('["!=", "$gpu", "True"]', False),
        ('["<", "$rack", "10"]', True),
        ('[">=", "$vcpus", 16]', True),
        ('["<=", "$vcpus", "15.5"]', False),
        ('["and", ["=", "$rack", "9"], ["=", "$gpu", "False"]]', False),
        ('["or", ["=", "$rack", "1"], ["=", "$gpu", "True"]]', True),
        ('["and", ["=", "$rack", "9"], ["and", ["=", "$gpu", "True"], ["=", "$vcpus", "8"]]]', False),
        ('["not", ["=", "$rack", "9"]]', False),
        ('["not", ["and", ["=", "$rack", "9"], ["=", "$gpu", "False"]]]', True),
        ('["not", ["=", "$colour", "red"]]', True),
        ('["in", "$rack", ["8", 9.0]]', True),
        ('["in", "$rack", ["8", "10"]]', False),
        ('["in", "$colour", ["red"]]', False),
        ('["not", ["in", "$gpu", ["True", "Maybe"]]]', False),
    ],
)
def test_a_query_matches_a_host_by_its_properties(text, expected):
    assert matches(parse(text), HOST) is expected


def test_numbers_are_compared_as_numbers():
    """In the peer, rack 10 is not greater than rack 9."""
    assert matches(parse('[">", "$rack", "9"]'), {"rack": "10"})


def test_other_texts_are_compared_as_texts():
    assert matches(parse('["<", "$zone", "b"]'), {"zone": "a"})
    assert not matches(parse('["=", "$rack", "nine"]'), HOST)


@pytest.mark.parametrize("operator", ["=", "!=", "<"])
def test_a_host_without_the_property_never_matches(operator):
    assert not matches(parse(f'["{operator}", "$colour", "red"]'), HOST)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('["or"]', "Malformed requirements ['or']"),
        ('[">=", "$vcpus", ""]', "is empty"),
        ('["=", "rack", "9"]', "must start with $"),
        ('["~", "$rack", "9"]', "expected [operator"),
        ('["=", "$rack"]', "expected"),
        ('["not"]', 'expected [operator, "$property", "value"], ["in"'),
        ('["not", ["=", "$a", "1"], ["=", "$b", "1"]]', "expected"),
        ('["in", "$rack", []]', "expected"),
        ('["in", "$rack", "9"]', "expected"),
        ('["in", "rack", ["9"]]', "must start with $"),
        ('["in", "$rack", [["9"]]]', "expected"),
        ('["in", "$rack", [' + ", ".join(['"1"'] * 65) + "]]", "more than 64"),
        ('["not", ' * 9 + '["=", "$a", "1"]' + "]" * 9, "nested deeper than 8"),
        ('["=", "$rack", ["9"]]', "expected"),
        ("{nonsense", "not JSON"),
        ('"rack"', "expected"),
        ("[" * 20 + "]" * 20, "expected"),
        ('["and", ' * 9 + '["=", "$a", "1"]' + "]" * 9, "nested deeper than 8"),
        ('["and", ' + ", ".join(['["=", "$a", "1"]'] * 65) + "]", "more than 64"),
        ('["=", "$a", "' + "x" * 9000 + '"]', "longer than 8192"),
    ],
)
def test_a_malformed_query_is_refused_with_the_reason(text, words):
    with pytest.raises(Invalid) as refusal:
        parse(text)
    assert refusal.value.message.startswith("Malformed requirements ")
    assert words in refusal.value.message


def test_the_names_of_the_properties_in_a_query_are_found():
    assert properties_of(parse('["and", ["=", "$a", "1"], ["or", ["=", "$b", "1"], ["<", "$a", "3"]]]')) == {"a", "b"}
