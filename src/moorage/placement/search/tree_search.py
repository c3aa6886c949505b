"""Depth-first search at one anchor, pruned by capacity, group policy and subtree.

The search sees an anchor as its *situation* (`equivalence_classes`). Thousands of hosts are in a handful of situations,
so each situation is searched once and its solutions are translated to every host in it (`candidates`). Solutions are
also remembered for the next request with the same search key.

Two things keep the search from exploring permutations of equal devices:

* `first_solutions` tries only one of several equal, untouched members per requirement.
* A state without solutions is remembered up to the exchange of equal members, so eight groups on seven equal devices
  fail at once and not after 8! attempts.
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

#: The cache keeps results with at most this many numbers, for at most this many situations: 20 MiB at most.
MAX_REMEMBERED_NUMBERS = 20_000
MAX_REMEMBERED_SITUATIONS = 128

#: Members that can be skipped at the cost of one step.
SKIPS_PER_STEP = 4

#: Total length of all states remembered as dead: about 30 MiB at most, during one search.
MAX_DEAD_NUMBERS = 200_000


@dataclass(frozen=True, slots=True)
class Solutions:
    rows: NDArray[np.int32]  #: shape (solutions, requirements): index of the chosen member
    steps: int


def _words(bits: int) -> int:
    return -(-bits // WORD)


def first_solutions(search_key: SearchKey, situation: bytes, limit: int | None, max_steps: int) -> Solutions:
    """Finds at most `limit` solutions, trying only one of several equal members per requirement. None: all solutions.

    Raises `Invalid` (code placement.query.too_complex) if the search needs more than `max_steps` steps.
    """
    if limit is None or limit * len(search_key.requirements) > MAX_REMEMBERED_NUMBERS:
        return _first_solutions(search_key, situation, limit, max_steps)
    return _remembered_first_ways(search_key, situation, limit, max_steps)


def other_solutions(search_key: SearchKey, situation: bytes, limit: int, max_steps: int) -> Solutions:
    """Finds at most `limit` solutions that `first_solutions` with the same limit does not return. Raises the same error."""
    if limit * len(search_key.requirements) > MAX_REMEMBERED_NUMBERS:
        return _other_solutions(search_key, situation, limit, max_steps)
    return _remembered_other_ways(search_key, situation, limit, max_steps)


def _first_solutions(search_key: SearchKey, situation: bytes, limit: int | None, max_steps: int) -> Solutions:
    search = _Search(search_key, situation, max_steps)
    found = list(search.solutions(equals_as_one=limit is not None, at_most=limit))
    return _solved(search_key, found, search.steps)


def _other_solutions(search_key: SearchKey, situation: bytes, limit: int, max_steps: int) -> Solutions:
    first = {tuple(solution) for solution in first_solutions(search_key, situation, limit, max_steps).rows.tolist()}
    search = _Search(search_key, situation, max_steps)
    if not search.has_equals or not first:
        return _solved(search_key, [], 0)
    found: list[tuple[int, ...]] = []
    for solution in search.solutions(equals_as_one=False, at_most=None):
        if solution not in first:
            found.append(solution)
            if len(found) == limit:
                break
    return _solved(search_key, found, search.steps)


_remembered_first_ways = lru_cache(MAX_REMEMBERED_SITUATIONS)(_first_solutions)
_remembered_other_ways = lru_cache(MAX_REMEMBERED_SITUATIONS)(_other_solutions)


def _solved(search_key: SearchKey, found: Sequence[tuple[int, ...]], steps: int) -> Solutions:
    rows = np.array(found, dtype=np.int32).reshape(len(found), len(search_key.requirements))
    rows.flags.writeable = False
    return Solutions(rows, steps)


class _Search:
    """The search of one situation. Finish one iteration of `solutions` before starting another."""

    def __init__(self, search_key: SearchKey, situation: bytes, max_steps: int) -> None:
        self._question = search_key
        self._max_steps = max_steps
        self.steps = 0
        members = _Members(search_key, situation)
        self._members = members
        # The unsuffixed group first, because its traits are checked when it is complete; then few options first.
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
        self._dead: list[set[object]] = [set() for _ in numbered]
        self._dead_numbers = 0
        self._reset()

    def _reset(self) -> None:
        count = len(self._members.rows)
        self._chosen: list[int] = []  # chosen member per requirement, in the order of the search
        self._room = [list(row) for row in self._members.room]
        self._granular = [0] * count  # by member: number of granular groups that it serves
        self._touched = [0] * count  # by member: number of requirements that it serves
        self._trees: dict[int, list[int]] = {}  # {tree: chosen members that give resources}
        self._common = [[-1] for _ in self._question.subtrees]  # bits: members above all chosen ones; -1: all members
        self._inside = [[0] for _ in self._question.subtrees]  # bits: chosen members

    def _subtrees(self) -> tuple[list[list[int]], list[dict[int, int]]]:
        """By depth: the subtrees of the requirement there, and {subtree: bits of the members open to its later requirements}."""
        place = {number: depth for depth, number in enumerate(self._order)}
        options = [sum(1 << member for member in members) for members in self._members.serving]
        at: list[list[int]] = [[] for _ in self._order]
        after: list[dict[int, int]] = [{} for _ in self._order]
        for subtree, numbers in enumerate(self._question.subtrees):
            later = 0
            for depth in sorted((place[number] for number in numbers), reverse=True):
                at[depth].append(subtree)
                after[depth][subtree] = later
                later |= options[self._requirements[depth].spec]
        return at, after

    def solutions(self, *, equals_as_one: bool, at_most: int | None) -> Iterator[tuple[int, ...]]:
        if not self._could_fit():
            return
        self._reset()
        last = len(self._requirements) - 1
        options: list[Iterator[int]] = [iter(())] * (last + 1)
        tried: list[set[int]] = [set() for _ in self._requirements]
        fruitful = [False] * (last + 1)
        found = 0
        depth = 0
        options[0] = iter(self._members.serving[self._requirements[0].spec])
        while depth >= 0:
            if not self._next(depth, options[depth], tried[depth] if equals_as_one else None):
                if not fruitful[depth]:
                    self._bury(depth)
                depth -= 1
                if depth >= 0:
                    self._give_back(depth)
                    fruitful[depth] |= fruitful[depth + 1]
            elif depth == last:
                self._spend(len(self._order) // 4)
                yield self._solution()
                found += 1
                fruitful[depth] = True
                self._give_back(depth)
                if found == at_most:
                    return
            elif self._dead[depth + 1] and self._key() in self._dead[depth + 1]:
                self._give_back(depth)
            else:
                depth += 1
                options[depth] = iter(self._members.serving[self._requirements[depth].spec])
                tried[depth].clear()
                fruitful[depth] = False

    def _could_fit(self) -> bool:
        """Whether the units of each contested class suffice in total and, with ``isolate``, each granular group has its own provider.

        Both checks are cheap; without them, a search without solutions tries nearly all combinations first.
        """
        wanted = [0] * self._question.contested
        for requirement in self._requirements:
            for contested, units in requirement.units:
                wanted[contested] += units
        there = [sum(room[contested] for room in self._members.room) for contested in range(len(wanted))]
        if any(units > room for units, room in zip(wanted, there, strict=True)):
            return False
        return not self._question.isolate or self._can_be_isolated()

    def _can_be_isolated(self) -> bool:
        """Finds a matching of granular groups with providers, grown along augmenting paths."""
        serving = [
            self._members.serving[requirement.spec] for requirement in self._requirements if requirement.granular
        ]
        holder: dict[int, int] = {}  # {member: number of the group that it serves}
        return all(self._makes_room(number, serving, holder) for number in range(len(serving)))

    def _makes_room(self, number: int, serving: Sequence[Sequence[int]], holder: dict[int, int]) -> bool:
        """Gives this group a member, moving other groups if necessary. Breadth first, because there may be hundreds of groups."""
        came_from: dict[int, int] = {}  # {member: number of the group that wants it}
        waiting = [number]
        for group in waiting:
            self._spend(1 + len(serving[group]) // 16)
            for member in serving[group]:
                if member in came_from:
                    continue
                came_from[member] = group
                if member in holder:
                    waiting.append(holder[member])
                    continue
                self._hand_on(member, came_from, holder, number)
                return True
        return False

    @staticmethod
    def _hand_on(member: int, came_from: dict[int, int], holder: dict[int, int], first: int) -> None:
        """Each group on the path gives up its member and takes the next member on the path."""
        has = {group: held for held, group in holder.items()}
        while True:
            group = came_from[member]
            holder[member] = group
            if group == first:
                return
            member = has[group]

    def _solution(self) -> tuple[int, ...]:
        solution = [0] * len(self._order)
        for number, member in zip(self._order, self._chosen, strict=True):
            solution[number] = member
        return tuple(solution)

    def _next(self, depth: int, options: Iterator[int], tried: set[int] | None) -> bool:
        """Chooses the next allowed member for the requirement at `depth`; False if there is none."""
        requirement = self._requirements[depth]
        alone = requirement.granular and self._question.isolate
        passed = 0
        for member in options:
            if alone and self._granular[member]:
                passed += 1
                continue
            if tried is not None and not self._touched[member]:
                kind = self._kinds[member]
                if kind in tried:
                    passed += 1
                    continue
                tried.add(kind)
            self._spend(1 + passed // SKIPS_PER_STEP + len(self._subtrees_at[depth]) // 4)
            passed = 0
            if self._take(requirement, member):
                if self._may_go_on(depth):
                    return True
                self._give_back(depth)
        self._spend(passed // SKIPS_PER_STEP)
        return False

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > self._max_steps:
            raise too_complex(self._max_steps, BudgetItem.TRYING)

    def _take(self, requirement: CompiledRequirement, member: int) -> bool:
        room = self._room[member]
        for contested, units in requirement.units:
            if room[contested] < units:
                return False
        if self._question.one_per_tree and requirement.has_resources:
            holders = self._trees.setdefault(self._members.tree[member], [])
            if holders and holders[0] != member:
                return False
            holders.append(member)
        for contested, units in requirement.units:
            room[contested] -= units
        for subtree in self._subtrees_at[len(self._chosen)]:
            self._common[subtree].append(self._common[subtree][-1] & self._members.line[member])
            self._inside[subtree].append(self._inside[subtree][-1] | 1 << member)
        self._granular[member] += requirement.granular
        self._touched[member] += 1
        self._chosen.append(member)
        return True

    def _give_back(self, depth: int) -> None:
        requirement, member = self._requirements[depth], self._chosen.pop()
        for contested, units in requirement.units:
            self._room[member][contested] += units
        self._granular[member] -= requirement.granular
        self._touched[member] -= 1
        if self._question.one_per_tree and requirement.has_resources:
            self._trees[self._members.tree[member]].pop()
        for subtree in self._subtrees_at[depth]:
            self._common[subtree].pop()
            self._inside[subtree].pop()

    def _may_go_on(self, depth: int) -> bool:
        """Runs the checks that are possible once the requirement at `depth` has a member."""
        if depth == self._spread - 1 and not self._has_traits():
            return False
        # A member above all chosen members of the subtree is chosen already, or could still be chosen.
        return all(
            self._common[subtree][-1] & (self._inside[subtree][-1] | self._options_after[depth][subtree])
            for subtree in self._subtrees_at[depth]
        )

    def _has_traits(self) -> bool:
        held = 0
        for member in self._chosen:
            held |= self._members.traits[member]
        return held == (1 << self._question.traits) - 1

    def _bury(self, depth: int) -> None:
        """Remember that this state leads to no solution."""
        if depth and self._dead_numbers < MAX_DEAD_NUMBERS:
            self._dead[depth].add(self._key())
            self._dead_numbers += depth

    def _key(self) -> tuple[object, ...]:
        """The state, up to the exchange of equal members. The remaining solutions depend only on it."""
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
        self.room = [row[traits_end : traits_end + search_key.contested] for row in rows]
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
        """By member: a number that is equal for interchangeable members, which have equal rows and no members below them."""
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
