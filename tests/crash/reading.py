"""Reads the state from the tables and from the service, and checks what must always hold in the tables."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, text

from tests.crash.model import ConsumerState, ProviderState, State
from tests.crash.wire import Client


@dataclass(frozen=True)
class Seen:
    providers: dict[str, ProviderState]
    consumers: dict[str, ConsumerState]
    used: dict[str, dict[str, int]]  #: {provider: {class: units}}, without zeros

    @property
    def states(self) -> dict[str, State]:
        return self.providers | self.consumers


_PROVIDERS = """
    SELECT p.uuid, p.name, parent.uuid, p.generation FROM providers p LEFT JOIN providers parent ON parent.id = p.parent_id
"""
_INVENTORIES = """
    SELECT p.uuid, c.name, i.total, i.reserved, i.allocation_ratio FROM inventories i
    JOIN providers p ON p.id = i.provider_id JOIN resource_classes c ON c.id = i.class_id
"""
_TRAITS = "SELECT p.uuid, t.name FROM provider_traits x JOIN providers p ON p.id = x.provider_id JOIN traits t ON t.id = x.trait_id"
_AGGREGATES = "SELECT p.uuid, x.aggregate FROM provider_aggregates x JOIN providers p ON p.id = x.provider_id"
_CONSUMERS = "SELECT uuid, generation, project_id, consumer_type FROM consumers"
_LOG = "SELECT sequence, position, kind, subject, document FROM changes"
_ALLOCATIONS = """
    SELECT k.uuid, p.uuid, c.name, a.used FROM allocations a LEFT JOIN consumers k ON k.id = a.consumer_id
    LEFT JOIN providers p ON p.id = a.provider_id LEFT JOIN resource_classes c ON c.id = a.class_id
"""


class Tables:
    """Reads the tables; of the change log, which only grows, the entries that are new since the last time."""

    def __init__(self, engine: Engine, *, has_empty_numbers: bool = False) -> None:
        """`has_empty_numbers`: a number may have no entry. It is that of a writer of resource classes or traits which
        found that another process had just added them; only several processes have such writers.
        """
        self._engine, self._has_empty_numbers = engine, has_empty_numbers
        self._told: dict[str, dict | None] = {}
        self._read_to: tuple[int, int] | None = None

    def read(self) -> tuple[Seen, list[str]]:
        """Returns everything, and the errors found in it."""
        with self._engine.connect() as connection, connection.begin():
            seen = _seen(connection)
            wrong = [*_wrong_rows(connection), *self._wrong_numbers(connection), *self._wrong_documents(seen)]
        self._engine.dispose()  # otherwise a database that is being stopped would wait for our connection
        return seen, wrong

    def _wrong_numbers(self, connection: Connection) -> Iterator[str]:
        """Checks that the change log has no gap and ends at the counter."""
        ((last,),) = _rows(connection, "SELECT last FROM change_sequence")
        after = self._read_to[0] if self._read_to else -1
        log = _rows(connection, f"{_LOG} WHERE sequence > {after} ORDER BY sequence, position")
        at = self._read_to
        for sequence, position, *_ in log:
            is_next = at is None or (sequence, position) in ((at[0], at[1] + 1), (at[0] + 1, 0))
            if not is_next and not (self._has_empty_numbers and sequence > at[0] and position == 0):
                yield f"the log goes from {at} to {(sequence, position)}"
            at = sequence, position
        if at is not None and (at[0] > last if self._has_empty_numbers else at[0] != last):
            yield f"the log ends at {at[0]}, the counter at {last}"
        self._read_to = at
        _tell(self._told, log)

    def _wrong_documents(self, seen: Seen) -> Iterator[str]:
        """Checks that the last log entry on each object shows its present state."""
        shown = {uuid: _provider_document(uuid, seen) for uuid in seen.providers}
        shown |= {uuid: _consumer_document(state) for uuid, state in seen.consumers.items()}
        for uuid in self._told.keys() | shown.keys():
            if self._told.get(uuid) != shown.get(uuid):
                yield f"the log says {self._told.get(uuid)}, there is {shown.get(uuid)}"


def _rows(connection: Connection, statement: str) -> list[tuple]:
    return [tuple(row) for row in connection.execute(text(statement))]


def _seen(connection: Connection) -> Seen:
    inventories, traits, aggregates = defaultdict(dict), defaultdict(set), defaultdict(set)
    for uuid, name, total, _, _ in _rows(connection, _INVENTORIES):
        inventories[uuid][name] = total
    for uuid, name in _rows(connection, _TRAITS):
        traits[uuid].add(name)
    for uuid, aggregate in _rows(connection, _AGGREGATES):
        aggregates[uuid].add(aggregate)
    providers = {
        uuid: ProviderState(
            name, parent, generation, inventories[uuid], frozenset(traits[uuid]), frozenset(aggregates[uuid])
        )
        for uuid, name, parent, generation in _rows(connection, _PROVIDERS)
    }
    held, used = defaultdict(lambda: defaultdict(dict)), defaultdict(lambda: defaultdict(int))
    for consumer, provider, name, amount in _rows(connection, _ALLOCATIONS):
        held[consumer][provider][name] = amount
        used[provider][name] += amount
    consumers = {
        uuid: ConsumerState(
            generation, project, kind, {provider: dict(classes) for provider, classes in held[uuid].items()}
        )
        for uuid, generation, project, kind in _rows(connection, _CONSUMERS)
    }
    return Seen(providers, consumers, {uuid: dict(classes) for uuid, classes in used.items()})


def _wrong_rows(connection: Connection) -> Iterator[str]:
    capacity = {
        (uuid, name): int((total - reserved) * ratio)
        for uuid, name, total, reserved, ratio in _rows(connection, _INVENTORIES)
    }
    used: dict[tuple, int] = defaultdict(int)
    holders = set()
    for consumer, provider, name, amount in _rows(connection, _ALLOCATIONS):
        if None in (consumer, provider, name):
            yield f"an allocation of nobody or of nothing: {(consumer, provider, name, amount)}"
        used[provider, name] += amount
        holders.add(consumer)
    for at, units in used.items():
        if units > capacity.get(at, 0):
            yield f"over capacity: {at} holds {units} of {capacity.get(at)}"
    for uuid, *_ in _rows(connection, _CONSUMERS):
        if uuid not in holders:
            yield f"consumer {uuid} holds nothing"


def _tell(told: dict[str, dict | None], log: list[tuple]) -> None:
    """Adds the entries of `log` to `told`, {object: its last state; None: it is deleted}. See `_provider_document`."""
    for _, _, kind, subject, document in log:
        if kind in ("provider", "usages", "consumer"):
            content = None if document is None else _shown(json.loads(document))
            told[subject] = told[subject] | content if kind == "usages" else content


def _shown(content: dict) -> dict:
    for name in ("user_id", "root_provider_uuid"):
        content.pop(name, None)
    if "inventories" in content:
        content["inventories"] = {name: row["total"] for name, row in content["inventories"].items()}
        for name in ("traits", "aggregates"):
            content[name] = sorted(content[name])
    if "usages" in content:
        content["usages"] = {name: units for name, units in content["usages"].items() if units}
    return content


def _provider_document(uuid: str, seen: Seen) -> dict:
    state = seen.providers[uuid]
    return {
        "uuid": uuid,
        "name": state.name,
        "generation": state.generation,
        "parent_provider_uuid": state.parent,
        "inventories": state.inventories,
        "traits": sorted(state.traits),
        "aggregates": sorted(state.aggregates),
        "usages": seen.used.get(uuid, {}),
    }


def _consumer_document(state: ConsumerState) -> dict:
    return {
        "generation": state.generation,
        "project_id": state.project,
        "consumer_type": state.kind,
        "allocations": state.allocations,
    }


def wrong_answers(client: Client, seen: Seen) -> Iterator[str]:
    """Yields the differences between the service's answers, which it gives from memory, and the tables."""
    listed = {row["uuid"]: row for row in client.get("/resource_providers")["resource_providers"]}
    if listed.keys() != seen.providers.keys():
        yield f"the service lists {sorted(listed)}, there are {sorted(seen.providers)}"
    for uuid, row in listed.items():
        at = f"/resource_providers/{uuid}"
        inventories = client.get(f"{at}/inventories")["inventories"]
        answered = ProviderState(
            row["name"],
            row["parent_provider_uuid"],
            row["generation"],
            {name: inventory["total"] for name, inventory in inventories.items()},
            frozenset(client.get(f"{at}/traits")["traits"]),
            frozenset(client.get(f"{at}/aggregates")["aggregates"]),
        )
        if answered != seen.providers.get(uuid):
            yield f"the service says {answered}, there is {seen.providers.get(uuid)}"
        usages = {name: units for name, units in client.get(f"{at}/usages")["usages"].items() if units}
        if usages != seen.used.get(uuid, {}):
            yield f"the service says of {uuid}: used {usages}, there is {seen.used.get(uuid)}"
