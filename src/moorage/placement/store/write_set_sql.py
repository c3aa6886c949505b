"""SQL that writes a write set: the differences between the states that the transaction found and those it leaves.

Nothing here decides, and nothing is read again. Deletes come first, then updates, then inserts, and last the change
log.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple, cast

from moorage.db.driver_connections import Rows
from moorage.db.statement_pipelines import Command, Row, Statement, delete, insert, update
from moorage.placement.forest import change_documents
from moorage.placement.forest.change_documents import ChangeDocument
from moorage.placement.forest.model import Consumer, NameTable, Provider
from moorage.placement.rules.write_set import ConsumerAllocations, WriteSet

#: The number of this change, and the holder of the lease. No other process writes until the commit, because every writer
#: begins with it.
TAKE = Statement(
    {
        "postgresql": "UPDATE change_sequence SET last = last + 1 WHERE id = 1 RETURNING last, lease_holder",
        "sqlite": "UPDATE change_sequence SET last = last + 1 WHERE id = 1 RETURNING last, lease_holder",
        "mariadb": "INSERT INTO change_sequence (id, last) VALUES (1, 1) ON DUPLICATE KEY UPDATE last = last + 1 "
        "RETURNING last, lease_holder",
    },
    returns_rows=True,
)
#: The number, if it is the one behind `last` and no other process has the lease; otherwise `PreconditionFailed`.
#: PostgreSQL: `SELECT 1 / (count)` divides by zero on purpose, which aborts the transaction. SQLite needs no statement:
#: `Committer` never guesses there (`StatementPipeline.is_far`).
_TAKE_NEXT = Statement(
    {
        "postgresql": "WITH taken AS (UPDATE change_sequence SET last = v.last + 1 FROM {rows} "
        "WHERE id = 1 AND change_sequence.last = v.last AND (lease_holder IS NULL OR lease_holder = v.holder) "
        "RETURNING 1) SELECT 1 / (SELECT count(*) FROM taken)",
        "mariadb": "UPDATE change_sequence JOIN {rows} ON change_sequence.last = v.last "
        "SET change_sequence.last = v.last + 1 WHERE change_sequence.id = 1 "
        "AND (lease_holder IS NULL OR lease_holder = v.holder); "
        "IF ROW_COUNT() = 0 THEN SIGNAL SQLSTATE '45000'; END IF",
    },
    {"last": "int", "holder": "text"},
)
_FIND_CONSUMERS = Statement(
    "SELECT c.id, c.uuid, c.generation, c.project_id, c.user_id, c.consumer_type, a.provider_id, r.name, a.used "
    "FROM {rows} JOIN consumers AS c ON c.uuid = v.uuid LEFT JOIN allocations AS a ON a.consumer_id = c.id "
    "LEFT JOIN resource_classes AS r ON r.id = a.class_id",
    {"uuid": "text"},
    returns_rows=True,
)
_FIND_NAMES = Statement(
    "SELECT v.name, p.id FROM {rows} JOIN providers AS p ON p.name = v.name", {"name": "text"}, returns_rows=True
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
_ROOT_PROVIDERS = Statement(
    {
        "postgresql": "UPDATE providers SET root_id = id FROM {rows} WHERE providers.uuid = v.uuid",
        "sqlite": "UPDATE providers SET root_id = id FROM {rows} WHERE providers.uuid = v.uuid",
        "mariadb": "UPDATE providers JOIN {rows} ON providers.uuid = v.uuid SET providers.root_id = providers.id",
    },
    {"uuid": "text"},
)
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
    "SELECT c.id, v.provider_id, v.class_id, v.used, v.created_at FROM {rows} JOIN consumers AS c ON c.uuid = v.uuid",
    {"uuid": "text", **_OF_CLASS, "used": "int", "created_at": "time"},
)
_ENTRY = {"sequence": "int", "position": "int", "at": "time", "kind": "text", "subject": "text", "document": "text"}
_INSERT_ENTRIES = insert("changes", {"provider_id": "int", **_ENTRY})
#: Of providers that have got their ids in the same transaction.
_INSERT_ENTRIES_OF_NEW = Statement(
    "INSERT INTO changes (provider_id, sequence, position, at, kind, subject, document) "
    "SELECT p.id, v.sequence, v.position, v.at, v.kind, v.subject, v.document "
    "FROM {rows} JOIN providers AS p ON p.uuid = v.subject",
    _ENTRY,
)


#: Most of a group's rows have the same time.
@lru_cache(maxsize=64)
def sql_time(time: datetime | None) -> str | None:
    """As `moorage.db.types.UtcDateTime` keeps it in each database."""
    return None if time is None else time.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


# --- reads before the decision ---------------------------------------------------------------------------------------


def take_next(last: int, holder: str) -> Command:
    """Replaces TAKE for a group that was decided on the state as of `last`. `holder`: the lease name of this process."""
    return _TAKE_NEXT, [{"last": last, "holder": holder}]


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
    """Which of these are names of providers; the answer has rows (name, provider id)."""
    return _FIND_NAMES, [{"name": name} for name in names]


# --- writes -------------------------------------------------------------------------------------------------------


def create_providers(write_set: WriteSet) -> Command:
    """Insert new providers; the answer has rows (uuid, id). `write_commands` then sets the root of root providers."""
    rows = [
        {
            **_place(provider),
            **_state(provider),
            "uuid": provider.uuid,
            "root_id": max(provider.root_id, 0),
            "created_at": sql_time(write_set.now),
        }
        for provider in write_set.new_providers()
    ]
    return _CREATE_PROVIDERS, rows


def prepare_rows(write_set: WriteSet, consumers: Collection[str]) -> None:
    """Prepare rows that `write_commands` needs for these consumers; it uses them as long as the states are the same.

    With several consumers, also the rows of the providers that they hold; with one, those may change with the next claim.
    """
    for uuid in consumers:
        if uuid in write_set.consumers:
            _of_consumer(write_set, uuid)
            for provider_id in write_set.consumers[uuid].holdings if len(consumers) > 1 else ():
                old, new = write_set.forest.by_id(provider_id), write_set.providers[provider_id]
                if old is not None and new is not None and _is_only_used(old, new):
                    _of_used(write_set, new)


def write_commands(write_set: WriteSet, sequence: int) -> list[Command]:
    """All commands after the insertion of new providers. Their ids need not be known here."""
    rows = _entry_rows(change_entries(write_set), sequence, write_set.now)
    new_ones = set(write_set.created.values())
    of_new = [row for row in rows if row["provider_id"] in new_ones] if new_ones else []
    of_known = [row for row in rows if row["provider_id"] not in new_ones] if of_new else rows
    return [
        *(_consumers(write_set) if write_set.consumers else ()),
        *(_providers(write_set) if write_set.providers else ()),
        _allocations(write_set),
        (_INSERT_ENTRIES, of_known),
        (_INSERT_ENTRIES_OF_NEW, of_new),
    ]


def _providers(write_set: WriteSet) -> Iterator[Command]:
    pairs = [
        (write_set.forest.by_id(number), write_set.providers[number])
        for number in sorted(write_set.providers.keys() - write_set.created.values())
    ]
    more_than_used = [(old, new) for old, new in pairs if old is None or new is None or not _is_only_used(old, new)]
    if more_than_used:
        yield from _inventories(write_set, more_than_used)
        yield from _traits(write_set.forest.names, more_than_used)
        yield from _aggregates(more_than_used)
    yield _DELETE_PROVIDERS, [{"id": old.id} for old, new in more_than_used if old is not None and new is None]
    yield _UPDATE_PROVIDERS, [_state_row(write_set, new) for _, new in pairs if new is not None]
    moved = [new for old, new in more_than_used if old is not None and new is not None and not _is_in_place(old, new)]
    yield _PLACE_PROVIDERS, [{"id": new.id, **_place(new)} for new in moved]
    yield _ROOT_PROVIDERS, [{"uuid": new.uuid} for new in write_set.new_providers() if new.is_root]


_Pairs = Sequence[tuple[Provider | None, Provider | None]]


def _state(provider: Provider) -> Row:
    return {
        "generation": provider.generation,
        "revision": provider.revision,
        "updated_at": sql_time(provider.updated_at),
    }


class _UsedRows(NamedTuple):
    """Rows of a provider of which only the usage has changed."""

    state: Row
    entry: ChangeDocument


def _of_used(write_set: WriteSet, new: Provider) -> _UsedRows:
    state, made = write_set.made.get(new.id, _NOTHING_MADE)
    if state is not new:
        made = _UsedRows({"id": new.id, **_state(new)}, change_documents.usages_document(new))
        write_set.made[new.id] = new, made
    return cast(_UsedRows, made)


def _state_row(write_set: WriteSet, new: Provider) -> Row:
    state, made = write_set.made.get(new.id, _NOTHING_MADE)
    return cast(_UsedRows, made).state if state is new else {"id": new.id, **_state(new)}


_NOTHING_MADE = None, None


def _place(provider: Provider) -> dict[str, object]:
    return {"name": provider.name, "parent_id": provider.parent_id, "root_id": provider.root_id}


def _inventories(write_set: WriteSet, pairs: _Pairs) -> Iterator[Command]:
    """All inventories of a provider have the time of the last write to any of them."""
    classes = write_set.forest.names.classes
    gone: list[Row] = []
    changed: list[Row] = []
    new_ones: list[Row] = []
    for old, new in pairs:
        if old is not None and new is not None and old.inventories is new.inventories:
            continue
        before = {} if old is None else old.inventories
        after = {} if new is None else new.inventories
        gone += [_of_class(old, classes[name]) for name in before.keys() - after.keys()]
        for name, inventory in after.items():
            fields = {column: getattr(inventory, column) for column in _INVENTORY if column != "updated_at"}
            row = {**_of_class(new, classes[name]), **fields, "updated_at": sql_time(write_set.now)}
            (changed if name in before else new_ones).append(row)
    yield _DELETE_INVENTORIES, gone
    yield _UPDATE_INVENTORIES, changed
    yield _INSERT_INVENTORIES, new_ones


def _of_class(provider: Provider | None, class_id: int) -> dict[str, object]:
    return {"provider_id": None if provider is None else provider.id, "class_id": class_id}


def _traits(names: NameTable, pairs: _Pairs) -> Iterator[Command]:
    ids = names.traits
    gone, come = _gone_and_come(pairs, lambda provider: provider.traits)
    yield _DELETE_TRAITS, [{"provider_id": number, "trait_id": ids[trait]} for number, trait in gone]
    yield _INSERT_TRAITS, [{"provider_id": number, "trait_id": ids[trait]} for number, trait in come]


def _aggregates(pairs: _Pairs) -> Iterator[Command]:
    gone, come = _gone_and_come(pairs, lambda provider: provider.aggregates)
    yield _DELETE_AGGREGATES, [{"provider_id": number, "aggregate": aggregate} for number, aggregate in gone]
    yield _INSERT_AGGREGATES, [{"provider_id": number, "aggregate": aggregate} for number, aggregate in come]


def _gone_and_come(
    pairs: _Pairs, members: Callable[[Provider], frozenset[str]]
) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """[(provider id, member)] of the removed members, and of the added ones."""
    gone: list[tuple[int, str]] = []
    come: list[tuple[int, str]] = []
    for old, new in pairs:
        before = frozenset() if old is None else members(old)
        after = frozenset() if new is None else members(new)
        if before is not after and (provider := new or old) is not None:
            gone += [(provider.id, member) for member in sorted(before - after)]
            come += [(provider.id, member) for member in sorted(after - before)]
    return gone, come


def _consumers(write_set: WriteSet) -> Iterator[Command]:
    """Old allocations are deleted here; the new ones are inserted when all providers exist."""
    found = [write_set.found[uuid] for uuid in write_set.consumers if uuid in write_set.found]
    staying = [write_set.consumers[held.consumer.uuid] for held in found]
    yield _DELETE_ALLOCATIONS, [{"consumer_id": held.consumer.id} for held in found]
    yield _DELETE_CONSUMERS, [{"id": held.consumer.id} for held in staying if not held.holdings]
    yield _UPDATE_CONSUMERS, [{"id": held.consumer.id, **_owner(held.consumer)} for held in staying if held.holdings]
    new_ones = [uuid for uuid, held in write_set.consumers.items() if uuid not in write_set.found and held.holdings]
    yield _INSERT_CONSUMERS, [_of_consumer(write_set, uuid).consumer for uuid in new_ones]


def _owner(consumer: Consumer) -> dict[str, object]:
    return {
        "generation": consumer.generation,
        "project_id": consumer.project_id,
        "user_id": consumer.user_id,
        "consumer_type": consumer.consumer_type,
    }


class _ConsumerRows(NamedTuple):
    consumer: Row
    allocations: Sequence[Row]
    entry: ChangeDocument


def _of_consumer(write_set: WriteSet, uuid: str) -> _ConsumerRows:
    held = write_set.consumers[uuid]
    state, made = write_set.made.get(uuid, _NOTHING_MADE)
    if state is not held:
        classes, now = write_set.forest.names.classes, sql_time(write_set.now)
        allocations = [
            {"uuid": uuid, "provider_id": provider_id, "class_id": classes[name], "used": amount, "created_at": now}
            for provider_id, amounts in held.holdings.items()
            for name, amount in amounts.items()
        ]
        holdings = {write_set.at(number).uuid: amounts for number, amounts in held.holdings.items()}
        entry = change_documents.consumer_document(held.consumer, holdings)
        made = _ConsumerRows({"uuid": uuid, **_owner(held.consumer)}, allocations, entry)
        write_set.made[uuid] = held, made
    return cast(_ConsumerRows, made)


def _allocations(write_set: WriteSet) -> Command:
    return _INSERT_ALLOCATIONS, [
        row for uuid in write_set.consumers for row in _of_consumer(write_set, uuid).allocations
    ]


def change_entries(write_set: WriteSet) -> Iterator[ChangeDocument]:
    """Entries of the change log: providers by id, new ones last, then consumers by uuid."""
    for provider_id in sorted(write_set.providers, key=lambda number: (number < 0, abs(number))):
        old, new = write_set.forest.by_id(provider_id), write_set.providers[provider_id]
        if new is not None and old is not None and _is_only_used(old, new):
            yield _of_used(write_set, new).entry
        elif new is not None:
            parent = None if new.parent_id is None else write_set.at(new.parent_id).uuid
            yield change_documents.provider_document(new, parent, write_set.at(new.root_id).uuid)
        elif old is not None:
            yield change_documents.deleted_provider_document(old)
    for uuid in sorted(write_set.consumers):
        held = write_set.consumers[uuid]
        if held.holdings or uuid in write_set.found:
            yield _of_consumer(write_set, uuid).entry


def _is_only_used(old: Provider, new: Provider) -> bool:
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
