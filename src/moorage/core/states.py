"""Transition tables. A status changes only through its table, and the docs print it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from moorage.core.errors import Conflict

S = TypeVar("S", bound=StrEnum)


@dataclass(frozen=True)
class Transitions(Generic[S]):
    """A transition table. `allowed[a]` is the set of states that may follow `a`; a state without an entry is final."""

    subject: str
    allowed: Mapping[S, frozenset[S]]

    def check_transition(self, before: S, after: S) -> S:
        """Returns `after` if it may follow `before`. Raises `Conflict` with the allowed states otherwise."""
        if after in self.allowed.get(before, frozenset()):
            return after
        following = ", ".join(sorted(self.allowed.get(before, frozenset()))) or "nothing"
        raise Conflict(
            f"{self.subject} cannot go from {before} to {after}; after {before} there may be {following}",
            code="moorage.state",
        )

    def states_before(self, after: S) -> frozenset[S]:
        """The states from which `after` can be reached, for the WHERE of a conditional UPDATE."""
        return frozenset(state for state, following in self.allowed.items() if after in following)


def transition_table(subject: str, rows: Mapping[S, Iterable[S]]) -> Transitions[S]:
    return Transitions(subject, {state: frozenset(following) for state, following in rows.items()})
