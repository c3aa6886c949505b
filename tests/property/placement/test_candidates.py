"""The search against a slow, obvious version: try every assignment and keep those that break no rule."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.placement.candidates import search
from moorage.placement.forest import Forest
from moorage.placement.model import SHARING, Inventory, Names, Provider
from moorage.placement.query import AggregateFilter, TraitFilter
from moorage.placement.request import Request, RequestGroup

CLASSES = ["A", "B", "C"]
TRAITS = ["T1", "T2", "T3"]
AGGREGATES = ["g1", "g2"]
SUFFIXES = ["_1", "_2", "_3"]


# --- worlds -----------------------------------------------------------------------------------------------------


def subsets(items, most=2):
    return st.frozensets(st.sampled_from(items), max_size=most)


inventories = st.builds(
    Inventory,
    total=st.integers(1, 4),
    reserved=st.just(0) | st.just(1),
    min_unit=st.sampled_from([1, 1, 1, 2]),
    max_unit=st.sampled_from([1, 2, 4, 4]),
    step_size=st.sampled_from([1, 1, 1, 2]),
    allocation_ratio=st.sampled_from([1.0, 1.0, 0.5, 1.5]),
)


@st.composite
def forests(draw):
    providers = []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        parent = draw(st.none() | st.sampled_from(providers)) if providers else None
        offered = draw(st.dictionaries(st.sampled_from(CLASSES), inventories, max_size=2))
        shares = draw(st.sampled_from([False, False, False, True]))
        providers.append(
            Provider(
                id=number,
                uuid=f"p{number}",
                name=f"n{number}",
                generation=0,
                revision=0,
                parent_id=parent.id if parent else None,
                root_id=parent.root_id if parent else number,
                inventories=offered,
                used={name: draw(st.integers(0, 1)) for name in offered},
                traits=draw(subsets(TRAITS)) | ({SHARING} if shares else frozenset()),
                aggregates=draw(subsets(AGGREGATES)),
            )
        )
    return providers


resources = st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 2), min_size=1, max_size=2)
trait_filters = st.builds(
    TraitFilter,
    required=st.lists(st.frozensets(st.sampled_from(TRAITS), min_size=1, max_size=2), max_size=1).map(tuple),
    forbidden=st.just(frozenset()) | subsets(TRAITS, 1),
)
aggregate_filters = st.builds(
    AggregateFilter,
    required=st.just(()) | st.lists(st.frozensets(st.sampled_from(AGGREGATES), min_size=1), max_size=1).map(tuple),
    forbidden=st.just(frozenset()) | st.just(frozenset()) | subsets(AGGREGATES, 1),
)


@st.composite
def requests(draw, providers):
    in_tree = st.none() | st.none() | st.sampled_from([provider.uuid for provider in providers])
    groups = []
    if draw(st.booleans()):
        groups.append(RequestGroup("", draw(resources), draw(trait_filters), draw(aggregate_filters), draw(in_tree)))
    least = 0 if groups else 1
    for suffix in SUFFIXES[: draw(st.integers(least, 3))]:
        wanted = draw(resources) if not groups or draw(st.integers(0, 4)) else {}
        groups.append(RequestGroup(suffix, wanted, draw(trait_filters), draw(aggregate_filters), draw(in_tree)))
    granular = [group.suffix for group in groups if group.suffix]
    subtrees = []
    if granular and draw(st.booleans()):
        subtrees.append(frozenset(draw(st.sets(st.sampled_from(granular), min_size=1))))
    return Request(
        groups=tuple(groups),
        limit=None,
        group_policy=draw(st.sampled_from(["none", "isolate"])),
        root_required=draw(st.just(frozenset()) | subsets(TRAITS, 1)),
        root_forbidden=draw(st.just(frozenset()) | subsets(TRAITS, 1)),
        same_subtrees=tuple(subtrees),
        nested=draw(st.sampled_from([True, True, False])),
    )


@st.composite
def searches(draw):
    providers = draw(forests())
    return providers, draw(requests(providers))


# --- the slow version -------------------------------------------------------------------------------------------


def slow(providers, request):
    """{(allocations, mappings)} of all candidates."""
    found = set()
    slots = [(group, name) for group in request.groups if not group.suffix for name in group.resources]
    slots += [(group, None) for group in request.groups if group.suffix]
    for anchor in providers:
        if anchor.parent_id is not None:
            continue
        if not request.root_required <= anchor.traits or request.root_forbidden & anchor.traits:
            continue
        tree = [provider for provider in providers if provider.root_id == anchor.id]
        nearby = [
            p
            for p in providers
            if p not in tree and SHARING in p.traits and any(p.aggregates & q.aggregates for q in tree)
        ]
        options = [[p for p in tree + nearby if may_serve(providers, anchor, p, group, name)] for group, name in slots]
        for chosen in product(*options):
            pairs = list(zip(slots, chosen, strict=True))
            if holds(providers, request, pairs):
                found.add(shape(pairs))
    return found


def may_serve(providers, anchor, provider, group, name):
    tree = next((p.root_id for p in providers if p.uuid == group.in_tree), -1) if group.in_tree else None
    wanted = {name: group.resources[name]} if name else group.resources
    local = provider.root_id == anchor.id
    if name is None:
        if not group.resources and not group.traits.required and not group.aggregates.required:
            return False
        if tree is not None and provider.root_id != tree:
            return False
        if not all(any_of & provider.traits for any_of in group.traits.required):
            return False
        member = in_all(provider, group)
        outside = not group.aggregates.forbidden & provider.aggregates
    else:
        if tree is not None and not (local and anchor.id == tree):
            return False
        member = in_all(provider, group) or (local and in_all(anchor, group))
        outside = not group.aggregates.forbidden & (provider.aggregates | anchor.aggregates)
    fits = all(room(provider, one, amount, amount) for one, amount in wanted.items())
    return fits and member and outside and not group.traits.forbidden & provider.traits


def in_all(provider, group):
    return all(any_of & provider.aggregates for any_of in group.aggregates.required)


def room(provider, name, amount, least):
    inventory = provider.inventories.get(name)
    if inventory is None or amount > inventory.max_unit:
        return False
    if least is not None and (least < inventory.min_unit or least % inventory.step_size):
        return False
    capacity = (inventory.total - inventory.reserved) * inventory.allocation_ratio
    return provider.used.get(name, 0) + amount <= capacity


def holds(providers, request, pairs):
    by_id = {provider.id: provider for provider in providers}
    taken = {}
    for (group, name), provider in pairs:
        for one, amount in ({name: group.resources[name]} if name else group.resources).items():
            taken[provider.id, one] = taken.get((provider.id, one), 0) + amount
    if not all(room(by_id[number], name, amount, None) for (number, name), amount in taken.items()):
        return False
    for group in request.groups:
        if not group.suffix:
            held = frozenset().union(*(p.traits for (g, _), p in pairs if g is group))
            if not all(any_of & held for any_of in group.traits.required):
                return False
    granular = [provider.id for (group, _), provider in pairs if group.suffix]
    if request.group_policy == "isolate" and len(set(granular)) < len(granular):
        return False
    for suffixes in request.same_subtrees:
        members = [provider for (group, _), provider in pairs if group.suffix in suffixes]
        if not any(all(is_below(by_id, member, top) for member in members) for top in members):
            return False
    used = {number for number, _ in taken}
    return request.nested or len({by_id[number].root_id for number in used}) == len(used)


def is_below(by_id, provider, top):
    while provider is not None:
        if provider.id == top.id:
            return True
        provider = by_id.get(provider.parent_id)
    return False


def shape(pairs):
    allocations, mappings = {}, {}
    for (group, name), provider in pairs:
        mappings.setdefault(group.suffix, set()).add(provider.uuid)
        for one, amount in ({name: group.resources[name]} if name else group.resources).items():
            allocations[provider.uuid, one] = allocations.get((provider.uuid, one), 0) + amount
    return frozenset(allocations.items()), frozenset((s, frozenset(uuids)) for s, uuids in mappings.items())


# --- the facts --------------------------------------------------------------------------------------------------


def fast(providers, request):
    forest = Forest.build(providers, Names(), 0)
    found = []
    for candidate in search(forest, request):
        allocations = frozenset(
            ((forest.at(slot).uuid, name), amount)
            for slot, amounts in candidate.allocations.items()
            for name, amount in amounts.items()
        )
        mappings = frozenset(
            (suffix, frozenset(forest.at(slot).uuid for slot in slots)) for suffix, slots in candidate.mappings.items()
        )
        found.append((allocations, mappings))
    return found


@settings(max_examples=300, deadline=None)
@given(searches())
def test_the_search_finds_what_trying_everything_finds(case):
    providers, request = case
    found = fast(providers, request)
    assert len(found) == len(set(found)), "a candidate came twice"
    assert set(found) == slow(providers, request)


@settings(max_examples=150, deadline=None)
@given(searches(), st.integers(1, 4))
def test_a_limit_gives_that_many_of_them(case, limit):
    providers, request = case
    everything = slow(providers, request)
    limited = Request(**{name: getattr(request, name) for name in request.__slots__} | {"limit": limit})
    found = fast(providers, limited)
    assert set(found) <= everything
    assert len(found) == len(set(found)) == min(limit, len(everything))


@st.composite
def twins(draw):
    """One host with many equal devices, where symmetries matter most."""
    count = draw(st.integers(2, 5))
    root = Provider(1, "p1", "n1", 0, 0, None, 1)
    numa = [Provider(number, f"p{number}", f"n{number}", 0, 0, 1, 1, traits=frozenset(["T1"])) for number in (2, 3)]
    devices = []
    for number in range(4, 4 + count):
        trait = draw(st.sampled_from([frozenset(), frozenset(), frozenset(["T2"])]))
        devices.append(
            Provider(
                number,
                f"p{number}",
                f"n{number}",
                0,
                0,
                draw(st.sampled_from([2, 3])),
                1,
                inventories={"A": Inventory(total=draw(st.sampled_from([1, 1, 2])))},
                traits=trait,
            )
        )
    providers = [root, *numa, *devices]
    groups = [RequestGroup(suffix, {"A": draw(st.integers(1, 2))}, draw(trait_filters)) for suffix in SUFFIXES]
    if draw(st.booleans()):
        groups.append(RequestGroup("_numa", {}, TraitFilter((frozenset(["T1"]),))))
    subtree = frozenset(draw(st.sets(st.sampled_from([group.suffix for group in groups]), min_size=2)))
    return providers, Request(
        tuple(groups),
        group_policy=draw(st.sampled_from(["none", "isolate"])),
        same_subtrees=(subtree | {"_numa"},) if len(groups) == 4 else (subtree,),
    )


@settings(max_examples=200, deadline=None)
@given(twins(), st.none() | st.integers(1, 30))
def test_equal_devices_neither_hide_nor_invent_candidates(case, limit):
    providers, request = case
    everything = slow(providers, request)
    limited = Request(request.groups, limit, request.group_policy, same_subtrees=request.same_subtrees)
    found = fast(providers, limited)
    assert len(found) == len(set(found)) == min(limit or len(everything), len(everything))
    assert set(found) <= everything
