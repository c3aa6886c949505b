"""Commits every write: the transaction, its number in the change log, and the update of the snapshot.

A transaction first takes the next change number, which locks the one row of `change_sequence`: from then until its
commit no other process writes. So the forest on which it decides is exact, nothing else needs to be locked or verified,
and writers cannot deadlock. The decided changes are sent together with the commit, in the second round trip.

Concurrent writes of one process share a transaction (`GroupedWrites` of `moorage.db.session`). If the database is a
round trip away, a group is decided *optimistically*, on the forest in memory, and sent together with the commit in one
round trip. Its first statement (`write_set_sql.take_number_after`) takes the number only if `last` in the database is
still the number of the forest on which the group was decided. Otherwise the transaction fails with `IntegrityError`,
nothing is written, and the group is decided again after it has taken its number. The same row lock holds until the
commit, so an optimistic group that commits was also decided on the exact forest.

Beside other processes that write, no group is optimistic, and the number is taken before the group is formed: all
requests that arrive while another process writes are in it. So the groups of several processes grow with the load, too.
"""

import functools
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from moorage.core.clock import Clock
from moorage.core.errors import MoorageError, Unavailable
from moorage.db.session import (
    GroupedWrites,
    PipelinedTransaction,
    StatementPipeline,
    in_transaction,
    repeat_aborted,
)
from moorage.db.statements import Command, Rows
from moorage.placement.forest.change_entries import ChangeDocument
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import NameTable, Provider
from moorage.placement.rules.write_set import WriteSet
from moorage.placement.store import change_store, write_set_sql
from moorage.placement.sync.meters import PlacementMeters
from moorage.placement.sync.snapshot import Snapshot

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

#: After another process has written, this many groups take their number first, because it will write again.
GROUPS_AFTER_MISS = 50


@dataclass(frozen=True, slots=True)
class WriteRequest(Generic[T_co]):
    """One write. `decide` changes a write set, or raises an error and changes nothing; it has no other effects."""

    decide: Callable[[WriteSet], T_co]
    #: Subjects: uuids of consumers, and of providers whose description changes. No two requests of a group share a
    #: subject. Two claims on one provider may: the second is decided on the usage that the first leaves behind.
    about: Collection[str]
    consumers: Collection[str] = ()  #: uuids of consumers that the decision reads
    new_consumers: Collection[str] = ()  #: uuids of consumers that are expected to be new
    names: Collection[str] = ()  #: of providers, to be looked up


@dataclass(frozen=True, slots=True)
class _Numbered:
    """A transaction that has taken its number."""

    transaction: PipelinedTransaction
    #: with all commits before it
    forest: Forest


class _ConsumerExists(Exception):
    """The request expected a new consumer, but it exists: decide again with its allocations."""


@dataclass(frozen=True, slots=True)
class TransactionResult(Generic[T]):
    """The result of the function given to `Committer.run_transaction`."""

    result: T
    entries: Collection[ChangeDocument]
    #: Applies the change to the name table; None if the transaction changes more than names.
    on_names: Callable[[NameTable], NameTable] | None = None


class Committer:
    def __init__(self, engine: Engine, snapshot: Snapshot, clock: Clock, meters: PlacementMeters) -> None:
        self._engine = engine
        self._snapshot = snapshot
        self._clock = clock
        self._meters = meters
        self._pipeline = StatementPipeline(engine)
        #: Number of groups that must take their number first, because other processes also write.
        self._numbered_groups_left = 0
        #: The transaction of the next group, if its number was taken before the group.
        self._numbered: _Numbered | None = None
        #: Held from before the number is taken until the snapshot has the write, so that it gets own writes in order.
        self._turn = threading.Lock()
        self._queue: GroupedWrites[WriteRequest[object], Any] = GroupedWrites(
            self._write_group, lambda request: request.about, self._turn_to_write
        )

    def submit(self, request: WriteRequest[T]) -> T:
        """Writes the request. After the commit, returns the result of its `decide`, or raises its error.

        Raises `Unavailable` if the database does not answer.
        """
        try:
            result: T = self._queue.submit(request)
        except _ConsumerExists:
            result = self._queue.submit(replace(request, consumers=(*request.consumers, *request.new_consumers)))
        return result

    def run_transaction(self, write: Callable[[Connection], TransactionResult[T]]) -> T:
        """Calls `write` in a transaction of its own; for resource classes and traits, which rarely change."""

        def numbered(connection: Connection) -> tuple[int, TransactionResult[T]]:
            log = change_store.ChangeLogWriter(connection, self._clock.now())
            written = write(connection)
            log.add(written.entries)
            return log.sequence, written

        with self._turn:
            number, written = in_transaction(self._engine, numbered)
            if written.on_names is not None:
                self._snapshot.record_names(number, written.on_names)
            return written.result

    @contextmanager
    def _turn_to_write(self) -> Iterator[None]:
        """Beside other processes that write, takes the number of the next group."""
        with self._turn, self._meters.timed(self._meters.commits):
            self._numbered = None
            if not self._numbered_groups_left:
                yield
                return
            self._numbered = repeat_aborted(self._take_number_early, self._meters.repeats.inc)
            with self._numbered.transaction:
                yield

    def _take_number_early(self) -> _Numbered:
        with ExitStack() as after_error:
            transaction = after_error.enter_context(self._pipeline.transaction())
            ((number,),), entries = transaction.send((write_set_sql.TAKE_NUMBER, None), self._snapshot.entries_since())
            numbered = _Numbered(transaction, self._exact_forest(number - 1, entries))
            after_error.pop_all()
            return numbered

    def _write_group(self, requests: Sequence[WriteRequest[object]]) -> Sequence[object]:
        self._meters.group_sizes.observe(len(requests))
        return repeat_aborted(functools.partial(self._try_to_write, requests), self._meters.repeats.inc)

    def _try_to_write(self, requests: Sequence[WriteRequest[object]]) -> Sequence[object]:
        self._numbered_groups_left = max(0, self._numbered_groups_left - 1)
        numbered, self._numbered = self._numbered, None
        unknown: tuple[int, Unavailable] | None = None
        group = self._decide_optimistically(requests, numbered)
        if group is not None:
            try:
                outcomes = self._commit_optimistic(group, numbered)
                if outcomes is not None:
                    return outcomes
            except IntegrityError:
                pass  # another process has written, or a consumer that was expected to be new exists
            except Unavailable as error:  # also an abort, which `repeat_aborted` repeats if it is raised below
                unknown = group.write_set.forest.sequence, error
        elif numbered is not None:
            with numbered.transaction as transaction:
                return self._decide_and_commit(requests, numbered, transaction.send(*_reads(requests)))
        return self._write_numbered(requests, unknown)

    # --- optimistic groups: decided without a read, and sent with their commit -----------------------------------

    def _decide_optimistically(
        self, requests: Sequence[WriteRequest[object]], numbered: _Numbered | None
    ) -> "_OptimisticGroup | None":
        """Decides the group on the forest in memory, which is exact if its number was taken before.

        None if that is not possible, or if all requests are refused, because refusals need an exact forest and the
        consumers that exist.
        """
        if numbered is None and (self._numbered_groups_left or not self._pipeline.is_far):
            return None
        if any(request.consumers for request in requests):
            return None
        forest = numbered.forest if numbered else self._snapshot.cached()
        group = _OptimisticGroup(WriteSet(forest, self._clock.now()))
        for request in requests:
            group.decide(request)
        return None if group.write_set.is_empty else group

    def _commit_optimistic(self, group: "_OptimisticGroup", numbered: _Numbered | None) -> list[object] | None:
        """Sends the group and waits for the commit; returns the outcomes. None if there is no connection."""
        write_set = group.write_set
        sequence = write_set.sequence
        take_number = () if numbered else (write_set_sql.take_number_after(write_set.forest.sequence),)
        with ExitStack() as transaction_end:
            try:
                transaction = transaction_end.enter_context(
                    numbered.transaction if numbered else self._pipeline.transaction()
                )
                answers = transaction.start_commit(
                    *take_number,
                    write_set_sql.find_consumers(group.expected_new()),
                    write_set_sql.create_providers(write_set),
                    *write_set_sql.write_commands(write_set),
                )
            except Unavailable:
                return None  # nothing was sent; taking the number reports the error
            after = None  # computed while the database commits, unless new providers have no ids yet
            if not write_set.created:
                after = write_set.forest.with_changes(write_set.providers, sequence=sequence)
            found, created, *_ = answers()[len(take_number) :]
        group.mark_existing(write_set_sql.consumers_found(found))
        return self._record_commit(write_set, group.outcomes, created, after)

    def _write_numbered(
        self, requests: Sequence[WriteRequest[object]], unknown: tuple[int, Unavailable] | None
    ) -> list[object]:
        """Takes the number, then decides and commits the group.

        `unknown`: (number of its forest, error) of an optimistic group that was sent and whose outcome is unknown. If
        that number is still the last one, the group was not committed and cannot be committed later.
        """
        with self._pipeline.transaction() as transaction:
            numbered, rows = self._take_number(transaction, *_reads(requests))
            if unknown is not None and numbered.forest.sequence != unknown[0]:
                raise unknown[1]
            return self._decide_and_commit(requests, numbered, rows)

    def _decide_and_commit(
        self, requests: Sequence[WriteRequest[object]], numbered: _Numbered, rows: Sequence[Rows]
    ) -> list[object]:
        """Decides the group, commits its changes if it has any, and returns the outcomes. `rows`: those of `_reads`."""
        found, owners = rows
        now = self._clock.now()
        write_set = WriteSet(numbered.forest, now, write_set_sql.consumers_found(found), dict(owners))
        outcomes = [_decide(request, write_set) for request in requests]
        if write_set.is_empty:
            return outcomes
        commands = (
            write_set_sql.create_providers(write_set),
            *write_set_sql.write_commands(write_set),
        )
        return self._record_commit(write_set, outcomes, numbered.transaction.commit(*commands)[0])

    def _record_commit(
        self, write_set: WriteSet, outcomes: list[object], created: Rows, after: Forest | None = None
    ) -> list[object]:
        """Updates the snapshot after the commit. Returns the outcomes with the ids of new providers.

        `created`: rows (uuid, id) of the new providers.
        """
        if write_set.created:
            with_ids = write_set.assign_ids(dict(created))
            outcomes = [with_ids.get(one.id, one) if isinstance(one, Provider) else one for one in outcomes]
        self._snapshot.record_write(write_set, after)
        return outcomes

    def _take_number(self, transaction: PipelinedTransaction, *reads: Command) -> tuple[_Numbered, list[Rows]]:
        """Takes the next number, and reads in the same round trip."""
        ((number,),), *rows = transaction.send((write_set_sql.TAKE_NUMBER, None), *reads)
        return _Numbered(transaction, self._exact_forest(number - 1)), rows

    def _exact_forest(self, last: int, entries: Rows = ()) -> Forest:
        """The forest of the last commit; no other commit follows, because this transaction has the next number. (On
        Galera one may follow, and this transaction is aborted.) `entries`: see `Snapshot.catch_up`.
        """
        forest = self._snapshot.cached()
        if forest.sequence == last:
            return forest
        self._meters.stale_forests.inc()
        self._numbered_groups_left = GROUPS_AFTER_MISS
        # If the forest is newer, the database was restored from a backup: read its present state.
        return self._snapshot.catch_up(last, entries) if forest.sequence < last else self._snapshot.catch_up()


def _reads(requests: Sequence[WriteRequest[object]]) -> tuple[Command, Command]:
    """Reads the rows that are not in the forest."""
    consumers = [uuid for request in requests for uuid in (*request.consumers, *request.new_consumers)]
    names = [name for request in requests for name in request.names]
    return write_set_sql.find_consumers(consumers), write_set_sql.find_provider_names(names)


class _OptimisticGroup:
    """A group decided without a read. Its forest is exact if its number is the next one; new consumers are verified
    when they are written.
    """

    def __init__(self, write_set: WriteSet) -> None:
        self.write_set = write_set
        self.outcomes: list[object] = []
        #: {index of a refused request: the consumers that it expects to be new}. For accepted requests, the insertion
        #: verifies that. A refused request inserts nothing, and would get another error if they existed.
        self._refused: dict[int, Collection[str]] = {}

    def decide(self, request: WriteRequest[object]) -> None:
        outcome = _decide(request, self.write_set)
        if isinstance(outcome, MoorageError) and request.new_consumers:
            self._refused[len(self.outcomes)] = request.new_consumers
        self.outcomes.append(outcome)

    def expected_new(self) -> list[str]:
        """Consumers that refused requests expect to be new; the transaction must verify that."""
        return [uuid for uuids in self._refused.values() for uuid in uuids]

    def mark_existing(self, found: Collection[str]) -> None:
        """Marks refused requests that must be decided again. `found`: the existing consumers in `expected_new`."""
        for index, uuids in self._refused.items():
            if any(uuid in found for uuid in uuids):
                self.outcomes[index] = _ConsumerExists()


def _decide(request: WriteRequest[object], write_set: WriteSet) -> object:
    """The result of the request, or its error, so that a refusal does not affect other requests."""
    try:
        return request.decide(write_set)
    except MoorageError as error:
        return error
