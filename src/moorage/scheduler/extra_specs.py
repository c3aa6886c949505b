"""Parses extra specs of flavors into requests to Placement, key by key; refuses invalid keys and values.

Spec: docs/evidence/specs/flavor-resources.md

Keys; `S` is empty or a group suffix of 1 to 64 letters, digits, ``_`` and ``-``:

    resources<S>:<CLASS> = <amount>             0 removes the class from the request
    trait<S>:<TRAIT>     = required|forbidden   the trait may be ``in:A,B``: any of these
    group_policy         = none|isolate         required if two or more groups have a suffix
    same_subtree         = <S>,<S>              these groups below one provider; ``;`` separates sets
    root_required        = <TRAIT>,!<TRAIT>     traits that the root provider must, or must not, have

Nova ignores the last two keys. Its own queries have these conditions only from ports and from its own filters.

Nova ignores keys and values that it cannot parse, and schedules the server without them (measured on 34.0.0: a server
of a flavor with ``resources:CUSTOM_X=-1`` gets no CUSTOM_X). Moorage refuses them when the flavor is changed, with the
key and the remedy, except for `IncompleteSpecs`, which is raised only when a server uses the flavor.
`check_known_specs` checks values that only hypervisors read, from microversion 2.86 on.

Not here: the table of all keys (`spec_table`), keys that no component honours (`spec_rules`), the totals together with
the flavor's own fields (`flavor_resources`), and processors (`processors`).
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from moorage.core.errors import Invalid
from moorage.core.names import is_custom
from moorage.scheduler.spec_table import is_of_known_namespace, similar_keys, spec_entry

#: Largest amount that Placement accepts for one class.
MAX_AMOUNT = 2**31 - 1
GROUP_POLICIES = ("none", "isolate")
POLICY_KEY, SUBTREE_KEY, ROOT_KEY = "group_policy", "same_subtree", "root_required"

_KEY = re.compile(r"(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*)\Z", re.DOTALL)
_KEY_LIKE = re.compile(r"(resources|trait)[^:]*:")
_AMOUNT = re.compile(r"\s*\d+\s*\Z", re.ASCII)


class IncompleteSpecs(Invalid):
    """No server could be placed with these extra specs, but further ones could complete them.

    Clients set and remove keys one by one and in any order, so a flavor may have such a set for a while.
    """


@dataclass(frozen=True)
class ExtraSpecs:
    """Parsed extra specs: `amounts` by (suffix, class), with zeros; `traits` by (suffix, trait)."""

    amounts: Mapping[tuple[str, str], int]
    traits: Mapping[tuple[str, str], bool]  #: True: required, False: forbidden
    suffixes: Sequence[str]  #: of all groups, sorted
    totals: Mapping[str, int]  #: amount by class over all groups; a class named only with 0 is included with 0
    group_policy: str | None = None
    same_subtree: tuple[tuple[str, ...], ...] = ()  #: sets of suffixes
    root_required: tuple[str, ...] = ()
    root_forbidden: tuple[str, ...] = ()


def read_extra_specs(extra_specs: Mapping[str, str]) -> ExtraSpecs:
    """Parses `extra_specs`. Raises `Invalid`, naming key and remedy, for the first invalid key or value."""
    amounts: dict[tuple[str, str], int] = {}
    traits: dict[tuple[str, str], bool] = {}
    totals: Counter[str] = Counter()
    for key, value in extra_specs.items():
        match = _KEY.match(key)
        if match is None:
            if _KEY_LIKE.match(key):
                raise Invalid(f"{key}: a group suffix is 1 to 64 letters, digits, _ and -; rename the group")
            continue
        kind, suffix, name = match[1], match[2] or "", match[3]
        if kind == "resources":
            amounts[suffix, _resource_class(key, name)] = amount = _amount(key, value)
            totals[name] += amount
        else:
            traits[suffix, trait_name(key, name)] = _is_required(key, value)
    policy = extra_specs.get(POLICY_KEY)
    if policy is not None and policy not in GROUP_POLICIES:
        raise Invalid(f"{POLICY_KEY}={policy}: use none or isolate")
    suffixes = sorted({suffix for suffix, _ in (*amounts, *traits)})
    required, forbidden = _root_traits(extra_specs[ROOT_KEY]) if ROOT_KEY in extra_specs else ((), ())
    subtrees = _subtrees(extra_specs[SUBTREE_KEY], suffixes) if SUBTREE_KEY in extra_specs else ()
    return ExtraSpecs(amounts, traits, suffixes, totals, policy, subtrees, required, forbidden)


def trait_name(key: str, name: str) -> str:
    """Checks and returns `name`: a trait, or ``in:`` and several.

    Raises `Invalid` naming `key` for an unknown trait.
    """
    for trait in name.removeprefix("in:").split(","):
        if not is_custom(trait) and trait not in _standard_traits():
            remedy = "use a standard trait, or a custom one: CUSTOM_ and then A-Z, 0-9 and _ only"
            raise Invalid(f"{key}: there is no trait {trait!r}; {remedy}")
    return name


def _resource_class(key: str, name: str) -> str:
    if is_custom(name) or name in _standard_classes():
        return name
    remedy = "use a standard class like VCPU, or a custom one: CUSTOM_ and then A-Z, 0-9 and _ only"
    raise Invalid(f"{key}: there is no resource class {name!r}; {remedy}")


def _amount(key: str, value: str) -> int:
    if _AMOUNT.match(value) is None or int(value) > MAX_AMOUNT:
        raise Invalid(
            f"{key}={value}: an amount is a whole number from 0 to {MAX_AMOUNT}; 0 removes the class from the request"
        )
    return int(value)


def _is_required(key: str, value: str) -> bool:
    if value not in ("required", "forbidden"):
        raise Invalid(f"{key}={value}: a trait is either required or forbidden")
    if value == "forbidden" and ":in:" in key:
        raise Invalid(f"{key}=forbidden: only single traits can be forbidden; write one key for each")
    return value == "required"


def _subtrees(value: str, suffixes: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The sets of suffixes in ``_A,_B;_C,_D``."""
    subtrees = tuple(tuple(suffix.strip() for suffix in text.split(",")) for text in value.split(";"))
    for together in subtrees:
        for suffix in together:
            if not suffix or suffix not in suffixes:
                raise IncompleteSpecs(
                    f"{SUBTREE_KEY}: there is no group with the suffix {suffix!r}; name groups that have "
                    f"resources<suffix>: or trait<suffix>: keys, like {SUBTREE_KEY}=_A,_B"
                )
    return subtrees


def _root_traits(value: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(required, forbidden) of ``A,!B``."""
    terms = [term.strip() for term in value.split(",")]
    names = [trait_name(f"{ROOT_KEY}={value}", term.removeprefix("!")) for term in terms]
    if any(name.startswith("in:") for name in names):
        raise Invalid(f"{ROOT_KEY}={value}: name single traits, like {ROOT_KEY}=HW_CPU_X86_AVX2,!CUSTOM_OLD")
    required = tuple(name for term, name in zip(terms, names, strict=True) if not term.startswith("!"))
    forbidden = tuple(name for term, name in zip(terms, names, strict=True) if term.startswith("!"))
    if both := set(required) & set(forbidden):
        raise Invalid(f"{ROOT_KEY}={value}: {min(both)} is required and forbidden; keep one of them")
    return required, forbidden


@cache
def _standard_classes() -> frozenset[str]:
    import os_resource_classes

    return frozenset(os_resource_classes.STANDARDS)


@cache
def _standard_traits() -> frozenset[str]:
    import os_traits

    return frozenset(os_traits.get_traits())


def check_known_specs(given: Mapping[str, str]) -> None:
    """Raises `Invalid` for an unknown key in a known namespace, and for a value that a known key does not accept.

    Below microversion 2.86 clients may set anything in these namespaces, so only keys that matter for scheduling are
    checked there. Source: the validators of Nova 34 (`nova.api.validation.extra_specs`), each value tried.
    """
    for key, value in given.items():
        entry = spec_entry(key)
        if entry is not None and re.fullmatch(entry.values, value) is None:
            raise Invalid(f"{key}={value}: this extra spec takes {entry.meaning}")
        if entry is None and ":" in key and is_of_known_namespace(key):
            near = ", ".join(f"there is {known}" for known in similar_keys(key))
            raise Invalid(f"{key}: there is no such extra spec; {near or 'see the reference of flavor extra specs'}")


def numbered_groups(groups: Sequence[Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """{suffix: group} of the device profile that a flavor names: group n has ``device_profile_<n>``, as in Nova."""
    return {f"device_profile_{number}": group for number, group in enumerate(groups)}


def device_profile_specs(extra_specs: Mapping[str, str], groups: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The extra specs that groups of device profiles add to a flavor's own `extra_specs`. `groups`: {suffix: group}.

    ``accel:`` keys of the profile have the group's suffix, too. The query to Placement and the host's attachments are
    thus both read from the server's copy of the flavor, which keeps them even if the profile changes later.
    """
    added = {}
    for suffix, group in groups.items():
        for key, value in group.items():
            kind, _, rest = key.partition(":")
            added[f"{kind}{suffix}:{rest}"] = str(value)
    own = read_extra_specs(extra_specs)
    # Nova's rule: with at most one group in the flavor itself, isolation cannot have been intended.
    if len([suffix for suffix in own.suffixes if suffix]) <= 1 and own.group_policy is None:
        added.setdefault(POLICY_KEY, "none")
    return added
