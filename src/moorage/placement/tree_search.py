"""The search at one anchor: depth-first over the choices, pruned by capacity, policy and subtree.

Why it does not get lost among equal devices is told in `moorage.placement.candidates`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from moorage.core.errors import Invalid
from moorage.placement.forest import Forest
from moorage.placement.query import TraitFilter, meets
from moorage.placement.request import Request

#: Providers tried before a search is given up: some seconds. Only a request without a limit, or one whose groups
#: nearly fit in very many ways, comes near.
MAX_STEPS = 500_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to serve the whole request. Providers by slot."""

    anchor: int  #: root of the tree that it is about
    allocations: Mapping[int, Mapping[str, int]]  # {slot: {class: amount}}
    mappings: Mapping[str, tuple[int, ...]]  # {suffix: slots}


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision of the search: which of `slots` gives `resources` (may be none) to group `suffix`."""

    suffix: str
    resources: tuple[tuple[str, int], ...]
    slots: tuple[int, ...]


class Budget:
    """Counts the work of one search."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.spent = 0

    def spend(self) -> None:
        self.spent += 1
        if self.spent > self.steps:
            raise Invalid(
                f"The search for candidates was given up after trying {self.steps} providers: these groups fit in too "
                "many ways. Give a limit, fewer groups, or more traits to tell the providers apart.",
                code="placement.query.too_complex",
            )


@dataclass(slots=True)
class _State:
    """What the choices so far have taken."""

    taken: dict[tuple[int, str], int] = field(default_factory=dict)  # {(slot, class): units}
    chosen: list[int] = field(default_factory=list)  # slot per choice, in the order of the choices
    by_suffix: dict[str, list[int]] = field(default_factory=dict)  # {suffix: slots}


class TreeSearch:
    """Depth-first over the choices of one anchor."""

    def __init__(
        self,
        forest: Forest,
        request: Request,
        anchor: int,
        choices: Sequence[Choice],
        budget: Budget,
    ) -> None:
        self._forest = forest
        self._request = request
        self._anchor = anchor
        # The unsuffixed group first, because its traits are checked when it is complete; then few options first.
        self._choices = sorted(choices, key=lambda choice: (choice.suffix != "", len(choice.slots)))
        self._budget = budget
        self._equals_as_one = False
        self._spread = sum(choice.suffix == "" for choice in choices)
        self._traits = next((group.traits for group in request.groups if not group.is_granular), TraitFilter())
        self._isolate = request.group_policy == "isolate"
        self._in_subtrees = frozenset().union(*request.same_subtrees)
        self._several = len(choices) > 1 and any(len(choice.slots) > 1 for choice in choices)
        self._kind = _kinds(forest, anchor) if self._several else {}
        self._dead: set[str] = set()
        self._labels = _labels(self._choices, self._in_subtrees)
        self._state = _State()

    @property
    def has_equals(self) -> bool:
        """Are there devices that could be exchanged for each other?"""
        return bool(self._kind)

    def run(self, *, equals_as_one: bool) -> Iterator[Candidate]:
        """All candidates of this anchor; `equals_as_one`: those that differ in more than which equal device they use.

        May be called again when the last run has ended.
        """
        self._equals_as_one = equals_as_one
        if len(self._choices) == self._spread and all(len(choice.slots) == 1 for choice in self._choices):
            return self._only_way()
        return self._from(0)

    def _only_way(self) -> Iterator[Candidate]:
        """Nothing to choose and no class asked for twice: most hosts, most requests."""
        allocations: dict[int, dict[str, int]] = {}
        for choice in self._choices:
            self._budget.spend()
            allocations.setdefault(choice.slots[0], {}).update(choice.resources)
        held = frozenset().union(*(self._forest.at(slot).traits for slot in allocations))
        if meets(self._traits.required, held) and (self._request.nested or self._is_flat(allocations)):
            yield Candidate(self._anchor, allocations, {"": tuple(allocations)})

    def _from(self, depth: int) -> Iterator[Candidate]:
        if depth == len(self._choices):
            candidate = self._candidate()
            if candidate is not None:
                yield candidate
            return
        key = self._key(depth) if self._several else None
        if key is not None and key in self._dead:
            return
        choice = self._choices[depth]
        any_found = False
        tried: set[int] = set()
        for slot in choice.slots:
            if self._equals_as_one and self._is_equal_to_tried(slot, tried):
                continue
            self._budget.spend()
            if not self._take(choice, slot):
                continue
            if self._may_go_on(depth + 1):
                for candidate in self._from(depth + 1):
                    any_found = True
                    yield candidate
            self._give_back(choice, slot)
        if not any_found and key is not None:
            self._dead.add(key)

    def _is_equal_to_tried(self, slot: int, tried: set[int]) -> bool:
        """Is it untouched, and has an untouched equal of it been tried for this choice?"""
        kind = self._kind.get(slot)
        if kind is None or slot in self._state.chosen:
            return False
        if kind in tried:
            return True
        tried.add(kind)
        return False

    def _take(self, choice: Choice, slot: int) -> bool:
        state = self._state
        if self._isolate and choice.suffix and self._holds_granular(slot):
            return False
        provider = self._forest.at(slot)
        for name, amount in choice.resources:
            together = state.taken.get((slot, name), 0) + amount
            inventory = provider.inventories[name]
            if together > inventory.max_unit or provider.used.get(name, 0) + together > inventory.capacity:
                return False
        for name, amount in choice.resources:
            state.taken[slot, name] = state.taken.get((slot, name), 0) + amount
        state.chosen.append(slot)
        state.by_suffix.setdefault(choice.suffix, []).append(slot)
        return True

    def _give_back(self, choice: Choice, slot: int) -> None:
        state = self._state
        for name, amount in choice.resources:
            state.taken[slot, name] -= amount
            if not state.taken[slot, name]:
                del state.taken[slot, name]
        state.chosen.pop()
        state.by_suffix[choice.suffix].pop()

    def _holds_granular(self, slot: int) -> bool:
        return slot in self._state.chosen[self._spread :]

    def _may_go_on(self, depth: int) -> bool:
        """What can be known as soon as `depth` choices are made."""
        if depth == self._spread and not self._spread_has_traits():
            return False
        last = self._choices[depth - 1].suffix
        return last not in self._in_subtrees or all(
            self._is_subtree(suffixes) for suffixes in self._request.same_subtrees if last in suffixes
        )

    def _spread_has_traits(self) -> bool:
        if not self._traits.required:
            return True
        held = frozenset().union(*(self._forest.at(slot).traits for slot in self._state.chosen[: self._spread]))
        return meets(self._traits.required, held)

    def _is_subtree(self, suffixes: frozenset[str]) -> bool:
        """Is one of the chosen providers an ancestor of (or the same as) all? Open as long as one is not chosen."""
        slots = {slot for suffix in suffixes for slot in self._state.by_suffix.get(suffix, ())}
        if any(not self._state.by_suffix.get(suffix) for suffix in suffixes):
            return True
        lines = [self._line(slot) for slot in slots]
        return not slots.isdisjoint(frozenset.intersection(*lines))

    def _line(self, slot: int) -> frozenset[int]:
        """The provider and its ancestors."""
        line: list[int] = []
        above: int | None = slot
        while above is not None:
            line.append(above)
            above = self._forest.parent_of(above)
        return frozenset(line)

    def _key(self, depth: int) -> str:
        """The state up to the exchange of equal devices: what is left to find depends on nothing else."""
        labels: dict[int, list[int]] = {}
        for slot, label in zip(self._state.chosen, self._labels, strict=False):
            labels.setdefault(slot, []).append(label)
        kinds = sorted((self._kind.get(slot, -1 - slot), sorted(mine)) for slot, mine in labels.items())
        return f"{depth}{kinds}"

    def _candidate(self) -> Candidate | None:
        state = self._state
        if not self._request.nested and not self._is_flat({slot for slot, _ in state.taken}):
            return None
        allocations: dict[int, dict[str, int]] = {}
        for (slot, name), amount in state.taken.items():
            allocations.setdefault(slot, {})[name] = amount
        mappings = {suffix: tuple(dict.fromkeys(slots)) for suffix, slots in state.by_suffix.items()}
        return Candidate(self._anchor, allocations, mappings)

    def _is_flat(self, used: Collection[int]) -> bool:
        """Before 1.29: at most one provider of each tree."""
        return len({self._forest.root_of(slot) for slot in used}) == len(used)


def _labels(choices: Sequence[Choice], in_subtrees: frozenset[str]) -> list[int]:
    """A number per choice, equal where it does not matter later which of the choices a provider was taken for."""
    numbers: dict[object, int] = {}
    labels: list[int] = []
    for choice in choices:
        meaning = (choice.suffix if choice.suffix in in_subtrees else choice.suffix != "", choice.resources)
        labels.append(numbers.setdefault(meaning, len(numbers)))
    return labels


def _kinds(forest: Forest, anchor: int) -> dict[int, int]:
    """{slot of a leaf: number of its kind}, for leaves that have an equal; those can be exchanged for each other."""
    tree = forest.trees[anchor]
    parents = {forest.parent_of(slot) for slot in tree}
    groups: dict[object, list[int]] = {}
    for slot in tree:
        provider = forest.at(slot)
        if slot in parents or provider.parent_id is None:
            continue
        key = (
            provider.parent_id,
            provider.traits,
            provider.aggregates,
            tuple(sorted((name, repr(inventory)) for name, inventory in provider.inventories.items())),
            tuple(sorted(provider.used.items())),
        )
        groups.setdefault(key, []).append(slot)
    equals = (slots for slots in groups.values() if len(slots) > 1)
    return {slot: number for number, slots in enumerate(equals) for slot in slots}
