"""`moorage reservation import` of databases that Blazar's own code made, and the further life of their leases."""

import json
import shlex
import shutil
from datetime import timedelta

import pytest
from click.testing import CliRunner
from sqlalchemy import MetaData, select

from moorage.cli.main import cli
from moorage.core.errors import Conflict, StartError
from moorage.core.ids import SeededIds
from moorage.db.engine import open_engine, open_read_only_engine
from moorage.db.importing import ImportListener
from moorage.db.migrations import upgrade
from moorage.db.session import read
from moorage.reservation.importing import blazar_db, importer
from moorage.reservation.importing.rules.leases import LeaseFindingKind
from moorage.reservation.model.leases import EventStatus, EventType, ReservationStatus
from moorage.reservation.model.limits import Account, AccountKind
from moorage.reservation.store import address_store, host_store, lease_store, limit_store
from tests.conftest import DATABASES
from tests.servers import temporary_database
from tests.system.audit.test_guides import output_of, shown, without_varying_values
from tests.system.reservation.peer import END, NOW, START, THEN, floating_ip, host, lease, make
from tests.wire.reservation.neutron import NETWORK, SUBNET, Neutron
from tests.wire.reservation.plane import Plane, instance
from tests.wire.reservation.plane import lease as new_lease

pytestmark = pytest.mark.slow

SOUND = [
    *host(1, "compute-1", rack="9"),
    *host(2, "compute-2", inventory=False, reservable=False),
    *lease("future", affinity=False, hosts=("1", "2"), server_group_id="g", resource_properties='["=", "$rack", "9"]'),
    *lease("now", "ACTIVE", start=NOW - timedelta(hours=1)),
    *lease("past", "TERMINATED", start=THEN, end=NOW - timedelta(days=1)),
]

WORN = [
    *host(1, "compute-1"),
    *host("1c9f", "compute-2"),
    *host(4, None),
    *lease("creating", "CREATING"),
    *lease("starting", "STARTING", start=NOW - timedelta(minutes=1)),
    *lease("updating", "UPDATING", start=NOW - timedelta(hours=1)),
    *lease("terminating", "TERMINATING", start=NOW - timedelta(days=1), end=NOW - timedelta(hours=1)),
    *lease("deleting", "DELETING", start=NOW - timedelta(hours=1)),
    *lease("error", "ERROR", start=NOW - timedelta(hours=1)),
    *lease("short", amount=3, hosts=("1", "4")),
    *lease("over", "ACTIVE", start=NOW - timedelta(hours=1), amount=20, hosts=("1",) * 20),
    *lease("dummy", "TERMINATED", start=THEN, end=NOW - timedelta(days=1), resource_type="dummy.vm.plugin"),
    *lease("odd", "ACTIVE", start=NOW - timedelta(hours=1))[:2],
    *lease("flawed", resource_type="flavor:instance", resource_properties='{"id": "f"}', hosts=()),
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """URL of a database of Blazar without errors, on SQLite."""
    url = f"sqlite:///{tmp_path_factory.mktemp('blazar')}/sound.db"
    make(url, SOUND)
    return url


@pytest.fixture(scope="module")
def inconsistent(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('blazar')}/worn.db"
    make(url, WORN)
    return url


@pytest.fixture
def target(sqlite_engine):
    upgrade(sqlite_engine, "reservation")
    return sqlite_engine


def import_all(url, target, cleaning_time_s=0, has_network=True):
    """Imports; returns the receipt and all findings. Checks that a dry run before it reported the same."""
    expected, found = [], []
    settings = importer.ImportSettings(timedelta(seconds=cleaning_time_s), has_network)
    with blazar_db.open_blazar_database(url, NOW) as peer:
        rehearsed = importer.import_blazar(None, peer, NOW, SeededIds(1), settings, ImportListener(expected.append))
        receipt = importer.import_blazar(target, peer, NOW, SeededIds(1), settings, ImportListener(found.append))
    assert (rehearsed, expected) == (receipt, found)
    return receipt, found


def leases(target):
    """{name: lease}"""
    with read(target) as connection:
        return {one.name: one for one in lease_store.all_leases(connection)}


def everything(url):
    """All rows of a database, table by table."""
    engine = open_read_only_engine(url)
    metadata = MetaData()
    with engine.connect() as connection, connection.begin():
        metadata.reflect(connection)
        found = {table.name: sorted(map(repr, connection.execute(select(table)))) for table in metadata.tables.values()}
    engine.dispose()
    return found


@pytest.mark.parametrize("kind", DATABASES)
def test_a_database_of_blazar_of_each_kind_is_imported_and_not_changed(kind, target):
    """O2: on MariaDB, Blazar's own migrations have created it; on the others, where they fail, its models."""
    with temporary_database(kind) as url:
        make(url, SOUND)
        before = everything(url)
        receipt, findings = import_all(url, target)
        assert everything(url) == before
    assert [(one.kind, one.subject) for one in findings] == [
        (LeaseFindingKind.NO_INVENTORY, "compute-2"),
        (LeaseFindingKind.READ_ANEW, "t-1"),
    ]
    counts = {table: (count.source, count.taken) for table, count in receipt.counts.items() if count.source}
    assert counts == {
        "computehosts": (2, 2), "resource_properties": (1, 1), "computehost_extra_capabilities": (1, 1),
        "computehost_resource_inventory": (3, 3), "computehost_trait": (1, 0), "leases": (3, 3), "reservations": (3, 3),
        "instance_reservations": (3, 3), "events": (9, 9), "computehost_allocations": (4, 4),
    }  # fmt: skip


def test_an_import_writes_all_objects_into_each_kind_of_our_databases(sound, engine):
    upgrade(engine, "reservation")
    import_all(sound, engine, cleaning_time_s=600)
    found = leases(engine)
    assert {name: one.status for name, one in found.items()} == {
        "future": "PENDING",
        "now": "ACTIVE",
        "past": "TERMINATED",
    }
    future = found["future"]
    assert (future.id, future.project_id, future.start_date, future.end_date) == ("l-future", "demo", START, END)
    assert (future.created_at, future.updated_at, future.trust_id) == (THEN, NOW, "t")
    (reservation,) = future.reservations
    assert (reservation.request.affinity, reservation.request.resource_properties) == (False, '["=", "$rack", "9"]')
    assert (reservation.aggregate_id, reservation.server_group_id, reservation.generation) == (7, "g", None)
    assert [found["past"].event(kind).status for kind in (EventType.START, EventType.END)] == [EventStatus.DONE] * 2
    with read(engine) as connection:
        hosts = {one.id: one for one in host_store.all_hosts(connection)}
        capacities = {one.host: one.capacity for one in host_store.capacities(connection)}
        slots = host_store.allocations_of(connection, ["r-future"])
        used = limit_store.usage_between(connection, Account(AccountKind.PROJECT, "demo"), START, END)
        known = limit_store.usage_between(connection, Account(AccountKind.USER, found["future"].user_id), START, END)
    # Imported leases count for the limits as long as they have not ended.
    assert {each.reservation_id: each.amounts["VCPU"] for each in used} == {"r-future": 2, "r-now": 2}
    assert known == used
    assert {number: (one.hypervisor_hostname, one.extra, one.ready) for number, one in hosts.items()} == {
        1: ("compute-1", {"rack": "9"}, True), 2: ("compute-2", {}, True)
    }  # fmt: skip
    assert capacities == {1: {"VCPU": 16, "MEMORY_MB": 16384, "DISK_GB": 100}}, "the other is not reservable"
    assert [(slot.host_id, slot.end_date) for slot in slots] == [
        (1, END + timedelta(minutes=10)), (2, END + timedelta(minutes=10))
    ]  # fmt: skip
    with engine.begin() as connection:
        assert host_store.insert_host(connection, hosts[1].__class__(**_fields(hosts[1]) | {
            "hypervisor_hostname": "compute-3"
        })) == 3, "numbers go on after those that were taken"  # fmt: skip


def _fields(host):
    return {name: getattr(host, name) for name in host.__slots__}


def test_inconsistent_rows_are_repaired_or_skipped_and_reported(inconsistent, target):
    receipt, findings = import_all(inconsistent, target)
    found = leases(target)
    assert {name: one.status for name, one in found.items()} == {
        "creating": "DELETING", "starting": "STARTING", "updating": "ACTIVE", "terminating": "TERMINATING",
        "deleting": "DELETING", "error": "ERROR", "short": "PENDING", "over": "ACTIVE", "dummy": "TERMINATED",
        "odd": "ACTIVE", "flawed": "PENDING",
    }  # fmt: skip
    assert receipt.findings.counts == {
        LeaseFindingKind.RENUMBERED: 1, LeaseFindingKind.NAMELESS_HOST: 1, LeaseFindingKind.READ_ANEW: 3, LeaseFindingKind.INTERRUPTED: 5, LeaseFindingKind.LOST_HOST: 2,
        LeaseFindingKind.MISSING_SLOTS: 1, LeaseFindingKind.OTHER_TYPE: 1, LeaseFindingKind.STATUS: 1, LeaseFindingKind.NO_DETAILS: 2, LeaseFindingKind.OVERBOOKED: 1,
    }  # fmt: skip
    told = {one.kind: one.text for one in findings}
    assert told[LeaseFindingKind.OVERBOOKED] == "31 VCPU of host compute-1 are allocated, but it has 16"
    assert told[LeaseFindingKind.MISSING_SLOTS] == "reservation r-short of lease l-short has 1 slots instead of 3"
    assert "reservation r-flawed: the row with its request is malformed" in {one.text for one in findings}
    assert found["starting"].event(EventType.START).status is EventStatus.IN_PROGRESS
    assert found["odd"].event(EventType.END).time == END
    assert found["updating"].reservations[0].status is ReservationStatus.ACTIVE


def test_an_import_with_an_unfinished_reservation_of_an_unknown_type_is_refused(tmp_path, target):
    url = f"sqlite:///{tmp_path}/hosts.db"
    make(url, [*host(1, "compute-1"), *lease("hosts", "ACTIVE", resource_type="dummy.vm.plugin")])
    with pytest.raises(
        Conflict,
        match=r"1 reservations have not ended .* lease l-hosts: resource type dummy.vm.plugin is not supported",
    ):
        import_all(url, target)
    assert leases(target) == {}


IP = {"resource_type": "virtual:floatingip"}
PAST = {"start": THEN, "end": NOW - timedelta(days=1)}


def test_floating_ips_and_their_reservations_are_imported_and_errors_reported(tmp_path, target):
    url = f"sqlite:///{tmp_path}/addresses.db"
    make(url, [
        floating_ip(10), floating_ip(11), floating_ip(12),
        floating_ip(13, "192.0.2.x"), floating_ip(14, "2001:db8::1"), floating_ip(15, "2001:DB8::1"),
        *lease("both", "ACTIVE", start=NOW - timedelta(hours=1), amount=2, addresses=(10, 11), required=("192.0.2.11",), **IP),
        *lease("twice", start=END - timedelta(minutes=1), end=END + timedelta(days=1), amount=1, addresses=(11,), **IP),
        *lease("after", start=END, end=END + timedelta(days=1), amount=2, addresses=(10, 13), **IP),
        *lease("past", "TERMINATED", amount=1, addresses=(12,), **PAST, **IP),
        *lease("many", amount=1, required=("192.0.2.10", "192.0.2.11"), **IP),
    ])  # fmt: skip
    receipt, findings = import_all(url, target)
    assert sorted((one.kind, one.text) for one in findings) == sorted([
        (LeaseFindingKind.BAD_ADDRESS, "floating IP f-13: 192.0.2.x is not an IP address"),
        (LeaseFindingKind.BAD_ADDRESS, "floating IP f-15: 2001:db8::1 is registered twice"),
        (LeaseFindingKind.ENDED_SLOTS, "address g-past-12 of reservation r-past"),
        (LeaseFindingKind.LOST_ADDRESS, "address g-after-13 of reservation r-after: floating IP f-13 does not exist"),
        (LeaseFindingKind.MISSING_SLOTS, "reservation r-after of lease l-after has 1 addresses instead of 2"),
        (LeaseFindingKind.NO_DETAILS, "reservation r-many: the row with its request is malformed"),
        (LeaseFindingKind.OVERBOOKED, "reservations r-both and r-twice have 192.0.2.11 at the same time"),
    ])  # fmt: skip
    counts = {table: (count.source, count.taken) for table, count in receipt.counts.items() if "floatingip" in table}
    assert counts == {
        "floatingips": (6, 4), "floatingip_reservations": (5, 4), "required_floatingips": (3, 1),
        "floatingip_allocations": (6, 4),
    }  # fmt: skip
    (taken,) = leases(target)["both"].reservations
    assert (taken.request.network_id, taken.request.amount, taken.request.required) == (NETWORK, 2, ("192.0.2.11",))
    with read(target) as connection:
        held = address_store.of_reservations(connection, ["r-both", "r-after", "r-past"])
        registered = {one.id: (one.subnet_id, one.created_at) for one in address_store.all_floating_ips(connection)}
    assert {key: [one.floating_ip_address for one in mine] for key, mine in held.items()} == {
        "r-both": ["192.0.2.10", "192.0.2.11"], "r-after": ["192.0.2.10"]
    }  # fmt: skip
    assert registered == dict.fromkeys(("f-10", "f-11", "f-12", "f-14"), (SUBNET, THEN))


def test_unfinished_reservations_of_floating_ips_need_a_network_service(tmp_path, target):
    url = f"sqlite:///{tmp_path}/addresses.db"
    make(
        url,
        [floating_ip(10), *lease("now", amount=1, addresses=(10,), **IP), *lease("past", "TERMINATED", **PAST, **IP)],
    )
    with pytest.raises(
        Conflict, match=r"1 reservations have not ended .*l-now: .* need a network service; set \[endpoints\] network"
    ):
        import_all(url, target, has_network=False)
    with read(target) as connection:
        assert address_store.all_floating_ips(connection) == []
    import_all(url, target)


def test_a_target_that_is_not_empty_is_refused_and_not_changed(sound, target):
    import_all(sound, target)
    before = leases(target)
    with pytest.raises(
        Conflict, match="already has 2 hosts, 3 leases and 0 floating IPs; an import needs an empty database"
    ):
        import_all(sound, target)
    assert leases(target) == before


def test_an_interrupted_import_writes_nothing(sound, target):
    def cut(_):
        raise KeyboardInterrupt  # raised at a trait, after the hosts

    with blazar_db.open_blazar_database(sound, NOW) as peer, pytest.raises(KeyboardInterrupt):
        settings = importer.ImportSettings(timedelta(0), has_network=True)
        importer.import_blazar(target, peer, NOW, SeededIds(1), settings, ImportListener(cut))
    with read(target) as connection:
        assert host_store.all_hosts(connection) == []
    import_all(sound, target)  # the import can be repeated


@pytest.mark.parametrize(
    ("revision", "said"),
    [
        ("02e2f2186d98", "of an older Blazar; run `blazar-db-manage upgrade head` of release 18"),
        ("ffffffffffff", "does not support .*use a newer Moorage"),
    ],
)
def test_another_revision_of_blazars_schema_is_refused_with_the_remedy(sound, tmp_path, revision, said):
    shutil.copy(sound.removeprefix("sqlite:///"), tmp_path / "other.db")
    url = f"sqlite:///{tmp_path}/other.db"
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{revision}'")
    engine.dispose()
    with pytest.raises(StartError, match=said), blazar_db.open_blazar_database(url, NOW):
        pass


def test_an_import_of_our_own_database_is_refused(target):
    url = target.url.render_as_string()
    with (
        pytest.raises(StartError, match="is not a database of Blazar: use the URL"),
        blazar_db.open_blazar_database(url, NOW),
    ):
        pass


def test_the_command_does_a_dry_run_and_an_import(inconsistent, tmp_path):
    config = tmp_path / "moorage.conf"
    config.write_text("[plane]\nservices = reservation\nstate_path = .\n")

    def run(*options):
        command = ["reservation", "import", inconsistent, "--config", str(config), *options]
        return CliRunner().invoke(cli, command, catch_exceptions=False).output

    dry = json.loads(run("--dry-run", "--json"))
    assert not (tmp_path / "reservation.sqlite").exists()
    assert dry["tables"]["leases"] == {"source": 11, "taken": 11, "left_out": 0}
    assert dry["findings"]["overbooked"]["outcome"] == "kept as it is"
    findings = tmp_path / "findings"
    assert "The import into the reservation database is complete." in run("--findings", str(findings))
    assert len(findings.read_text().splitlines()) == sum(one["count"] for one in dry["findings"].values())


# --- the imported leases continue -----------------------------------------------------------------------------


@pytest.fixture
def plane(tmp_path):
    """Placement and Nova as Blazar left them: two hosts in the free pool with their providers."""
    plane = Plane(tmp_path, now=NOW)
    freepool = plane.compute.create_aggregate("freepool")
    for name in ("compute-1", "compute-2"):
        its = plane.add_host(name)
        plane.placement.create_provider(f"blazar_{name}", parent_uuid=its.provider.uuid)
        plane.compute.add_host(freepool.id, name)
    return plane


def as_blazar_left_it(plane, name, *, has_class=True, running=()):
    """Creates the flavor, the aggregate and the class of reservation ``r-NAME``; returns the aggregate's id."""
    reservation = f"r-{name}"
    aggregate = plane.compute.create_aggregate(reservation)
    plane.compute.create_flavor(reservation, f"reservation:{reservation}", 1, 512, 1)
    specs = {"aggregate_instance_extra_specs:reservation": reservation}
    resource_class = "CUSTOM_RESERVATION_" + reservation.upper().replace("-", "_")
    if has_class:
        plane.placement.ensure_class(resource_class)
        specs[f"resources:{resource_class}"] = "1"
    plane.compute.set_extra_specs(reservation, specs)
    for host_name in running:
        plane.compute.add_host(aggregate.id, host_name)
        plane.compute.add_flavor_access(reservation, "demo")
    return aggregate.id


def test_imported_leases_start_and_end_with_the_objects_that_blazar_created(plane, tmp_path):
    """R25, R33, A1: a lease from before Stein without a class, hybrid ones, one interrupted during its start, a new
    one.
    """
    old = as_blazar_left_it(plane, "old", has_class=False)
    future = as_blazar_left_it(plane, "future")
    stuck = as_blazar_left_it(plane, "stuck")
    running = as_blazar_left_it(plane, "running", running=["compute-1"])
    url = f"sqlite:///{tmp_path}/blazar.db"
    make(url, [
        *host(1, "compute-1", hypervisor_hostname="compute-1"),
        *host(2, "compute-2"),
        *lease("old", aggregate_id=old),
        *lease("future", aggregate_id=future),
        *lease("stuck", "STARTING", start=NOW - timedelta(minutes=1), aggregate_id=stuck),
        *lease("running", "ACTIVE", start=NOW - timedelta(hours=1), aggregate_id=running),
    ])  # fmt: skip
    import_all(url, plane.engine)
    plane.run_until(START + timedelta(minutes=1))
    assert {plane.lease(f"l-{name}")["status"] for name in ("old", "future", "stuck", "running")} == {"ACTIVE"}
    assert plane.inventory("compute-1", "CUSTOM_RESERVATION_R_FUTURE").total == 2
    assert plane.inventory("compute-1", "CUSTOM_RESERVATION_R_STUCK").total == 2
    assert plane.inventory("compute-1", "CUSTOM_RESERVATION_R_OLD") is None
    assert plane.compute.aggregate_by_name("r-old").hosts == ("compute-1",)
    made = plane.ask("POST", "/v1/leases", new_lease(instance(2)), status=201)["lease"]
    plane.run_until(END + timedelta(minutes=1))
    for name in ("old", "future", "stuck", "running"):
        assert plane.lease(f"l-{name}")["status"] == "TERMINATED"
        assert plane.flavor(f"r-{name}") is None
        assert plane.compute.aggregate_by_name(f"r-{name}") is None
        assert not plane.has_class(f"CUSTOM_RESERVATION_R_{name.upper()}")
    assert plane.lease(made["id"])["status"] == "ACTIVE"
    with read(plane.engine) as connection:
        assert {slot.reservation_id for slot in host_store.allocations_of(connection, ["r-old", "r-future"])} == set()


def test_imported_reservations_of_a_flavor_keep_their_flavor(plane, tmp_path):
    """flavor:instance: Blazar stores the flavor as Nova shows it. One lease is active and one starts later."""
    flavor = {"id": "f-1", "name": "big", "vcpus": 4, "ram": 1024, "disk": 2, "OS-FLV-EXT-DATA:ephemeral": 3,
              "swap": "", "rxtx_factor": 1.0, "extra_specs": {"hw:numa_nodes": "1"}}  # fmt: skip
    its = {"resource_type": "flavor:instance", "vcpus": 4, "resource_properties": json.dumps(flavor)}
    url = f"sqlite:///{tmp_path}/blazar.db"
    make(url, [
        *host(1, "compute-1"),
        *host(2, "compute-2"),
        *lease("lasts", "ACTIVE", start=NOW - timedelta(hours=1), end=START,
               aggregate_id=as_blazar_left_it(plane, "lasts", running=["compute-1"]), **its),
        *lease("comes", aggregate_id=as_blazar_left_it(plane, "comes"), hosts=("2", "2"), **its),
        *lease("gone", "TERMINATED", start=THEN, end=NOW - timedelta(days=1), **its),
    ])  # fmt: skip
    receipt, findings = import_all(url, plane.engine)
    assert receipt.counts["instance_reservations"].taken == 3
    assert {one.kind for one in findings} == {LeaseFindingKind.READ_ANEW}
    (shown,) = plane.lease("l-comes")["reservations"]
    assert (shown["resource_type"], shown["vcpus"], shown["amount"]) == ("flavor:instance", 4, 2)
    assert json.loads(shown["resource_properties"])["extra_specs"] == flavor["extra_specs"]
    with read(plane.engine) as connection:
        slots = host_store.allocations_of(connection, ["r-comes"])
    assert [slot.resources for slot in slots] == [{"VCPU": 4, "MEMORY_MB": 1024, "DISK_GB": 5}] * 2
    plane.run_until(START + timedelta(minutes=1))
    assert plane.lease("l-lasts")["status"] == "TERMINATED"
    assert plane.flavor("r-lasts") is None
    assert plane.compute.aggregate_by_name("r-lasts") is None
    assert plane.lease("l-comes")["status"] == "ACTIVE"
    assert plane.inventory("compute-2", "CUSTOM_RESERVATION_R_COMES").total == 2
    assert plane.access("r-comes") == ["demo"]
    plane.run_until(END + timedelta(minutes=1))
    assert plane.lease("l-comes")["status"] == "TERMINATED"
    assert plane.flavor("r-comes") is None
    assert not plane.has_class("CUSTOM_RESERVATION_R_COMES")


def test_imported_floating_ips_are_kept_until_the_lease_ends_and_created_when_one_starts(tmp_path):
    """virtual:floatingip: an active lease, whose address Blazar has created and tagged in Neutron, and a future one."""
    neutron = Neutron()
    plane = Plane(tmp_path, now=NOW, neutron=neutron)
    made = {"floating_ip_address": "192.0.2.10", "floating_network_id": NETWORK, "subnet_id": SUBNET, "port_id": None}
    tags = ["blazar", "reservation:r-lasts"]
    neutron.floating_ips["by-blazar"] = {
        "id": "by-blazar",
        "project_id": "demo",
        "description": "",
        "tags": tags,
        **made,
    }
    url = f"sqlite:///{tmp_path}/blazar.db"
    make(url, [
        floating_ip(10), floating_ip(11),
        *lease("lasts", "ACTIVE", start=NOW - timedelta(hours=1), end=START, amount=1, addresses=(10,), **IP),
        *lease("comes", amount=2, addresses=(10, 11), **IP),
    ])  # fmt: skip
    import_all(url, plane.engine)
    assert [one["floating_ip_address"] for one in plane.ask("GET", "/v1/floatingips")["floatingips"]] == [
        "192.0.2.10", "192.0.2.11"
    ]  # fmt: skip
    wanted = {"resource_type": "virtual:floatingip", "network_id": NETWORK, "amount": 1, "required_floatingips": []}
    plane.ask("POST", "/v1/leases", new_lease(wanted, start="2026-03-01 11:00", end="2026-03-01 12:00"), status=400)
    assert neutron.addresses() == ["192.0.2.10"]
    plane.run_until(START + timedelta(minutes=1))
    assert {name: plane.lease(f"l-{name}")["status"] for name in ("lasts", "comes")} == {
        "lasts": "TERMINATED", "comes": "ACTIVE"
    }  # fmt: skip
    assert "by-blazar" not in neutron.floating_ips
    assert neutron.addresses() == ["192.0.2.10", "192.0.2.11"]
    plane.run_until(END + timedelta(minutes=1))
    assert plane.lease("l-comes")["status"] == "TERMINATED"
    assert neutron.floating_ips == {}


def test_imported_host_reservations_keep_their_hosts_until_they_end(plane, tmp_path):
    """physical:host: an active lease and a future one; their aggregates are found by the id of the reservation."""
    for name in ("lent", "next"):
        aggregate = plane.compute.create_aggregate(f"r-{name}")
        plane.ask("POST", f"/v2.1/os-aggregates/{aggregate.id}/action",
                  {"set_metadata": {"metadata": {"blazar:owner": "demo"}}}, service="compute")  # fmt: skip
        if name == "lent":
            freepool = plane.compute.aggregate_by_name("freepool")
            plane.compute.remove_host(freepool.id, "compute-1")
            plane.compute.add_host(aggregate.id, "compute-1")
    url = f"sqlite:///{tmp_path}/blazar.db"
    its = {"resource_type": "physical:host"}
    make(url, [
        *host(1, "compute-1"),
        *host(2, "compute-2"),
        *lease("lent", "ACTIVE", start=NOW - timedelta(hours=1), end=START, hosts=("1",), **its),
        *lease("next", start=START, end=END, hosts=("2",), **its),
    ])  # fmt: skip
    receipt, _ = import_all(url, plane.engine)
    assert receipt.counts["computehost_reservations"].taken == 2
    shown = plane.lease("l-lent")["reservations"][0]
    assert (shown["resource_type"], shown["min"], shown["max"], shown["before_end"]) == (
        "physical:host",
        1,
        1,
        "default",
    )
    wanted = {
        "resource_type": "physical:host",
        "min": 1,
        "max": 1,
        "hypervisor_properties": "",
        "resource_properties": "",
    }
    body = new_lease(wanted, start="now", end="2026-03-01 10:00")
    plane.ask("POST", "/v1/leases", new_lease(instance(9)), status=409)
    assert plane.ask("POST", "/v1/leases", body, status=201)["lease"]["status"] == "PENDING", (
        "compute-2 is free till then"
    )
    plane.run_until(START + timedelta(minutes=1))
    assert plane.lease("l-lent")["status"] == "TERMINATED"
    assert plane.compute.aggregate_by_name("r-lent") is None
    assert plane.lease("l-next")["status"] == "ACTIVE"
    assert plane.compute.aggregate_by_name("r-next").hosts == ("compute-2",)
    plane.run_until(END + timedelta(minutes=1))
    assert plane.compute.aggregate_by_name("r-next") is None
    assert set(plane.compute.aggregate_by_name("freepool").hosts) == {"compute-1", "compute-2"}


def test_the_guide_shows_the_output_of_the_command(tmp_path):
    url = f"sqlite:///{tmp_path}/blazar.db"
    make(url, [
        *host(1, "compute-1"),
        *host(2, "compute-2", inventory=False),
        *lease("course"),
        *lease("nightly", "ACTIVE", start=NOW - timedelta(hours=1), amount=20, hosts=("1",) * 20),
        *lease("stuck", "STARTING", start=NOW - timedelta(minutes=1)),
        *lease("done", "TERMINATED", start=THEN, end=NOW - timedelta(days=1)),
    ])  # fmt: skip
    config = tmp_path / "moorage.conf"
    config.write_text("[plane]\nservices = reservation\nstate_path = .\n")
    blocks = list(shown("moving-from-blazar"))
    assert [shlex.split(command)[:3] for command, _ in blocks] == [["moorage", "reservation", "import"]] * 3
    for command, output in blocks:
        here = command.replace("mysql://blazar@db/blazar", url)
        wanted = output.replace("sqlite:////var/lib/moorage", f"sqlite:///{tmp_path}")
        assert without_varying_values(output_of(here, config, tmp_path)) == without_varying_values(wanted)
