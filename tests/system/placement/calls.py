"""A call of the placement API as a client saw it, and its meaning for one provider and one consumer. Pure.

The meaning is that of OpenStack's Placement: generations are compared and then increased. A claim is refused only if
it does not fit or the generation of its consumer is old, never because other clients write at the same time.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from tests.system.placement.linearizable import Impossible

#: {class: units}, as a hashable value.
Amounts = frozenset[tuple[str, int]]

_OVER_CAPACITY = re.compile(
    r"'(\w+)' on resource provider '([0-9a-f-]+)'. The requested amount would exceed the capacity"
)
_OLD_CONSUMER = re.compile(r"consumer generation conflict - expected (\w+) but got (\w+)")
_OLD_GENERATION = re.compile(r"conflict for provider ([0-9a-f-]+): actual: (\d+), given: (\d+)")


@dataclass(frozen=True)
class Call:
    kind: str  #: offer, claim, release, reshape, move, create, delete; usages, holdings, holders, place only read
    subject: str  #: uuid of the provider or consumer in the path; empty if the path has none
    start: float
    end: float | None
    status: int
    body: Mapping = field(default_factory=dict)
    answer: Mapping = field(default_factory=dict)
    #: The client and the URL of the process.
    client: str = ""

    @cached_property
    def wishes(self) -> Mapping[str, Mapping]:
        """{consumer: its part of the body}; empty for a release."""
        if self.kind == "release":
            return {self.subject: {"allocations": {}}}
        if self.kind == "reshape":
            return self.body["allocations"]
        return self.body if self.kind == "claim" else {}

    @property
    def accepted(self) -> bool:
        return self.status < 300

    @property
    def only_reads(self) -> bool:
        return self.kind in ("usages", "holdings", "holders", "place") or not self.accepted

    @property
    def refusal(self) -> str:
        return "" if self.accepted else self.answer["errors"][0]["detail"]


def _fits(holds: bool) -> None:
    if not holds:
        raise Impossible


# --- a consumer -------------------------------------------------------------------------------------------------


class Held(NamedTuple):
    """`allocations` is {(provider, class, units)}."""

    generation: int
    allocations: frozenset[tuple[str, str, int]]


def consumer_step(uuid: str, state: Held | None, call: Call, accused: Call | None = None) -> Held | None:
    """The next state of the consumer; None means that it has no allocations.

    A refused claim of several consumers does not say which one was the reason. `accused` is such a call whose refusal
    must be explained by this consumer.
    """
    if call.kind == "holdings" and call.subject == uuid:
        _fits(_shown(call.answer) == state)
    if uuid not in call.wishes:
        return state
    if call.kind == "release":
        _fits(call.accepted == (state is not None) and call.status in (204, 404))
        return None
    wish = call.wishes[uuid]
    current = wish["consumer_generation"] == (None if state is None else state.generation)
    if conflict := _OLD_CONSUMER.search(call.refusal):
        if len(call.wishes) == 1 or call is accused:
            actual, given = None if state is None else state.generation, wish["consumer_generation"]
            _fits(actual != given and conflict.groups() == (str(actual or "null"), str(given)))
        return state
    # The generations of all consumers are checked before any other reason for a refusal.
    _fits(current or (call.kind == "reshape" and not call.accepted))
    if not call.accepted:
        return state
    allocations = _triples(wish["allocations"])
    return Held(1 if state is None else state.generation + 1, allocations) if allocations else None


def about_consumers(calls: Iterable[Call]) -> dict[str, list[Call]]:
    """{uuid: the calls that read or change this consumer}. Providers are included, under their own uuid."""
    found: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        for uuid in {call.subject, *call.wishes}:
            found[uuid].append(call)
    return found


def _shown(answer: Mapping) -> Held | None:
    return Held(answer["consumer_generation"], _triples(answer["allocations"])) if answer["allocations"] else None


def _triples(allocations: Mapping) -> frozenset[tuple[str, str, int]]:
    return frozenset(
        (provider, name, units) for provider, one in allocations.items() for name, units in one["resources"].items()
    )


# --- a provider -------------------------------------------------------------------------------------------------


class Offered(NamedTuple):
    """`held` is {(consumer, class, units)}."""

    generation: int
    totals: Amounts
    held: frozenset[tuple[str, str, int]] = frozenset()

    def used(self, name: str) -> int:
        return sum(units for _, one, units in self.held if one == name)


def about_provider(uuid: str, calls: Sequence[Call]) -> list[Call]:
    """The calls that read or change the provider; `provider_step` accepts every other call in every state.

    A claim changes the provider if a consumer uses it afterwards, or used it before.
    """
    holders = {consumer for call in calls for consumer, wish in call.wishes.items() if uuid in wish["allocations"]}
    return [
        call
        for call in calls
        if (call.subject == uuid and call.kind in _ABOUT_IT)
        or (call.kind == "reshape" and uuid in call.body["inventories"])
        or not holders.isdisjoint(call.wishes)
    ]


def provider_step(uuid: str, state: Offered | None, call: Call) -> Offered | None:
    """The next state of the provider; None means that it does not exist."""
    if call.subject == uuid and call.kind in _ABOUT_IT:
        return _ABOUT_IT[call.kind](state, call)
    if call.kind == "reshape" and uuid in call.body["inventories"]:
        return _reshaped(uuid, state, call)
    return _claimed(uuid, state, call) if call.wishes else state


def _offered(state: Offered | None, call: Call) -> Offered | None:
    if state is None:
        _fits(call.status == 404)
        return state
    current = call.body["resource_provider_generation"] == state.generation
    if not call.accepted:
        _fits(call.status == 409 and not current)
        return state
    _fits(current)
    return state._replace(generation=state.generation + 1, totals=_totals(call.body["inventories"]))


def _usages(state: Offered | None, call: Call) -> Offered | None:
    _fits(call.accepted == (state is not None) and call.status in (200, 404))
    if state is not None:
        _fits(call.answer["resource_provider_generation"] == state.generation)
        _fits(call.answer["usages"] == {name: state.used(name) for name, _ in state.totals})
    return state


def _created(state: Offered | None, call: Call) -> Offered | None:
    _fits(call.accepted == (state is None) and call.status in (200, 409))
    return Offered(0, frozenset()) if state is None else state


def _deleted(state: Offered | None, call: Call) -> Offered | None:
    _fits(call.status == (404 if state is None else 409 if state.held else 204))
    return None if call.accepted else state


_ABOUT_IT = {"offer": _offered, "usages": _usages, "create": _created, "delete": _deleted}


def _claimed(uuid: str, state: Offered | None, call: Call) -> Offered | None:
    wishes = {consumer: wish["allocations"] for consumer, wish in call.wishes.items()}
    asked = any(uuid in allocations for allocations in wishes.values())
    if state is None:
        _fits(not (call.accepted and asked))
        return state
    after = state._replace(held=_held_after(uuid, state, wishes))
    if over_capacity := _OVER_CAPACITY.search(call.refusal):
        _fits(over_capacity[2] != uuid or not _has_capacity(state, after, over_capacity[1]))
    if not call.accepted:
        return state
    _fits(all(_has_capacity(state, after, name) for name in _names(uuid, wishes)))
    emptied = any(consumer in wishes and not wishes[consumer] for consumer, _, _ in state.held)
    counted = asked or (emptied and call.kind != "release")
    return after._replace(generation=state.generation + counted)


def _reshaped(uuid: str, state: Offered | None, call: Call) -> Offered | None:
    given = call.body["inventories"][uuid]
    if old := _OLD_GENERATION.search(call.refusal):
        said = state is not None and (int(old[2]), int(old[3])) == (
            state.generation,
            given["resource_provider_generation"],
        )
        _fits(old[1] != uuid or (said and old[2] != old[3]))
    if not call.accepted:
        return state
    _fits(state is not None and given["resource_provider_generation"] == state.generation)
    # The generation increases once for added inventories, once at the end, and as in any claim for moved allocations.
    widened = state._replace(totals=frozenset((dict(state.totals) | dict(_totals(given["inventories"]))).items()))
    after = _claimed(uuid, widened, call) if call.wishes else widened
    totals = _totals(given["inventories"])
    _fits({name for _, name, _ in after.held} <= {name for name, _ in totals})
    return after._replace(generation=after.generation + 1 + bool(totals), totals=totals)


def _held_after(uuid: str, state: Offered, wishes: Mapping[str, Mapping]) -> frozenset[tuple[str, str, int]]:
    staying = {one for one in state.held if one[0] not in wishes}
    for consumer, allocations in wishes.items():
        for name, units in allocations.get(uuid, {"resources": {}})["resources"].items():
            staying.add((consumer, name, units))
    return frozenset(staying)


def _names(uuid: str, wishes: Mapping[str, Mapping]) -> set[str]:
    return {name for allocations in wishes.values() for name in allocations.get(uuid, {}).get("resources", ())}


def _has_capacity(before: Offered, after: Offered, name: str) -> bool:
    """Whether it fits. A usage above the capacity is allowed if it does not grow, as after an inventory was reduced."""
    total = dict(after.totals).get(name)
    return total is not None and (after.used(name) <= total or after.used(name) <= before.used(name))


def _totals(inventories: Mapping) -> Amounts:
    return frozenset((name, inventory["total"]) for name, inventory in inventories.items())


# --- a tree -----------------------------------------------------------------------------------------------------


def place_step(moved: str, child: str, root: str, call: Call) -> str:
    """Returns the root above `moved` and its `child`; `root` is a parent that is a root itself."""
    if call.kind == "move" and call.subject == moved:
        _fits(call.accepted)
        return call.body["parent_provider_uuid"]
    if call.kind == "place" and call.subject in (moved, child):
        _fits(call.answer["root_provider_uuid"] == root)
    return root
