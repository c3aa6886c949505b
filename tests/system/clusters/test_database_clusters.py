"""A database of several servers: each server may die, be cut off or become read-only at any moment."""

import contextlib
import itertools
import signal
import threading
import time
from collections import Counter
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from moorage.compute.model.servers import ServerGroup
from moorage.compute.store import group_store, quota_store
from moorage.core.caller import Caller
from moorage.core.clock import SystemClock
from moorage.core.errors import Conflict, OverQuota, Unavailable
from moorage.core.ids import RandomIds
from moorage.db.engine import open_engine
from moorage.db.migrations import upgrade
from moorage.db.session import SingleReads, in_transaction, read
from moorage.db.timeouts import without_timeouts
from moorage.network.deps import NetworkDeps
from moorage.network.entries import parse_entries
from moorage.network.port_service import NewPort, ServerPort
from moorage.network.service import Networking
from moorage.placement.forest.model import Inventory
from moorage.placement.rules.allocation_writes import AllocationWrite
from moorage.placement.service.service import PlacementService
from moorage.placement.store.tables import allocations
from moorage.scheduler.server_groups import GroupPolicy
from tests.clusters import GaleraCluster, PostgresqlPair
from tests.store.reservation import booking_process
from tests.store.reservation.test_booking_processes import VCPUS, Oracle
from tests.store.reservation.worlds import add_host

pytestmark = pytest.mark.slow

METADATA = sa.MetaData()
BOATS = sa.Table("boats", METADATA, sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String(40)))
COUNTER = sa.Table("counter", METADATA, sa.Column("id", sa.Integer, primary_key=True), sa.Column("last", sa.Integer))
PORT = sa.text("SELECT @@port")
#: No transaction takes longer while one server is away: a connect and an answer that time out, and some work.
BOUND_S = 25.0


@pytest.fixture(scope="module")
def galera():
    with GaleraCluster() as cluster:
        yield cluster


@pytest.fixture
def boats(galera):
    with opened(galera.url()) as engine:
        METADATA.create_all(engine)
        in_transaction(engine, lambda connection: connection.execute(COUNTER.insert(), {"id": 1, "last": 0}))
        yield engine
        METADATA.drop_all(engine)


@contextlib.contextmanager
def opened(url):
    engine = open_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()


def add(engine, number):
    in_transaction(engine, lambda connection: connection.execute(BOATS.insert(), {"id": number, "name": "boat"}))


def add_again(engine, numbers):
    """Adds a boat, with other numbers until it is acknowledged; returns its number and the seconds."""
    began = time.monotonic()
    while True:
        number = next(numbers)
        try:
            add(engine, number)
        except Unavailable:
            assert time.monotonic() - began < BOUND_S
            time.sleep(0.05)
        else:
            return number, time.monotonic() - began


def ids(engine):
    with read(engine) as connection:
        return set(connection.execute(sa.select(BOATS.c.id)).scalars())


def ids_again(engine):
    """The ids, as soon as a server answers: one that was suspended first has to notice that it was left behind."""
    began = time.monotonic()
    while True:
        try:
            return ids(engine)
        except Unavailable:
            assert time.monotonic() - began < 2 * BOUND_S
            time.sleep(0.05)


def port_of(engine):
    with read(engine) as connection:
        return connection.execute(PORT).scalar_one()


def test_a_connection_to_a_galera_node_reads_what_other_nodes_have_committed(galera, boats):
    """Without ``wsrep_sync_wait``, a node may answer before it has applied the commit of another one."""
    with opened(galera.url(1)) as second:
        assert {port_of(boats), port_of(second)} == {galera.nodes[0].port, galera.nodes[1].port}
        for number in range(1, 101):
            add(boats, number)
            assert number in ids(second)
        for make in (read, in_own_connection):
            with make(second) as connection:
                assert connection.exec_driver_sql("SELECT @@wsrep_sync_wait").scalar_one() == 1


def in_own_connection(engine):
    return without_timeouts(engine)


def test_writers_of_one_row_on_three_nodes_are_repeated_and_never_refused(galera, boats):
    """Galera locks no row on other nodes: all but one of concurrent commits fail, and are repeated."""
    writers, each = 6, 25
    failures = []

    def count(connection):
        last = connection.execute(sa.select(COUNTER.c.last).with_for_update()).scalar_one()
        connection.execute(COUNTER.update().values(last=last + 1))

    def write(number):
        try:
            with opened(galera.url(number % 3)) as engine:
                for _ in range(each):
                    in_transaction(engine, count)
        except Exception as error:  # noqa: BLE001 - the end of a thread: the test compares its error
            failures.append(error)

    run_threads(write, writers)
    assert failures == []
    with read(boats) as connection:
        assert connection.execute(sa.select(COUNTER.c.last)).scalar_one() == writers * each


def test_claims_on_three_nodes_never_exceed_the_capacity(galera, boats):
    """Two processes' claims can take the same change number, each on its node; the commit of one fails, and is decided
    again. Each unit of the hosts is claimed once, and only claims that exceed the capacity are refused.
    """
    hosts, units, workers, each = 3, 8, 6, 8
    with contextlib.ExitStack() as stack:
        upgrade(boats, "placement")
        engines = [stack.enter_context(opened(galera.url(node))) for node in range(3)]
        services = [PlacementService(engine, SystemClock(), RandomIds()) for engine in engines]
        for service in services:
            service.start()
        providers = services[0].providers
        made = [providers.create_provider(f"host{number}", None, None).provider for number in range(hosts)]
        for host in made:
            providers.set_inventories(host.uuid, 0, {"VCPU": Inventory(units)})
        outcomes: Counter[str] = Counter()

        def claim(worker):
            for number in range(each):
                uuid = f"00000000-0000-4000-8000-{worker:06d}{number:06d}"
                wanted = {made[(worker + number) % hosts].uuid: {"VCPU": 1}}
                request = AllocationWrite(uuid, wanted, "project", "user", "INSTANCE")
                try:
                    services[worker % 3].allocations.claim([request])
                    outcomes["claimed"] += 1
                except Conflict as error:
                    outcomes[error.error_code] += 1
                except Exception as error:  # noqa: BLE001 - every outcome is counted, and the test compares the counts
                    outcomes[repr(error)] += 1

        run_threads(claim, workers)
        with read(boats) as connection:
            rows = connection.execute(sa.select(allocations.c.provider_id, allocations.c.used)).all()
        used: Counter[int] = Counter()
        for provider_id, amount in rows:
            used[provider_id] += amount
        assert outcomes == {"claimed": hosts * units, "moorage.conflict": workers * each - hosts * units}
        assert set(used.values()) == {units}
        for service in services:
            assert [host.used for host in service.providers.forest().all_providers()] == [{"VCPU": units}] * hosts


def test_ports_of_a_project_made_on_three_nodes_never_exceed_its_quota(galera):
    """Each worker makes ports on a network of its own, half of them for servers: only the quota's lock is shared."""
    quota, workers, each = 7, 6, 4
    lines = {f"lab{at}": f"vlan {at + 1} on br0 subnet 198.18.{at}.0/24" for at in range(workers)}
    alice, ids = Caller("alice", "red", frozenset({"member"})), RandomIds()
    with contextlib.ExitStack() as stack:
        engines = engines_of_all_nodes(galera, stack, "network")
        services = [Networking(NetworkDeps(engine, SystemClock(), ids, quota)) for engine in engines]
        services[0].networks.apply_entries(parse_entries(lines))
        networks = [network.id for network, _ in services[0].networks.networks(alice)]

        def make(worker):
            ports, network = services[worker % 3].ports, networks[worker]
            if worker % 2:
                ports.provide([ServerPort(ids.uuid(), "red", ids.uuid(), "compute-1", network)])
            else:
                ports.create_port(alice, NewPort(network, "red"), any_address=False)

        assert outcomes_of(make, workers, each) == {"made": quota, "OverQuota": workers * each - quota}
        assert len(services[0].ports.ports(alice, {})) == quota


def test_server_groups_of_a_project_made_on_three_nodes_never_exceed_its_quota(galera):
    quota, workers, each = 5, 6, 4
    with contextlib.ExitStack() as stack:
        engines = engines_of_all_nodes(galera, stack, "compute")

        def insert(connection):
            quota_store.lock_project(connection, "red")
            if group_store.count_groups(connection, "red") >= quota:
                raise OverQuota("no more groups")
            at = datetime(2026, 1, 1, tzinfo=UTC)
            new = ServerGroup(RandomIds().uuid(), "group", "red", "alice", GroupPolicy.AFFINITY, {}, at, ())
            group_store.insert_group(connection, new)

        def make(worker):
            in_transaction(engines[worker % 3], insert)

        assert outcomes_of(make, workers, each) == {"made": quota, "OverQuota": workers * each - quota}
        with read(engines[0]) as connection:
            assert group_store.count_groups(connection, "red") == quota


def test_bookings_on_three_nodes_never_overbook_a_host(galera):
    workers, each = 6, 10
    with contextlib.ExitStack() as stack:
        engines = engines_of_all_nodes(galera, stack, "reservation")
        for number in range(3):
            add_host(engines[0], f"compute-{number}", vcpus=VCPUS, memory_mb=10**9, disk_gb=10**9)
        booked = []

        def work(worker):
            booked.append(booking_process.book(galera.url(worker % 3, "reservation"), worker, each))

        run_threads(work, workers)
        used = Oracle(engines[0]).used
        assert max(max(hours) for hours in used.values()) == VCPUS
        assert sum(got + len(refused) for got, refused in booked) == workers * each


def engines_of_all_nodes(galera, stack, service):
    """The engine at each index uses that node; the database has the tables of `service`."""
    galera.add_database(service)
    engines = [stack.enter_context(opened(galera.url(node, service))) for node in range(3)]
    upgrade(engines[0], service)
    return engines


def outcomes_of(make, workers, each):
    """{"made" or the name of the error: how often}; the workers begin together."""
    outcomes: Counter[str] = Counter()
    start = threading.Barrier(workers)

    def work(worker):
        start.wait(BOUND_S)
        for _ in range(each):
            try:
                make(worker)
                outcomes["made"] += 1
            except Exception as error:  # noqa: BLE001 - every outcome is counted, and the test compares the counts
                outcomes[type(error).__name__ if isinstance(error, OverQuota) else repr(error)] += 1

    run_threads(work, workers)
    return outcomes


def run_threads(work, count):
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_server_that_becomes_read_only_is_left_for_another_one(galera, boats):
    """The first write is refused, with a reason; idle connections to the server are not used any more, for reads
    neither.
    """
    single = SingleReads(boats)
    where = single.prepare(sa.select(sa.literal_column("@@port", sa.Integer)))
    first = galera.nodes[0]
    assert (where()[0][0], port_of(boats)) == (first.port, first.port)
    galera.administer(first, "SET GLOBAL read_only = ON")
    try:
        with pytest.raises(Unavailable, match="is read-only"):
            add(boats, 1)
        add(boats, 2)
        assert port_of(boats) != first.port
        assert where()[0][0] != first.port
        assert ids(boats) == {2}
    finally:
        galera.administer(first, "SET GLOBAL read_only = OFF")


def test_a_node_that_is_not_synchronised_gets_no_new_connection(galera, boats):
    first = galera.nodes[0]
    galera.administer(first, "SET GLOBAL wsrep_desync = ON")
    try:
        with opened(galera.url()) as engine:
            assert port_of(engine) == galera.nodes[1].port
    finally:
        galera.administer(first, "SET GLOBAL wsrep_desync = OFF")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "suspended"])
def test_a_node_that_dies_or_hangs_loses_nothing_that_was_acknowledged(galera, boats, how):
    numbers = itertools.count(1)
    acknowledged = {add_again(boats, numbers)[0] for _ in range(20)}
    victim = next(node for node in galera.nodes if node.port == port_of(boats))
    victim.signal(how)
    try:
        number, seconds = add_again(boats, numbers)
        assert seconds < BOUND_S
        acknowledged |= {number, *(add_again(boats, numbers)[0] for _ in range(20))}
        assert port_of(boats) != victim.port
        assert acknowledged <= ids(boats)
    finally:
        if how is signal.SIGKILL:
            victim.kill()
            galera.start(victim)
        else:
            victim.signal(signal.SIGCONT)
            victim.wait(lambda: galera.state(victim) == "Synced")
    with opened(galera.url(galera.nodes.index(victim))) as engine:
        assert acknowledged <= ids_again(engine)


def test_after_the_promotion_of_its_standby_nothing_acknowledged_is_lost():
    numbers = itertools.count(1)
    with PostgresqlPair() as pair, opened(pair.url) as engine:
        METADATA.create_all(engine)
        acknowledged = {add_again(engine, numbers)[0] for _ in range(50)}
        pair.primary.kill()
        with pytest.raises(Unavailable):
            add(engine, next(numbers))  # the standby takes no writes yet, and is not used for reads either
        with pytest.raises(Unavailable):
            ids(engine)
        pair.promote()
        acknowledged.add(add_again(engine, numbers)[0])
        assert acknowledged <= ids(engine)


def test_a_url_that_begins_with_the_standby_writes_to_the_primary():
    with PostgresqlPair() as pair:
        url = f"postgresql://postgres@/postgres?host={pair.standby.host}&host={pair.primary.host}"
        with opened(url) as engine:
            METADATA.create_all(engine)
            add(engine, 1)
            assert ids(engine) == {1}
