"""A flavor's extra specs, read: what is asked of Placement, key by key, and a clear word where a key cannot be meant.

Spec: docs/evidence/specs/flavor-resources.md

Keys that are read here, `S` being empty or a group suffix of 1 to 64 letters, digits, ``_`` and ``-``:

    resources<S>:<CLASS> = <amount>             0 takes the class out of the request
    trait<S>:<TRAIT>     = required|forbidden   the trait may be ``in:A,B``: any of these
    group_policy         = none|isolate         needed as soon as two groups have a suffix
    same_subtree         = <S>,<S>              these groups below one provider; more such sets after a ``;``
    root_required        = <TRAIT>,!<TRAIT>     traits that the host's own provider has, or has not

The last two are not Nova's (there they come from ports and from its own filters only); it passes them by.

Nova ignores what it cannot read and places the server without it (measured on 34.0.0: ``resources:CUSTOM_X=-1``
gets a server and no CUSTOM_X). Here it is refused when the flavor is made, naming the key and the remedy.

Not here: what the amounts add up to with the flavor's own fields (`flavor_resources`), processors (`processors`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from moorage.core.errors import Invalid
from moorage.core.names import is_custom

#: Largest amount that Placement takes for one class.
MAX_AMOUNT = 2**31 - 1
GROUP_POLICIES = ("none", "isolate")
POLICY_KEY, SUBTREE_KEY, ROOT_KEY = "group_policy", "same_subtree", "root_required"

_KEY = re.compile(r"(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*)\Z", re.DOTALL)
_KEY_LIKE = re.compile(r"(resources|trait)[^:]*:")
_AMOUNT = re.compile(r"\s*\d+\s*\Z", re.ASCII)


@dataclass(frozen=True)
class Specs:
    """`amounts` by (suffix, class) with the zeros, `traits` by (suffix, trait)."""

    amounts: Mapping[tuple[str, str], int]
    traits: Mapping[tuple[str, str], bool]  #: True: required, False: forbidden
    group_policy: str | None = None
    same_subtree: tuple[tuple[str, ...], ...] = ()  #: sets of suffixes
    root_required: tuple[str, ...] = ()
    root_forbidden: tuple[str, ...] = ()

    def suffixes(self) -> list[str]:
        return sorted({suffix for suffix, _ in (*self.amounts, *self.traits)})

    def totals(self) -> dict[str, int]:
        """Amount by class over all groups; a class that was named only with 0 is there with 0."""
        totals: dict[str, int] = {}
        for (_, name), amount in self.amounts.items():
            totals[name] = totals.get(name, 0) + amount
        return totals


def read(extra_specs: Mapping[str, str]) -> Specs:
    """Raises `Invalid`, naming key and remedy, for the first key that cannot be meant."""
    amounts: dict[tuple[str, str], int] = {}
    traits: dict[tuple[str, str], bool] = {}
    for key, value in extra_specs.items():
        match = _KEY.match(key)
        if match is None:
            if _KEY_LIKE.match(key):
                raise Invalid(f"{key}: a group suffix is 1 to 64 letters, digits, _ and -; rename the group")
            continue
        kind, suffix, name = match[1], match[2] or "", match[3]
        if kind == "resources":
            amounts[suffix, _resource_class(key, name)] = _amount(key, value)
        else:
            traits[suffix, trait_name(key, name)] = _is_required(key, value)
    policy = extra_specs.get(POLICY_KEY)
    if policy is not None and policy not in GROUP_POLICIES:
        raise Invalid(f"{POLICY_KEY}={policy}: use none or isolate")
    required, forbidden = _root_traits(extra_specs.get(ROOT_KEY))
    specs = Specs(amounts, traits, policy, _subtrees(extra_specs.get(SUBTREE_KEY)), required, forbidden)
    _check_subtrees(specs)
    return specs


def trait_name(key: str, name: str) -> str:
    """`name`, a trait or ``in:`` and several. Raises `Invalid` naming `key` where there is no such trait."""
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
            f"{key}={value}: an amount is a whole number from 0 to {MAX_AMOUNT}; 0 takes the class out of the request"
        )
    return int(value)


def _is_required(key: str, value: str) -> bool:
    if value not in ("required", "forbidden"):
        raise Invalid(f"{key}={value}: a trait is either required or forbidden")
    if value == "forbidden" and ":in:" in key:
        raise Invalid(f"{key}=forbidden: only single traits can be forbidden; write one key for each")
    return value == "required"


def _subtrees(value: str | None) -> tuple[tuple[str, ...], ...]:
    if value is None:
        return ()
    return tuple(tuple(suffix.strip() for suffix in text.split(",")) for text in value.split(";"))


def _check_subtrees(specs: Specs) -> None:
    known = {suffix for suffix in specs.suffixes() if suffix}
    for together in specs.same_subtree:
        for suffix in together:
            if suffix not in known:
                raise Invalid(
                    f"{SUBTREE_KEY}: there is no group with the suffix {suffix!r}; name groups that have "
                    f"resources<suffix>: or trait<suffix>: keys, like {SUBTREE_KEY}=_A,_B"
                )


def _root_traits(value: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(required, forbidden) of ``A,!B``."""
    if value is None:
        return (), ()
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
