"""A flavor as a request to Placement: its own fields, changed and extended by its extra specs.

Spec: docs/specs/flavor-resources.md

Keys that are read here, `S` being empty or a group suffix of 1 to 64 letters, digits, ``_`` and ``-``:

    resources<S>:<CLASS> = <amount>             0 takes the class out of the request
    trait<S>:<TRAIT>     = required|forbidden   the trait may be ``in:A,B``: any of these
    group_policy         = none|isolate         needed as soon as two groups have a suffix

Every other key is somebody else's and is left alone (``bitstream``, ``function``, ``accel:...``, ``hw:...``).

Nova ignores what it cannot read and places the server without it (measured on 34.0.0: ``resources:CUSTOM_X=-1``
gets a server and no CUSTOM_X). Here it is refused when the flavor is made, naming the key and the remedy.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from moorage.core.errors import Invalid
from moorage.core.names import DISABLED_HOST_TRAIT, RESERVED_HOST_TRAIT, is_custom, is_reservation_class

#: Largest amount that Placement takes for one class.
MAX_AMOUNT = 2**31 - 1
GROUP_POLICIES = ("none", "isolate")

_KEY = re.compile(r"(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*)\Z", re.DOTALL)
_KEY_LIKE = re.compile(r"(resources|trait)[^:]*:")
_AMOUNT = re.compile(r"\s*\d+\s*\Z", re.ASCII)


@dataclass(frozen=True)
class FlavorFields:
    """What of a flavor says how much a server takes. `root_gb` is 0 for a server that boots from a volume."""

    vcpus: int
    memory_mb: int
    root_gb: int
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """One request group: all of it comes from one provider (with a suffix) or from one tree (without)."""

    resources: Mapping[str, int] = field(default_factory=dict)
    required: tuple[str, ...] = ()  #: traits; ``in:A,B`` is any of these
    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResourceRequest:
    """`groups` by suffix (empty for the group without one); no group is without resources."""

    groups: Mapping[str, Group]
    group_policy: str | None = None

    @property
    def is_for_reserved(self) -> bool:
        """Whether it takes from a reservation, so that reserved hosts are open to it."""
        return any(is_reservation_class(name) for group in self.groups.values() for name in group.resources)


def check(extra_specs: Mapping[str, str]) -> None:
    """Raises `Invalid`, naming key and remedy, for extra specs that no server could be placed with."""
    specs = _parse(extra_specs)
    amounts = specs.totals()
    if not any(amounts.values()) and all(amounts.get(name) == 0 for name in ("VCPU", "MEMORY_MB", "DISK_GB")):
        raise Invalid(
            "resources:VCPU, resources:MEMORY_MB and resources:DISK_GB are all 0 and nothing else is asked for; "
            "add what a server of this flavor shall take, like resources:CUSTOM_BAREMETAL=1"
        )
    if amounts.get("VCPU") and amounts.get("PCPU"):
        raise Invalid("resources:VCPU and resources:PCPU exclude each other; keep one of them")
    _check_groups({suffix: specs.group(suffix) for suffix in specs.suffixes()}, specs.group_policy, own_fields=True)


def request_for(flavor: FlavorFields, image_properties: Mapping[str, str] | None = None) -> ResourceRequest:
    """What a server of `flavor` asks of Placement.

    A flavor of 2 VCPU, 512 MB and 10 GB with ``resources:CUSTOM_GOLD=1`` and ``resources:VCPU=0`` asks for
    ``{"CUSTOM_GOLD": 1, "DISK_GB": 10, "MEMORY_MB": 512}``. Raises `Invalid` as `check` does.
    """
    check(flavor.extra_specs)
    specs = _parse(flavor.extra_specs)
    groups = {suffix: specs.group(suffix) for suffix in specs.suffixes()}
    plain = groups.get("", Group())
    # An override counts wherever it stands: resources1:VCPU=2 moves the processors into group 1.
    overridden = specs.totals()
    own = {name: amount for name, amount in _own_amounts(flavor) if amount and name not in overridden}
    if "PCPU" in overridden:
        own.pop("VCPU", None)
        _check_processors(flavor, overridden["PCPU"])
    traits = (*plain.required, *_image_traits(image_properties or {}))
    groups[""] = Group(own | dict(plain.resources), tuple(dict.fromkeys(traits)), plain.forbidden)
    _check_groups(groups, specs.group_policy, own_fields=False)
    groups = {suffix: group for suffix, group in groups.items() if group.resources}
    if not groups:
        raise Invalid("the flavor asks for nothing: every amount is 0; add what its servers shall take")
    return ResourceRequest(groups, specs.group_policy)


def query_for(
    request: ResourceRequest, *, limit: int | None = None, in_tree: str | None = None
) -> list[tuple[str, str]]:
    """`request` as query parameters of ``GET /allocation_candidates``, in a stable order.

    ``[("resources", "MEMORY_MB:512,VCPU:2"), ("required", "CUSTOM_A,!CUSTOM_B"), ("resources_N", "CUSTOM_X:1"),
    ("root_required", "!CUSTOM_RESERVATION_HOST,!COMPUTE_STATUS_DISABLED")]``
    """
    query = []
    for suffix, group in sorted(request.groups.items()):
        amounts = ",".join(f"{name}:{amount}" for name, amount in sorted(group.resources.items()))
        query.append((f"resources{suffix}", amounts))
        query.extend((f"required{suffix}", text) for text in _trait_terms(group))
        if in_tree is not None:
            query.append((f"in_tree{suffix}", in_tree))
    if request.group_policy is not None and sum(1 for suffix in request.groups if suffix) > 1:
        query.append(("group_policy", request.group_policy))
    kept_off = [DISABLED_HOST_TRAIT] if request.is_for_reserved else [RESERVED_HOST_TRAIT, DISABLED_HOST_TRAIT]
    query.append(("root_required", ",".join(f"!{trait}" for trait in kept_off)))
    if limit is not None:
        query.append(("limit", str(limit)))
    return query


@dataclass(frozen=True)
class _Specs:
    """Extra specs, read: `amounts` by (suffix, class) with the zeros, `traits` by (suffix, trait)."""

    amounts: Mapping[tuple[str, str], int]
    traits: Mapping[tuple[str, str], bool]  #: True: required, False: forbidden
    group_policy: str | None

    def suffixes(self) -> list[str]:
        return sorted({suffix for suffix, _ in (*self.amounts, *self.traits)})

    def totals(self) -> dict[str, int]:
        """Amount by class over all groups; a class that was named only with 0 is there with 0."""
        totals: dict[str, int] = {}
        for (_, name), amount in self.amounts.items():
            totals[name] = totals.get(name, 0) + amount
        return totals

    def group(self, suffix: str) -> Group:
        traits = sorted((trait, wanted) for (where, trait), wanted in self.traits.items() if where == suffix)
        return Group(
            {name: amount for (where, name), amount in self.amounts.items() if where == suffix and amount},
            tuple(trait for trait, wanted in traits if wanted),
            tuple(trait for trait, wanted in traits if not wanted),
        )


def _parse(extra_specs: Mapping[str, str]) -> _Specs:
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
            traits[suffix, _trait(key, name)] = _is_required(key, value)
    policy = extra_specs.get("group_policy")
    if policy is not None and policy not in GROUP_POLICIES:
        raise Invalid(f"group_policy={policy}: use none or isolate")
    return _Specs(amounts, traits, policy)


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


def _trait(key: str, name: str) -> str:
    for trait in name.removeprefix("in:").split(","):
        if not is_custom(trait) and trait not in _standard_traits():
            remedy = "use a standard trait, or a custom one: CUSTOM_ and then A-Z, 0-9 and _ only"
            raise Invalid(f"{key}: there is no trait {trait!r}; {remedy}")
    return name


def _is_required(key: str, value: str) -> bool:
    if value not in ("required", "forbidden"):
        raise Invalid(f"{key}={value}: a trait is either required or forbidden")
    if value == "forbidden" and ":in:" in key:
        raise Invalid(f"{key}=forbidden: only single traits can be forbidden; write one key for each")
    return value == "required"


def _check_groups(groups: Mapping[str, Group], policy: str | None, *, own_fields: bool) -> None:
    """What Placement would refuse. With `own_fields` the flavor's own fields are still to come into group ""."""
    for suffix, group in groups.items():
        if (group.required or group.forbidden) and not group.resources and (suffix or not own_fields):
            trait = (group.required or group.forbidden)[0]
            where = f"group {suffix!r}" if suffix else "the group without a suffix"
            raise Invalid(
                f"trait{suffix}:{trait}: {where} asks for no resources that could have the trait; "
                f"add resources{suffix}:CLASS=AMOUNT or take the trait out"
            )
    with_suffix = sorted(suffix for suffix, group in groups.items() if suffix and group.resources)
    if len(with_suffix) > 1 and policy is None:
        raise Invalid(
            f"the groups {', '.join(with_suffix)} need group_policy: isolate (each from another provider) or none"
        )


def _own_amounts(flavor: FlavorFields) -> Iterator[tuple[str, int]]:
    yield "VCPU", flavor.vcpus
    yield "MEMORY_MB", flavor.memory_mb
    yield "DISK_GB", flavor.root_gb + flavor.ephemeral_gb + math.ceil(flavor.swap_mb / 1024)


def _check_processors(flavor: FlavorFields, pcpus: int) -> None:
    if pcpus not in (0, flavor.vcpus):
        raise Invalid(
            f"resources:PCPU={pcpus}: the flavor has {flavor.vcpus} vcpus; dedicated processors must be as many"
        )


def _image_traits(properties: Mapping[str, str]) -> list[str]:
    """An image may ask for traits (``trait:X=required``), never for resources."""
    traits = []
    for key, value in sorted(properties.items()):
        if key.startswith("trait:"):
            trait = _trait(f"image property {key}", key.removeprefix("trait:"))
            if value != "required":
                raise Invalid(f"image property {key}={value}: an image can only require traits")
            traits.append(trait)
    return traits


def _trait_terms(group: Group) -> Sequence[str]:
    """``A,!B`` in one parameter; each ``in:A,B`` in one of its own, as Placement wants it."""
    single = [trait for trait in group.required if not trait.startswith("in:")]
    plain = ",".join([*single, *(f"!{trait}" for trait in group.forbidden)])
    return [*([plain] if plain else []), *(trait for trait in group.required if trait.startswith("in:"))]


@cache
def _standard_classes() -> frozenset[str]:
    import os_resource_classes

    return frozenset(os_resource_classes.STANDARDS)


@cache
def _standard_traits() -> frozenset[str]:
    import os_traits

    return frozenset(os_traits.get_traits())
