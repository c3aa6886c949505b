"""The demand of one slot of a reservation on a host: resources of any class, or the whole host.

A host is a tree of resource providers, and several of them may have the same class: two NUMA nodes, four FPGA regions.
Each inventory of a class has a label: ``CUSTOM_FPGA``, ``CUSTOM_FPGA#1`` ... Calendars count usage per label.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeAlias

from moorage.core.errors import Invalid

#: {label: amount}, in calendars and in the stored slots.
Amounts: TypeAlias = Mapping[str, int]

#: The label for a whole host: such a slot takes 1 of it and excludes all other usage of the host. Resource classes
#: cannot contain an @.
WHOLE_HOST = "@host"

#: (required traits, forbidden traits) -> names of the providers that have all of the former and none of the latter.
ProvidersWith: TypeAlias = Callable[[tuple[str, ...], tuple[str, ...]], frozenset[str]]


def label(resource_class: str, place: int) -> str:
    """The label of the n-th inventory of a class on a host; `place` = n counts from 0.

    >>> label("VCPU", 0), label("VCPU", 1)
    ('VCPU', 'VCPU#1')
    """
    return f"{resource_class}#{place}" if place else resource_class


def class_of(label: str) -> str:
    return label.partition("#")[0]


def relabelled(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """{label in `after`: its new label}. `before` and `after` are {label: name of its provider}.

    A provider keeps its label from `before`; new providers get the first free label.

    >>> relabelled({"VCPU": "node0", "VCPU#1": "node1"}, {"VCPU": "node1", "VCPU#1": "node2"})
    {'VCPU': 'VCPU#1', 'VCPU#1': 'VCPU'}
    """
    places = {(class_of(name), provider): name for name, provider in before.items()}
    kept = {name: places[class_of(name), its] for name, its in after.items() if (class_of(name), its) in places}
    taken = set(kept.values())
    for name in after:
        if name not in kept:
            free = (label(class_of(name), place) for place in count())
            kept[name] = next(each for each in free if each not in taken)
            taken.add(kept[name])
    return {name: kept[name] for name in after}


@dataclass(frozen=True, slots=True)
class DemandGroup:
    """A request group. One provider supplies all resources of a suffixed group; the unsuffixed group may use several.

    A required trait of the unsuffixed group must be on some provider that supplies it; in a suffixed group, all traits
    must be on its one provider. `SlotDemand.known` fills in `having` (for each required trait, the names of the
    providers that have it) and `allowed` (the providers without forbidden traits; None: all).
    """

    resources: Amounts
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    having: tuple[frozenset[str], ...] = ()
    allowed: frozenset[str] | None = None

    @property
    def wanted(self) -> dict[str, int]:
        return {name: amount for name, amount in self.resources.items() if amount > 0}


@dataclass(frozen=True, slots=True)
class SlotDemand:
    resources: Amounts = field(default_factory=dict)  #: of the unsuffixed group, whose traits are in `plain`
    whole_host: bool = False
    plain: DemandGroup | None = None  #: the unsuffixed group, if it has traits
    groups: Mapping[str, DemandGroup] = field(default_factory=dict)  #: {suffix: group}
    isolate: bool = False  #: each of `groups` uses a different provider
    same_subtree: tuple[tuple[str, ...], ...] = ()
    root_required: tuple[str, ...] = ()
    root_forbidden: tuple[str, ...] = ()
    entire: frozenset[str] = frozenset()  #: classes of which a slot takes the whole inventory of a provider

    def __post_init__(self) -> None:
        # Blazar loops for ever on such a request (D6), because any number of empty slots fits.
        if not self.whole_host and not self.totals:
            raise Invalid("a reservation must request at least one resource, but all amounts are 0")

    @property
    def wanted(self) -> dict[str, int]:
        """{resource class: amount} of the unsuffixed group."""
        return {name: amount for name, amount in self.resources.items() if amount > 0}

    @property
    def totals(self) -> dict[str, int]:
        """{resource class: amount} of all groups together."""
        totals = self.wanted
        for group in self.groups.values():
            for name, amount in group.wanted.items():
                totals[name] = totals.get(name, 0) + amount
        return totals

    @property
    def is_simple(self) -> bool:
        """True if classes do not depend on each other, so that counting decides how many slots fit."""
        return not self.groups and self.plain is None

    def known(self, having: ProvidersWith) -> "SlotDemand":
        """This demand with `having` and `allowed` of its groups filled in from `having`."""
        if self.is_simple:
            return self

        def found(group: DemandGroup) -> DemandGroup:
            per_trait = tuple(_any_of(trait, having) for trait in group.required)
            allowed = having((), group.forbidden) if group.forbidden else None
            return replace(group, having=per_trait, allowed=allowed)

        plain = None if self.plain is None else found(self.plain)
        return replace(self, plain=plain, groups={suffix: found(group) for suffix, group in self.groups.items()})

    def __str__(self) -> str:
        """The form in refusals: ``2 VCPU, 512 MEMORY_MB``."""
        if self.whole_host:
            return "a whole host"
        parts = {name: " (the whole inventory of a provider)" if name in self.entire else "" for name in self.totals}
        return ", ".join(f"{n} {name}{parts[name]}" for name, n in self.totals.items())


def _any_of(trait: str, having: ProvidersWith) -> frozenset[str]:
    """The providers that have `trait`; ``in:A,B`` means any of these traits."""
    names = trait.removeprefix("in:").split(",")
    return frozenset[str]().union(*(having((name,), ()) for name in names))
