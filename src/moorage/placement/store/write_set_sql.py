"""SQL that writes a write set: the differences between the states before and after the transaction.

It decides nothing and reads nothing again. Deletes come first, then updates, then inserts, and the change log last.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from moorage.db.statements import Command, Row, Rows, Statement, delete, insert, update
from moorage.placement.forest.change_entries import (
    ChangeDocument,
    consumer_document,
    deleted_provider_document,
    provider_document,
    usages_document,
)
from moorage.placement.forest.model import Consumer, NameTable, Provider
from moorage.placement.rules.write_set import ConsumerAllocations, WriteSet

#: Takes the next change number and returns it. No other process writes until the commit, because every writer begins
#: with this statement (on Galera, another node's writer may; one of the two commits fails). MariaDB has RETURNING for
#: INSERT, and none for UPDATE.
TAKE_NUMBER = Statement(
    {
        "postgresql": "UPDATE change_sequence SET last = last + 1 WHERE id = 1 RETURNING last",
        "sqlite": "UPDATE change_sequence SET last = last + 1 WHERE id = 1 RETURNING last",
        "mariadb": "INSERT INTO change_sequence (id, last) VALUES (1, 1) ON DUPLICATE KEY UPDATE last = last + 1 "
        "RETURNING last",
    },
    returns_rows=True,
)
#: Takes the number after `last` if it is the next one. Otherwise it sets `last` to NULL, which the column does not
#: allow, so nothing of the transaction is written. MariaDB would store 0 unless its SQL mode is strict, so there the
#: statement signals the same error itself. SQLite needs no statement, because `Committer` has no optimistic groups
#: there (`StatementPipeline.is_far`).
_TAKE_NUMBER_AFTER = Statement(
    {
        "postgresql": "UPDATE change_sequence SET last = CASE WHEN change_sequence.last = v.last THEN v.last + 1 END "
        "FROM {rows} WHERE id = 1",
        "mariadb": "UPDATE change_sequence JOIN {rows} ON change_sequence.last = v.last "
        "SET change_sequence.last = v.last + 1 WHERE change_sequence.id = 1; "
        "IF ROW_COUNT() = 0 THEN SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1048, "
        "MESSAGE_TEXT = 'another process has written'; END IF",
    },
    {"last": "int"},
)
_FIND_CONSUMERS = Statement(
    "SELECT c.id, c.uuid, c.generation, c.project_id, c.user_id, c.consumer_type, a.provider_id, r.name, a.used "
    "FROM {rows} {c} LEFT JOIN allocations AS a ON a.consumer_id = c.id "
    "LEFT JOIN resource_classes AS r ON r.id = a.class_id",
    {"uuid": "text"},
    returns_rows=True,
    lookups={"c": ("consumers", "c.uuid = v.uuid")},
)
_FIND_NAMES = Statement(
    "SELECT v.name, p.id FROM {rows} {p}",
    {"name": "text"},
    returns_rows=True,
    lookups={"p": ("providers", "p.name = v.name")},
)

_INVENTORY = {
    "total": "int",
    "reserved": "int",
    "min_unit": "int",
    "max_unit": "int",
    "step_size": "int",
    "allocation_ratio": "float",
    "updated_at": "time",
}
_OF_CLASS = {"provider_id": "int", "class_id": "int"}
_STATE = {"generation": "int", "revision": "int", "updated_at": "time"}
_PLACE = {"name": "text", "parent_id": "int", "root_id": "int"}
_TRAIT = {"provider_id": "int", "trait_id": "int"}
_AGGREGATE = {"provider_id": "int", "aggregate": "text"}
_OWNER = {"generation": "int", "project_id": "text", "user_id": "text", "consumer_type": "text"}

_CREATE_PROVIDERS = insert(
    "providers", {"uuid": "text", **_PLACE, **_STATE, "created_at": "time"}, returning="uuid, id"
)
_ROOT_PROVIDERS = update("providers", {"uuid": "text"}, {}, copied={"root_id": "id"})
_UPDATE_PROVIDERS = update("providers", {"id": "int"}, _STATE)
_PLACE_PROVIDERS = update("providers", {"id": "int"}, _PLACE)
_DELETE_PROVIDERS = delete("providers", {"id": "int"})
_INSERT_INVENTORIES = insert("inventories", {**_OF_CLASS, **_INVENTORY})
_UPDATE_INVENTORIES = update("inventories", _OF_CLASS, _INVENTORY)
_DELETE_INVENTORIES = delete("inventories", _OF_CLASS)
_INSERT_TRAITS = insert("provider_traits", _TRAIT)
_DELETE_TRAITS = delete("provider_traits", _TRAIT)
_INSERT_AGGREGATES = insert("provider_aggregates", _AGGREGATE)
_DELETE_AGGREGATES = delete("provider_aggregates", _AGGREGATE)
_DELETE_ALLOCATIONS = delete("allocations", {"consumer_id": "int"})
_DELETE_CONSUMERS = delete("consumers", {"id": "int"})
_UPDATE_CONSUMERS = update("consumers", {"id": "int"}, _OWNER)
_INSERT_CONSUMERS = insert("consumers", {"uuid": "text", **_OWNER})
_INSERT_ALLOCATIONS = Statement(
    "INSERT INTO allocations (consumer_id, provider_id, class_id, used, created_at) "
    "SELECT c.id, v.provider_id, v.class_id, v.used, v.created_at FROM {rows} {c}",
    {"uuid": "text", **_OF_CLASS, "used": "int", "created_at": "time"},
    lookups={"c": ("consumers", "c.uuid = v.uuid")},
)
_ENTRY = {"sequence": "int", "position": "int", "at": "time", "kind": "text", "subject": "text", "document": "text"}
_INSERT_ENTRIES = insert("changes", {"provider_id": "int", **_ENTRY})
#: Entries of providers that were created in the same transaction.
_INSERT_ENTRIES_OF_NEW = Statement(
    "INSERT INTO changes (provider_id, sequence, position, at, kind, subject, document) "
    "SELECT p.id, v.sequence, v.position, v.at, v.kind, v.subject, v.document "
    "FROM {rows} {p}",
    _ENTRY,
    lookups={"p": ("providers", "p.uuid = v.subject")},
)


#: Cached, because most rows of a group have the same time.
@lru_cache(maxsize=64)
def sql_time(time: datetime | None) -> str | None:
    """The time in the format of `moorage.db.types.UtcDateTime`, which is the same in all databases."""
    return None if time is None else time.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def time_of(value: datetime | str) -> datetime:
    """The time of such a column, from a `Statement`: a text on SQLite."""
    return (datetime.fromisoformat(value) if isinstance(value, str) else value).replace(tzinfo=UTC)


# --- reads before the decision ---------------------------------------------------------------------------------------


def take_number_after(last: int) -> Command:
    """Replaces TAKE_NUMBER for a group that was decided on the state at `last`."""
    return _TAKE_NUMBER_AFTER, [{"last": last}]


def find_consumers(uuids: Iterable[str]) -> Command:
    return _FIND_CONSUMERS, [{"uuid": uuid} for uuid in uuids]


def consumers_found(answer: Rows) -> dict[str, ConsumerAllocations]:
    found: dict[str, tuple[Consumer, dict[int, dict[str, int]]]] = {}
    for *fields, provider_id, class_name, used in answer:
        consumer = Consumer(*fields)
        _, holdings = found.setdefault(consumer.uuid, (consumer, {}))
        if provider_id is not None:
            holdings.setdefault(provider_id, {})[class_name] = used
    return {uuid: ConsumerAllocations(consumer, holdings) for uuid, (consumer, holdings) in found.items()}


def find_provider_names(names: Iterable[str]) -> Command:
    """Finds providers with these names; the answer has rows (name, provider id)."""
    return _FIND_NAMES, [{"name": name} for name in names]


# --- writes -------------------------------------------------------------------------------------------------------


def create_providers(write_set: WriteSet) -> Command:
    """Inserts new providers; the answer has rows (uuid, id). `write_commands` then sets the root of root providers."""
    rows = [
        {
            **_place_row(provider),
            **_state(provider),
            "uuid": provider.uuid,
            "root_id": max(provider.root_id, 0),
            "created_at": sql_time(write_set.now),
        }
        for provider in write_set.new_providers()
    ]
    return _CREATE_PROVIDERS, rows


def write_commands(write_set: WriteSet) -> list[Command]:
    """All commands after the insertion of new providers, whose ids need not be known."""
    rows = _entry_rows(change_entries(write_set), write_set.sequence, write_set.now)
    new_ones = set(write_set.created.values())
    entries_of_new = [row for row in rows if row["provider_id"] in new_ones] if new_ones else []
    entries_of_known = [row for row in rows if row["provider_id"] not in new_ones] if entries_of_new else rows
    return [
        *(_consumers(write_set) if write_set.consumers else ()),
        *(_providers(write_set) if write_set.providers else ()),
        _allocations(write_set),
        (_INSERT_ENTRIES, entries_of_known),
        (_INSERT_ENTRIES_OF_NEW, entries_of_new),
    ]


def _providers(write_set: WriteSet) -> Iterator[Command]:
    pairs = [
        (write_set.forest.by_id(number), write_set.providers[number])
        for number in sorted(write_set.providers.keys() - write_set.created.values())
    ]
    with_other_changes = [
        (old, new) for old, new in pairs if old is None or new is None or not _has_only_usage_changed(old, new)
    ]
    if with_other_changes:
        yield from _inventories(write_set, with_other_changes)
        yield from _traits(write_set.forest.names, with_other_changes)
        yield from _aggregates(with_other_changes)
    yield _DELETE_PROVIDERS, [{"id": old.id} for old, new in with_other_changes if old is not None and new is None]
    yield _UPDATE_PROVIDERS, [{"id": new.id, **_state(new)} for _, new in pairs if new is not None]
    moved = [
        new for old, new in with_other_changes if old is not None and new is not None and not _is_in_place(old, new)
    ]
    yield _PLACE_PROVIDERS, [{"id": new.id, **_place_row(new)} for new in moved]
    yield _ROOT_PROVIDERS, [{"uuid": new.uuid} for new in write_set.new_providers() if new.is_root]


_Pairs = Sequence[tuple[Provider | None, Provider | None]]


def _state(provider: Provider) -> Row:
    return {
        "generation": provider.generation,
        "revision": provider.revision,
        "updated_at": sql_time(provider.updated_at),
    }


def _place_row(provider: Provider) -> dict[str, object]:
    return {"name": provider.name, "parent_id": provider.parent_id, "root_id": provider.root_id}


def _inventories(write_set: WriteSet, pairs: _Pairs) -> Iterator[Command]:
    """Commands for changed inventories. A write to one inventory sets the time of all inventories of its provider."""
    classes = write_set.forest.names.classes
    removed: list[Row] = []
    changed: list[Row] = []
    new_ones: list[Row] = []
    for old, new in pairs:
        if old is not None and new is not None and old.inventories is new.inventories:
            continue
        before = {} if old is None else old.inventories
        after = {} if new is None else new.inventories
        removed += [_class_key(old, classes[name].id) for name in before.keys() - after.keys()]
        for name, inventory in after.items():
            fields = {column: getattr(inventory, column) for column in _INVENTORY if column != "updated_at"}
            row = {**_class_key(new, classes[name].id), **fields, "updated_at": sql_time(write_set.now)}
            (changed if name in before else new_ones).append(row)
    yield _DELETE_INVENTORIES, removed
    yield _UPDATE_INVENTORIES, changed
    yield _INSERT_INVENTORIES, new_ones


def _class_key(provider: Provider | None, class_id: int) -> dict[str, object]:
    return {"provider_id": None if provider is None else provider.id, "class_id": class_id}


def _traits(names: NameTable, pairs: _Pairs) -> Iterator[Command]:
    known = names.traits
    removed, added = _removed_and_added(pairs, lambda provider: provider.traits)
    yield _DELETE_TRAITS, [{"provider_id": number, "trait_id": known[trait].id} for number, trait in removed]
    yield _INSERT_TRAITS, [{"provider_id": number, "trait_id": known[trait].id} for number, trait in added]


def _aggregates(pairs: _Pairs) -> Iterator[Command]:
    removed, added = _removed_and_added(pairs, lambda provider: provider.aggregates)
    yield _DELETE_AGGREGATES, [{"provider_id": number, "aggregate": aggregate} for number, aggregate in removed]
    yield _INSERT_AGGREGATES, [{"provider_id": number, "aggregate": aggregate} for number, aggregate in added]


def _removed_and_added(
    pairs: _Pairs, members: Callable[[Provider], frozenset[str]]
) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """[(provider id, member)] of the removed members, and of the added ones."""
    removed: list[tuple[int, str]] = []
    added: list[tuple[int, str]] = []
    for old, new in pairs:
        before = frozenset() if old is None else members(old)
        after = frozenset() if new is None else members(new)
        if before is not after and (provider := new or old) is not None:
            removed += [(provider.id, member) for member in sorted(before - after)]
            added += [(provider.id, member) for member in sorted(after - before)]
    return removed, added


def _consumers(write_set: WriteSet) -> Iterator[Command]:
    """Commands for consumers, which also delete their old allocations. `_allocations` inserts the new ones later, when
    all providers exist.
    """
    found = [write_set.found[uuid] for uuid in write_set.consumers if uuid in write_set.found]
    staying = [write_set.consumers[held.consumer.uuid] for held in found]
    yield _DELETE_ALLOCATIONS, [{"consumer_id": held.consumer.id} for held in found]
    yield _DELETE_CONSUMERS, [{"id": held.consumer.id} for held in staying if not held.holdings]
    yield _UPDATE_CONSUMERS, [{"id": held.consumer.id, **_owner(held.consumer)} for held in staying if held.holdings]
    new_ones = [uuid for uuid, held in write_set.consumers.items() if uuid not in write_set.found and held.holdings]
    yield _INSERT_CONSUMERS, [{"uuid": uuid, **_owner(write_set.consumers[uuid].consumer)} for uuid in new_ones]


def _owner(consumer: Consumer) -> dict[str, object]:
    return {
        "generation": consumer.generation,
        "project_id": consumer.project_id,
        "user_id": consumer.user_id,
        "consumer_type": consumer.consumer_type,
    }


def _allocations(write_set: WriteSet) -> Command:
    classes, now = write_set.forest.names.classes, sql_time(write_set.now)
    return _INSERT_ALLOCATIONS, [
        {"uuid": uuid, "provider_id": provider_id, "class_id": classes[name].id, "used": amount, "created_at": now}
        for uuid, held in write_set.consumers.items()
        for provider_id, amounts in held.holdings.items()
        for name, amount in amounts.items()
    ]


def change_entries(write_set: WriteSet) -> Iterator[ChangeDocument]:
    """Entries of the change log: providers by id, new ones last, then consumers by uuid."""
    for provider_id in sorted(write_set.providers, key=lambda number: (number < 0, abs(number))):
        old, new = write_set.forest.by_id(provider_id), write_set.providers[provider_id]
        if new is not None and old is not None and _has_only_usage_changed(old, new):
            yield usages_document(new)
        elif new is not None:
            parent = None if new.parent_id is None else write_set.at(new.parent_id).uuid
            yield provider_document(new, parent, write_set.at(new.root_id).uuid)
        elif old is not None:
            yield deleted_provider_document(old)
    for uuid in sorted(write_set.consumers):
        held = write_set.consumers[uuid]
        if held.holdings or uuid in write_set.found:
            holdings = {write_set.at(number).uuid: amounts for number, amounts in held.holdings.items()}
            yield consumer_document(held.consumer, holdings)


def _has_only_usage_changed(old: Provider, new: Provider) -> bool:
    return (
        old.inventories is new.inventories
        and old.traits is new.traits
        and old.aggregates is new.aggregates
        and _is_in_place(old, new)
    )


def _is_in_place(old: Provider, new: Provider) -> bool:
    return old.name == new.name and old.parent_id == new.parent_id and old.root_id == new.root_id


def _entry_rows(listed: Iterable[ChangeDocument], sequence: int, now: datetime) -> list[Row]:
    at = sql_time(now)
    return [
        {
            "sequence": sequence,
            "position": position,
            "provider_id": entry.provider_id,
            "at": at,
            "kind": entry.kind,
            "subject": entry.subject,
            "document": entry.document,
        }
        for position, entry in enumerate(listed)
    ]
