"""Every write goes through here: the transaction, the number in the change log, and what this process remembers.

A transaction takes the number of the next change first: from there until its commit nobody else writes, in any process.
So the picture of the whole database that it decides on is exact, nothing else is locked, nothing is verified, and no
writer can wait for another in a circle. What it decides is a difference between states; it goes out together with
the commit, in the second round trip.

Writes of one process share transactions: see `moorage.placement.grouping`.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from moorage.core.clock import Clock
from moorage.core.errors import MoorageError, RetryableConflict, Unavailable
from moorage.db.batches import Batches, Command, FoundOtherwise, Transaction
from moorage.db.transactions import in_transaction, is_over
from moorage.placement import changes, store_drafts
from moorage.placement.documents import Entry
from moorage.placement.drafts import Draft
from moorage.placement.forest import Forest
from moorage.placement.grouping import Grouping
from moorage.placement.meters import Meters
from moorage.placement.model import Provider
from moorage.placement.snapshot import Snapshot

T = TypeVar("T")

#: How often a transaction is begun again that the database gave up: it has made us wait for the lock already.
ATTEMPTS = 8
#: After a guess that was wrong so many groups do without: other processes write as well.
WARY = 50


@dataclass(frozen=True, slots=True)
class Order(Generic[T]):
    """One request's write: decided on a draft, all or nothing, by a function without any other effect."""

    decide: Callable[[Draft], T]
    #: What no other order of the same group may be about: uuids of consumers, and of providers that change themselves.
    about: Collection[str]
    consumers: Collection[str] = ()  #: uuids of those that the decision looks at
    new_consumers: Collection[str] = ()  #: uuids of those that it takes for new, and that get something
    names: Collection[str] = ()  #: of providers, to be looked up


@dataclass(frozen=True, slots=True)
class Written(Generic[T]):
    """What a transaction of `Writer.run` did."""

    result: T
    entries: Collection[Entry]


class Writer:
    def __init__(self, engine: Engine, snapshot: Snapshot, clock: Clock, meters: Meters) -> None:
        self._engine = engine
        self._snapshot = snapshot
        self._clock = clock
        self._meters = meters
        self._batches = Batches(engine)
        self._wary = 0
        #: Held from before the number is taken until the snapshot has it: own writes come into it in their order.
        self._turn = threading.Lock()
        self._queue: Grouping[Order[Any], Any] = Grouping(self._write, lambda order: order.about)

    def submit(self, order: Order[T]) -> T:
        """Returns when it is committed; raises what `decide` raised."""
        result: T = self._queue.submit(order)
        return result

    def run(self, work: Callable[[Connection], Written[T]]) -> T:
        """`work` in a transaction of its own, for what is rarely written: classes and traits."""

        def numbered(connection: Connection) -> T:
            log = changes.Log(connection, self._clock.now())
            written = work(connection)
            log.add(written.entries)
            return written.result

        with self._turn:
            return in_transaction(self._engine, numbered)

    def _write(self, orders: Sequence[Order[Any]]) -> Sequence[Any]:
        self._meters.group_sizes.observe(len(orders))
        with self._turn, self._meters.timed(self._meters.commits):
            began = time.monotonic()
            for _ in range(ATTEMPTS - 1):
                try:
                    return self._attempt(orders)
                except RetryableConflict:
                    if is_over(began):
                        raise
                    self._meters.repeats.inc()
            return self._attempt(orders)

    def _attempt(self, orders: Sequence[Order[Any]]) -> list[Any]:
        unknown: tuple[int, Unavailable] | None = None
        if self._may_guess(orders):
            forest = self._snapshot.held()
            try:
                if (outcomes := self._guessed(forest, orders)) is not None:
                    return outcomes
            except (FoundOtherwise, IntegrityError):
                self._wary = WARY
            except RetryableConflict:
                raise
            except Unavailable as error:
                unknown = forest.sequence, error
        return self._numbered(orders, unknown)

    def _may_guess(self, orders: Sequence[Order[Any]]) -> bool:
        self._wary = max(0, self._wary - 1)
        if self._wary or not self._batches.is_far:
            return False
        return not any(order.consumers for order in orders)

    def _guessed(self, forest: Forest, orders: Sequence[Order[Any]]) -> list[Any] | None:
        """In one round trip, if the forest is exact and what is taken for new is new. None where nothing is to be
        written: a refusal counts only if the forest is known to be exact.
        """
        draft = Draft(forest, self._clock.now())
        outcomes = [_decided(order, draft) for order in orders]
        if draft.is_empty:
            return None
        with self._batches.transaction() as transaction:
            return self._commit(transaction, draft, outcomes, store_drafts.take_next(forest.sequence))

    def _numbered(self, orders: Sequence[Order[Any]], unknown: tuple[int, Unavailable] | None) -> list[Any]:
        """`unknown`: the number that was the last, and the error, when a guess was sent and nobody heard what became of
        it. Where that number still is the last one, nothing did, and nothing will.
        """
        with self._batches.transaction() as transaction:
            draft = self._begin(transaction, orders)
            if unknown is not None and draft.forest.sequence != unknown[0]:
                raise unknown[1]
            outcomes = [_decided(order, draft) for order in orders]
            if draft.is_empty:
                return outcomes
            return self._commit(transaction, draft, outcomes)

    def _commit(self, transaction: Transaction, draft: Draft, outcomes: list[Any], *first: Command) -> list[Any]:
        """Write what was decided, and remember it. Answers the outcomes, in which new providers have their ids."""
        sequence = draft.forest.sequence + 1
        created = store_drafts.create_providers(draft)
        answers = transaction.commit(*first, created, *store_drafts.write(draft, sequence))
        if draft.created:
            numbered = draft.number(dict(answers[len(first)]))
            outcomes = [numbered.get(one.id, one) if isinstance(one, Provider) else one for one in outcomes]
        self._snapshot.wrote(sequence, draft.providers)
        return outcomes

    def _begin(self, transaction: Transaction, orders: Sequence[Order[Any]]) -> Draft:
        """Take the number, which is the one behind the draft's forest, and read what is not in the forest."""
        consumers = [uuid for order in orders for uuid in (*order.consumers, *order.new_consumers)]
        names = [name for order in orders for name in order.names]
        taken, found, owners = transaction.send(
            (store_drafts.TAKE, None), store_drafts.find_consumers(consumers), store_drafts.find_names(names)
        )
        ((sequence,),) = taken
        forest = self._exact(sequence - 1)
        return Draft(forest, self._clock.now(), store_drafts.consumers_found(found), dict(owners))

    def _exact(self, last: int) -> Forest:
        """The forest as of the last commit, which stays the last while we hold the next number."""
        forest = self._snapshot.held()
        if forest.sequence == last:
            return forest
        self._meters.old_pictures.inc()
        # A picture that is ahead is of a database that was set back: read whatever there is.
        return self._snapshot.catch_up(last if forest.sequence < last else None)


def _decided(order: Order[Any], draft: Draft) -> Any:
    """The order's result, or its error: what one is refused for does not concern the others."""
    try:
        return order.decide(draft)
    except MoorageError as error:
        return error
