"""``aggregate_instance_extra_specs:<KEY>=<VALUE>``: a server needs a host in an aggregate with such metadata.

As in Nova's AggregateInstanceExtraSpecsFilter, the metadata ``<KEY>`` may list several values separated by commas, and
``<VALUE>`` is a value or begins with an operator:

    =  ==  !=  >=  <=           numbers; ``=`` is ``>=``
    s==  s!=  s<  s<=  s>  s>=  text
    <in> A                      text that contains A
    <all-in> A B                text that contains all of these words
    <or> A <or> B               one of these

Pure: no I/O here.
"""

import operator
from collections.abc import Callable, Mapping

PREFIX = "aggregate_instance_extra_specs:"

_NUMBERS: Mapping[str, Callable[[float, float], bool]] = {
    "=": operator.ge, "==": operator.eq, "!=": operator.ne, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip
_TEXTS: Mapping[str, Callable[[str, str], bool]] = {
    "s==": operator.eq, "s!=": operator.ne, "s<": operator.lt, "s<=": operator.le, "s>": operator.gt,
    "s>=": operator.ge, "<in>": lambda text, part: part in text,
    "<all-in>": lambda text, parts: all(part in text for part in parts.split()),
}  # fmt: skip


def wanted_metadata(extra_specs: Mapping[str, str]) -> dict[str, str]:
    """{key of the metadata: value or operator and value} of a flavor's extra specs."""
    return {key.removeprefix(PREFIX): value for key, value in extra_specs.items() if key.startswith(PREFIX)}


def missing_metadata(wanted: Mapping[str, str], metadata: Mapping[str, frozenset[str]]) -> str | None:
    """The first key of `wanted` that no value in `metadata` matches, or None."""
    for key, value in wanted.items():
        offered = (one.strip() for text in metadata.get(key, ()) for one in text.split(","))
        if not any(matches(one, value) for one in offered):
            return key
    return None


def matches(offered: str, wanted: str) -> bool:
    """Whether one value of an aggregate satisfies ``wanted``; a text that is no number matches no number."""
    word, _, rest = wanted.strip().partition(" ")
    if word == "<or>":
        return offered in [one.strip() for one in wanted.split("<or>")[1:]]
    if word in _TEXTS:
        return _TEXTS[word](offered, rest.strip())
    if word in _NUMBERS:
        try:
            return _NUMBERS[word](float(offered), float(rest))
        except ValueError:
            return False
    return offered == wanted
