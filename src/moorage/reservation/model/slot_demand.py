"""What one slot of a reservation takes of a host: resources of any class, or the host as a whole.

A host is a tree of resource providers, and several of them may have the same class: two NUMA nodes, four regions of
FPGAs. Each such place has a label, ``CUSTOM_FPGA``, ``CUSTOM_FPGA#1`` ..., which is what calendars count.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeAlias

from moorage.core.errors import Invalid

#: {label: amount}, as calendars count it and as the rows of slots keep it.
Amounts: TypeAlias = Mapping[str, int]

#: Whoever has a host as a whole takes 1 of this, and nobody else has any of that host then. No resource class has an @.
WHOLE_HOST = "@host"

#: (traits that all are required, traits that are forbidden) -> names of the providers that have and have not them.
ProvidersWith: TypeAlias = Callable[[tuple[str, ...], tuple[str, ...]], frozenset[str]]


def label(resource_class: str, place: int) -> str:
    """Of the class's n-th place on a host.

    >>> label("VCPU", 0), label("VCPU", 1)
    ('VCPU', 'VCPU#1')
    """
    return f"{resource_class}#{place}" if place else resource_class


def class_of(label: str) -> str:
    return label.partition("#")[0]


def relabelled(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """{label in `after`: the label that it gets}; both are {label: its provider's name}.

    A provider keeps the place that it has; others get the first that is free.

    >>> relabelled({"VCPU": "node0", "VCPU#1": "node1"}, {"VCPU": "node1", "VCPU#1": "node2"})
    {'VCPU': 'VCPU#1', 'VCPU#1': 'VCPU'}
    """
    places = {(class_of(name), provider): name for name, provider in before.items()}
    kept = {name: places[class_of(name), who] for name, who in after.items() if (class_of(name), who) in places}
    taken = set(kept.values())
    for name in after:
        if name not in kept:
            free = (label(class_of(name), place) for place in count())
            kept[name] = next(each for each in free if each not in taken)
            taken.add(kept[name])
    return {name: kept[name] for name in after}


@dataclass(frozen=True, slots=True)
class DemandGroup:
    """With a suffix, all of its resources are of one provider; without, each class may be of another one of the tree.

    A required trait of the group without suffix must be that of some provider that it takes from; those of the others
    are their one provider's. `having` is filled in by `Demand.known`: per required trait the providers that have it;
    `allowed` are those with no forbidden one.
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
    resources: Amounts = field(default_factory=dict)  #: of the group without suffix, whose traits are in `plain`
    whole_host: bool = False
    plain: DemandGroup | None = None  #: only where it has traits
    groups: Mapping[str, DemandGroup] = field(default_factory=dict)  #: {suffix: group}
    isolate: bool = False  #: each of `server_group_steps` is of another provider
    same_subtree: tuple[tuple[str, ...], ...] = ()
    root_required: tuple[str, ...] = ()
    root_forbidden: tuple[str, ...] = ()
    entire: frozenset[str] = frozenset()  #: classes of which a slot takes all that a place has, and nothing of others

    def __post_init__(self) -> None:
        # The peer loops for ever on such a request (D6): infinitely many instances of nothing fit anywhere.
        if not self.whole_host and not self.totals:
            raise Invalid("a reservation must ask for some amount of at least one resource; all are 0")

    @property
    def wanted(self) -> dict[str, int]:
        """Of the group without suffix."""
        return {name: amount for name, amount in self.resources.items() if amount > 0}

    @property
    def totals(self) -> dict[str, int]:
        """Of all groups."""
        totals = self.wanted
        for group in self.groups.values():
            for name, amount in group.wanted.items():
                totals[name] = totals.get(name, 0) + amount
        return totals

    @property
    def is_simple(self) -> bool:
        """Classes do not depend on each other: how many fit is a matter of counting."""
        return not self.groups and self.plain is None

    def known(self, having: ProvidersWith) -> "SlotDemand":
        """With the providers that have the traits, where it names any."""
        if self.is_simple:
            return self

        def found(group: DemandGroup) -> DemandGroup:
            per_trait = tuple(_any_of(trait, having) for trait in group.required)
            allowed = having((), group.forbidden) if group.forbidden else None
            return replace(group, having=per_trait, allowed=allowed)

        plain = None if self.plain is None else found(self.plain)
        return replace(self, plain=plain, groups={suffix: found(group) for suffix, group in self.groups.items()})

    def __str__(self) -> str:
        """As refusals name it: ``2 VCPU, 512 MEMORY_MB``."""
        if self.whole_host:
            return "a whole host"
        parts = {name: " (all that a provider has)" if name in self.entire else "" for name in self.totals}
        return ", ".join(f"{n} {name}{parts[name]}" for name, n in self.totals.items())


def _any_of(trait: str, having: ProvidersWith) -> frozenset[str]:
    """``in:A,B`` is any of these."""
    names = trait.removeprefix("in:").split(",")
    return frozenset[str]().union(*(having((name,), ()) for name in names))
