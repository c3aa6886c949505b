"""Parses the query parameters ``resources``, ``required``, ``member_of`` and ``in_tree``.

Shared by GET /resource_providers and GET /allocation_candidates. The wording of errors is the peer's.
"""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from moorage.core.errors import Invalid

#: (major, minor)
Microversion = tuple[int, int]

#: At least one name of each set is required.
AllOfAny = tuple[frozenset[str], ...]

_RESOURCES_FORM = (
    "Badly formed resources parameter. Expected resources query string parameter in form: "
    "?resources=VCPU:2,MEMORY_MB:1024. Got: {}."
)
_INVALID = "Invalid query string parameters: "
_FORM = f"{_INVALID}Expected 'required' parameter value of the form:"


@dataclass(frozen=True, slots=True)
class TraitFilter:
    """``required=A,!B&required=in:C,D`` is required ({A}, {C, D}), forbidden {B}."""

    required: AllOfAny = ()
    forbidden: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AggregateFilter:
    """``member_of=in:A,B&member_of=!C`` is required ({A, B},), forbidden {C}."""

    required: AllOfAny = ()
    forbidden: frozenset[str] = frozenset()


NO_TRAITS = TraitFilter()
NO_AGGREGATES = AggregateFilter()


#: The usual form of a UUID. `uuid.UUID` takes five times as long to check it.
_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z").match


def looks_like_uuid(text: object) -> bool:
    """Whether the peer accepts `text` as a UUID; it ignores dashes, braces, ``urn:uuid:`` and case."""
    if not isinstance(text, str):
        return False
    if _CANONICAL(text):
        return True
    try:
        return str(uuid.UUID(text)).replace("-", "") == _plain(text)
    except ValueError:
        return False


def canonical_uuid(text: str) -> str:
    """In lower case and with dashes, as stored. Raises `ValueError` if `text` is not a UUID."""
    return text if _CANONICAL(text) else str(uuid.UUID(text))


def _plain(text: str) -> str:
    return text.replace("urn:", "").replace("uuid:", "").strip("{}").replace("-", "").lower()


def parse_resources(text: str) -> dict[str, int]:
    """``VCPU:2,MEMORY_MB:512`` as {class: amount}. Raises `Invalid` for another form or an amount below 1."""
    if not text.strip():
        raise Invalid(_RESOURCES_FORM.format("empty string"))
    amounts: dict[str, int] = {}
    for part in text.split(","):
        name, colon, amount_text = part.partition(":")
        if not colon or ":" in amount_text:
            raise Invalid(_RESOURCES_FORM.format(part))
        try:
            amount = int(amount_text)
        except ValueError:
            raise Invalid(f"Requested resource {name} expected positive integer amount. Got: {amount_text}.") from None
        if amount < 1:
            raise Invalid(f"Requested resource {name} requires amount >= 1. Got: {amount}.")
        amounts[name] = amount
    return amounts


def parse_traits(values: Sequence[str], version: Microversion) -> TraitFilter:
    """The filter of all values of one ``required`` parameter. Below 1.39 only the last value counts, as with the peer.

    Raises `Invalid` for a form that `version` does not support, or an empty trait.
    """
    any_allowed = version >= (1, 39)
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for value in values if any_allowed else values[-1:]:
        if value.startswith("in:"):
            required.append(_any_traits(value, any_allowed))
        else:
            wanted, unwanted = trait_list(value, forbidden_allowed=version >= (1, 22))
            required += [frozenset((trait,)) for trait in sorted(wanted)]
            forbidden |= unwanted
    return TraitFilter(tuple(required), frozenset(forbidden))


def _any_traits(value: str, allowed: bool) -> frozenset[str]:
    form = "in:HW_CPU_X86_VMX,CUSTOM_MAGIC"
    if not allowed:
        raise Invalid(f"{_INVALID}The format '{form}' only supported since microversion 1.39. Got: {value}")
    traits = frozenset(part.strip() for part in value.removeprefix("in:").split(","))
    if "" in traits:
        raise Invalid(
            f"{_INVALID}Expected 'required' parameter value of the form: {form}. Got an empty trait in: {value}"
        )
    if any(trait.startswith("!") for trait in traits):
        raise Invalid(f"{_INVALID}The format '{form}' does not support forbidden traits. Got: {value}")
    return traits


def trait_list(value: str, *, forbidden_allowed: bool) -> tuple[set[str], set[str]]:
    """Parses ``A,!B``; returns (required, forbidden). As with the peer, ``!!B`` means ``!B``. Raises `Invalid`."""
    parts = [part.strip() for part in value.split(",")]
    forbidden = {part.lstrip("!") for part in parts if part.startswith("!")}
    if not all(parts) or "" in forbidden:
        form = "HW_CPU_X86_VMX,!CUSTOM_MAGIC" if forbidden_allowed else "HW_CPU_X86_VMX,CUSTOM_MAGIC"
        raise Invalid(f"{_FORM} {form}. Got an empty trait in: {value}")
    required = {part for part in parts if not part.startswith("!")}
    if forbidden and not forbidden_allowed:
        raise Invalid(f"{_FORM} HW_CPU_X86_VMX,CUSTOM_MAGIC. Got: {value}")
    return required, forbidden


def parse_member_of(values: Sequence[str], version: Microversion, suffix: str = "") -> AggregateFilter:
    """The filter of all values of one ``member_of`` parameter.

    Raises `Invalid` for a form that `version` does not support.
    """
    if len(values) > 1 and version < (1, 24):
        raise Invalid(f"Multiple member_of{suffix} parameters are not supported")
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for value in values:
        wanted, unwanted = _aggregates(value)
        if wanted:
            required.append(wanted)
        if unwanted and version < (1, 32):
            raise Invalid(f"Forbidden member_of{suffix} parameters are not supported in the specified microversion")
        forbidden |= unwanted
    return AggregateFilter(tuple(required), frozenset(forbidden))


def _aggregates(value: str) -> tuple[frozenset[str], frozenset[str]]:
    """Parses ``UUID``, ``in:UUID,UUID``, or one of these after ``!``; returns (required, forbidden)."""
    if "," in value and not value.startswith(("in:", "!in:")):
        raise Invalid(
            "Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword using the valid "
            f"microversion. Got: {value}"
        )
    listed = value.removeprefix("!")
    uuids = frozenset(listed.removeprefix("in:").split(",")) if listed.startswith("in:") else frozenset((listed,))
    for text in sorted(uuids):
        if not looks_like_uuid(text):
            raise Invalid(f"{_INVALID}Expected 'member_of' parameter to contain valid UUID(s). Got: {text}")
    return (frozenset(), uuids) if value.startswith("!") else (uuids, frozenset())


def parse_in_tree(value: str) -> str:
    text = value.strip()
    if not looks_like_uuid(text):
        raise Invalid(f"{_INVALID}Expected 'in_tree' parameter to be a format of uuid. Got: {value}")
    return text
