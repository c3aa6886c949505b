"""Can a history of overlapping calls be put in one order that explains every answer? Pure.

A history is linearizable if each call can be given a moment between its invocation and its response, so that the calls,
executed at those moments, give their recorded answers. A history of several objects is linearizable if it is for each
object.

The search keeps all explanations, call by call in the order of responses. An explanation is the object's state and the
calls in progress that have already taken effect (Lowe, "Testing for linearizability", 2017, the just-in-time
algorithm). A call that never changes anything takes effect as soon as it fits, which loses no explanation.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)


class Timed(Protocol):
    """`start` and `end` are from one monotonic clock. `end` None: it is unknown whether the call took or will take
    effect.
    """

    @property
    def start(self) -> float: ...

    @property
    def end(self) -> float | None: ...

    @property
    def only_reads(self) -> bool:
        """Whether it changes nothing in any state."""
        ...


CallT = TypeVar("CallT", bound=Timed)


@dataclass(frozen=True)
class Violation(Generic[CallT]):
    """No order explains the answer of `call`. `states`: all possible states before it, with `under_way` calls."""

    call: CallT
    states: Sequence[object]
    under_way: Sequence[CallT]

    def __str__(self) -> str:
        lines = [f"no order of calls explains the answer of\n  {self.call}", "where the state before it could be"]
        lines += [f"  {state}" for state in self.states[:10]]
        return "\n".join([*lines, "and these were under way", *(f"  {call}" for call in self.under_way)])


class Impossible(Exception):
    """The call cannot have given this answer in this state."""


def violation(calls: Iterable[CallT], initial: State, step: Callable[[State, CallT], State]) -> Violation[CallT] | None:
    """`step` gives the state after a call, or raises `Impossible`."""
    calls = list(calls)
    search = _Search(calls, initial, step)
    moments = [(call.start, 0, index) for index, call in enumerate(calls)]
    moments += [(call.end, 1, index) for index, call in enumerate(calls) if call.end is not None]
    # At equal times an invocation comes first: the calls may have overlapped.
    for _, is_response, index in sorted(moments):
        if not is_response:
            search.under_way.add(index)
        elif not search.respond(index):
            states = [state for state, _ in search.before]
            return Violation(calls[index], states, [calls[other] for other in sorted(search.under_way)])
    return None


class _Search(Generic[State, CallT]):
    def __init__(self, calls: Sequence[CallT], initial: State, step: Callable[[State, CallT], State]) -> None:
        self._calls = calls
        self._step = step
        self.under_way: set[int] = set()
        self.explanations: set[tuple[State, frozenset[int]]] = {(initial, frozenset())}
        self.before = self.explanations

    def respond(self, index: int) -> bool:
        """Keeps the explanations in which this call has taken effect; returns whether any is left."""
        self.before = self.explanations
        kept: set[tuple[State, frozenset[int]]] = set()
        seen: set[tuple[State, frozenset[int]]] = set()
        todo = [self._settled(state, done) for state, done in self.explanations]
        while todo:
            explanation = todo.pop()
            if explanation in seen:
                continue
            seen.add(explanation)
            state, done = explanation
            if index in done:
                kept.add((state, done - {index}))
                continue
            for other in self.under_way - done:
                try:
                    after = self._step(state, self._calls[other])
                except Impossible:
                    continue
                todo.append(self._settled(after, done | {other}))
        if kept:
            self.under_way.discard(index)
        self.explanations = kept
        return bool(kept)

    def _settled(self, state: State, done: frozenset[int]) -> tuple[State, frozenset[int]]:
        """Adds all reads that fit in this state."""
        idle = set()
        for other in self.under_way - done:
            if self._calls[other].only_reads:
                try:
                    self._step(state, self._calls[other])
                except Impossible:
                    continue
                idle.add(other)
        return state, done | idle
