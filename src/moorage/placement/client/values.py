"""Values of the placement client: providers, consumers and explanations, decoded from the wire."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NotRequired, TypedDict

from moorage.core.inventories import Inventory

Resources = Mapping[str, int]


@dataclass(frozen=True)
class Provider:
    uuid: str
    name: str
    generation: int
    parent_uuid: str | None
    root_uuid: str


@dataclass(frozen=True)
class ProviderState:
    """Everything about a provider, as `PlacementClient.tree_states` returns it.

    `held` ({consumer: {class: units}}) was read after the rest. If its sums differ from `usages`, a write happened in
    between.
    """

    provider: Provider
    inventories: Mapping[str, Inventory]
    traits: frozenset[str]
    aggregates: frozenset[str]
    usages: Resources
    held: Mapping[str, Resources]


@dataclass(frozen=True)
class Consumer:
    """A consumer and its allocations. `generation` is None if it has none."""

    uuid: str
    generation: int | None
    project_id: str
    user_id: str
    type: str
    allocations: Mapping[str, Resources]  # {provider uuid: {class: amount}}
    written_at: datetime  #: when the newest of them was written
    #: Distinguishes successive consumers with this uuid; None from OpenStack Placement, which does not have it.
    incarnation: str | None = None


class ProviderDocument(TypedDict):
    uuid: str
    name: str
    generation: int
    parent_provider_uuid: str | None
    root_provider_uuid: str


class InventoryDocument(TypedDict):
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float


class ProviderStateDocument(ProviderDocument):
    inventories: Mapping[str, InventoryDocument]
    traits: list[str]
    aggregates: list[str]
    usages: Resources


class HolderDocument(TypedDict):
    consumer: str
    allocations: Mapping[str, Resources]


class TreeDocument(TypedDict):
    is_cut: bool
    holders: list[HolderDocument]
    providers: list[ProviderStateDocument]


def decode_provider(document: ProviderDocument) -> Provider:
    return Provider(
        uuid=document["uuid"],
        name=document["name"],
        generation=document["generation"],
        parent_uuid=document["parent_provider_uuid"],
        root_uuid=document["root_provider_uuid"],
    )


def decode_tree_states(document: TreeDocument) -> list[ProviderState]:
    """Decodes the answer about one tree. If it was cut, `held` is empty everywhere and so differs from `usages`."""
    held: dict[str, dict[str, Resources]] = {}
    for holder in () if document["is_cut"] else document["holders"]:
        for uuid, units in holder["allocations"].items():
            held.setdefault(uuid, {})[holder["consumer"]] = units
    return [
        ProviderState(
            decode_provider(one),
            {name: Inventory(**record) for name, record in one["inventories"].items()},
            frozenset(one["traits"]),
            frozenset(one["aggregates"]),
            one["usages"],
            held.get(one["uuid"], {}),
        )
        for one in document["providers"]
    ]


@dataclass(frozen=True)
class FunnelStep:
    constraint: str
    before: int
    after: int
    removed: tuple[str, ...]  #: reasons why hosts were removed


@dataclass(frozen=True)
class Closest:
    """A host that nearly fits."""

    provider: str
    lacks: tuple[str, ...]


@dataclass(frozen=True)
class Relaxation:
    """The smallest change of a query after which `provider` could serve it."""

    provider: str
    parts: tuple[str, ...]  #: descriptions of the changes
    query: str  #: the changed query


@dataclass(frozen=True)
class Explanation:
    """`closest` and `change` are set if there is no candidate."""

    text: str
    candidates: int = 0
    steps: tuple[FunnelStep, ...] = ()
    closest: tuple[Closest, ...] = ()
    change: Relaxation | None = None


class RemovedDocument(TypedDict):
    reason: str


class FunnelStepDocument(TypedDict):
    constraint: str
    before: int
    after: int
    removed: list[RemovedDocument]


class ClosestDocument(TypedDict):
    provider: str
    lacks: list[str]


class RelaxationDocument(TypedDict):
    provider: str
    parts: list[str]
    query: str


class ExplanationDocument(TypedDict):
    text: str
    candidates: NotRequired[int]
    steps: list[FunnelStepDocument]
    closest: NotRequired[list[ClosestDocument]]
    change: NotRequired[RelaxationDocument | None]


def decode_explanation(document: ExplanationDocument) -> Explanation:
    steps = tuple(
        FunnelStep(
            step["constraint"],
            step["before"],
            step["after"],
            tuple(removed["reason"] for removed in step["removed"]),
        )
        for step in document["steps"]
    )
    closest = tuple(Closest(host["provider"], tuple(host["lacks"])) for host in document.get("closest", ()))
    change = document.get("change")
    return Explanation(
        document["text"],
        document.get("candidates", 0),
        steps,
        closest,
        change and Relaxation(change["provider"], tuple(change["parts"]), change["query"]),
    )
