"""Every write goes through here: the transaction, its number in the change log, and the update of the snapshot.

A transaction first takes the next change number, which locks the one row of `change_sequence`: from then until its
commit no other process writes. So the forest that it decides on is exact, nothing else is locked or verified, and
writers cannot deadlock. The decision is a difference between states, sent together with the commit in the second round
trip.

Concurrent writes of one process share a transaction (`sync.group_commit`). While one group is with the database, the
next is decided on the state that the first will leave behind (*optimistically*), and sent once that state is reached.
The first statement of an optimistic group (`write_set_sql.take_next`) takes the number only if `last` in the database
is still the number of the forest that the group was decided on. Otherwise the transaction fails with
`PreconditionFailed`, nothing is written, and the group is decided again after taking its number. The same row lock
holds until the commit, so an optimistic group that commits was decided on the exact forest, too.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from moorage.core.clock import Clock
from moorage.core.errors import MoorageError, RetryableConflict, Unavailable
from moorage.db.driver_connections import Rows
from moorage.db.statement_pipelines import Command, PipelinedTransaction, PreconditionFailed, StatementPipeline
from moorage.db.transactions import in_transaction, retry_time_is_over
from moorage.placement.forest.change_documents import ChangeDocument
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import NameTable, Provider
from moorage.placement.rules.write_set import WriteSet
from moorage.placement.store import change_log, write_set_sql, writer_lease
from moorage.placement.store.writer_lease import LeaseChange, WriterLease
from moorage.placement.sync.group_commit import GroupCommit
from moorage.placement.sync.meters import PlacementMeters
from moorage.placement.sync.snapshot import Snapshot

T = TypeVar("T")

#: Attempts at a transaction that the database aborts; each has already waited for the lock.
MAX_ATTEMPTS = 8
#: A request with at least this many subjects is decided while the group before is with the database. Smaller ones better
#: gather until that is done: deciding takes 24 us each, and early decisions would make the groups smaller.
MIN_EARLY_SUBJECTS = 8
#: After a failed optimistic group, this many groups take their number first: other processes write as well.
GROUPS_AFTER_MISS = 50


@dataclass(frozen=True, slots=True)
class WriteRequest(Generic[T]):
    """One write, decided on a write set: all or nothing, by a function without other effects."""

    decide: Callable[[WriteSet], T]
    #: Subjects: uuids of consumers, and of providers that change. No two requests of a group share a subject.
    about: Collection[str]
    consumers: Collection[str] = ()  #: uuids of consumers that the decision reads
    new_consumers: Collection[str] = ()  #: uuids of consumers that are expected to be new
    names: Collection[str] = ()  #: of providers, to be looked up


class _ConsumerExists(Exception):
    """The request took an existing consumer for new: decide it again with the consumer's allocations."""


@dataclass(frozen=True, slots=True)
class TransactionResult(Generic[T]):
    """The result of the function given to `Committer.run_transaction`."""

    result: T
    entries: Collection[ChangeDocument]
    #: Applies the change to the name table, if names are all that changes.
    on_names: Callable[[NameTable], NameTable] | None = None


class Committer:
    def __init__(
        self, engine: Engine, snapshot: Snapshot, clock: Clock, meters: PlacementMeters, lease: WriterLease
    ) -> None:
        self._engine = engine
        self._snapshot = snapshot
        self._lease = lease
        self._clock = clock
        self._meters = meters
        self._batches = StatementPipeline(engine)
        self._wary = 0
        #: Held from before the number is taken until the snapshot has the write, so that own writes enter it in order.
        self._turn = threading.Lock()
        self._queue: GroupCommit[WriteRequest[Any], Any] = GroupCommit(self._write, lambda request: request.about)

    def submit(self, request: WriteRequest[T]) -> T:
        """Writes the request; returns the result of its `decide` after the commit, or raises its error.

        Raises `Unavailable` if the database does not answer.
        """
        try:
            result: T = self._queue.submit(request)
        except _ConsumerExists:
            result = self._queue.submit(replace(request, consumers=(*request.consumers, *request.new_consumers)))
        return result

    def run_transaction(self, work: Callable[[Connection], TransactionResult[T]]) -> T:
        """Runs `work` in a transaction of its own; for resource classes and traits, which are rarely written."""

        def numbered(connection: Connection) -> tuple[int, TransactionResult[T]]:
            log = change_log.ChangeLogWriter(connection, self._clock.now(), self._lease)
            written = work(connection)
            log.add(written.entries)
            return log.sequence, written

        with self._turn, self._lease.writing():
            number, written = in_transaction(self._engine, numbered)
            self._lease.wrote(number)
            if written.on_names is not None:
                self._snapshot.record_names(number, written.on_names)
            return written.result

    def _write(self, requests: Sequence[WriteRequest[Any]], early: "_OptimisticGroup | None") -> Sequence[Any]:
        self._meters.group_sizes.observe(len(requests))
        if early is None or not early.is_sent:
            self._turn.acquire()
        try:
            with self._meters.timed(self._meters.commits):
                return self._repeated(requests, early)
        finally:
            self._turn.release()

    def _repeated(self, requests: Sequence[WriteRequest[Any]], early: "_OptimisticGroup | None") -> Sequence[Any]:
        began = time.monotonic()
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return self._attempt(requests, early)
            except RetryableConflict:
                if retry_time_is_over(began):
                    raise
                self._meters.repeats.inc()
                early = None
        return self._attempt(requests, early)

    def _attempt(self, requests: Sequence[WriteRequest[Any]], early: "_OptimisticGroup | None") -> Sequence[Any]:
        unknown: tuple[int, Unavailable] | None = None
        guess = early if early is not None and early.is_sent else self._guessed(requests, early)
        if guess is not None:
            try:
                outcomes = self._finished(guess)
                if guess is early:
                    self._meters.early_groups.inc()
                return outcomes
            except (PreconditionFailed, IntegrityError):
                self._wary = GROUPS_AFTER_MISS
            except RetryableConflict:
                raise
            except Unavailable as error:
                unknown = guess.write_set.forest.sequence, error
        return self._numbered(requests, unknown)

    # --- in one round trip, if the forest is exact and new consumers are new -----------------------------

    def _guessed(
        self, requests: Sequence[WriteRequest[Any]], early: "_OptimisticGroup | None"
    ) -> "_OptimisticGroup | None":
        """Decides and sends the group without reading first.

        None if that is not possible, or if all requests are refused: a refusal counts only if the forest is known to be exact.
        """
        self._wary = max(0, self._wary - 1)
        if self._wary or not self._batches.is_far or any(request.consumers for request in requests):
            return None
        guess = early if early is not None and self._has_come_about(early) else self._guess_on(self._snapshot.cached())
        for request in requests[len(guess.outcomes) :]:
            guess.decide(request)
        if guess.write_set.is_empty:
            return None
        try:
            self._send(guess)
        except Unavailable:
            return None  # no connection: taking the number reports it
        return guess

    def _guess_on(self, forest: Forest, before: "_OptimisticGroup | None" = None) -> "_OptimisticGroup":
        return _OptimisticGroup(self._send_early, WriteSet(forest, self._clock.now()), before)

    def _has_come_about(self, guess: "_OptimisticGroup") -> bool:
        """True if the group before was written as expected, and nothing else since."""
        return guess.may_be_right and self._snapshot.cached().sequence == guess.write_set.forest.sequence

    def _send_early(self, guess: "_OptimisticGroup") -> None:
        """Sends a prepared group. Runs in the thread that has the outcome of the group before; on failure, the leader of this
        group sends it again.
        """
        if not self._turn.acquire(blocking=False):
            return
        with suppress(Exception):  # the leader of the group sends it again and reports the errors
            if self._batches.is_open and not guess.write_set.is_empty and self._has_come_about(guess):
                self._send(guess)
        if not guess.is_sent:
            self._turn.release()

    def _send(self, guess: "_OptimisticGroup") -> None:
        write_set = guess.write_set
        with ExitStack() as open_ones:
            transaction = open_ones.enter_context(self._batches.transaction())
            open_ones.enter_context(self._lease.writing())
            answers = transaction.start_commit(
                self._next_after(write_set.forest),
                write_set_sql.find_consumers(guess.taken_for_new()),
                write_set_sql.create_providers(write_set),
                *write_set_sql.write_commands(write_set, write_set.forest.sequence + 1),
            )
            guess.sent, guess.before = (answers, open_ones.pop_all()), None

    def _finished(self, guess: "_OptimisticGroup") -> list[Any]:
        """The outcomes, after the commit. Meanwhile the next group is decided, unless new providers have no ids yet."""
        if guess.sent is None:
            raise RuntimeError("nothing was sent")
        write_set, (answers, open_ones) = guess.write_set, guess.sent
        guess.sent, after = None, None
        with open_ones:
            if not write_set.created:
                after = write_set.forest.with_changes(write_set.providers, sequence=write_set.forest.sequence + 1)
                self._queue.gather(self._guess_on(after, guess))
            _, found, created, *_ = answers()
            guess.correct(write_set_sql.consumers_found(found))
            outcomes = self._remember(write_set, guess.outcomes, created, after)
        guess.is_committed = True
        return outcomes

    def _next_after(self, forest: Forest) -> Command:
        return write_set_sql.take_next(forest.sequence, self._lease.name)

    def _numbered(self, requests: Sequence[WriteRequest[Any]], unknown: tuple[int, Unavailable] | None) -> list[Any]:
        """Decides after taking the number.

        `unknown`: the previous last number and the error, if an optimistic group was sent and its outcome is not known. If
        that number is still the last one, nothing was written, and nothing will be.
        """
        with self._batches.transaction() as transaction:
            write_set = self._begin(transaction, requests)
            if unknown is not None and write_set.forest.sequence != unknown[0]:
                raise unknown[1]
            outcomes = [_decided(request, write_set) for request in requests]
            if write_set.is_empty:
                return outcomes
            return self._commit(transaction, write_set, outcomes)

    def _commit(self, transaction: PipelinedTransaction, write_set: WriteSet, outcomes: list[Any]) -> list[Any]:
        """Write the decided changes."""
        commands = (
            write_set_sql.create_providers(write_set),
            *write_set_sql.write_commands(write_set, write_set.forest.sequence + 1),
        )
        with self._lease.writing():
            return self._remember(write_set, outcomes, transaction.commit(*commands)[0])

    def _remember(
        self, write_set: WriteSet, outcomes: list[Any], created: Rows, after: Forest | None = None
    ) -> list[Any]:
        """Update lease and snapshot after the commit. Returns the outcomes with the ids of new providers.

        `created`: rows (uuid, id) of the new providers.
        """
        sequence = write_set.forest.sequence + 1
        self._lease.wrote(sequence)
        if write_set.created:
            numbered = write_set.number(dict(created))
            outcomes = [numbered.get(one.id, one) if isinstance(one, Provider) else one for one in outcomes]
        self._snapshot.record_write(sequence, write_set, after)
        return outcomes

    def _begin(self, transaction: PipelinedTransaction, requests: Sequence[WriteRequest[Any]]) -> WriteSet:
        """Take the next number and read the rows that are not in the forest."""
        consumers = [uuid for request in requests for uuid in (*request.consumers, *request.new_consumers)]
        names = [name for request in requests for name in request.names]
        taken, found, owners = transaction.send(
            (write_set_sql.TAKE, None),
            write_set_sql.find_consumers(consumers),
            write_set_sql.find_provider_names(names),
        )
        ((sequence, holder),) = taken
        if self._lease.is_in_the_way(holder):
            self._wait_for_the_lease(transaction)
        forest = self._exact(sequence - 1)
        return WriteSet(forest, self._clock.now(), write_set_sql.consumers_found(found), dict(owners))

    def _wait_for_the_lease(self, transaction: PipelinedTransaction) -> None:
        """Wait until the other holder of the lease can neither rely on it nor renew it, then clear it."""
        self._meters.lease_waits.inc()
        row = writer_lease.row_of(transaction.send(writer_lease.select_row())[0])
        time.sleep(self._lease.left_s(row))
        transaction.send(writer_lease.change_row(LeaseChange(row.version, None, row.length_s, self._lease.process)))

    def _exact(self, last: int) -> Forest:
        """The forest as of the last commit, which stays the last one while we hold the next number."""
        forest = self._snapshot.cached()
        if forest.sequence == last:
            return forest
        self._meters.stale_forests.inc()
        # A forest that is ahead means that the database was restored from a backup: read its present state.
        return self._snapshot.catch_up(last if forest.sequence < last else None)


class _OptimisticGroup:
    """A group decided before its number is taken; exact if the number turns out to be the next one."""

    def __init__(
        self, send: "Callable[[_OptimisticGroup], None]", write_set: WriteSet, before: "_OptimisticGroup | None"
    ) -> None:
        self.write_set = write_set
        #: The group that is with the database, on whose outcome this one rests.
        self.before = before
        self.outcomes: list[Any] = []
        #: {index of a refused request: the consumers that it takes for new}. For accepted requests, the insert shows
        #: whether they are new. A refused request inserts nothing, and would have another error if they existed.
        self._refused: dict[int, Collection[str]] = {}
        #: A function that waits for the answers, and the contexts to close after them.
        self.sent: tuple[Callable[[], list[Rows]], ExitStack] | None = None
        self.is_committed = False
        self._is_spoilt = False
        self._send = send

    @property
    def is_sent(self) -> bool:
        return self.sent is not None

    @property
    def may_be_right(self) -> bool:
        return not self._is_spoilt and (self.before is None or self.before.is_committed)

    def decide(self, request: WriteRequest[Any]) -> None:
        outcome = _decided(request, self.write_set)
        if isinstance(outcome, MoorageError) and request.new_consumers:
            self._refused[len(self.outcomes)] = request.new_consumers
        self.outcomes.append(outcome)

    def taken_for_new(self) -> list[str]:
        """Consumers of refused requests; the transaction must check that they are new."""
        return [uuid for uuids in self._refused.values() for uuid in uuids]

    def correct(self, found: Collection[str]) -> None:
        """Marks refused requests to be decided again. `found`: the consumers in `taken_for_new` that exist."""
        for index, uuids in self._refused.items():
            if any(uuid in found for uuid in uuids):
                self.outcomes[index] = _ConsumerExists()

    def take(self, request: WriteRequest[Any]) -> bool:
        if self._is_spoilt or request.consumers or len(request.about) < MIN_EARLY_SUBJECTS:
            return False
        try:
            self.decide(request)
            write_set_sql.prepare_rows(self.write_set, request.new_consumers)
        except Exception:  # noqa: BLE001 - the request then waits, and gets this error when it is decided alone
            self._is_spoilt = True
        return not self._is_spoilt

    def begin(self) -> None:
        self._send(self)


def _decided(request: WriteRequest[Any], write_set: WriteSet) -> Any:
    """The result of the request, or its error: a refusal does not affect the other requests."""
    try:
        return request.decide(write_set)
    except MoorageError as error:
        return error
