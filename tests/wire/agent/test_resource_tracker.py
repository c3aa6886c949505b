"""The resource tracker against Placement's own API. Spec: docs/evidence/specs/provider-config.md, "Merging"."""

import contextlib
import logging
from dataclasses import dataclass, field

import pytest

from moorage.agent.tracker.resource_tracker import MAX_ATTEMPTS
from moorage.agent.tree.provider_tree import ProviderNode, ProviderTree
from moorage.core.errors import Conflict, StartError
from moorage.placement.client.placement_client import Candidate, Inventory
from tests.wire.agent.written import LLC, WAYS, put

CONSUMER = "cccccccc-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Device:
    """The provider of an accelerator, as the accelerator agent describes it."""

    name: str
    parent: str = "compute-1_NUMA_0"
    inventories: dict = field(default_factory=lambda: {"CUSTOM_ACCELERATOR_FPGA": Inventory(2, max_unit=2)})
    traits: frozenset = frozenset({"CUSTOM_FPGA_REGION_A"})


class Devices:
    def __init__(self, *nodes):
        self.now = list(nodes)
        self.told = []

    def nodes(self):
        return self.now

    def published(self, uuids):
        self.told.append(dict(uuids))


def tree(placement):
    root = placement.provider_by_name("compute-1")
    return {provider.name: provider for provider in placement.tree(root.uuid)}


def classes(placement, name):
    return placement.inventories(tree(placement)[name].uuid)[1]


def traits(placement, name):
    return placement.traits(tree(placement)[name].uuid)[1]


def use(placement, name, resource_class, units=1):
    uuid = tree(placement)[name].uuid
    candidate = Candidate({uuid: {resource_class: units}}, {}, uuid)
    placement.claim(CONSUMER, candidate, "project", "user")


def test_a_start_publishes_the_host_with_numa_nodes_devices_and_provider_files(host, placement):
    """R17, R19, R26, R27 (provider-config): a flavor can then request what a file adds."""
    put(host.files, LLC)
    host.accelerators = Devices(Device("compute-1_0000:3b:00.0_R1"))
    tracker = host.tracker()
    tracker.start()
    assert len(tracker.configs) == 1
    providers = tree(placement)
    root, numa = providers["compute-1"], providers["compute-1_NUMA_0"]
    assert {name: provider.parent_uuid for name, provider in providers.items()} == {
        "compute-1": None,
        "compute-1_NUMA_0": root.uuid,
        "compute-1_NUMA_1": root.uuid,
        "compute-1_0000:3b:00.0_R1": numa.uuid,
    }
    assert classes(placement, "compute-1") == {
        "VCPU": Inventory(16, max_unit=16),
        "MEMORY_MB": Inventory(32768, 512, max_unit=32768),
        "DISK_GB": Inventory(500, max_unit=500),
        "CUSTOM_LLC": Inventory(22, 2, max_unit=11),
    }
    expected = {"CUSTOM_P_STATE_ENABLED", "COMPUTE_NODE", "OWNER_NOVA", "COMPUTE_ACCELERATORS"}
    assert expected <= traits(placement, "compute-1")
    assert traits(placement, "compute-1_NUMA_0") == {"HW_NUMA_ROOT"}
    assert host.accelerators.told == [{"compute-1_0000:3b:00.0_R1": providers["compute-1_0000:3b:00.0_R1"].uuid}]
    found, _ = placement.candidates([("resources", "VCPU:1,CUSTOM_LLC:11"), ("required", "CUSTOM_P_STATE_ENABLED")])
    assert [candidate.root_uuid for candidate in found] == [root.uuid]
    assert tracker.provider_uuid("compute-1") == root.uuid
    assert tracker.ancestor_names([providers["compute-1_0000:3b:00.0_R1"].uuid]) == {"compute-1", "compute-1_NUMA_0"}


class FlatDriver:
    """A driver whose hosts have no NUMA nodes and `own` inventories."""

    def __init__(self, **own):
        self.own = own

    def nodes(self):
        return ["compute-1"]

    def update_provider_tree(self, tree):
        inventories = {name: Inventory(total, max_unit=total) for name, total in self.own.items()}
        return ProviderTree([ProviderNode("compute-1", inventories=inventories, traits=frozenset({"HW_CPU_X86_AVX2"}))])


def test_files_are_merged_into_what_any_driver_reports_now(host, placement):
    """R19, R24 (provider-config): after the driver's update and the automatic traits, whose classes come first."""
    host.driver = FlatDriver(VCPU=4)
    put(host.files, LLC)
    tracker = host.tracker()
    tracker.start()
    llc = Inventory(22, 2, max_unit=11)
    assert classes(placement, "compute-1") == {"VCPU": Inventory(4, max_unit=4), "CUSTOM_LLC": llc}
    added = {"HW_CPU_X86_AVX2", "CUSTOM_P_STATE_ENABLED", "COMPUTE_NODE", "OWNER_NOVA"}
    assert added <= traits(placement, "compute-1")
    host.driver.own = {"VCPU": 8, "CUSTOM_LLC": 3}
    assert len(tracker.update().warnings) == 1
    now = {"VCPU": Inventory(8, max_unit=8), "CUSTOM_LLC": Inventory(3, max_unit=3)}
    assert classes(placement, "compute-1") == now
    assert added <= traits(placement, "compute-1")
    host.driver.own = {"VCPU": 8}
    assert tracker.update().warnings == ()
    assert classes(placement, "compute-1")["CUSTOM_LLC"] == llc


def test_an_update_without_changes_is_one_read_and_no_write(host, transport):
    """R20 (provider-config): this runs every period."""
    put(host.files, LLC)
    host.accelerators = Devices(*(Device(f"compute-1_dev{number}") for number in range(6)))
    tracker = host.tracker()
    tracker.start()
    tracker.update()
    transport.requests.clear()
    tracker.update()
    (request,) = transport.requests
    assert request.method == "GET"
    assert request.path.startswith("/resource_providers?in_tree=")


def test_a_second_start_writes_nothing(host, transport):
    put(host.files, LLC)
    host.accelerators = Devices(Device("compute-1_dev"))
    host.tracker().start()
    transport.requests.clear()
    before = (host.state / "published.json").read_bytes()
    assert host.tracker().start().written == 0
    assert transport.writes == []
    assert (host.state / "published.json").read_bytes() == before


def test_an_invalid_file_stops_the_start_before_any_request(host, transport):
    """R16 (provider-config)"""
    put(host.files, LLC.replace("CUSTOM_LLC", "VCPU"))
    with pytest.raises(StartError, match="only custom classes"):
        host.tracker().start()
    assert transport.requests == []


def test_files_are_read_once(host, placement):
    """R16 (provider-config): at the start only."""
    put(host.files, LLC)
    tracker = host.tracker()
    tracker.start()
    put(host.files, "nonsense: [")
    tracker.update()
    assert "CUSTOM_LLC" in classes(placement, "compute-1")


def test_a_conflict_with_a_device_stops_the_start(host, transport):
    """R25 (provider-config): Nova logs the conflict and starts (G3)."""
    put(
        host.files,
        LLC.replace("uuid: $COMPUTE_NODE", "name: compute-1_dev").replace("CUSTOM_LLC", "CUSTOM_ACCELERATOR_FPGA"),
    )
    host.accelerators = Devices(Device("compute-1_dev"))
    with pytest.raises(
        StartError, match=r"a\.yaml:5:32: CUSTOM_ACCELERATOR_FPGA of provider compute-1_dev is managed by"
    ):
        host.tracker().start()
    assert transport.writes == []


def test_a_later_conflict_is_logged_once_and_the_rest_is_published(host, placement, caplog):
    """R24 (provider-config): Nova drops every later update of the host (G4)."""
    put(
        host.files,
        LLC.replace("uuid: $COMPUTE_NODE", "name: compute-1_dev").replace("CUSTOM_LLC", "CUSTOM_ACCELERATOR_FPGA"),
    )
    host.accelerators = Devices(Device("compute-1_dev", inventories={"CUSTOM_OTHER": Inventory(1)}))
    tracker = host.tracker()
    tracker.start()
    assert classes(placement, "compute-1_dev")["CUSTOM_ACCELERATOR_FPGA"].total == 22
    host.accelerators.now = [Device("compute-1_dev")]
    with caplog.at_level(logging.WARNING):
        assert len(tracker.update().warnings) == 1
        assert "is managed by" in caplog.text
        tracker.update()
    assert classes(placement, "compute-1_dev") == {"CUSTOM_ACCELERATOR_FPGA": Inventory(2, max_unit=2)}
    assert "CUSTOM_P_STATE_ENABLED" in traits(placement, "compute-1_dev")
    (warning,) = [record.getMessage() for record in caplog.records if "is managed by" in record.getMessage()]
    assert warning.endswith("(ignored until then)")


def test_two_entries_for_one_provider_by_name_and_uuid_stop_the_start(host, placement):
    """R7 (provider-config): Nova starts and never updates the node (G5)."""
    host.tracker().start()
    uuid = tree(placement)["compute-1"].uuid
    put(host.files, LLC.replace("uuid: $COMPUTE_NODE", "name: compute-1"))
    put(host.files, LLC.replace("$COMPUTE_NODE", uuid), "b.yaml")
    with pytest.raises(StartError, match="keep one of them"):
        host.tracker().start()


def test_an_entry_for_a_device_is_applied_when_the_device_appears(host, placement):
    """R21 (provider-config): the entry is applied in the first update that sees the device (R20)."""
    put(host.files, LLC.replace("uuid: $COMPUTE_NODE", "name: compute-1_dev"))
    host.accelerators = Devices()
    tracker = host.tracker()
    assert "the entry has no effect" in tracker.start().warnings[0]
    host.accelerators.now = [Device("compute-1_dev")]
    tracker.update()
    assert "CUSTOM_LLC" in classes(placement, "compute-1_dev")


def test_objects_of_other_clients_are_not_changed(host, placement):
    """A13 (accelerator-attach): on a reserved host, traits, classes and providers that others wrote survive updates,
    restarts and removals.
    """
    put(host.files, LLC)
    host.accelerators = Devices(Device("compute-1_dev"))
    tracker = host.tracker()
    tracker.start()
    root = tree(placement)["compute-1"].uuid
    placement.ensure_trait("CUSTOM_RESERVATION_HOST")
    placement.ensure_class("CUSTOM_RESERVATION_X")
    generation, own = placement.traits(root)
    placement.set_traits(root, generation, own | {"CUSTOM_RESERVATION_HOST"})
    reserved = placement.create_provider("blazar_compute-1", parent_uuid=root)
    for uuid in (root, reserved.uuid):
        placement.put_inventory(uuid, "CUSTOM_RESERVATION_X", Inventory(3))
    assert tracker.update().written == 0
    put(host.files, WAYS)
    host.accelerators = Devices()
    host.tracker().start()
    assert "CUSTOM_RESERVATION_HOST" in traits(placement, "compute-1")
    assert classes(placement, "compute-1")["CUSTOM_RESERVATION_X"] == Inventory(3)
    assert classes(placement, "blazar_compute-1") == {"CUSTOM_RESERVATION_X": Inventory(3)}
    assert "compute-1_dev" not in tree(placement)


def test_entries_removed_from_a_file_are_deleted_at_the_next_start(host, placement):
    """G8, G9: Nova keeps traits for ever."""
    put(host.files, LLC)
    host.tracker().start()
    put(host.files, WAYS)
    host.tracker().start()
    assert {name for name in classes(placement, "compute-1") if name.startswith("CUSTOM")} == {"CUSTOM_WAYS"}
    assert {name for name in traits(placement, "compute-1") if name.startswith("CUSTOM")} == {"CUSTOM_FAST"}


def test_a_file_may_add_classes_to_another_ones_provider_permanently(host, placement):
    """G6: in its second round Nova takes its own class for one of the driver's, and blocks the host for ever."""
    host.tracker().start()
    placement.create_provider("blazar_compute-1", parent_uuid=tree(placement)["compute-1"].uuid)
    put(host.files, LLC.replace("uuid: $COMPUTE_NODE", "name: blazar_compute-1"))
    tracker = host.tracker()
    tracker.start()
    assert tracker.update().warnings == ()
    assert host.tracker().start().written == 0
    (host.files / "a.yaml").unlink()
    host.tracker().start()
    assert classes(placement, "blazar_compute-1") == {}
    assert "blazar_compute-1" in tree(placement)


def test_a_removed_class_in_use_is_closed_to_new_servers_until_it_is_free(host, placement, caplog):
    """G7: Nova no longer starts."""
    put(host.files, LLC)
    host.tracker().start()
    use(placement, "compute-1", "CUSTOM_LLC", 4)
    (host.files / "a.yaml").unlink()
    tracker = host.tracker()
    with caplog.at_level(logging.WARNING):
        tracker.start()
    assert "4 are in use" in caplog.text
    assert classes(placement, "compute-1")["CUSTOM_LLC"] == Inventory(22, 22, max_unit=11)
    assert tracker.update().written == 0
    placement.release(CONSUMER)
    tracker.update()
    assert "CUSTOM_LLC" not in classes(placement, "compute-1")


def test_a_vanished_device_is_removed_or_closed_to_new_servers_if_it_is_in_use(host, placement):
    host.accelerators = Devices(Device("compute-1_dev1"), Device("compute-1_dev2"))
    tracker = host.tracker()
    tracker.start()
    use(placement, "compute-1_dev1", "CUSTOM_ACCELERATOR_FPGA")
    host.accelerators.now = []
    tracker.update()
    assert classes(placement, "compute-1_dev1")["CUSTOM_ACCELERATOR_FPGA"] == Inventory(2, 2, max_unit=2)
    assert "compute-1_dev2" not in tree(placement)
    placement.release(CONSUMER)
    tracker.update()
    assert "compute-1_dev1" not in tree(placement)


def test_the_traits_of_a_device_follow_its_bitstream(host, placement):
    host.accelerators = Devices(Device("compute-1_dev"))
    tracker = host.tracker()
    tracker.start()
    host.accelerators.now = [
        Device("compute-1_dev", traits=frozenset({"CUSTOM_FPGA_REGION_A", "CUSTOM_FPGA_FUNCTION_B"}))
    ]
    assert tracker.update().written == 1
    assert traits(placement, "compute-1_dev") == {"CUSTOM_FPGA_REGION_A", "CUSTOM_FPGA_FUNCTION_B"}
    host.accelerators.now = [Device("compute-1_dev")]
    tracker.update()
    assert traits(placement, "compute-1_dev") == {"CUSTOM_FPGA_REGION_A"}


def test_after_a_concurrent_write_the_tracker_reads_again_and_succeeds(host, transport, placement):
    put(host.files, LLC)
    tracker = host.tracker()
    tracker.start()
    root = tree(placement)["compute-1"].uuid
    host.description = type(host.description)(vcpus=32)
    other = []

    def scribble(request, send):
        if request.method == "PUT" and request.path.endswith("/inventories") and not other:
            other.append(request.path)
            placement.put_inventory(root, "PCPU", Inventory(1))
        return send()

    transport.around = scribble
    host.tracker().start()
    assert classes(placement, "compute-1")["VCPU"].total == 32
    assert classes(placement, "compute-1")["PCPU"] == Inventory(1)


def test_the_number_of_retries_is_limited(host, transport, placement, clock):
    tracker = host.tracker()
    tracker.start()
    root = tree(placement)["compute-1"].uuid
    host.description = type(host.description)(vcpus=32)
    times = []

    def scribble(request, send):
        if request.method == "PUT" and request.path.endswith("/inventories"):
            times.append(request.path)
            placement.put_inventory(root, "PCPU", Inventory(len(times)))
        return send()

    transport.around = scribble
    with pytest.raises(Conflict):
        host.tracker().start()
    assert len(times) == MAX_ATTEMPTS


def test_a_class_allocated_during_its_removal_is_closed_to_new_servers_instead(host, transport, placement):
    put(host.files, LLC)
    host.tracker().start()
    (host.files / "a.yaml").unlink()
    used = []

    def claim(request, send):
        if request.method == "PUT" and request.path.endswith("/inventories") and not used:
            used.append(request.path)
            use(placement, "compute-1", "CUSTOM_LLC")
        return send()

    transport.around = claim
    host.tracker().start()
    assert classes(placement, "compute-1")["CUSTOM_LLC"].reserved == 22


@pytest.mark.parametrize("at", range(12))
def test_providers_written_by_an_agent_that_died_can_be_removed_by_its_successor(host, transport, placement, at):
    """Whichever write is the last one, the published state covers everything that exists."""
    put(host.files, LLC)
    writes = []

    def die(request, send):
        if request.method != "GET":
            writes.append(request.path)
            if len(writes) > at:
                raise KeyboardInterrupt
        return send()

    transport.around = die
    with contextlib.suppress(KeyboardInterrupt):
        host.tracker().start()
    transport.clear()
    (host.files / "a.yaml").unlink()
    host.tracker().start()
    assert not [name for name in classes(placement, "compute-1") if name.startswith("CUSTOM")]
    assert not [name for name in traits(placement, "compute-1") if name.startswith("CUSTOM")]
    assert host.tracker().start().written == 0


def test_a_host_deleted_in_placement_is_created_again(host, placement):
    tracker = host.tracker()
    tracker.start()
    before = tree(placement)
    for name in ("compute-1_NUMA_0", "compute-1_NUMA_1", "compute-1"):
        placement.delete_provider(before[name].uuid)
    tracker.update()
    assert set(tree(placement)) == {"compute-1", "compute-1_NUMA_0", "compute-1_NUMA_1"}


def test_the_driver_keeps_its_classes_although_the_state_directory_was_lost(host, placement):
    """The names of the host's classes are found again, and devices that vanish later are still removed."""
    host.accelerators = Devices(Device("compute-1_dev"))
    host.tracker().start()
    before = tree(placement)
    (host.state / "published.json").unlink()
    tracker = host.tracker()
    tracker.start()
    assert tree(placement) == before
    host.accelerators.now = []
    tracker.update()
    assert "compute-1_dev" not in tree(placement)


def test_a_node_that_another_agent_takes_over_gets_that_agents_configuration(host, placement, tmp_path):
    """R23 (provider-config): the file of the new agent applies."""
    put(host.files, LLC)
    host.tracker().start()
    host.state = tmp_path / "another host"
    put(host.files, WAYS)
    here = host.tracker()
    here._published = type(here._published)(host.state / "published.json")
    here.start()
    assert classes(placement, "compute-1")["CUSTOM_WAYS"].total == 22
