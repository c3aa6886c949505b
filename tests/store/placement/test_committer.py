"""What a write costs: the tests count its statements and its round trips to the database.

They run on all three databases, because each has its own protocol and SQLite has another order of statements.
"""

import threading
from collections import Counter

import orjson
import pytest
from sqlalchemy import event

from moorage.core.errors import ConcurrentUpdate, Conflict, MoorageError, NotFound, Unavailable
from moorage.core.ids import SeededIds
from moorage.db.engine import dialect_name
from moorage.db.session import StatementPipeline
from moorage.placement.forest.model import Inventory
from moorage.placement.rules.allocation_writes import AllocationWrite
from moorage.placement.rules.inventory_writes import NewInventories
from moorage.placement.service.service import PlacementService
from moorage.placement.store.change_store import ChangeLogWriter
from tests.group_commits import until_waiting
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database, on_servers

CONSUMER = "00000000-0000-4000-8000-000000000001"
AGGREGATE = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def engine(kind):
    with migrated_engine("placement", kind) as engine:
        yield engine


@pytest.fixture
def service(engine, clock, ids):
    service = PlacementService(engine, clock, ids)
    service.start()
    service.providers.forest()
    return service


class Costs:
    """The costs of writes: (round trips to the database, statements in them). All other statements are in `others`."""

    def __init__(self, engine, monkeypatch):
        self.runs = []
        self.bytes = 0  #: size of the statements' parameters
        self.others = []
        start = StatementPipeline.start

        def counted(batches, commands, **how):
            self.runs.append(len(commands))
            self.bytes += sum(len(orjson.dumps(rows)) for _, rows in commands if rows)
            return start(batches, commands, **how)

        monkeypatch.setattr(StatementPipeline, "start", counted)
        event.listen(engine, "before_cursor_execute", lambda *given: self.others.append(given[2]))

    def of(self, act):
        self.runs.clear()
        self.bytes = 0
        self.others.clear()
        act()
        assert self.others == []
        return len(self.runs), sum(self.runs)


@pytest.fixture
def costs(engine, service, monkeypatch):
    with pytest.raises(NotFound):
        service.allocations.release(CONSUMER)  # opens the connection of the committer
    return Costs(engine, monkeypatch)


def wish(consumer, allocations, generation=None):
    return AllocationWrite(consumer, allocations, "red", "alice", "INSTANCE", generation)


@on_every_database
def test_each_write_costs_one_or_two_round_trips_and_reads_nothing_back(engine, service, costs):
    """A write to a database server costs one round trip, if everything that it depends on is in memory.

    On SQLite, which has no round trips, the change number is always taken first.
    """
    far = dialect_name(engine) != "sqlite"
    once = (1, 4) if far else (2, 4)
    providers, allocations = service.providers, service.allocations
    made = []
    # the change number; the row, its root, the change log
    created = (1, 4) if far else (2, 5)  # also a query for the owner of the name
    assert costs.of(lambda: made.append(providers.create_provider("host", None, None).provider)) == created
    uuid = made[0].uuid
    offered = {"VCPU": Inventory(8), "MEMORY_MB": Inventory(64), "DISK_GB": Inventory(9)}
    # the change number; the rows, the provider, the change log
    assert costs.of(lambda: providers.set_inventories(uuid, 0, offered)) == once
    assert costs.of(lambda: providers.set_traits(uuid, 1, ["HW_CPU_X86_AVX2", "STORAGE_DISK_SSD"])) == once
    assert costs.of(lambda: providers.set_aggregates(uuid, 2, [AGGREGATE])) == once
    held = {"VCPU": 1, "MEMORY_MB": 2, "DISK_GB": 3}
    # the change number; the consumer's row, the provider, the allocations, the change log
    claimed = (1, 5) if far else (2, 6)
    assert costs.of(lambda: allocations.claim([wish(CONSUMER, {uuid: held})])) == claimed
    assert costs.bytes < 1_260, "the parameters have become larger"
    # the change number, the consumer; its row, the provider, the allocations (DELETE and INSERT), the change log
    assert costs.of(lambda: allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 2}}, 1)])) == (2, 7)
    assert costs.of(lambda: allocations.release(CONSUMER)) == (2, 6)
    many = [wish(f"00000000-0000-4000-8000-{number:012}", {uuid: {"VCPU": 1}}) for number in range(8)]
    assert costs.of(lambda: allocations.claim(many)) == claimed, "the cost must not depend on the number of claims"


@on_every_database
def test_a_write_that_was_decided_on_old_data_is_decided_again(engine, clock, service):
    """Another process has written in between, or a consumer that was assumed to be new exists."""
    other = PlacementService(engine, clock, SeededIds(2))
    uuid = service.providers.create_provider("host", None, None).provider.uuid
    service.providers.set_inventories(uuid, 0, {"VCPU": Inventory(2)})
    other.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 2}})])
    with pytest.raises(Conflict, match="exceed the capacity"):
        service.allocations.claim([wish(AGGREGATE, {uuid: {"VCPU": 1}})])
    with pytest.raises(ConcurrentUpdate, match="expected 1 but got None"):
        service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 1}})])
    service.allocations.release(CONSUMER)
    service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 1}})])
    service.allocations.deps.committer._numbered_groups_left = 0
    with pytest.raises(ConcurrentUpdate, match="expected 1 but got None"):
        service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 1}})])
    assert service.providers.provider(uuid) == other.providers.provider(uuid)
    assert service.providers.provider(uuid).used == {"VCPU": 1}


def run_as_one_group(writer, acts):
    """Runs `acts` concurrently, as one group in this order; {name: result or error}."""
    outcomes = {}

    def act(name):
        try:
            outcomes[name] = acts[name]()
        except MoorageError as error:
            outcomes[name] = error

    threads = [threading.Thread(target=act, args=(name,)) for name in acts]
    with writer._turn:
        for number, thread in enumerate(threads, 1):
            thread.start()
            until_waiting(writer._queue, number)
    for thread in threads:
        thread.join()
    return outcomes


@on_every_database
def test_a_claim_that_is_refused_in_a_group_gets_the_right_reason(engine, clock, service):
    """A consumer that was assumed to be new exists: only its claim is refused, with its generation in the message."""
    uuid = service.providers.create_provider("host", None, None).provider.uuid
    service.providers.set_inventories(uuid, 0, {"VCPU": Inventory(4)})
    service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 3}})])
    others = [f"00000000-0000-4000-8000-{number:012}" for number in range(2, 5)]
    outcomes = run_as_one_group(
        service.allocations.deps.committer,
        {
            "first": lambda: service.providers.set_aggregates(uuid, None, [AGGREGATE]),
            "fits": lambda: service.allocations.claim([wish(others[0], {uuid: {"VCPU": 1}})]),
            "is there": lambda: service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 2}})]),
            "is new": lambda: service.allocations.claim([wish(others[1], {uuid: {"VCPU": 2}})]),
        },
    )
    assert outcomes["fits"] is None
    assert "expected 1 but got None" in outcomes["is there"].message
    assert "exceed the capacity" in outcomes["is new"].message
    assert service.providers.provider(uuid).used == {"VCPU": 4}
    assert service.allocations.consumer_allocations(CONSUMER)[0].generation == 1


def lose_connection_at_commit(service, monkeypatch, *, is_carried_out):
    """Of the committer's present connection. Returns the list of what will be sent over it, as (begins, commits)."""
    link = service.allocations.deps.committer._pipeline._connection
    start = type(link).start
    parts = []

    def lose_connection(self, sent, *, begin, commit):
        if self is link:
            parts.append((begin, commit))
            if commit:
                if is_carried_out:
                    start(self, sent, begin=begin, commit=commit)()
                self.driver_connection.close()
        return start(self, sent, begin=begin, commit=commit)

    monkeypatch.setattr(type(link), "start", lose_connection)
    return parts


@on_servers  # SQLite has no connection that can be lost
@pytest.mark.parametrize("is_carried_out", [False, True])
def test_a_write_whose_connection_is_lost_is_carried_out_once_even_if_it_was_not_acknowledged(
    service, monkeypatch, is_carried_out
):
    """The connection is lost after the statements were sent; the change number shows whether they were carried out."""
    uuid = service.providers.create_provider("host", None, None).provider.uuid
    service.providers.set_inventories(uuid, 0, {"VCPU": Inventory(2)})
    lose_connection_at_commit(service, monkeypatch, is_carried_out=is_carried_out)
    if is_carried_out:
        with pytest.raises(Unavailable):
            service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 1}})])
    else:
        service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 1}})])
    assert service.providers.provider(uuid).used == {"VCPU": 1}
    assert service.allocations.consumer_allocations(CONSUMER)[0].generation == 1


@on_servers
@pytest.mark.parametrize("is_carried_out", [False, True])
def test_beside_another_writer_a_write_whose_connection_is_lost_at_its_commit_is_carried_out_once(
    engine, clock, service, monkeypatch, is_carried_out
):
    """As above, but its number was taken before."""
    other = PlacementService(engine, clock, SeededIds(2))
    uuid = service.providers.create_provider("host", None, None).provider.uuid
    service.providers.set_inventories(uuid, 0, {"VCPU": Inventory(9)})
    other.allocations.claim([wish(AGGREGATE, {uuid: {"VCPU": 1}})])
    service.providers.set_traits(uuid, 2, ["HW_CPU_X86_AVX2"])  # finds that another process writes
    parts = lose_connection_at_commit(service, monkeypatch, is_carried_out=is_carried_out)
    if is_carried_out:
        with pytest.raises(Unavailable):
            service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 1}})])
    else:
        service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 1}})])
    assert parts == [(True, False), (False, True)]
    assert service.providers.provider(uuid).used == {"VCPU": 2}
    assert service.allocations.consumer_allocations(CONSUMER)[0].generation == 1
    assert other.providers.provider(uuid) == service.providers.provider(uuid)


@on_every_database
def test_concurrent_large_claims_of_two_services_use_exactly_the_capacity(engine, clock, service):
    """Four clients of one process and one of another claim twice the capacity, for ten consumers at a time."""
    other = PlacementService(engine, clock, SeededIds(2))
    uuid = service.providers.create_provider("host", None, None).provider.uuid
    service.providers.set_inventories(uuid, 0, {"VCPU": Inventory(150)})
    outcomes = Counter()

    def work(worker):
        for number in range(6):
            consumers = [f"00000000-0000-4000-8000-{worker:04}{number:04}{one:04}" for one in range(10)]
            try:
                (other if worker == 0 else service).allocations.claim(
                    [wish(consumer, {uuid: {"VCPU": 1}}) for consumer in consumers]
                )
                outcomes["claimed"] += 1
            except Conflict:
                outcomes["refused"] += 1

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {"claimed": 15, "refused": 15}
    fresh = PlacementService(engine, clock, SeededIds(3))
    for one in (service, other, fresh):
        assert one.providers.provider(uuid).used == {"VCPU": 150}
    assert service.providers.provider(uuid) == fresh.providers.provider(uuid)


@on_every_database
def test_a_refused_claim_costs_one_round_trip_and_takes_no_change_number(service, costs):
    uuid = service.providers.create_provider("host", None, None).provider.uuid
    before = service.providers.forest().sequence

    def refused():
        with pytest.raises(Conflict):
            service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 1}})])

    costs.of(refused)
    assert costs.of(refused) == (1, 2)
    assert service.providers.forest().sequence == before


@on_every_database
def test_waiting_claims_and_writes_to_providers_are_committed_together(service):
    """Each of the requests gets its own answer."""
    uuids = [service.providers.create_provider(f"host {number}", None, None).provider.uuid for number in range(6)]
    for uuid in uuids:
        service.providers.set_inventories(uuid, 0, {"VCPU": Inventory(4)})
    before = service.providers.forest().sequence
    acts = {
        "inventories": lambda: service.providers.set_inventories(uuids[0], 1, {"VCPU": Inventory(9)}).generation,
        "stale": lambda: service.providers.set_inventories(uuids[1], 0, {"VCPU": Inventory(9)}),
        "traits": lambda: service.providers.set_traits(uuids[2], 1, ["HW_CPU_X86_AVX2"])[0].traits,
        "create": lambda: service.providers.create_provider("new", None, uuids[3]).root_uuid,
        "duplicate": lambda: service.providers.create_provider("host 4", None, None),
        "claim": lambda: service.allocations.claim([wish(CONSUMER, {uuids[3]: {"VCPU": 4}})]),
        "full": lambda: service.allocations.claim([wish(AGGREGATE, {uuids[3]: {"VCPU": 1}})]),
        "delete": lambda: service.providers.delete_provider(uuids[5]),
    }
    outcomes = {
        name: type(one).__name__ if isinstance(one, MoorageError) else one
        for name, one in run_as_one_group(service.allocations.deps.committer, acts).items()
    }
    assert outcomes == {
        "inventories": 2,
        "stale": "ConcurrentUpdate",
        "traits": {"HW_CPU_X86_AVX2"},
        "create": uuids[3],
        "duplicate": "Conflict",
        "claim": None,
        "full": "Conflict",
        "delete": None,
    }
    assert service.providers.forest().sequence == before + 1


@on_servers  # one process at a time writes to SQLite
def test_requests_that_arrive_while_another_process_writes_are_one_group(engine, clock, service):
    other = PlacementService(engine, clock, SeededIds(2))
    uuid = service.providers.create_provider("host", None, None).provider.uuid
    service.providers.set_inventories(uuid, 0, {"VCPU": Inventory(9)})
    other.allocations.claim([wish(AGGREGATE, {uuid: {"VCPU": 1}})])
    service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 1}})])  # finds that another process writes
    before = service.providers.forest().sequence
    queue = service.allocations.deps.committer._queue
    consumers = [f"00000000-0000-4000-8000-{number:012}" for number in range(2, 8)]
    claims = [
        threading.Thread(target=service.allocations.claim, args=([wish(consumer, {uuid: {"VCPU": 1}})],))
        for consumer in consumers
    ]
    with engine.connect() as another_process, another_process.begin():
        ChangeLogWriter(another_process, clock.now())
        for claim in claims:
            claim.start()
        until_waiting(queue, len(claims))
    for claim in claims:
        claim.join()
    assert service.providers.forest().sequence == before + 2
    assert service.providers.provider(uuid).used == {"VCPU": 8}


@on_every_database
def test_beside_another_writer_a_consumer_that_was_assumed_to_be_new_and_exists_is_refused(engine, clock, service):
    """Its number is taken before, and its insertion fails."""
    other = PlacementService(engine, clock, SeededIds(2))
    uuid = service.providers.create_provider("host", None, None).provider.uuid
    service.providers.set_inventories(uuid, 0, {"VCPU": Inventory(9)})
    other.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 1}})])
    service.providers.set_traits(uuid, 2, ["HW_CPU_X86_AVX2"])  # finds that another process writes
    assert service.allocations.deps.committer._numbered_groups_left
    with pytest.raises(ConcurrentUpdate, match="expected 1 but got None"):
        service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 2}})])
    service.allocations.claim([wish(AGGREGATE, {uuid: {"VCPU": 3}})])
    assert service.providers.provider(uuid).used == {"VCPU": 4}
    assert other.providers.provider(uuid) == service.providers.provider(uuid)


@on_every_database
def test_concurrent_writes_of_two_services_to_one_provider_all_succeed(engine, clock, service):
    """A client that sends no generation gets no conflict because another one wrote first."""
    other = PlacementService(engine, clock, SeededIds(2))
    uuid = service.providers.create_provider("host", None, None).provider.uuid
    service.providers.set_inventories(uuid, 0, {"VCPU": Inventory(1000)})
    outcomes = Counter()

    def work(worker):
        placement = (service, other)[worker % 2]
        for number in range(10):
            consumer = f"00000000-0000-4000-8000-{worker:06}{number:06}"
            try:
                placement.allocations.claim([wish(consumer, {uuid: {"VCPU": 1}})])
                placement.providers.set_aggregates(uuid, None, [consumer])
                outcomes["done"] += 1
            except MoorageError as error:
                outcomes[error.message] += 1

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {"done": 40}
    mine, theirs = service.providers.provider(uuid), other.providers.provider(uuid)
    assert mine == theirs
    assert (mine.used, mine.generation) == ({"VCPU": 40}, 41)


@on_every_database
def test_a_reshape_costs_two_round_trips(service, costs):
    root = service.providers.create_provider("root", None, None).provider.uuid
    child = service.providers.create_provider("child", None, root).provider.uuid
    service.providers.set_inventories(root, 0, {"VCPU": Inventory(4), "VGPU": Inventory(2)})
    service.allocations.claim([wish(CONSUMER, {root: {"VCPU": 1, "VGPU": 1}})])
    new = {root: NewInventories(2, {"VCPU": Inventory(4)}), child: NewInventories(0, {"VGPU": Inventory(2)})}
    moved = wish(CONSUMER, {root: {"VCPU": 1}, child: {"VGPU": 1}}, 1)
    waits, _ = costs.of(lambda: service.allocations.reshape(new, [moved]))
    assert waits == 2
