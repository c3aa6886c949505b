"""An explanation shows for each constraint what a query without the later ones would find; its suggestion works."""

import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.placement.explain.closest_hosts import MAX_CLOSEST
from moorage.placement.explain.explanation import MAX_NAMED, explain
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import SHARING_TRAIT, NameTable
from moorage.placement.search.candidates import list_candidates
from moorage.placement.search.constraints import ConstraintKind, constraints_of
from moorage.placement.search.query import AggregateFilter, TraitFilter
from moorage.placement.search.request import CandidateRequest, RequestGroup, parse_request, to_query
from tests.property.placement.test_candidates import (
    AGGREGATES,
    TRAITS,
    Dice,
    inventory,
    searches,
    slow,
    spreads,
    twins,
    wides,
)

cases = searches | spreads | twins | wides


@settings(max_examples=600, deadline=None)
@given(cases)
def test_an_explanation_counts_the_candidates_that_the_search_finds(case):
    providers, request = case
    forest = Forest.build(providers, NameTable(), 0)
    explanation = explain(forest, request)
    found = list_candidates(forest, replace(request, limit=1000))
    assert explanation.candidates == len(found)
    assert (explanation.change is None) or not found
    for before, after in zip(explanation.steps, explanation.steps[1:], strict=False):
        assert before.after == after.before
    hosts = [p for p in providers if p.parent_id is None and not all_share(providers, p)]
    if hosts:
        assert explanation.steps[0].before == len(hosts)


@settings(max_examples=1000, deadline=None)
@given(cases)
def test_each_host_is_counted_once_and_sharing_providers_are_not_counted(case):
    """A provider that only shares is not a host, even if candidates use nothing else."""
    providers, request = case
    hosts = [p for p in providers if p.parent_id is None and not all_share(providers, p)]
    explanation = explain(Forest.build(providers, NameTable(), 0), request)
    left = len(hosts)
    for step in explanation.steps:
        assert left == step.before >= step.after
        assert len(step.removed) == min(MAX_NAMED, step.before - step.after)
        left = step.after
    told = re.search(r"candidates? on (\d+) of (\d+) hosts", explanation.text)
    if told:
        fitting = [p for p in hosts if anchors(providers, request, p)]
        assert (int(told[1]), int(told[2])) == (len(fitting), len(hosts))
        assert fitting
    else:
        assert not any(anchors(providers, request, p) for p in hosts)


def all_share(providers, root):
    return all(SHARING_TRAIT in p.traits for p in providers if p.root_id == root.id)


@settings(max_examples=600, deadline=None)
@given(cases)
def test_each_step_counts_the_hosts_that_a_query_up_to_its_constraint_finds(case):
    """For granular groups, whose constraints do not depend on those of other groups."""
    providers, request = case
    forest = Forest.build(providers, NameTable(), 0)
    steps = {step.constraint: step for step in explain(forest, request).steps}
    alive = {p.id for p in providers if p.parent_id is None and not all_share(providers, p)}
    if request.root_required or request.root_forbidden:
        roots = {p.id: p.traits for p in providers}
        alive = {one for one in alive if request.root_required <= roots[one]}
        alive = {one for one in alive if not request.root_forbidden & roots[one]}
    for group in request.groups:
        so_far = RequestGroup(group.suffix)
        for constraint in constraints_of(group):
            so_far = stricter(so_far, constraint)
            if not is_searchable(so_far):
                continue
            alone = CandidateRequest((so_far,), nested=True)
            served = {p.id for p in providers if p.parent_id is None and anchors(providers, alone, p)}
            alive &= served
            step = steps.get(str(constraint))
            if step is None:
                assert not alive or not group.is_granular
                return
            if group.is_granular or len(group.resources) == 1:
                assert step.after == len(alive)
            else:
                alive = None
                return


def is_searchable(group):
    return bool(group.resources or group.traits.required or group.aggregates.required)


def anchors(providers, request, root):
    """Whether this anchor could serve the request, regardless of others."""
    others = {p.id for p in providers if p.parent_id is None and p.id != root.id}
    marked = [replace(p, traits=p.traits | {"NOT-HERE"}) if p.id in others else p for p in providers]
    return bool(slow(marked, replace(request, root_forbidden=request.root_forbidden | {"NOT-HERE"})))


def stricter(group, constraint):
    match constraint.kind:
        case ConstraintKind.UNITS:
            return replace(group, resources={**group.resources, constraint.name: constraint.amount})
        case ConstraintKind.TREE:
            return replace(group, in_tree=constraint.name)
        case ConstraintKind.MEMBER:
            required = (*group.aggregates.required, constraint.names)
            return replace(group, aggregates=AggregateFilter(required, group.aggregates.forbidden))
        case ConstraintKind.NOT_MEMBER:
            return replace(group, aggregates=AggregateFilter(group.aggregates.required, constraint.names))
        case ConstraintKind.TRAIT:
            required = (*group.traits.required, constraint.names)
            return replace(group, traits=TraitFilter(required, group.traits.forbidden))
    return replace(group, traits=TraitFilter(group.traits.required, constraint.names))


@settings(max_examples=1000, deadline=None)
@given(cases)
def test_the_suggested_change_gives_a_candidate(case):
    providers, request = case
    forest = Forest.build(providers, NameTable(), 0)
    explanation = explain(forest, request)
    if explanation.candidates:
        assert not explanation.closest
        return
    assert len(explanation.closest) <= MAX_CLOSEST
    assert all(host.lacks for host in explanation.closest)
    change = explanation.change
    if change is not None:
        assert change.parts
        assert list_candidates(forest, change.request)
        assert list_candidates(forest, request) == []
    elif request.nested and not request.same_subtrees:
        assert not any(fits_one_class(p, request) for p in tree_of_first(providers, explanation))


def tree_of_first(providers, explanation):
    names = {host.provider for host in explanation.closest}
    roots = {p.id for p in providers if p.name in names}
    return [p for p in providers if p.root_id in roots]


def fits_one_class(provider, request):
    """At least one unit of a requested class, without other constraints."""
    return any(
        provider.fits(name, amount)
        for group in request.groups
        if not group.is_granular
        for name, amount in group.resources.items()
    )


@settings(max_examples=300, deadline=None)
@given(cases, st.integers(0, 2**32))
def test_cached_explanations_equal_new_ones_after_writes_and_for_the_state_before_them(case, seed):
    """After each of some writes, for the new state and once more for the state before it."""
    providers, request = case
    dice = Dice(seed)
    forest = Forest.build(providers, NameTable(), 0)
    explain(forest, request)
    for _ in range(4):
        before, known = forest, explain(Forest.build(providers, NameTable(), 0), request)
        written = {
            one.id: written_to(dice, one) for one in dice.sample(providers, dice.randint(0, min(2, len(providers))))
        }
        forest = forest.with_changes(written)
        providers = [written.get(one.id, one) for one in providers]
        if dice.random() < 0.8:
            assert explain(forest, request) == explain(Forest.build(providers, NameTable(), 0), request)
        if dice.random() < 0.3:
            assert explain(before, request) == known


def written_to(dice, provider):
    what = dice.mostly("used", "inventories", "traits", "aggregates")
    new = {
        "used": lambda: {name: dice.randint(0, 4) for name in provider.inventories},
        "inventories": lambda: {name: inventory(dice) for name in provider.inventories},
        "traits": lambda: dice.some([*TRAITS, SHARING_TRAIT], 2),
        "aggregates": lambda: dice.some(AGGREGATES, 2),
    }
    return replace(provider, **{what: new[what]()}, revision=provider.revision + 1)


@settings(max_examples=300, deadline=None)
@given(cases)
def test_a_request_written_as_a_query_parses_to_the_same_request(case):
    _, request = case
    for group in request.groups:
        if group.aggregates.required or group.aggregates.forbidden or group.in_tree or not group.resources:
            return  # the names in these worlds are no uuids
        if any(any_of <= group.traits.forbidden for any_of in group.traits.required):
            return  # refused by the parser: can never be met
    again = parse_request(to_query(request), (1, 39))
    assert {group.suffix: group for group in again.groups} == {group.suffix: group for group in request.groups}
    assert replace(again, groups=(), nested=request.nested) == replace(request, groups=())
