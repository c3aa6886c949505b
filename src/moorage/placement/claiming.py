"""Writing a group of claims in a transaction: decided one after the other in memory, written together.

A claim is written with one conditional update per provider: nothing is summed in SQL. Each claim sees what those
before it in the group have taken. One that is refused leaves the others alone.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from moorage.core.errors import ConcurrentUpdate, Conflict, Invalid, MoorageError, NotFound
from moorage.placement import claims, store, store_names
from moorage.placement import store_allocations as rows
from moorage.placement.forest import Forest
from moorage.placement.model import Consumer, Provider
from moorage.placement.writing import CONCURRENT_UPDATE, Written


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
class Order:
    """One request: all its wishes or none of them."""

    wishes: tuple[Wish, ...]
    single: bool = False  #: PUT for one consumer, whose errors are worded a little differently
    #: DELETE: the consumer must hold something, and generations of providers stay, as the peer leaves them.
    is_release: bool = False

    def consumers(self) -> list[str]:
        return [wish.consumer_uuid for wish in self.wishes]


class PictureIsOld(Exception):
    """Leaves the transaction without a trace; the forest catches up and it is tried again."""


def write(
    connection: Connection, forest: Forest, orders: Sequence[Order], now: datetime
) -> Written[list[MoorageError | None]]:
    """For each order why it was refused, or None. Raises `PictureIsOld`."""
    group = _Group(connection, forest, orders)
    outcomes = [group.decide(order) for order in orders]
    group.check_refusals()
    states = group.write_providers(now)
    group.write_consumers(now)
    return Written(outcomes, set(states), states)


class _Group:
    def __init__(self, connection: Connection, forest: Forest, orders: Sequence[Order]) -> None:
        self._connection = connection
        self._forest = forest
        self._ahead = claims.Ahead(forest)
        self._consumers = rows.lock_consumers(connection, [uuid for order in orders for uuid in order.consumers()])
        held = rows.held_by(connection, [consumer.id for consumer in self._consumers.values()])
        self._held = {uuid: held.get(consumer.id, {}) for uuid, consumer in self._consumers.items()}
        self._accepted: list[tuple[Wish, claims.Holdings]] = []
        self._generations: Counter[int] = Counter()  # {provider id: writes that the peer counts}
        self._refused_over: set[int] = set()

    def decide(self, order: Order) -> MoorageError | None:
        """Take it into the group, or say why not."""
        try:
            after = self._after(order)
        except MoorageError as error:
            return error
        before = {uuid: self._held.get(uuid, {}) for uuid in order.consumers()}
        if any(self._forest.by_id(provider_id) is None for holdings in before.values() for provider_id in holdings):
            raise PictureIsOld
        decision = claims.decide(self._ahead, before, after)
        if isinstance(decision, claims.Refusal):
            self._refused_over |= decision.provider_ids
            return Conflict(f"Unable to allocate inventory: {decision.message}")
        self._ahead.take(decision)
        if not order.is_release:
            self._generations.update(_counted(before, after))
        self._accepted += [(wish, after[wish.consumer_uuid]) for wish in order.wishes]
        return None

    def _after(self, order: Order) -> dict[str, claims.Holdings]:
        """{consumer: what it is to hold}. Raises what is wrong with the order itself."""
        for wish in order.wishes:
            _check_generation(wish, self._consumers.get(wish.consumer_uuid))
            if order.is_release and not self._held.get(wish.consumer_uuid):
                raise NotFound(f"No allocations for consumer '{wish.consumer_uuid}'")
        for wish in order.wishes:
            self._check_providers(wish)
        return {wish.consumer_uuid: self._wanted(wish, single=order.single) for wish in order.wishes}

    def _check_providers(self, wish: Wish) -> None:
        for uuid in wish.allocations:
            if self._forest.by_uuid(uuid) is None:
                if store.find_provider(self._connection, uuid) is not None:
                    raise PictureIsOld
                raise Invalid(f"Allocation for resource provider '{uuid}' that does not exist.")

    def _wanted(self, wish: Wish, *, single: bool) -> claims.Holdings:
        """The wish by provider id. Raises `Invalid` for a class that does not exist."""
        start = "Unable to allocate inventory "
        start += f"for consumer {wish.consumer_uuid}: " if single else ""
        wanted: dict[int, Mapping[str, int]] = {}
        for uuid, amounts in wish.allocations.items():
            provider = self._forest.by_uuid(uuid)
            if provider is None:
                raise PictureIsOld
            unknown = [name for name in amounts if name not in self._forest.names.classes]
            if unknown:
                if store_names.ids(self._connection, store_names.CLASSES, unknown):
                    raise PictureIsOld
                raise Invalid(f"{start}No such resource class {unknown[0]}.")
            wanted[provider.id] = amounts
        return wanted

    def check_refusals(self) -> None:
        """There is no room only if that was seen in a picture that is exact."""
        if self._refused_over:
            now = store.revisions(self._connection, self._refused_over)
            if any(now.get(number) != _at(self._forest, number).revision for number in self._refused_over):
                raise PictureIsOld

    def write_providers(self, now: datetime) -> dict[int, Provider]:
        """Move each provider's revision, if it is still the one that was decided on; the new states."""
        bumps: list[store.Bump] = []
        states: dict[int, Provider] = {}
        for provider_id, used in sorted(self._ahead.used.items()):
            provider = _at(self._forest, provider_id)
            generations = self._generations[provider_id]
            bumps.append(store.Bump(provider_id, provider.revision, generations))
            states[provider_id] = replace(
                provider,
                used=used,
                generation=provider.generation + generations,
                revision=provider.revision + 1,
                updated_at=now,
            )
        if not store.bump_all_if(self._connection, bumps, now):
            raise PictureIsOld
        return states

    def write_consumers(self, now: datetime) -> None:
        present = [
            self._consumers[wish.consumer_uuid] for wish, _ in self._accepted if wish.consumer_uuid in self._held
        ]
        rows.delete_allocations(self._connection, [consumer.id for consumer in present])
        emptied = {wish.consumer_uuid for wish, after in self._accepted if not after}
        rows.delete_consumers(self._connection, [consumer.id for consumer in present if consumer.uuid in emptied])
        staying = [wish for wish, after in self._accepted if after]
        changed = [_changed(wish, self._consumers[wish.consumer_uuid]) for wish in staying if self._is_known(wish)]
        rows.update_consumers(self._connection, changed)
        new = [wish for wish in staying if not self._is_known(wish)]
        ids = rows.insert_consumers(
            self._connection,
            [rows.NewConsumer(wish.consumer_uuid, wish.project_id, wish.user_id, wish.consumer_type) for wish in new],
        )
        ids |= {consumer.uuid: consumer.id for consumer in changed}
        rows.insert_allocations(
            self._connection,
            (
                {
                    "consumer_id": ids[wish.consumer_uuid],
                    "provider_id": provider_id,
                    "class_id": self._forest.names.classes[name],
                    "used": amount,
                    "created_at": now,
                }
                for wish, after in self._accepted
                for provider_id, amounts in after.items()
                for name, amount in amounts.items()
            ),
        )

    def _is_known(self, wish: Wish) -> bool:
        return wish.consumer_uuid in self._consumers


def _counted(before: Mapping[str, claims.Holdings], after: Mapping[str, claims.Holdings]) -> set[int]:
    """The peer counts a write for providers that are asked for, and for all that an emptied consumer held."""
    asked = {provider_id for holdings in after.values() for provider_id in holdings}
    return asked | {provider_id for uuid, holdings in before.items() if not after[uuid] for provider_id in holdings}


def _changed(wish: Wish, consumer: Consumer) -> Consumer:
    """Whatever a wish leaves out (the type, before 1.38) stays as it is."""
    return replace(
        consumer,
        generation=consumer.generation + 1,
        project_id=wish.project_id,
        user_id=wish.user_id,
        consumer_type=wish.consumer_type or consumer.consumer_type,
    )


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


def locked_picture(connection: Connection, forest: Forest, ids: Collection[int]) -> Forest:
    """The forest with these providers as they are inside the present transaction."""
    providers = store.some_providers(connection, ids)
    for provider in providers:
        if forest.by_id(provider.id) is None or forest.by_id(provider.root_id) is None:
            raise PictureIsOld
    return forest.with_changes({provider.id: provider for provider in providers})


def locked_ids(connection: Connection, orders: Sequence[Order]) -> set[int]:
    """Ids of providers that are asked for, and of those that the consumers hold something of; locked, in order."""
    present = rows.lock_consumers(connection, [uuid for order in orders for uuid in order.consumers()])
    held = rows.held_by(connection, [consumer.id for consumer in present.values()])
    ids = {provider_id for holdings in held.values() for provider_id in holdings}
    for uuid in sorted({uuid for order in orders for wish in order.wishes for uuid in wish.allocations}):
        row = store.find_provider(connection, uuid)
        if row is not None:
            ids.add(row.id)
    for provider_id in sorted(ids):
        store.lock_provider_id(connection, provider_id)
    return ids


def _at(forest: Forest, provider_id: int) -> Provider:
    provider = forest.by_id(provider_id)
    if provider is None:
        raise PictureIsOld
    return provider
