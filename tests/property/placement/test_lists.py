"""The list of providers that array operations find equals a check of each provider."""

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import NameTable
from moorage.placement.search.masks import ProviderFilter, matching_slots
from moorage.placement.search.query import AggregateFilter, TraitFilter
from tests.property.placement.test_candidates import AGGREGATES, CLASSES, TRAITS, Dice, filters, world


def case(seed):
    dice = Dice(seed)
    providers = world(dice)
    return providers, ProviderFilter(
        name=dice.mostly(None, "n1"),
        uuid=dice.mostly(None, "p2", "unknown"),
        in_tree=dice.mostly(None, "p1", "p3", "unknown"),
        resources=dice.choice([None, {name: dice.mostly(1, 2) for name in dice.sample(CLASSES, dice.randint(1, 2))}]),
        traits=filters(dice, TraitFilter, TRAITS),
        aggregates=filters(dice, AggregateFilter, AGGREGATES),
    )


def passes(provider, wanted, root_of):
    return (
        wanted.name in (None, provider.name)
        and wanted.uuid in (None, provider.uuid)
        and (wanted.in_tree is None or root_of.get(wanted.in_tree) == provider.root_id)
        and all(provider.fits(name, amount) for name, amount in (wanted.resources or {}).items())
        and all(
            all(not any_of.isdisjoint(names) for any_of in wanted_names.required)
            and wanted_names.forbidden.isdisjoint(names)
            for wanted_names, names in ((wanted.traits, provider.traits), (wanted.aggregates, provider.aggregates))
        )
    )


@settings(max_examples=600, deadline=None)
@given(st.integers(0, 2**32 - 1).map(case))
def test_a_filtered_list_of_providers_equals_a_check_of_each_provider(case):
    providers, wanted = case
    root_of = {provider.uuid: provider.root_id for provider in providers}
    expected = [provider for provider in providers if passes(provider, wanted, root_of)]
    forest = Forest.build(providers, NameTable(), 0)
    assert [forest.at(slot) for slot in matching_slots(forest, wanted)] == expected
