"""The forest in memory equals the database, after random writes of two processes.

Both write to one database, and each reads its own forest sometimes or never. At the end a third process reads the whole
database. All three must show the same.
"""

import itertools
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.core.clock import VirtualClock
from moorage.core.errors import MoorageError
from moorage.core.ids import SeededIds
from moorage.db.engine import open_engine
from moorage.db.migrations import upgrade
from moorage.placement.forest.model import Inventory
from moorage.placement.rules.allocation_writes import AllocationWrite
from moorage.placement.search.masks import ProviderFilter
from moorage.placement.service.service import PlacementService
from tests.conftest import START
from tests.property.placement.test_forest import content_by_uuid

TRAITS = ["HW_CPU_X86_AVX2", "STORAGE_DISK_SSD", "MISC_SHARES_VIA_AGGREGATE"]
AGGREGATES = [f"aaaaaaaa-0000-4000-8000-00000000000{number}" for number in range(3)]
CONSUMERS = [f"cccccccc-0000-4000-8000-00000000000{number}" for number in range(3)]

places = st.integers(0, 5)  #: index of a provider in the order of creation, modulo the number of providers
acts = st.one_of(
    st.tuples(st.just("create"), st.none() | places),
    st.tuples(st.just("create"), st.none() | places),
    st.tuples(st.just("rename"), places),
    st.tuples(st.just("move"), places, st.none() | places),
    st.tuples(st.just("move"), places, st.none() | places),
    st.tuples(st.just("delete"), places),
    st.tuples(st.just("inventories"), places, st.sets(st.sampled_from(["VCPU", "DISK_GB"]))),
    st.tuples(st.just("traits"), places, st.sets(st.sampled_from(TRAITS))),
    st.tuples(st.just("aggregates"), places, st.sets(st.sampled_from(AGGREGATES))),
    st.tuples(st.just("claim"), places, st.sampled_from(CONSUMERS)),
    st.tuples(st.just("release"), st.sampled_from(CONSUMERS)),
)
#: (process that acts, its action, whether it reads its forest afterwards)
histories = st.lists(st.tuples(st.integers(0, 1), acts, st.booleans()), min_size=1, max_size=8)


class World:
    """One database for all examples: each first deletes the data of the previous one."""

    def __init__(self, engine):
        self.engine = engine
        self.clock = VirtualClock(START)
        self.numbers = itertools.count()

    def process(self):
        return PlacementService(self.engine, self.clock, SeededIds(next(self.numbers)))

    def clean(self, service):
        for consumer in CONSUMERS:
            with suppress(MoorageError):
                service.allocations.release(consumer)
        while found := everything(service):
            parents = {provider.parent_id for provider in found}
            for provider in found:
                if provider.id not in parents:
                    service.providers.delete_provider(provider.uuid)

    def act(self, service, uuids, act):
        """Runs one action. Raises the error of the service if it refuses."""
        kind, *more = act
        self.clock.sleep(1)
        if kind == "release":
            service.allocations.release(more[0])
        elif kind == "create":
            parent = uuids[more[0] % len(uuids)] if more[0] is not None and uuids else None
            made = service.providers.create_provider(f"provider {next(self.numbers)}", None, parent)
            uuids.append(made.provider.uuid)
        elif uuids:
            self.change(service, uuids, uuids[more[0] % len(uuids)], kind, *more[1:])

    def change(self, service, uuids, uuid, kind, what=None):
        match kind:
            case "rename":
                service.providers.update_provider(
                    uuid, f"name {next(self.numbers)}", None, parent_given=False, may_move=True
                )
            case "move":
                parent = None if what is None else uuids[what % len(uuids)]
                service.providers.update_provider(
                    uuid, f"name {next(self.numbers)}", parent, parent_given=True, may_move=True
                )
            case "delete":
                service.providers.delete_provider(uuid)
                uuids.remove(uuid)
            case "inventories":
                service.providers.set_inventories(uuid, None, {name: Inventory(total=4) for name in sorted(what)})
            case "traits":
                service.providers.set_traits(uuid, None, sorted(what))
            case "aggregates":
                service.providers.set_aggregates(uuid, None, sorted(what))
            case "claim":
                wish = AllocationWrite(
                    what, {uuid: {"VCPU": 1}}, project_id="red", user_id="alice", check_generation=False
                )
                service.allocations.claim([wish])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    engine = open_engine(f"sqlite:///{tmp_path_factory.mktemp('world')}/moorage.sqlite")
    upgrade(engine, "placement")
    world = World(engine)
    world.process().start()
    yield world
    engine.dispose()


def shown(service):
    """The whole forest, and the list in the API's format."""
    listed = everything(service)
    return content_by_uuid(service.providers.forest()), [provider.uuid for provider in listed]


def everything(service):
    """All providers by id, as the API lists them."""
    forest, slots = service.candidates.matching_providers(ProviderFilter())
    return sorted((forest.at(slot) for slot in slots), key=lambda provider: provider.id)


@settings(max_examples=150, deadline=None)
@given(histories)
def test_every_process_shows_the_content_of_the_database(world, history):
    processes = world.process(), world.process()
    world.clean(processes[0])
    uuids = []
    for above in (None, 0, 1, None):
        world.act(processes[0], uuids, ("create", above))
    for process in processes:
        shown(process)
    for number, act, looks in history:
        with suppress(MoorageError):
            world.act(processes[number], uuids, act)
        if looks:
            shown(processes[number])
    expected = shown(world.process())
    for process in processes:
        assert shown(process) == expected
