"""Reads every committed state from the change log, in order, and checks each of them."""

import json
from collections.abc import Iterator, Mapping
from itertools import groupby

from sqlalchemy import Engine, select

from moorage.placement.store.tables import changes


def faults(engine: Engine) -> Iterator[str]:
    """The errors in all committed states; empty if there are none."""
    states = _States()
    columns = (changes.c.sequence, changes.c.kind, changes.c.subject, changes.c.document)
    with engine.connect() as connection:
        rows = connection.execute(select(*columns).order_by(changes.c.sequence, changes.c.position)).all()
    for sequence, entries in groupby(rows, key=lambda row: row.sequence):
        before = states.usages()
        for row in entries:
            states.take(row.kind, row.subject, None if row.document is None else json.loads(row.document))
        yield from (f"after change {sequence}: {fault}" for fault in states.faults(before))


class _States:
    def __init__(self) -> None:
        self.providers: dict[str, dict] = {}
        self.consumers: dict[str, dict] = {}

    def take(self, kind: str, subject: str | None, document: Mapping | None) -> None:
        if kind not in ("provider", "usages", "consumer"):
            return
        known = self.consumers if kind == "consumer" else self.providers
        if document is None:
            del known[subject]
        elif kind == "usages":
            known[subject] = known[subject] | document
        else:
            known[subject] = dict(document)

    def usages(self) -> dict[tuple[str, str], int]:
        return {(uuid, name): used for uuid, one in self.providers.items() for name, used in one["usages"].items()}

    def faults(self, before: Mapping[tuple[str, str], int]) -> Iterator[str]:
        held: dict[tuple[str, str], int] = {}
        for consumer in self.consumers.values():
            for uuid, amounts in consumer["allocations"].items():
                for name, amount in amounts.items():
                    held[uuid, name] = held.get((uuid, name), 0) + amount
        used = {key: units for key, units in self.usages().items() if units}
        if used != held:
            yield f"providers say {sorted(used.items() - held.items())}, consumers {sorted(held.items() - used.items())}"
        for (uuid, name), units in used.items():
            inventory = self.providers[uuid]["inventories"].get(name)
            capacity = 0 if inventory is None else _capacity(inventory)
            if units > capacity and units > before.get((uuid, name), 0):
                yield f"{units} {name} of {uuid} are used, there are {capacity}"
        for uuid, provider in self.providers.items():
            root = self._root(uuid)
            if provider["root_provider_uuid"] != root:
                yield f"the root of {uuid} is {root}, not {provider['root_provider_uuid']}"

    def _root(self, uuid: str) -> str:
        while (parent := self.providers[uuid]["parent_provider_uuid"]) is not None:
            uuid = parent
        return uuid


def _capacity(inventory: Mapping) -> int:
    return int((inventory["total"] - inventory["reserved"]) * inventory["allocation_ratio"])
