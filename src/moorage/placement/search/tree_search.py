"""Depth-first search at one anchor, pruned by capacity, group policy and subtree.

The search reads an anchor's *situation* (`equivalence_classes`). Thousands of hosts have few different situations, so
each situation is searched once and its solutions are translated to each of its hosts (`candidates`). Solutions are also
cached for the next request with the same search key.

Two rules avoid permutations of equal devices:

* `first_solutions` tries only one of several equal, untouched members per requirement.
* A state without solutions is remembered for all states that differ only by an exchange of equal members. So eight
  groups on seven equal devices fail at once, and not after 8! attempts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from moorage.placement.search.requirements import CompiledRequirement, SearchKey
from moorage.placement.search.search_budget import BudgetItem, too_complex

#: Bits in one number of a situation.
WORD = 62

#: Limits of the cache: numbers in a result, and situations; about 20 MiB.
MAX_CACHED_NUMBERS = 20_000
MAX_CACHED_SITUATIONS = 128

#: Number of skipped members that cost one step.
SKIPS_PER_STEP = 4

#: Total length of the states without solutions that one search remembers: about 30 MiB.
MAX_DEAD_NUMBERS = 200_000


@dataclass(frozen=True, slots=True)
class Solutions:
    rows: NDArray[np.int32]  #: shape (solutions, requirements): index of the chosen member
    steps: int


def _words(bits: int) -> int:
    return -(-bits // WORD)


def first_solutions(search_key: SearchKey, situation: bytes, limit: int | None, max_steps: int) -> Solutions:
    """Finds at most `limit` solutions (None: all), and tries only one of several equal members per requirement.

    Raises `Invalid` (code placement.query.too_complex) if the search needs more than `max_steps` steps.
    """
    if limit is None or limit * len(search_key.requirements) > MAX_CACHED_NUMBERS:
        return _first_solutions(search_key, situation, limit, max_steps)
    return _cached_first_solutions(search_key, situation, limit, max_steps)


def other_solutions(search_key: SearchKey, situation: bytes, limit: int, max_steps: int) -> Solutions:
    """Finds at most `limit` solutions that are not in `first_solutions` with the same limit. Raises the same error."""
    if limit * len(search_key.requirements) > MAX_CACHED_NUMBERS:
        return _other_solutions(search_key, situation, limit, max_steps)
    return _cached_other_solutions(search_key, situation, limit, max_steps)


def _first_solutions(search_key: SearchKey, situation: bytes, limit: int | None, max_steps: int) -> Solutions:
    search = _Search(search_key, situation, max_steps)
    found = list(search.solutions(equals_as_one=limit is not None, limit=limit))
    return _solved(search_key, found, search.steps)


def _other_solutions(search_key: SearchKey, situation: bytes, limit: int, max_steps: int) -> Solutions:
    first = {tuple(solution) for solution in first_solutions(search_key, situation, limit, max_steps).rows.tolist()}
    search = _Search(search_key, situation, max_steps)
    if not search.has_equals or not first:
        return _solved(search_key, [], 0)
    found: list[tuple[int, ...]] = []
    for solution in search.solutions(equals_as_one=False, limit=None):
        if solution not in first:
            found.append(solution)
            if len(found) == limit:
                break
    return _solved(search_key, found, search.steps)


_cached_first_solutions = lru_cache(MAX_CACHED_SITUATIONS)(_first_solutions)
_cached_other_solutions = lru_cache(MAX_CACHED_SITUATIONS)(_other_solutions)


def _solved(search_key: SearchKey, found: Sequence[tuple[int, ...]], steps: int) -> Solutions:
    rows = np.array(found, dtype=np.int32).reshape(len(found), len(search_key.requirements))
    rows.flags.writeable = False
    return Solutions(rows, steps)


class _Search:
    """The search of one situation. Finish one iteration of `solutions` before starting another."""

    def __init__(self, search_key: SearchKey, situation: bytes, max_steps: int) -> None:
        self._search_key = search_key
        self._max_steps = max_steps
        self.steps = 0
        members = _Members(search_key, situation)
        self._members = members
        # The unsuffixed group first, because its traits are checked when it is complete; then those with few options.
        numbered = sorted(
            range(len(search_key.requirements)),
            key=lambda number: (
                search_key.requirements[number].granular,
                len(members.serving[search_key.requirements[number].spec]),
            ),
        )
        self._order = numbered
        self._requirements = [search_key.requirements[number] for number in numbered]
        self._spread = sum(not requirement.granular for requirement in self._requirements)
        self._kinds = members.kinds()
        self.has_equals = len(set(self._kinds)) < len(self._kinds)
        self._subtrees_at, self._options_after = self._subtrees()
        self._dead_states: list[set[object]] = [set() for _ in numbered]
        self._dead_numbers = 0
        self._reset()

    def _reset(self) -> None:
        count = len(self._members.rows)
        self._chosen: list[int] = []  # chosen member per requirement, in the order of the search
        self._available = [list(row) for row in self._members.available]
        self._granular = [0] * count  # by member: number of granular groups that it serves
        self._touched = [0] * count  # by member: number of requirements that it serves
        self._trees: dict[int, list[int]] = {}  # {tree: chosen members that give resources}
        self._common = [[-1] for _ in self._search_key.subtrees]  # bits: members above all chosen ones; -1: all members
        self._inside = [[0] for _ in self._search_key.subtrees]  # bits: chosen members

    def _subtrees(self) -> tuple[list[list[int]], list[dict[int, int]]]:
        """By depth: the subtrees of its requirement, and {subtree: bits of the members for later requirements}."""
        place = {number: depth for depth, number in enumerate(self._order)}
        options = [sum(1 << member for member in members) for members in self._members.serving]
        at: list[list[int]] = [[] for _ in self._order]
        after: list[dict[int, int]] = [{} for _ in self._order]
        for subtree, numbers in enumerate(self._search_key.subtrees):
            later = 0
            for depth in sorted((place[number] for number in numbers), reverse=True):
                at[depth].append(subtree)
                after[depth][subtree] = later
                later |= options[self._requirements[depth].spec]
        return at, after

    def solutions(self, *, equals_as_one: bool, limit: int | None) -> Iterator[tuple[int, ...]]:
        if not self._could_fit():
            return
        self._reset()
        last = len(self._requirements) - 1
        options: list[Iterator[int]] = [iter(())] * (last + 1)
        tried: list[set[int]] = [set() for _ in self._requirements]
        has_solutions = [False] * (last + 1)
        found = 0
        depth = 0
        options[0] = iter(self._members.serving[self._requirements[0].spec])
        while depth >= 0:
            if not self._choose_next(depth, options[depth], tried[depth] if equals_as_one else None):
                if not has_solutions[depth]:
                    self._remember_dead_state(depth)
                depth -= 1
                if depth >= 0:
                    self._undo_choice(depth)
                    has_solutions[depth] |= has_solutions[depth + 1]
            elif depth == last:
                self._spend(len(self._order) // 4)
                yield self._solution()
                found += 1
                has_solutions[depth] = True
                self._undo_choice(depth)
                if found == limit:
                    return
            elif self._dead_states[depth + 1] and self._state_key() in self._dead_states[depth + 1]:
                self._undo_choice(depth)
            else:
                depth += 1
                options[depth] = iter(self._members.serving[self._requirements[depth].spec])
                tried[depth].clear()
                has_solutions[depth] = False

    def _could_fit(self) -> bool:
        """Two cheap checks, without which a search without solutions would try nearly all combinations.

        The units of each contested class must suffice in total. With ``isolate``, each granular group must have a
        provider of its own.
        """
        wanted = [0] * self._search_key.contested
        for requirement in self._requirements:
            for contested, units in requirement.units:
                wanted[contested] += units
        totals = [
            sum(available[contested] for available in self._members.available) for contested in range(len(wanted))
        ]
        if any(units > total for units, total in zip(wanted, totals, strict=True)):
            return False
        return not self._search_key.isolate or self._can_be_isolated()

    def _can_be_isolated(self) -> bool:
        """Whether a matching of granular groups with providers exists; found with augmenting paths."""
        serving = [
            self._members.serving[requirement.spec] for requirement in self._requirements if requirement.granular
        ]
        holder: dict[int, int] = {}  # {member: number of the group that it serves}
        return all(self._assign_member(number, serving, holder) for number in range(len(serving)))

    def _assign_member(self, number: int, serving: Sequence[Sequence[int]], holder: dict[int, int]) -> bool:
        """Assigns a member to this group, and moves other groups if necessary.

        Breadth-first, because there may be hundreds of groups.
        """
        group_of: dict[int, int] = {}  # {member: number of the group that could take it}
        queue = [number]
        for group in queue:
            self._spend(1 + len(serving[group]) // 16)
            for member in serving[group]:
                if member in group_of:
                    continue
                group_of[member] = group
                if member in holder:
                    queue.append(holder[member])
                    continue
                self._shift_members(member, group_of, holder, number)
                return True
        return False

    @staticmethod
    def _shift_members(member: int, group_of: dict[int, int], holder: dict[int, int], first: int) -> None:
        """Assigns to each group on the path the next member on the path."""
        has = {group: held for held, group in holder.items()}
        while True:
            group = group_of[member]
            holder[member] = group
            if group == first:
                return
            member = has[group]

    def _solution(self) -> tuple[int, ...]:
        solution = [0] * len(self._order)
        for number, member in zip(self._order, self._chosen, strict=True):
            solution[number] = member
        return tuple(solution)

    def _choose_next(self, depth: int, options: Iterator[int], tried: set[int] | None) -> bool:
        """Chooses the next allowed member for the requirement at `depth`; False if there is none."""
        requirement = self._requirements[depth]
        is_isolated = requirement.granular and self._search_key.isolate
        skipped = 0
        for member in options:
            if is_isolated and self._granular[member]:
                skipped += 1
                continue
            if tried is not None and not self._touched[member]:
                kind = self._kinds[member]
                if kind in tried:
                    skipped += 1
                    continue
                tried.add(kind)
            self._spend(1 + skipped // SKIPS_PER_STEP + len(self._subtrees_at[depth]) // 4)
            skipped = 0
            if self._choose(requirement, member):
                if self._can_continue(depth):
                    return True
                self._undo_choice(depth)
        self._spend(skipped // SKIPS_PER_STEP)
        return False

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > self._max_steps:
            raise too_complex(self._max_steps, BudgetItem.TRYING)

    def _choose(self, requirement: CompiledRequirement, member: int) -> bool:
        available = self._available[member]
        for contested, units in requirement.units:
            if available[contested] < units:
                return False
        if self._search_key.one_per_tree and requirement.has_resources:
            holders = self._trees.setdefault(self._members.tree[member], [])
            if holders and holders[0] != member:
                return False
            holders.append(member)
        for contested, units in requirement.units:
            available[contested] -= units
        for subtree in self._subtrees_at[len(self._chosen)]:
            self._common[subtree].append(self._common[subtree][-1] & self._members.line[member])
            self._inside[subtree].append(self._inside[subtree][-1] | 1 << member)
        self._granular[member] += requirement.granular
        self._touched[member] += 1
        self._chosen.append(member)
        return True

    def _undo_choice(self, depth: int) -> None:
        requirement, member = self._requirements[depth], self._chosen.pop()
        for contested, units in requirement.units:
            self._available[member][contested] += units
        self._granular[member] -= requirement.granular
        self._touched[member] -= 1
        if self._search_key.one_per_tree and requirement.has_resources:
            self._trees[self._members.tree[member]].pop()
        for subtree in self._subtrees_at[depth]:
            self._common[subtree].pop()
            self._inside[subtree].pop()

    def _can_continue(self, depth: int) -> bool:
        """Checks the traits and subtrees that are complete when the requirement at `depth` has a member."""
        if depth == self._spread - 1 and not self._has_traits():
            return False
        # An ancestor of all chosen members of the subtree must be chosen already, or a later requirement can choose it.
        return all(
            self._common[subtree][-1] & (self._inside[subtree][-1] | self._options_after[depth][subtree])
            for subtree in self._subtrees_at[depth]
        )

    def _has_traits(self) -> bool:
        held = 0
        for member in self._chosen:
            held |= self._members.traits[member]
        return held == (1 << self._search_key.traits) - 1

    def _remember_dead_state(self, depth: int) -> None:
        """Record that this state has no solutions."""
        if depth and self._dead_numbers < MAX_DEAD_NUMBERS:
            self._dead_states[depth].add(self._state_key())
            self._dead_numbers += depth

    def _state_key(self) -> tuple[object, ...]:
        """A key, equal for states that differ only by an exchange of equal members: their solutions are the same."""
        self._spend(len(self._chosen) // 16)
        labels: dict[int, list[int]] = {}
        for member, requirement in zip(self._chosen, self._requirements, strict=False):
            labels.setdefault(member, []).append(requirement.label)
        return tuple(sorted((self._kinds[member], *sorted(mine)) for member, mine in labels.items()))


class _Members:
    """A decoded situation. All lists are by member."""

    def __init__(self, search_key: SearchKey, situation: bytes) -> None:
        spec_words, trait_words = _words(search_key.specs), _words(search_key.traits)
        fixed = spec_words + trait_words + search_key.contested + search_key.one_per_tree
        has_above = bool(search_key.subtrees)
        rows: list[list[int]] = np.frombuffer(situation, dtype=np.int64).reshape(-1, fixed + has_above).tolist()
        self.rows = rows
        served = [_bits(row[:spec_words]) for row in rows]
        #: {spec: members that could be chosen for it}
        self.serving = [
            [member for member, bits in enumerate(served) if bits >> spec & 1] for spec in range(search_key.specs)
        ]
        traits_end = spec_words + trait_words
        self.traits = [_bits(row[spec_words:traits_end]) for row in rows]
        self.available = [row[traits_end : traits_end + search_key.contested] for row in rows]
        self.tree = [row[fixed - 1] for row in rows] if search_key.one_per_tree else []
        self._above = [row[fixed] for row in rows] if has_above else []
        self.line = self._lines() if has_above else []

    def _lines(self) -> list[int]:
        """By member: bits of the member and its ancestors."""
        lines = [0] * len(self.rows)
        for member in range(len(self.rows)):
            up = member
            while up >= 0:
                lines[member] |= 1 << up
                up = self._above[up]
        return lines

    def kinds(self) -> list[int]:
        """By member: a number, equal for interchangeable members. They have equal rows and no members below them."""
        parents = set(self._above)
        numbers: dict[object, int] = {}
        return [
            numbers.setdefault(member if member in parents else tuple(row), len(numbers))
            for member, row in enumerate(self.rows)
        ]


def _bits(words: Sequence[int]) -> int:
    together = 0
    for number, word in enumerate(words):
        together |= word << WORD * number
    return together
