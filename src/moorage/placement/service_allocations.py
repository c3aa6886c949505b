"""Who holds what: claims, their release, and the reshaper.

A claim is decided on the forest in memory and written with one conditional update per provider. When an update does
not find the revision that was decided on, or when the decision was "no" on a picture that has become old, the forest
catches up and the decision is taken again, this time on the providers' rows, locked: so processes that compete for one
provider take turns instead of sending their clients a 409.

Claims of one process share commits: those that arrive while others are being written are written together
(`moorage.placement.grouping`), each decided on what the one before has left.
"""

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.core.errors import ConcurrentUpdate, Invalid, MoorageError, NotFound
from moorage.db.transactions import read
from moorage.placement import claiming, inventory_writes, store, store_names
from moorage.placement import store_allocations as rows
from moorage.placement.claiming import Order, PictureIsOld, Wish
from moorage.placement.grouping import Grouping
from moorage.placement.model import Allocation, Consumer, Inventory, Provider
from moorage.placement.snapshot import Snapshot
from moorage.placement.writing import CONCURRENT_UPDATE, Writer, Written

#: Rounds of "the picture was old: catch up and decide again" before the client is told to.
ROUNDS = 10

PROVIDER_NOT_FOUND = "placement.resource_provider.not_found"


@dataclass(frozen=True, slots=True)
class NewInventories:
    """One provider in a reshape."""

    generation: int
    inventories: Mapping[str, Inventory]


class AllocationService:
    def __init__(self, engine: Engine, snapshot: Snapshot, writer: Writer, clock: Clock) -> None:
        self._engine = engine
        self._snapshot = snapshot
        self._writer = writer
        self._clock = clock
        self._turn = threading.Lock()
        self._claims = Grouping(self._write, Order.consumers)

    # --- reading ------------------------------------------------------------------------------------------------

    def of_consumer(self, uuid: str) -> tuple[Consumer | None, list[Allocation]]:
        with read(self._engine) as connection:
            consumer = rows.find_consumer(connection, uuid)
            return consumer, [] if consumer is None else rows.of_consumer(connection, uuid)

    def of_provider(self, uuid: str) -> tuple[Provider, list[Allocation]]:
        provider = self._snapshot.current().by_uuid(uuid)
        if provider is None:
            raise NotFound(f"Resource provider '{uuid}' not found: No resource provider with uuid {uuid} found")
        with read(self._engine) as connection:
            return provider, rows.of_provider(connection, provider.id)

    def usages(
        self, project_id: str, user_id: str | None
    ) -> tuple[list[tuple[str | None, str, int]], dict[str | None, int]]:
        """(consumer type, class, units) and {consumer type: consumers} of a project."""
        with read(self._engine) as connection:
            return rows.usages(connection, project_id, user_id), rows.consumer_counts(connection, project_id, user_id)

    # --- claims -------------------------------------------------------------------------------------------------

    def claim(self, wishes: Collection[Wish], *, single: bool = False) -> None:
        """All wishes or none. `single`: PUT for one consumer, whose errors are worded a little differently."""
        self._claims.submit(Order(tuple(wishes), single=single))

    def release(self, consumer_uuid: str) -> None:
        """Generations of providers stay, as the peer leaves them; revisions move."""
        wish = Wish(consumer_uuid, {}, project_id="", user_id="", check_generation=False)
        self._claims.submit(Order((wish,), is_release=True))

    def _write(self, orders: Sequence[Order]) -> Sequence[Exception | None]:
        """On the forest in memory; when that was old, on locked rows."""

        def on_memory(connection: Connection) -> Written[list[MoorageError | None]]:
            return claiming.write(connection, self._snapshot.held(), orders, self._clock.now())

        def on_rows(connection: Connection) -> Written[list[MoorageError | None]]:
            ids = claiming.locked_ids(connection, orders)
            forest = claiming.locked_picture(connection, self._snapshot.held(), ids)
            return claiming.write(connection, forest, orders, self._clock.now())

        with self._turn:
            for attempt in (on_memory, *(on_rows,) * (ROUNDS - 1)):
                try:
                    return self._writer.run(attempt)
                except PictureIsOld:
                    self._snapshot.catch_up()
        raise _concurrent("Inventory and/or allocations changed while attempting to allocate: ")

    def reshape(self, inventories: Mapping[str, NewInventories], wishes: Collection[Wish]) -> None:
        """New inventories and the allocations that go with them, in one transaction.

        First every provider gets its new inventories beside the old ones, then allocations move, then what is not
        wanted any more goes: an inventory that is still in use then refuses the whole.
        """

        def work(connection: Connection) -> Written[None]:
            now = self._clock.now()
            ids = _lock_for_reshape(connection, inventories)
            for uuid, wanted in inventories.items():
                if wanted.inventories:
                    self._widen(connection, ids[uuid], wanted, now)
            order = Order(tuple(wishes))
            involved = set(ids.values()) | claiming.locked_ids(connection, (order,))
            forest = claiming.locked_picture(connection, self._snapshot.held(), involved)
            written = claiming.write(connection, forest, (order,), now)
            if (error := written.result[0]) is not None:
                raise error
            for uuid, wanted in sorted(inventories.items()):
                inventory_writes.replace_all(connection, ids[uuid], uuid, wanted.inventories, now)
                store.bump(connection, ids[uuid], now, generations=1)
            return Written(None, involved | set(written.changed))

        with self._turn:
            for _ in range(ROUNDS):
                try:
                    return self._writer.run(work)
                except PictureIsOld:
                    self._snapshot.catch_up()
        raise _concurrent("update conflict: ")

    # --- reshaping ----------------------------------------------------------------------------------------------

    def _widen(self, connection: Connection, provider_id: int, wanted: NewInventories, now: datetime) -> None:
        """Put the new inventories beside the old ones."""
        ids = store_names.ids(connection, store_names.CLASSES, wanted.inventories)
        for name in wanted.inventories:
            if name not in ids:
                raise Invalid(f"malformed reshaper data: No such resource class {name}.")
        existing = store.inventory_class_ids(connection, provider_id)
        by_id = {ids[name]: inventory for name, inventory in wanted.inventories.items()}
        store.put_inventories(connection, provider_id, by_id, existing, now)
        store.bump(connection, provider_id, now, generations=1)


def _lock_for_reshape(connection: Connection, inventories: Mapping[str, NewInventories]) -> dict[str, int]:
    """{uuid: id}. Locked in one order whatever the request's is, checked in the request's."""
    locked = {uuid: store.lock_provider(connection, uuid) for uuid in sorted(inventories)}
    ids: dict[str, int] = {}
    for uuid, wanted in inventories.items():
        row = locked[uuid]
        if row is None:
            raise Invalid(
                f"Resource provider {uuid} in inventories not found: No resource provider with uuid {uuid} found",
                code=PROVIDER_NOT_FOUND,
            )
        if row.generation != wanted.generation:
            raise ConcurrentUpdate(
                f"resource provider generation conflict for provider {uuid}: actual: {row.generation}, "
                f"given: {wanted.generation}",
                code=CONCURRENT_UPDATE,
            )
        ids[uuid] = int(row.id)
    return ids


def _concurrent(start: str) -> ConcurrentUpdate:
    return ConcurrentUpdate(
        f"{start}Another thread concurrently updated the resource provider data. Please retry your update",
        code=CONCURRENT_UPDATE,
    )
