"""Decides, row by row, how an OpenStack Placement database is imported, and which findings to report.

The peer's schema allows rows that refer to missing rows (few of its references are foreign keys), older releases left
some behind, and SQLite stores texts of any length. Each such row is left out, repaired or kept, and always reported.
Ids here are those of the peer's database; the target assigns its own.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from moorage.core.import_findings import ImportFinding, ImportFindingKind, ImportOutcome
from moorage.core.inventories import MAX_INT, inventory_faults
from moorage.placement.forest.model import Inventory

#: Owner of allocations that were written before 1.8, when requests named no owner. The peer has the same default.
INCOMPLETE = "00000000-0000-0000-0000-000000000000"

MAX_UUID, MAX_PROVIDER_NAME, MAX_NAME = 36, 200, 255


class PlacementFindingKind(ImportFindingKind):
    LOST_PROVIDER = ("lost-provider", ImportOutcome.LEFT_OUT, "rows of a missing provider")
    LOST_CLASS = ("lost-class", ImportOutcome.LEFT_OUT, "rows of a missing resource class")
    LOST_NAME = ("lost-name", ImportOutcome.LEFT_OUT, "references of providers to missing traits and aggregates")
    TOO_LONG = ("too-long", ImportOutcome.LEFT_OUT, "texts or numbers that no Placement accepts")
    EMPTY_CONSUMER = (
        "empty-consumer",
        ImportOutcome.LEFT_OUT,
        "consumers without allocations (Placement deletes a consumer with its last allocation)",
    )
    UNUSED = ("unused", ImportOutcome.LEFT_OUT, "aggregates, projects, users and consumer types without references")
    NO_CONSUMER = (
        "no-consumer",
        ImportOutcome.MENDED,
        "allocations without a consumer; a consumer with an incomplete owner is created for them",
    )
    LOST_OWNER = (
        "lost-owner",
        ImportOutcome.MENDED,
        "consumers whose project or user is missing; their owner becomes incomplete",
    )
    LOST_TYPE = ("lost-type", ImportOutcome.MENDED, "consumers whose type is missing; their type becomes unknown")
    RENAMED = ("renamed", ImportOutcome.MENDED, "providers without a usable name; their uuid becomes their name")
    NO_GENERATION = ("no-generation", ImportOutcome.MENDED, "providers without a generation; it becomes 0")
    LOST_PARENT = ("lost-parent", ImportOutcome.MENDED, "providers whose parent is missing; they become roots")
    LOOP = ("loop", ImportOutcome.MENDED, "providers that are their own ancestors; they become roots")
    WRONG_ROOT = (
        "wrong-root",
        ImportOutcome.MENDED,
        "providers whose root contradicts their parents; it is set from the parents",
    )
    TWICE = (
        "twice",
        ImportOutcome.MENDED,
        "several allocations of one consumer, provider and class; they are added up",
    )
    UNKNOWN_NAME = (
        "unknown-name",
        ImportOutcome.KEPT,
        "classes and traits that are neither custom nor standard in this release",
    )
    INCOMPLETE_OWNER = (
        "incomplete-owner",
        ImportOutcome.KEPT,
        "consumers with an incomplete owner; `moorage audit` finds their owners",
    )
    NO_INVENTORY = ("no-inventory", ImportOutcome.KEPT, "allocations of a class of which the provider has no inventory")
    OVER_CAPACITY = (
        "over-capacity",
        ImportOutcome.KEPT,
        "usage above the capacity; Placement refuses further claims until it is below",
    )
    IMPOSSIBLE = ("impossible", ImportOutcome.KEPT, "inventories with contradictory values")


# --- providers --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PeerProvider:
    id: int
    uuid: str
    name: str | None
    generation: int | None
    root_id: int | None
    parent_id: int | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ImportedProvider:
    """`root_id` and `parent_id` agree; `depth` is 0 on a root."""

    id: int
    uuid: str
    name: str
    generation: int
    root_id: int
    parent_id: int | None
    depth: int
    created_at: datetime
    updated_at: datetime


def imported_providers(
    rows: Sequence[PeerProvider], *, pads: bool = False
) -> Iterator[ImportedProvider | ImportFinding]:
    """Yields parents before their children.

    `pads`: the target treats names as equal if they differ only in trailing spaces.
    """
    usable = {row.id: row for row in rows if len(row.uuid) <= MAX_UUID}
    yield from (_too_long(f"resource_providers {row.id}", "uuid", row.uuid) for row in rows if row.id not in usable)
    parents, faults = _parents(usable)
    yield from faults
    names: set[str] = set()
    places: dict[int, tuple[int, int]] = {}  # {id: (root, depth)}
    for row in sorted(usable.values(), key=lambda row: row.id):
        for here in reversed(_unplaced(row.id, parents, places)):
            parent = parents[here]
            places[here] = (here, 0) if parent is None else (places[parent][0], places[parent][1] + 1)
    for row in sorted(usable.values(), key=lambda row: (places[row.id][1], row.id)):
        root_id, depth = places[row.id]
        name = row.name or ""
        key = name.rstrip(" ") if pads else name
        if not name or len(name) > MAX_PROVIDER_NAME or key in names:
            why = "it has no name" if not name else f"{_short(name)} is {'too long' if key not in names else 'taken'}"
            yield ImportFinding(
                PlacementFindingKind.RENAMED, row.uuid, f"provider {row.uuid} gets its uuid as name: {why}"
            )
            name = key = row.uuid
        names.add(key)
        if row.generation is None:
            yield ImportFinding(PlacementFindingKind.NO_GENERATION, row.uuid, f"provider {name} has no generation")
        if row.root_id != root_id:
            stored_root = usable[row.root_id].uuid if row.root_id in usable else "a missing provider"
            found = usable[root_id]
            yield ImportFinding(
                PlacementFindingKind.WRONG_ROOT,
                row.uuid,
                f"the root of {name} is {found.name or found.uuid} ({found.uuid}), not {stored_root}",
            )
        yield ImportedProvider(
            id=row.id,
            uuid=row.uuid,
            name=name,
            generation=row.generation or 0,
            root_id=root_id,
            parent_id=parents[row.id],
            depth=depth,
            created_at=row.created_at,
            updated_at=row.updated_at,
        )


def _parents(rows: Mapping[int, PeerProvider]) -> tuple[dict[int, int | None], list[ImportFinding]]:
    """{id: id of the parent}, without loops and without missing parents."""
    parents: dict[int, int | None] = {}
    faults = []
    for row in rows.values():
        parents[row.id] = row.parent_id
        if row.parent_id is not None and row.parent_id not in rows:
            parents[row.id] = None
            faults.append(
                ImportFinding(
                    PlacementFindingKind.LOST_PARENT,
                    row.uuid,
                    f"parent {row.parent_id} of {row.name or row.uuid} does not exist",
                )
            )
    sound: set[int] = set()
    for start in sorted(parents):
        path: list[int] = []
        here: int | None = start
        while here is not None and here not in sound and here not in path:
            path.append(here)
            here = parents[here]
        if here is not None and here in path:
            loop = path[path.index(here) :]
            cut = rows[min(loop)]
            parents[cut.id] = None
            faults.append(
                ImportFinding(
                    PlacementFindingKind.LOOP,
                    cut.uuid,
                    f"{cut.name or cut.uuid} is its own ancestor, in a loop of {len(loop)} providers",
                )
            )
        sound.update(path)
    return parents, faults


def _unplaced(start: int, parents: Mapping[int, int | None], places: Mapping[int, object]) -> list[int]:
    """The providers from `start` upwards whose root and depth are not known yet."""
    path = []
    here: int | None = start
    while here is not None and here not in places:
        path.append(here)
        here = parents[here]
    return path


# --- inventories, classes and traits ---------------------------------------------------------------------------


def name_finding(table: str, name: str, *, is_standard: bool) -> ImportFinding | None:
    """The reason to leave out a class or trait, or a remark on an imported one."""
    if len(name) > MAX_NAME:
        return _too_long(table, "name", name)
    if not is_standard and not name.startswith("CUSTOM_"):
        return ImportFinding(
            PlacementFindingKind.UNKNOWN_NAME, name, f"{name} is neither custom nor standard in this release"
        )
    return None


def inventory_findings(provider: str, name: str, inventory: Inventory) -> Iterator[ImportFinding]:
    """`provider` and `name` (of the class) are display names."""
    for fault in inventory_faults(inventory):
        yield ImportFinding(PlacementFindingKind.IMPOSSIBLE, provider, f"{name} on {provider}: {fault}")


def capacity_finding(provider: str, name: str, inventory: Inventory | None, used: int) -> ImportFinding | None:
    if inventory is None:
        return ImportFinding(
            PlacementFindingKind.NO_INVENTORY,
            provider,
            f"{used} {name} in use on {provider}, which has no inventory of it",
        )
    if used > inventory.capacity:
        return ImportFinding(
            PlacementFindingKind.OVER_CAPACITY,
            provider,
            f"{used} {name} in use on {provider}, which has a capacity of {inventory.capacity}",
        )
    return None


# --- consumers and allocations ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PeerConsumer:
    """`project`, `user` and `type` are None if the reference is missing or points to a missing row."""

    id: int
    uuid: str
    generation: int
    project: str | None
    user: str | None
    type: str | None
    type_id: int | None


@dataclass(frozen=True, slots=True)
class ImportedConsumer:
    uuid: str
    generation: int
    project: str
    user: str
    type: str | None


@dataclass(frozen=True, slots=True)
class PeerAllocation:
    provider_id: int
    class_id: int
    used: int
    written_at: datetime


@dataclass(frozen=True, slots=True)
class ImportedAllocation:
    used: int
    written_at: datetime


#: {(provider id, class id): the consumer's allocations there}
Holdings = Mapping[tuple[int, int], ImportedAllocation]


def imported_consumer(
    row: PeerConsumer, rows: Sequence[PeerAllocation], held: Holdings
) -> Iterator[ImportedConsumer | ImportFinding]:
    """Yields findings, then at most one `ImportedConsumer`.

    `rows`: its allocations; `held`: the imported ones of them.
    """
    for what, text, bound in (("uuid", row.uuid, MAX_UUID), ("project", row.project, MAX_NAME),
                              ("user", row.user, MAX_NAME), ("type", row.type, MAX_NAME)):  # fmt: skip
        if text is not None and len(text) > bound:
            yield _too_long(f"consumer {row.uuid}", what, text)
            return
    if not held:
        why = "all its allocations are left out" if rows else "it has no allocations"
        yield ImportFinding(PlacementFindingKind.EMPTY_CONSUMER, row.uuid, f"consumer {row.uuid}: {why}")
        return
    if row.project is None or row.user is None:
        missing = " and ".join(what for what, text in (("project", row.project), ("user", row.user)) if text is None)
        yield ImportFinding(
            PlacementFindingKind.LOST_OWNER, row.uuid, f"consumer {row.uuid}: its {missing} does not exist"
        )
    elif INCOMPLETE in (row.project, row.user):
        yield ImportFinding(
            PlacementFindingKind.INCOMPLETE_OWNER, row.uuid, f"consumer {row.uuid}: its owner was never set"
        )
    if row.type_id is not None and row.type is None:
        yield ImportFinding(
            PlacementFindingKind.LOST_TYPE, row.uuid, f"consumer {row.uuid}: type {row.type_id} does not exist"
        )
    yield ImportedConsumer(row.uuid, row.generation, row.project or INCOMPLETE, row.user or INCOMPLETE, row.type)


def consumer_without_row(uuid: str, held: Holdings) -> Iterator[ImportedConsumer | ImportFinding]:
    """A new consumer for allocations without one. Yields findings, then at most one `ImportedConsumer`."""
    if len(uuid) > MAX_UUID:
        yield _too_long("an allocation", "consumer", uuid)
    elif held:
        yield ImportFinding(
            PlacementFindingKind.NO_CONSUMER, uuid, f"consumer {uuid} does not exist, but its allocations do"
        )
        yield ImportedConsumer(uuid, 0, INCOMPLETE, INCOMPLETE, None)


def imported_allocations(
    consumer_uuid: str, rows: Iterable[PeerAllocation], provider_ids: Collection[int], class_ids: Collection[int]
) -> tuple[dict[tuple[int, int], ImportedAllocation], list[ImportFinding]]:
    """The allocations of one consumer, at most one per provider and class."""
    held: dict[tuple[int, int], ImportedAllocation] = {}
    findings = []
    for row in rows:
        place = row.provider_id, row.class_id
        if row.provider_id not in provider_ids:
            text = f"allocation of {consumer_uuid}: provider {row.provider_id} does not exist"
            findings.append(ImportFinding(PlacementFindingKind.LOST_PROVIDER, consumer_uuid, text))
        elif row.class_id not in class_ids:
            text = f"allocation of {consumer_uuid}: resource class {row.class_id} does not exist"
            findings.append(ImportFinding(PlacementFindingKind.LOST_CLASS, consumer_uuid, text))
        elif place not in held:
            held[place] = ImportedAllocation(row.used, row.written_at)
        elif held[place].used + row.used > MAX_INT:
            text = (
                f"allocation of {consumer_uuid}: the sum with others of the same provider and class exceeds {MAX_INT}"
            )
            findings.append(ImportFinding(PlacementFindingKind.TOO_LONG, consumer_uuid, text))
        else:
            before = held[place]
            held[place] = ImportedAllocation(before.used + row.used, max(before.written_at, row.written_at))
            text = f"allocation of {consumer_uuid}: {before.used} and {row.used} of the same provider and class"
            findings.append(ImportFinding(PlacementFindingKind.TWICE, consumer_uuid, text))
    return held, findings


def _too_long(where: str, what: str, text: str) -> ImportFinding:
    return ImportFinding(
        PlacementFindingKind.TOO_LONG, where, f"{where}: the {what} {_short(text)} has {len(text)} characters"
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
