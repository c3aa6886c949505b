"""Providers, inventories, consumers, allocations and names; and whether an amount fits."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from moorage.core import inventories

K = TypeVar("K")
V = TypeVar("V")

#: Far more than all consumers can use, and sums with it still fit in 64 bits.
MAX_CAPACITY = 2**62

#: The trait that makes a provider share its inventory with the members of its aggregates.
SHARING_TRAIT = "MISC_SHARES_VIA_AGGREGATE"


@dataclass(frozen=True, slots=True)
class Inventory(inventories.Inventory):
    """Inventory of one resource class on one provider."""

    @property
    def capacity(self) -> int:
        """Units that may be allocated in total: ``(total - reserved) * allocation_ratio``, rounded down.

        May be less than the present usage (an operator can shrink an inventory).
        Source: placement API reference, "Update resource provider inventory".

        Limited to `-MAX_CAPACITY` ... `MAX_CAPACITY`, because arrays and JSON have 64 bits for it, while the peer's
        schema allows ratios up to 3e38 and has no lower bound.
        """
        return int(max(-MAX_CAPACITY, min(MAX_CAPACITY, (self.total - self.reserved) * self.allocation_ratio)))

    def allows(self, amount: int) -> bool:
        """Whether one consumer may hold exactly `amount`, regardless of usage."""
        return self.min_unit <= amount <= self.max_unit and amount % self.step_size == 0


@dataclass(frozen=True, slots=True)
class Provider:
    """The state of one resource provider at `revision`: all that searches and claims need."""

    id: int
    uuid: str
    name: str
    generation: int
    revision: int
    parent_id: int | None
    root_id: int
    inventories: Mapping[str, Inventory] = field(default_factory=dict)  # {class: inventory}
    used: Mapping[str, int] = field(default_factory=dict)  # {class: units held by all consumers}; no zeros needed
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    updated_at: datetime | None = None
    inventories_updated_at: datetime | None = None
    #: Cached parts of answers that depend only on this state: {name: JSON}. A changed provider is another object with
    #: an empty memo.
    memo: dict[str, bytes] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def is_root(self) -> bool:
        return self.parent_id is None

    @property
    def is_sharing(self) -> bool:
        return SHARING_TRAIT in self.traits

    def fits(self, resource_class: str, amount: int) -> bool:
        """Whether a new consumer could take `amount` here now."""
        inventory = self.inventories.get(resource_class)
        return (
            inventory is not None
            and inventory.allows(amount)
            and self.used.get(resource_class, 0) + amount <= inventory.capacity
        )


def changed_copy(before: Mapping[K, V], new: Mapping[K, V], gone: Iterable[K]) -> dict[K, V]:
    """`before` without the keys `gone` and with the items `new`; a key in both is kept."""
    copy = dict(before)
    for key in gone:
        copy.pop(key, None)
    copy.update(new)
    return copy


@dataclass(frozen=True, slots=True)
class NameTable:
    """Resource classes and traits by name; traits in the order of ids.

    Each reservation that has not ended has a class of its own, so there may be a hundred thousand classes.
    """

    classes: Mapping[str, "Name"] = field(default_factory=dict)
    traits: Mapping[str, "Name"] = field(default_factory=dict)

    def sorted_traits(self, names: Iterable[str]) -> list["Name"]:
        """Traits in the order of ids."""
        return sorted((self.traits[name] for name in names), key=lambda trait: trait.id)


@dataclass(frozen=True, slots=True)
class Consumer:
    """A holder of allocations, usually a server."""

    id: int
    uuid: str
    generation: int
    project_id: str
    user_id: str
    consumer_type: str | None


#: The allocations of a consumer: {provider id: {class: units}}
Holdings = Mapping[int, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Allocation:
    """One row of a consumer's allocations."""

    consumer_uuid: str
    consumer_generation: int
    provider_uuid: str
    provider_generation: int
    resource_class: str
    used: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Name:
    """A resource class or a trait."""

    id: int
    name: str
    standard: bool
    created_at: datetime
