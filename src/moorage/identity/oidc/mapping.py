"""The mapping of a claim's values to roles in projects: the rules of ``mapping_file``. Pure.

A file is a list of rules. Each gives people whose claim has exactly this value a role in a project of the domain
default::

    - value: lab-physics
      project: physics
      role: member
"""

from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from moorage.core.errors import StartError

_KEYS = ("value", "project", "role")

#: Longest value, as of a name.
MAX_LENGTH = 255


@dataclass(frozen=True, slots=True)
class Grant:
    """A role by name in a project by name."""

    project: str
    role: str


@dataclass(frozen=True, slots=True)
class MappingRule:
    value: str
    grant: Grant


def parse_mapping(text: str, source: str) -> tuple[MappingRule, ...]:
    """The rules in the order of the file. Raises `StartError` with `source` and the number of the wrong rule."""
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise StartError(f"{source}: is not YAML: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(document, list) or not document:
        raise StartError(f"{source}: must be a list of rules, each with {', '.join(_KEYS)}")
    return tuple(_rule(row, f"{source}: rule {number}") for number, row in enumerate(document, 1))


def _rule(row: object, place: str) -> MappingRule:
    if not isinstance(row, dict):
        raise StartError(f"{place} must have {', '.join(_KEYS)}")
    if unknown := [str(key) for key in row if key not in _KEYS]:
        raise StartError(f"{place} has the unknown key {', '.join(unknown)}; a rule has {', '.join(_KEYS)}")
    for key in _KEYS:
        text = row.get(key)
        if not isinstance(text, str) or not 0 < len(text) <= MAX_LENGTH:
            raise StartError(f"{place}: {key} must be a text of 1 to {MAX_LENGTH} characters; put it in quotes")
    if row["role"] == "service":
        raise StartError(f"{place}: the role service is for the services of this cloud, which act for every project")
    return MappingRule(row["value"], Grant(row["project"], row["role"]))


def grants_of(rules: Sequence[MappingRule], claim: object) -> tuple[Grant, ...]:
    """What the rules grant for a claim, each grant once, in the order of the rules.

    `claim` is whatever the provider sent: a text, or a list whose texts count. Values are compared exactly.
    """
    values = {claim} if isinstance(claim, str) else set()
    if isinstance(claim, list):
        values = {value for value in claim if isinstance(value, str)}
    return tuple(dict.fromkeys(rule.grant for rule in rules if rule.value in values))
