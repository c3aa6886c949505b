"""Who holds what: claims, their release, and the reshaper.

A claim is decided on the forest in memory and written with one conditional update per provider: nothing is summed
in SQL. When an update does not find the revision that was decided on, or when the decision was "no" on a picture
that has become old, the forest catches up and the decision is taken again, this time on the providers' rows, locked:
so processes that compete for one provider take turns instead of sending their clients a 409.

Claims of one process take turns from the start: their commits would anyway, at the counter of the change log, and
each then decides on what the one before has left.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.core.errors import ConcurrentUpdate, Conflict, Invalid, NotFound
from moorage.db.transactions import read
from moorage.placement import claims, inventory_writes, store, store_names
from moorage.placement import store_allocations as rows
from moorage.placement.forest import Forest
from moorage.placement.model import Allocation, Consumer, Inventory, Provider
from moorage.placement.snapshot import Snapshot
from moorage.placement.writing import CONCURRENT_UPDATE, Writer, Written

#: Rounds of "the picture was old: catch up and decide again" before the client is told to.
ROUNDS = 10

PROVIDER_NOT_FOUND = "placement.resource_provider.not_found"


@dataclass(frozen=True, slots=True)
class Wish:
    """What one consumer wants to hold from now on, in place of all it holds; nothing: it goes away."""

    consumer_uuid: str
    allocations: Mapping[str, Mapping[str, int]]  # {provider uuid: {class: amount}}
    project_id: str
    user_id: str
    consumer_type: str | None = None
    #: Compared with the consumer's generation (None: a new one) where `check_generation`, from 1.28 on.
    generation: int | None = None
    check_generation: bool = True


@dataclass(frozen=True, slots=True)
class NewInventories:
    """One provider in a reshape."""

    generation: int
    inventories: Mapping[str, Inventory]


class _PictureIsOld(Exception):
    """Leaves the transaction without a trace; the forest catches up and it is tried again."""


class AllocationService:
    def __init__(self, engine: Engine, snapshot: Snapshot, writer: Writer, clock: Clock) -> None:
        self._engine = engine
        self._snapshot = snapshot
        self._writer = writer
        self._clock = clock
        self._turn = threading.Lock()

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
        self._decided(
            [wish.consumer_uuid for wish in wishes],
            {uuid for wish in wishes for uuid in wish.allocations},
            lambda connection, forest: self._claim(connection, forest, wishes, single=single),
        )

    def release(self, consumer_uuid: str) -> None:
        """Generations of providers stay, as the peer leaves them; revisions move."""

        def work(connection: Connection, forest: Forest) -> Written[None]:
            consumers = rows.lock_consumers(connection, (consumer_uuid,))
            held = rows.held_by(connection, [consumer.id for consumer in consumers.values()])
            if not held:
                raise NotFound(f"No allocations for consumer '{consumer_uuid}'")
            before = {str(consumer_id): holdings for consumer_id, holdings in held.items()}
            claim = self._room(connection, forest, before, {})
            states = self._write_usage(connection, forest, claim, counted=())
            rows.delete_consumers(connection, [consumer.id for consumer in consumers.values()])
            return Written(None, set(states), states)

        self._decided((consumer_uuid,), (), work)

    def reshape(self, inventories: Mapping[str, NewInventories], wishes: Collection[Wish]) -> None:
        """New inventories and the allocations that go with them, in one transaction.

        First every provider gets its new inventories beside the old ones, then allocations move, then what is not
        wanted any more goes: an inventory that is still in use then refuses the whole.
        """

        def work(connection: Connection) -> Written[None]:
            now = self._clock.now()
            ids = {}
            for uuid, wanted in sorted(inventories.items()):
                ids[uuid] = _lock_for_reshape(connection, uuid, wanted.generation)
                if wanted.inventories:
                    self._widen(connection, ids[uuid], wanted, now)
            consumers = [wish.consumer_uuid for wish in wishes]
            providers = {uuid for wish in wishes for uuid in wish.allocations}
            involved = set(ids.values()) | _locked_ids(connection, consumers, providers)
            forest = _overlaid(self._snapshot.held(), store.some_providers(connection, involved))
            written = self._claim(connection, forest, wishes, single=False)
            for uuid, wanted in sorted(inventories.items()):
                inventory_writes.replace_all(connection, ids[uuid], uuid, wanted.inventories, now)
                store.bump(connection, ids[uuid], now, generations=1)
            return Written(None, involved | set(written.changed))

        with self._turn:
            for _ in range(ROUNDS):
                try:
                    return self._writer.run(work)
                except _PictureIsOld:
                    self._snapshot.catch_up()
        raise _concurrent("update conflict: ")

    def _decided(
        self,
        consumers: Collection[str],
        providers: Collection[str],
        work: Callable[[Connection, Forest], Written[None]],
    ) -> None:
        """`work` on the forest in memory; when that was old, on locked rows. Uuids of whom and what it is about."""

        def on_memory(connection: Connection) -> Written[None]:
            return work(connection, self._snapshot.held())

        def on_rows(connection: Connection) -> Written[None]:
            ids = _locked_ids(connection, consumers, providers)
            return work(connection, _overlaid(self._snapshot.held(), store.some_providers(connection, ids)))

        with self._turn:
            for attempt in (on_memory, *(on_rows,) * (ROUNDS - 1)):
                try:
                    return self._writer.run(attempt)
                except _PictureIsOld:
                    self._snapshot.catch_up()
        raise _concurrent("Inventory and/or allocations changed while attempting to allocate: ")

    def _claim(
        self, connection: Connection, forest: Forest, wishes: Collection[Wish], *, single: bool
    ) -> Written[None]:
        consumers = rows.lock_consumers(connection, [wish.consumer_uuid for wish in wishes])
        for wish in wishes:
            _check_generation(wish, consumers.get(wish.consumer_uuid))
        held = rows.held_by(connection, [consumer.id for consumer in consumers.values()])
        before = {consumer.uuid: held.get(consumer.id, {}) for consumer in consumers.values()}
        after = {wish.consumer_uuid: self._wanted(connection, forest, wish, single=single) for wish in wishes}
        claim = self._room(connection, forest, before, after)
        # The peer counts a write for providers that are asked for, and for all that an emptied consumer held.
        counted = {provider_id for holdings in after.values() for provider_id in holdings}
        for wish in wishes:
            if not wish.allocations:
                counted |= set(before.get(wish.consumer_uuid, ()))
        states = self._write_usage(connection, forest, claim, counted=counted)
        self._write_consumers(connection, forest, wishes, consumers, after)
        return Written(None, set(states), states)

    def _wanted(self, connection: Connection, forest: Forest, wish: Wish, *, single: bool) -> claims.Holdings:
        """The wish by provider id. Raises `Invalid` for a provider or class that does not exist."""
        start = "Unable to allocate inventory "
        start += f"for consumer {wish.consumer_uuid}: " if single else ""
        wanted: dict[int, Mapping[str, int]] = {}
        for uuid, amounts in wish.allocations.items():
            provider = forest.by_uuid(uuid)
            if provider is None:
                if store.find_provider(connection, uuid) is not None:
                    raise _PictureIsOld
                raise Invalid(f"Allocation for resource provider '{uuid}' that does not exist.")
            unknown = [name for name in amounts if name not in forest.names.classes]
            if unknown:
                if store_names.ids(connection, store_names.CLASSES, unknown):
                    raise _PictureIsOld
                raise Invalid(f"{start}No such resource class {unknown[0]}.")
            wanted[provider.id] = amounts
        return wanted

    def _room(
        self,
        connection: Connection,
        forest: Forest,
        before: Mapping[str, claims.Holdings],
        after: Mapping[str, claims.Holdings],
    ) -> claims.Claim:
        """Raises `Conflict` where there is no room in a picture that is exact."""
        known = {provider_id for holdings in before.values() for provider_id in holdings}
        if any(forest.by_id(provider_id) is None for provider_id in known):
            raise _PictureIsOld
        decision = claims.decide(forest, before, after)
        if isinstance(decision, claims.Claim):
            return decision
        now = store.revisions(connection, decision.provider_ids)
        if any(now.get(number) != _at(forest, number).revision for number in decision.provider_ids):
            raise _PictureIsOld
        raise Conflict(f"Unable to allocate inventory: {decision.message}")

    def _write_usage(
        self, connection: Connection, forest: Forest, claim: claims.Claim, *, counted: Collection[int]
    ) -> dict[int, Provider]:
        """Move each provider's revision, if it is still the one that was decided on; its new state in memory."""
        now = self._clock.now()
        states: dict[int, Provider] = {}
        for provider_id, used in sorted(claim.used.items()):
            provider = _at(forest, provider_id)
            generations = 1 if provider_id in counted else 0
            if not store.bump_if(connection, provider_id, provider.revision, now, generations=generations):
                raise _PictureIsOld
            states[provider_id] = replace(
                provider,
                used=used,
                generation=provider.generation + generations,
                revision=provider.revision + 1,
                updated_at=now,
            )
        return states

    def _write_consumers(
        self,
        connection: Connection,
        forest: Forest,
        wishes: Collection[Wish],
        consumers: Mapping[str, Consumer],
        after: Mapping[str, claims.Holdings],
    ) -> None:
        now = self._clock.now()
        emptied = [wish.consumer_uuid for wish in wishes if not wish.allocations]
        rows.delete_consumers(connection, [consumers[uuid].id for uuid in emptied if uuid in consumers])
        staying = [wish for wish in wishes if wish.allocations]
        rows.delete_allocations(
            connection, [consumers[wish.consumer_uuid].id for wish in staying if wish.consumer_uuid in consumers]
        )
        for wish in staying:
            consumer_id = _written_consumer(connection, wish, consumers.get(wish.consumer_uuid))
            rows.insert_allocations(
                connection,
                (
                    {
                        "consumer_id": consumer_id,
                        "provider_id": provider_id,
                        "class_id": forest.names.classes[name],
                        "used": amount,
                        "created_at": now,
                    }
                    for provider_id, amounts in after[wish.consumer_uuid].items()
                    for name, amount in amounts.items()
                ),
            )

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


def _locked_ids(connection: Connection, consumers: Collection[str], providers: Collection[str]) -> set[int]:
    """Ids of these providers and of those that the consumers hold something of; all locked, in order of id."""
    present = rows.lock_consumers(connection, consumers)
    held = rows.held_by(connection, [consumer.id for consumer in present.values()])
    ids = {provider_id for holdings in held.values() for provider_id in holdings}
    for uuid in sorted(providers):
        row = store.find_provider(connection, uuid)
        if row is not None:
            ids.add(row.id)
    for provider_id in sorted(ids):
        store.lock_provider_id(connection, provider_id)
    return ids


def _check_generation(wish: Wish, consumer: Consumer | None) -> None:
    if not wish.check_generation:
        return
    actual = None if consumer is None else consumer.generation
    if actual != wish.generation:
        expected, given = ("null" if number is None else number for number in (actual, wish.generation))
        if wish.generation is None:
            given = "None"
        raise ConcurrentUpdate(
            f"consumer generation conflict - expected {expected} but got {given}", code=CONCURRENT_UPDATE
        )


def _written_consumer(connection: Connection, wish: Wish, consumer: Consumer | None) -> int:
    """The consumer's id. Whatever a wish leaves out (the type, before 1.38) stays as it is."""
    if consumer is None:
        return rows.insert_consumer(connection, wish.consumer_uuid, wish.project_id, wish.user_id, wish.consumer_type)
    rows.update_consumer(
        connection,
        replace(
            consumer,
            generation=consumer.generation + 1,
            project_id=wish.project_id,
            user_id=wish.user_id,
            consumer_type=wish.consumer_type or consumer.consumer_type,
        ),
    )
    return consumer.id


def _lock_for_reshape(connection: Connection, uuid: str, generation: int) -> int:
    row = store.lock_provider(connection, uuid)
    if row is None:
        raise Invalid(
            f"Resource provider {uuid} in inventories not found: No resource provider with uuid {uuid} found",
            code=PROVIDER_NOT_FOUND,
        )
    if row.generation != generation:
        raise ConcurrentUpdate(
            f"resource provider generation conflict for provider {uuid}: actual: {row.generation}, given: {generation}",
            code=CONCURRENT_UPDATE,
        )
    return int(row.id)


def _overlaid(forest: Forest, providers: Collection[Provider]) -> Forest:
    """The forest with these providers as they are inside the present transaction."""
    for provider in providers:
        if forest.by_id(provider.id) is None or forest.by_id(provider.root_id) is None:
            raise _PictureIsOld
    return forest.with_changes({provider.id: provider for provider in providers})


def _at(forest: Forest, provider_id: int) -> Provider:
    provider = forest.by_id(provider_id)
    if provider is None:
        raise _PictureIsOld
    return provider


def _concurrent(start: str) -> ConcurrentUpdate:
    return ConcurrentUpdate(
        f"{start}Another thread concurrently updated the resource provider data. Please retry your update",
        code=CONCURRENT_UPDATE,
    )
