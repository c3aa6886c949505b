"""Existing bare-metal servers: migrated once, and repaired in each round."""

import logging
import threading
from dataclasses import replace

import pytest

from moorage.compute.catalogue.baremetal_flavors import FlavorMigrationOutcome
from moorage.core.errors import Unavailable
from moorage.placement.client.placement_client import Inventory
from tests.wire.compute.conftest import Host

GOLD = "CUSTOM_BAREMETAL_GOLD"


class Node(Host):
    """A bare-metal node, with its resources and one unit of its class."""

    def register(self):
        self.plane.agent.register_host(
            self.name, provider_uuid=self.provider.uuid, hypervisor_type="ironic", hypervisor_version=1,
            host_ip="127.0.0.1", vcpus=8, memory_mb=4096, local_gb=100, devices=0,
        )  # fmt: skip

    def classify(self, resource_class=None):
        totals = {"VCPU": 8, "MEMORY_MB": 4096, "DISK_GB": 100} | ({resource_class: 1} if resource_class else {})
        self.offer(**totals)


@pytest.fixture
def compute_options():
    return {"bare_metal_period_s": 600.0}


@pytest.fixture
def node(plane):
    node = Node(plane, "node-1")
    node.classify()
    return node


@pytest.fixture
def bare_metal(plane):
    return plane.service.bare_metal


@pytest.fixture
def old_server(plane, node):
    """A server created before its node had a class, so its allocation does not contain one."""
    server_id = plane.boot(plane.flavor("bm", vcpus=8, ram=4096, disk=100))
    plane.settle(node)
    node.classify(GOLD)
    return server_id


def free(plane, name=GOLD):
    """The candidates for a flavor that requests the class."""
    found, _ = plane.placement.candidates([("resources", f"{name}:1")])
    return len(found)


def stored(plane, server_id):
    return plane.admin("GET", f"/v2.1/servers/{server_id}", version="2.47")[2]["server"]["flavor"]["extra_specs"]


def test_the_class_is_added_to_the_servers_copy_of_the_flavor_only(plane, node, old_server, bare_metal):
    """F6 (flavor-resources): the class is added to `instance.flavor`, not to the flavor."""
    steps, after = bare_metal.migrate_servers(dry_run=False)
    assert [(step.node, step.server_id, step.outcome, step.resource_class) for step in steps] == [
        ("node-1", old_server, FlavorMigrationOutcome.DONE, GOLD)
    ]
    assert after is None
    assert stored(plane, old_server) == {f"resources:{GOLD}": "1"}
    assert plane.admin("GET", "/v2.1/flavors/bm/os-extra_specs")[2] == {"extra_specs": {}}


def test_a_lost_allocation_is_restored_from_the_stored_flavor(plane, node, old_server, bare_metal):
    """F7 (flavor-resources): the periodic update reports custom classes of the stored flavor."""
    held = {"VCPU": 8, "MEMORY_MB": 4096, "DISK_GB": 100}
    assert plane.placement.allocations(old_server) == {node.provider.uuid: held}
    plane.process.task("compute.baremetal").run_once()
    assert plane.placement.allocations(old_server) == {node.provider.uuid: held | {GOLD: 1}}
    plane.placement.release(old_server)  # an allocation that somebody else deleted by mistake
    assert free(plane) == 1
    due = plane.process.task("compute.baremetal").run_once()
    assert (due - plane.clock.now()).total_seconds() == 600
    assert plane.placement.allocations(old_server) == {node.provider.uuid: held | {GOLD: 1}}
    assert free(plane) == 0
    holder = plane.placement.holder(old_server)
    assert (holder.project_id, holder.user_id, holder.type) == ("red", "alice", "INSTANCE")


def test_a_wrong_amount_is_corrected_and_what_the_server_holds_elsewhere_stays(plane, node, old_server, bare_metal):
    """F7 (flavor-resources): only the allocation on the node is healed, to what the stored flavor asks for."""
    bare_metal.migrate_servers(dry_run=False)
    other = Node(plane, "node-2")
    other.offer(CUSTOM_LICENCE=4)
    right = plane.placement.allocations(old_server)[node.provider.uuid]
    holder = plane.placement.holder(old_server)
    wrong = {node.provider.uuid: right | {"VCPU": 4}, other.provider.uuid: {"CUSTOM_LICENCE": 2}}
    plane.placement.hold(replace(holder, allocations=wrong))
    steps, _ = bare_metal.migrate_servers(dry_run=True)
    assert (steps[0].outcome, plane.placement.allocations(old_server)) == (FlavorMigrationOutcome.HEALED, wrong)
    plane.process.task("compute.baremetal").run_once()
    healed = {node.provider.uuid: right, other.provider.uuid: {"CUSTOM_LICENCE": 2}}
    assert plane.placement.allocations(old_server) == healed


def test_a_second_migration_changes_nothing(plane, node, old_server, bare_metal, caplog):
    """F8 (flavor-resources): idempotent; nodes without a server are skipped, nodes without a class are reported."""
    idle, classless = Node(plane, "node-2"), Node(plane, "node-3")
    idle.classify(GOLD)
    classless.classify()
    for name in ("node-2", "node-3"):
        path = f"/v2.1/os-services?host={name}"
        assert plane.admin("GET", path)[2]["services"][0]["state"] == "up"
    bare_metal.migrate_servers(dry_run=False)
    before = plane.placement.holder(old_server).generation
    way = plane.to_placement
    way.clear()
    steps, _ = bare_metal.migrate_servers(dry_run=False)
    assert [step.outcome for step in steps] == [FlavorMigrationOutcome.ALREADY]
    assert {request.method for request in way.requests} == {"GET"}
    assert plane.placement.holder(old_server).generation == before
    classless_server = plane.boot("bm", availability_zone="nova:node-3", who="root:admin", roles="admin")
    plane.settle(node, idle, classless)
    caplog.clear()
    steps, _ = bare_metal.migrate_servers(dry_run=False)
    assert [(step.node, step.server_id, step.outcome) for step in steps] == [
        ("node-1", old_server, FlavorMigrationOutcome.ALREADY),
        ("node-3", classless_server, FlavorMigrationOutcome.NO_CLASS),
    ]
    assert "set the node's resource class" in steps[1].note
    warnings = [(row.getMessage(), row.host) for row in caplog.records if row.levelno == logging.WARNING]
    assert warnings == [("a node has no resource class", "node-3")]


def test_a_slow_placement_delays_the_migration_and_not_the_requests(plane, node, old_server, caplog):
    """F8 (flavor-resources): the migration is a task of its own; a round that fails comes again."""
    task = plane.process.task("compute.baremetal")
    asked, answered = threading.Event(), threading.Event()

    def slow(request, send):
        asked.set()
        assert answered.wait(60)
        raise Unavailable("placement does not answer")

    plane.to_placement.on(f"GET /resource_providers/{node.provider.uuid}/inventories", slow)
    due = []
    migration = threading.Thread(target=lambda: due.append(task.run_once()))
    migration.start()
    assert asked.wait(60)
    assert plane.show(old_server)["status"] == "ACTIVE"
    assert plane.act(old_server, "lock")[0] == 202
    answered.set()
    migration.join()
    assert ((due[0] - plane.clock.now()).total_seconds(), stored(plane, old_server)) == (600, {})
    plane.to_placement.clear()
    with caplog.at_level(logging.INFO):
        task.run_once()
        assert stored(plane, old_server) == {f"resources:{GOLD}": "1"}
        task.run_once()
    migrated = [row for row in caplog.records if row.getMessage() == "bare-metal server migrated"]
    assert [(row.server, row.outcome) for row in migrated] == [(old_server, FlavorMigrationOutcome.DONE.value)]


def test_no_new_server_is_placed_on_an_occupied_node(plane, node, old_server, bare_metal):
    """F9 (flavor-resources): before the migration the occupied node would be offered again, afterwards it is not."""
    assert free(plane) == 1
    bare_metal.migrate_servers(dry_run=True)
    assert (free(plane), stored(plane, old_server)) == (1, {})
    bare_metal.migrate_servers(dry_run=False)
    assert free(plane) == 0
    plane.send("DELETE", f"/v2.1/servers/{old_server}")
    plane.settle(node)
    assert free(plane) == 1


def test_the_migration_is_a_separate_route_and_works_in_pages(plane, node, old_server):
    """F10 (flavor-resources): the Compute API does not change."""
    body = {"dry_run": True}
    assert plane.send("POST", "/moorage/v1/migrate-flavors", body)[0] == 403
    document = plane.admin("POST", "/moorage/v1/migrate-flavors", body)[2]
    assert document == {
        "steps": [{"node": "node-1", "server": old_server, "outcome": "migrated", "resource_class": GOLD, "note": ""}],
        "after": None,
    }
    assert plane.admin("POST", "/moorage/v1/migrate-flavors", body | {"after": "node-1"})[2]["steps"] == []


@pytest.mark.parametrize(
    ("version", "added"),
    [
        ("2.54", set()),
        ("2.55", {"description"}),
        ("2.60", {"description"}),
        ("2.61", {"description", "extra_specs"}),
        ("2.96", {"description", "extra_specs"}),
    ],
)
def test_a_flavor_of_the_new_kind_has_the_keys_of_every_other(plane, version, added):
    """F10 (flavor-resources): those of Nova in each version, and its own numbers."""
    plane.flavor("gold", {f"resources:{GOLD}": "1", "resources:VCPU": "0"}, vcpus=8, ram=4096, disk=100)
    (flavor,) = plane.admin("GET", "/v2.1/flavors/detail", version=version)[2]["flavors"]
    assert set(flavor) == added | {
        "id", "name", "vcpus", "ram", "disk", "swap", "rxtx_factor", "links", "os-flavor-access:is_public",
        "OS-FLV-DISABLED:disabled", "OS-FLV-EXT-DATA:ephemeral",
    }  # fmt: skip
    assert (flavor["vcpus"], flavor["ram"], flavor["disk"]) == (8, 4096, 100)


def test_servers_and_flavors_have_the_same_keys_before_and_after_the_migration(plane, node, old_server, bare_metal):
    """F10 (flavor-resources): the Compute API shows the class only where it shows extra specs already."""
    pages = (f"/v2.1/servers/{old_server}", "/v2.1/flavors/bm")
    before = [plane.admin("GET", page, version="2.47")[2] for page in pages]
    bare_metal.migrate_servers(dry_run=False)
    server, flavor = (plane.admin("GET", page, version="2.47")[2] for page in pages)
    assert flavor == before[1]
    assert server["server"]["flavor"].pop("extra_specs") == {f"resources:{GOLD}": "1"}
    assert before[0]["server"]["flavor"].pop("extra_specs") == {}
    assert server == before[0]


def test_a_server_with_an_operation_in_progress_is_left_to_the_next_round(plane, node, old_server, bare_metal):
    """F8 (flavor-resources): its operation may change allocation or flavor."""
    plane.act(old_server, "pause")
    assert bare_metal.migrate_servers(dry_run=False) == ([], None)
    node.work()
    assert [step.outcome for step in bare_metal.migrate_servers(dry_run=False)[0]] == [FlavorMigrationOutcome.DONE]


def test_more_nodes_than_fit_on_a_page_are_migrated(plane, node, old_server, bare_metal):
    """F8 (flavor-resources): every node once, and the last page says so."""
    Node(plane, "node-0")
    first, after = bare_metal.migrate_servers(dry_run=True, limit=1)
    second, last = bare_metal.migrate_servers(dry_run=True, limit=1, after=after)
    assert (first, after, [step.node for step in second], last) == ([], "node-0", ["node-1"], "node-1")


def test_a_server_of_a_node_with_two_classes_holds_both(plane, node, old_server, bare_metal):
    """The server has the whole node, so no class of it may be offered."""
    node.offer(**{"VCPU": 8, "MEMORY_MB": 4096, "DISK_GB": 100, GOLD: 1, "CUSTOM_NVME": 1})
    steps, _ = bare_metal.migrate_servers(dry_run=False)
    assert [(step.outcome, step.resource_class) for step in steps] == [
        (FlavorMigrationOutcome.DONE, f"{GOLD}, CUSTOM_NVME")
    ]
    assert stored(plane, old_server) == {f"resources:{GOLD}": "1", "resources:CUSTOM_NVME": "1"}
    assert free(plane) == 0
    assert free(plane, "CUSTOM_NVME") == 0
    assert bare_metal.migrate_servers(dry_run=False)[0][0].outcome is FlavorMigrationOutcome.ALREADY


def test_a_class_that_the_flavor_excludes_is_held_as_well(plane, node, bare_metal):
    node.classify(GOLD)
    server_id = plane.boot(plane.flavor("odd", {f"resources:{GOLD}": "0"}, vcpus=1))
    plane.settle(node)
    assert free(plane) == 1
    assert bare_metal.migrate_servers(dry_run=False)[0][0].outcome is FlavorMigrationOutcome.HEALED
    assert (free(plane), stored(plane, server_id)) == (0, {f"resources:{GOLD}": "0"})


def test_an_occupied_node_takes_no_second_server_before_the_migration(plane, node):
    """Between a build and the next round, the first server holds one of the two classes only."""
    node.offer(**{GOLD: 1, "CUSTOM_NVME": 1})
    zeros = dict.fromkeys(("resources:VCPU", "resources:MEMORY_MB", "resources:DISK_GB"), "0")
    first = plane.boot(plane.flavor("gold", zeros | {f"resources:{GOLD}": "1"}))
    plane.settle(node)
    second = plane.boot(plane.flavor("nvme", zeros | {"resources:CUSTOM_NVME": "1"}))
    plane.settle(node)
    assert plane.show(first)["status"] == "ACTIVE"
    assert plane.show(second)["status"] == "ERROR"
    assert "it is a bare-metal node and has a server" in plane.show(second)["fault"]["message"]
    plane.send("DELETE", f"/v2.1/servers/{first}")
    plane.settle(node)
    third = plane.boot("nvme")
    plane.settle(node)
    assert plane.show(third)["status"] == "ACTIVE"


def test_two_servers_that_are_placed_together_do_not_share_a_node(plane, node):
    """They hold different classes, so Placement grants both; the commit rejects the second one."""
    node.offer(**{GOLD: 1, "CUSTOM_NVME": 1})
    zeros = dict.fromkeys(("resources:VCPU", "resources:MEMORY_MB", "resources:DISK_GB"), "0")
    names = {"gold": GOLD, "nvme": "CUSTOM_NVME"}
    made = [plane.boot(plane.flavor(name, zeros | {f"resources:{its}": "1"})) for name, its in names.items()]
    plane.settle(node)
    assert sorted(plane.show(server_id)["status"] for server_id in made) == ["ACTIVE", "ERROR"]
    held = [plane.placement.allocations(server_id) for server_id in made]
    assert sum(map(bool, held)) == 1


def test_a_node_with_only_its_class_gets_no_other_allocation(plane, node, old_server, bare_metal):
    """Ironic's newer inventory has no processors, memory and disk, so none are allocated."""
    plane.placement.release(old_server)
    generation, _ = plane.placement.inventories(node.provider.uuid)
    plane.placement.set_inventories(node.provider.uuid, generation, {GOLD: Inventory(1, max_unit=1)})
    assert bare_metal.migrate_servers(dry_run=False)[0][0].outcome is FlavorMigrationOutcome.DONE
    assert plane.placement.allocations(old_server) == {node.provider.uuid: {GOLD: 1}}
