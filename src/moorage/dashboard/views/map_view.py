"""The map page: totals per resource class and aggregate, rows of hosts, and one provider tree with its devices.

Built from placement's ``/moorage/v1/survey`` and ``trees``, compute's aggregates, the accelerator service's attach
handles and the reservation service's allocations. Pure.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from moorage.core.ids import is_uuid
from moorage.core.names import reservation_class, reservation_zone
from moorage.dashboard.views.host_slots import Lent, lent
from moorage.dashboard.views.host_use import (
    DISABLED,
    FOR_LEASES,
    RESERVATION_CLASS,
    HostUse,
    host_use,
    lent_aggregates,
)
from moorage.dashboard.views.reservation_documents import SlotDocument
from moorage.dashboard.views.units import amount_text, class_words

Document = Mapping[str, Any]

#: Resource classes shown per host in the list; the host's own page shows all.
CLASSES_OF_ROW = 5
_FIRST = ("VCPU", "PCPU", "MEMORY_MB", "DISK_GB")
_REGION = re.compile(r"^(?P<device>.+)_(?P<region>R\d+)$")
_FUNCTION = re.compile(r"_FUNCTION_(?P<uuid>[0-9A-F]{8}(?:_[0-9A-F]{4}){3}_[0-9A-F]{12})$")
_SHARES = "MISC_SHARES_VIA_AGGREGATE"


@dataclass(frozen=True, slots=True)
class UsageBar:
    """Usage of one resource class: `used` of `capacity`, and the reserved amount. Widths are percent of the total."""

    name: str
    used: int
    capacity: int
    reserved: int = 0
    providers: int = 1
    lease_id: str = ""  #: of the lease that owns this reservation class
    lease_name: str = ""

    @property
    def words(self) -> str:
        return class_words(self.name)

    @property
    def is_of_reservation(self) -> bool:
        """The class counts the slots of one reservation. The same amounts are in the classes of its servers."""
        return self.name.startswith(RESERVATION_CLASS)

    @property
    def numbers(self) -> str:
        """``3 of 16``, ``12 GiB of 441 GiB``"""
        return f"{amount_text(self.name, self.used)} of {amount_text(self.name, self.capacity)}"

    @property
    def free_text(self) -> str:
        return amount_text(self.name, self.free)

    @property
    def reserved_text(self) -> str:
        return amount_text(self.name, self.reserved)

    @property
    def whole(self) -> int:
        return max(self.capacity, self.used) + self.reserved

    @property
    def used_width(self) -> float:
        return round(100 * self.used / self.whole, 2) if self.whole else 0.0

    @property
    def reserved_width(self) -> float:
        return round(100 * self.reserved / self.whole, 2) if self.whole else 0.0

    @property
    def is_over(self) -> bool:
        """More is in use than the capacity: an operator has shrunk the inventory."""
        return self.used > self.capacity

    @property
    def is_busy(self) -> bool:
        """Something is in use or reserved, so a bar says more than the numbers."""
        return bool(self.used or self.reserved)

    @property
    def free(self) -> int:
        return max(0, self.capacity - self.used)


@dataclass(frozen=True, slots=True)
class Part:
    """The provider trees in one aggregate."""

    name: str
    trees: int
    bars: tuple[UsageBar, ...]
    uuid: str
    zone: str  #: empty if the aggregate has no availability zone
    title: str  #: the name in compute, or the UUID


@dataclass(frozen=True, slots=True)
class Overview:
    trees: int
    providers: int
    bars: tuple[UsageBar, ...]
    reservation_classes: int  #: classes of reservations, shown or not
    left_out: int
    aggregates: tuple[Part, ...]
    aggregates_left_out: int


def overview(survey: Document, aggregates: Sequence[Document] = (), *, with_reservations: bool = False) -> Overview:
    """`aggregates`: compute's, with names and zones. One that belongs to a reservation has its ID as its name, and is
    shown by words.

    `with_reservations`: also show the classes and aggregates of single reservations.
    """
    known, lent = {one["uuid"]: one for one in aggregates}, lent_aggregates(aggregates)
    parts = [
        _part(one, known.get(one["uuid"], {}), with_reservations=with_reservations)
        for one in survey["aggregates"]
        if with_reservations or one["uuid"] not in lent
    ]
    return Overview(
        trees=survey["trees"],
        providers=survey["providers"],
        bars=bars_of(survey, with_reservations=with_reservations),
        reservation_classes=sum(bar.is_of_reservation for bar in bars_of(survey)),
        left_out=survey["resource_classes_left_out"],
        aggregates=tuple(sorted(parts, key=lambda part: (part.zone, part.name, part.uuid))),
        aggregates_left_out=survey["aggregates_left_out"],
    )


def _part(one: Document, known: Document, *, with_reservations: bool) -> Part:
    """`known`: the aggregate in compute, empty if it has none with this UUID."""
    name, zone = str(known.get("name") or ""), str(known.get("availability_zone") or "")
    words = (
        f"Unknown to compute, {one['uuid'][:8]}…" if not name else "Hosts of a reservation" if is_uuid(name) else name
    )
    of_lease = zone.startswith(reservation_zone(""))
    bars = bars_of(one, with_reservations=with_reservations)
    return Part(words, one["trees"], bars, one["uuid"], "of a lease" if of_lease else zone, name or one["uuid"])


def bars_of(document: Document, *, with_reservations: bool = True) -> tuple[UsageBar, ...]:
    """Bars from totals per resource class; standard classes first."""
    rows = [
        UsageBar(one["name"], one["used"], one["capacity"], providers=one["providers"])
        for one in document["resource_classes"]
        if with_reservations or not one["name"].startswith(RESERVATION_CLASS)
    ]
    return tuple(sorted(rows, key=lambda bar: _class_order(bar.name)))


def _class_order(name: str) -> tuple[int, str]:
    place = _FIRST.index(name) if name in _FIRST else len(_FIRST) + name.startswith(RESERVATION_CLASS)
    return place, name


@dataclass(frozen=True, slots=True)
class HostRow:
    uuid: str
    name: str
    kind: str
    providers: int
    bars: tuple[UsageBar, ...]
    more: int  #: classes not shown in this row
    flags: tuple["Flag", ...]
    state: HostUse


def host_rows(
    page: Document, aggregates: Sequence[Document] = (), *, with_reservations: bool = False
) -> tuple[HostRow, ...]:
    """`aggregates`: compute's. `with_reservations`: also show the classes of reservations."""
    lent = lent_aggregates(aggregates)
    return tuple(_row(tree, host_use(tree, lent), with_reservations=with_reservations) for tree in page["trees"])


def _row(tree: Document, state: HostUse, *, with_reservations: bool) -> HostRow:
    bars, traits = bars_of(tree, with_reservations=with_reservations), frozenset(tree["traits"])
    kind = kind_of(tree["name"], traits, is_root=True)
    shown = traits - {DISABLED} if state is HostUse.DISABLED else traits  # the state says it
    return HostRow(
        tree["uuid"], tree["name"], kind, tree["providers"], bars[:CLASSES_OF_ROW],
        max(0, len(bars) - CLASSES_OF_ROW), (*_trait_flags(shown), *_over(bars)), state,
    )  # fmt: skip


# --- one tree -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Flag:
    """A remark on a provider. `tone` is the badge's style: good, warn, bad or empty."""

    text: str
    tone: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class HandleView:
    """An attach handle, with the server that uses it or the reason why it is unavailable."""

    address: str
    state: str
    tone: str
    reason: str
    server: str  #: its uuid
    server_name: str
    request: str


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    """A consumer and its allocations on one provider. `kind`: server, migration, or the consumer type."""

    consumer: str
    name: str
    kind: str
    project: str
    amounts: str


@dataclass
class TreeNode:
    """A provider of the tree, or a card that groups its regions (with an empty `uuid`)."""

    uuid: str
    label: str
    name: str
    kind: str
    bars: tuple[UsageBar, ...] = ()
    flags: tuple[Flag, ...] = ()
    functions: tuple[str, ...] = ()
    bitstream: str = ""
    device: str = ""  #: UUID in the accelerator service
    traits: tuple[str, ...] = ()
    handles: tuple[HandleView, ...] = ()
    holders: tuple[ConsumerRow, ...] = ()
    leases: tuple[Lent, ...] = ()  #: set on the root only
    children: list["TreeNode"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HostContext:
    """Data from other services: server names by UUID, the host's attach handles, the slots that are held now."""

    servers: Mapping[str, str] = field(default_factory=dict)
    handles: Sequence[Document] = ()
    slots: Sequence[SlotDocument] = ()


def provider_tree(document: Document, around: HostContext) -> TreeNode:
    """The root node. Children are sorted by name; the regions of a card are grouped below it."""
    by_parent: dict[str | None, list[Document]] = defaultdict(list)
    known = {one["uuid"] for one in document["providers"]}
    for one in document["providers"]:
        # In a past state, a parent may be missing; its children are shown below the root.
        parent = one["parent_provider_uuid"]
        by_parent[parent if parent in known else None].append(one)
    holders, handles = _holders(document.get("holders") or (), around.servers), _by_provider(around.handles)
    owners = {reservation_class(one["id"]): (str(one["lease_id"]), str(one["lease_name"])) for one in around.slots}

    def grown(one: Document) -> TreeNode:
        node = _node(one, handles.get(one["uuid"], ()), around.servers)
        node.holders = tuple(holders.get(one["uuid"], ()))
        node.bars = tuple(
            replace(bar, lease_id=owners[bar.name][0], lease_name=owners[bar.name][1]) if bar.name in owners else bar
            for bar in node.bars
        )
        below = [grown(child) for child in sorted(by_parent[one["uuid"]], key=lambda child: str(child["name"]))]
        node.children = _by_card(below)
        return node

    first, *others = by_parent[None]
    root = grown(first)
    root.children += [grown(one) for one in others]
    root.leases = lent(around.slots)
    for node in every_node(root):
        node.label = _label(node, root.name)
    return root


def every_node(node: TreeNode) -> Iterable[TreeNode]:
    yield node
    for child in node.children:
        yield from every_node(child)


def kind_of(name: str, traits: frozenset[str], *, is_root: bool) -> str:
    """The kind of a provider; the first match wins."""
    kinds = {
        "NUMA node": "HW_NUMA_ROOT" in traits,
        "reservations": name.startswith("blazar_"),
        "shared": _SHARES in traits,
        "host": is_root,
        "region": any("_REGION_" in trait for trait in traits),
        "device": "OWNER_CYBORG" in traits,
    }
    return next((kind for kind, holds in kinds.items() if holds), "provider")


def _node(one: Document, handles: Sequence[Document], servers: Mapping[str, str]) -> TreeNode:
    traits = frozenset(one["traits"])
    bars = _bars(one)
    functions = [match["uuid"].replace("_", "-").lower() for trait in traits if (match := _FUNCTION.search(trait))]
    first = handles[0] if handles else {}
    return TreeNode(
        one["uuid"], one["name"], one["name"], kind_of(one["name"], traits, is_root=not one["parent_provider_uuid"]),
        bars, (*_trait_flags(traits), *_over(bars), *_device_flags(first), *_kept_back(bars, handles)),
        tuple(sorted(functions)), first.get("bitstream_id") or "", first.get("device_uuid") or "",
        tuple(sorted(traits)), tuple(_handle(handle, servers) for handle in handles),
    )  # fmt: skip


def _bars(provider: Document) -> tuple[UsageBar, ...]:
    found = []
    for name, inventory in provider["inventories"].items():
        ratio = inventory["allocation_ratio"]
        capacity = int((inventory["total"] - inventory["reserved"]) * ratio)
        whole = int(inventory["total"] * ratio)
        found.append(
            UsageBar(name, provider["usages"].get(name, 0), max(0, capacity), max(0, min(whole, whole - capacity)))
        )
    return tuple(sorted(found, key=lambda bar: _class_order(bar.name)))


def _trait_flags(traits: frozenset[str]) -> list[Flag]:
    flags = []
    if DISABLED in traits:
        flags.append(Flag("drained", "warn", "the scheduler places no new servers here"))
    if FOR_LEASES in traits:
        flags.append(Flag("for leases", "", "only servers of leases can be placed here"))
    return flags


def _over(bars: Iterable[UsageBar]) -> list[Flag]:
    return [Flag(f"{bar.words} overcommitted", "bad", f"{bar.numbers} in use") for bar in bars if bar.is_over]


def _device_flags(handle: Document) -> list[Flag]:
    flags = []
    if handle and handle["health"] != "ok":
        flags.append(Flag(str(handle["health"]), "bad", "reported by its driver; no request is bound here"))
    if handle and handle["status"] != "enabled":
        flags.append(Flag(str(handle["status"]), "warn", "an administrator has disabled the device"))
    return flags


def _kept_back(bars: Iterable[UsageBar], handles: Sequence[Document]) -> list[Flag]:
    """Flags for reserved amounts that no attach handle explains."""
    if any(handle["state"] in _TONES for handle in handles):
        return []
    return [
        Flag(f"{bar.words}: {bar.reserved_text} kept back", "", "not available to servers")
        for bar in bars
        if bar.reserved
    ]


_TONES = {"dirty": "warn", "cleaning": "warn", "quarantined": "bad"}
_STATE_TONES = {"free": "good", **_TONES}


def _handle(handle: Document, servers: Mapping[str, str]) -> HandleView:
    state = handle["state"]
    return HandleView(
        handle["handle"], state, _STATE_TONES.get(state, ""), handle["reason"] or _WHY.get(state, ""),
        handle["instance_uuid"] or "", servers.get(handle["instance_uuid"], ""), handle["request_uuid"] or "",
    )  # fmt: skip


_WHY = {
    "dirty": "released by its last server; must be cleaned before reuse",
    "cleaning": "the data of its last server is being erased",
}


def _by_provider(handles: Iterable[Document]) -> dict[str, list[Document]]:
    found: dict[str, list[Document]] = defaultdict(list)
    for handle in handles:
        if handle["rp_uuid"]:
            found[handle["rp_uuid"]].append(handle)
    return found


def _holders(holders: Iterable[Document], servers: Mapping[str, str]) -> dict[str, list[ConsumerRow]]:
    """{provider UUID: its consumers}"""
    found: dict[str, list[ConsumerRow]] = defaultdict(list)
    for one in holders:
        consumer, kind = one["consumer"], (one["consumer_type"] or "unknown").lower()
        for provider, amounts in one["allocations"].items():
            ordered = sorted(amounts, key=_class_order)
            found[provider].append(
                ConsumerRow(
                    consumer,
                    servers.get(consumer, ""),
                    "server" if kind == "instance" else kind,
                    one["project_id"],
                    ", ".join(f"{class_words(name)} {amount_text(name, amounts[name])}" for name in ordered),
                )
            )
    return found


def _by_card(nodes: list[TreeNode]) -> list[TreeNode]:
    """Groups the regions of one card below a node for the card."""
    cards: dict[str, TreeNode] = {}
    placed: list[TreeNode] = []
    for node in nodes:
        match = _REGION.match(node.name) if node.kind == "region" else None
        if match is None:
            placed.append(node)
            continue
        card = cards.get(match["device"])
        if card is None:
            card = cards[match["device"]] = TreeNode("", match["device"], match["device"], "device", device=node.device)
            placed.append(card)
        card.children.append(node)
    return placed


def _label(node: TreeNode, root: str) -> str:
    """The name without the part that repeats a parent's name."""
    region = _REGION.match(node.name) if node.kind == "region" else None
    if region is not None:
        return region["region"]
    return node.name.removeprefix(f"{root}_") or node.name
