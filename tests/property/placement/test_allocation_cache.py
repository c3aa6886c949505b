"""What consumers and providers hold, as two processes tell it that keep answers, is what is in the tables at that moment."""

import random

import pytest

from moorage.core.clock import SystemClock
from moorage.core.errors import MoorageError
from moorage.core.ids import RandomIds
from moorage.db.engine import open_engine
from moorage.db.migrations import upgrade
from moorage.db.single_reads import SingleReads
from moorage.placement.forest.model import Inventory
from moorage.placement.rules.allocation_writes import AllocationWrite
from moorage.placement.rules.inventory_writes import NewInventories
from moorage.placement.service.service import PlacementService
from moorage.placement.store.holding_store import AllocationReads
from moorage.placement.sync import allocation_cache

PROVIDERS = [f"{number:08x}-1111-4111-8111-111111111111" for number in range(5)]
CONSUMERS = [f"{number:08x}-2222-4222-8222-222222222222" for number in range(6)]
STEPS = 150


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/placement.sqlite"


def process(url):
    service = PlacementService(open_engine(url), SystemClock(), RandomIds())
    service.start()
    return service


def write(rng, service):
    """Something that is allowed or is not."""
    provider, consumer = rng.choice(PROVIDERS), rng.choice(CONSUMERS)
    match rng.randrange(8):
        case 0:
            service.providers.create(provider, provider, None)
        case 1:
            service.providers.delete(provider)
        case 2:
            service.providers.set_inventories(provider, None, {"VCPU": Inventory(total=rng.randrange(1, 9))})
        case 3:
            service.allocations.release(consumer)
        case 4:
            inventories = {"VCPU": Inventory(total=9), "DISK_GB": Inventory(total=rng.randrange(1, 9))}
            generation = service.providers.provider(provider).generation
            service.allocations.reshape({provider: NewInventories(generation, inventories)}, [])
        case _:
            held = {one: {"VCPU": rng.randrange(1, 4)} for one in rng.sample(PROVIDERS, rng.randrange(3))}
            project = rng.choice(["red", "blue"])
            service.allocations.claim(
                [AllocationWrite(consumer, held, project, "alice", None, None, check_generation=False)]
            )


def told(holdings):
    def of_provider(uuid):
        try:
            return holdings.provider_allocations(uuid)
        except MoorageError:
            return None

    return [*map(of_provider, PROVIDERS), *map(holdings.consumer_allocations, CONSUMERS)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("most", [allocation_cache.MAX_ALLOCATIONS, 12])
def test_what_is_kept_is_never_told_when_it_has_changed(url, seed, most, monkeypatch):
    monkeypatch.setattr(allocation_cache, "MAX_ALLOCATIONS", most)
    engine = open_engine(url)
    upgrade(engine, "placement")
    rng, processes, tables = random.Random(seed), [process(url), process(url)], AllocationReads(SingleReads(engine))
    done = 0
    for _ in range(STEPS):
        try:
            write(rng, rng.choice(processes))
            done += 1
        except MoorageError:
            pass
        expected = told(tables)
        for service in processes:
            assert told(service.allocations) == expected
    assert done > STEPS / 8
