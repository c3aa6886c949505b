"""Discovery, the published resources, and the agent's readiness."""

import threading
from dataclasses import replace

import pytest

from moorage.accelerator.drivers.simulated import SimulatedAccelerators, default_simulated_host
from moorage.accelerator.host.agent import AcceleratorAgent
from moorage.accelerator.host.checkpoint import Checkpoint
from moorage.accelerator.host.device_registry import DeviceRegistry
from moorage.accelerator.host.programming import BitstreamSource
from moorage.accelerator.host.signatures import SignatureVerifier
from moorage.accelerator.model import errors as e
from moorage.accelerator.model.devices import Deployable, Health
from moorage.accelerator.model.reports import attachment_reports, device_reports
from moorage.core.clock import SystemClock
from moorage.core.errors import StartError
from moorage.core.inventories import Inventory
from moorage.images.cache import DigestCache
from tests.unit.accelerator.rig import (
    AES,
    GPU,
    HOST,
    R1,
    R2,
    R3,
    TYPE_R1,
    Rig,
    fault,
    fpga,
    gpu,
    new_instance,
    rp,
)


@pytest.fixture
def rig(tmp_path) -> Rig:
    return Rig(tmp_path)


def agent_of(tmp_path, drivers, clock, images=None) -> AcceleratorAgent:
    cache = DigestCache(tmp_path / "cache", max_bytes=1 << 20, clock=clock)
    checkpoint = Checkpoint(tmp_path / "agent" / "checkpoint.json", HOST, clock)
    return AcceleratorAgent(
        HOST, drivers, checkpoint, BitstreamSource(images, cache, SignatureVerifier(None, clock)), clock
    )


def test_every_deployable_is_a_provider_below_its_numa_node(rig):
    """R3, R7, R8, R9, A13: one provider per region and per GPU: class, total, traits."""
    nodes = {node.name: node for node in rig.agent.nodes()}
    assert len(nodes) == 7
    region = nodes["compute-1_0000:3b:00.0_R1"]
    assert region.parent == "compute-1_NUMA_0"
    assert region.inventories == {"CUSTOM_ACCELERATOR_FPGA": Inventory(2, max_unit=2)}
    assert region.traits == {
        "OWNER_CYBORG",
        "CUSTOM_FPGA_INTEL",
        "CUSTOM_FPGA_INTEL_REGION_9926AB6D_6C92_5A68_AABC_A7D84C545738",
    }
    assert nodes["compute-1_0000:3b:00.0_R2"].inventories == {"CUSTOM_ACCELERATOR_FPGA": Inventory(1, max_unit=1)}
    card = nodes["compute-1_0000:e3:00.0"]
    assert (card.parent, card.inventories) == ("compute-1_NUMA_1", {"CUSTOM_ACCELERATOR_GPU": Inventory(1, max_unit=1)})
    assert card.traits == {"OWNER_CYBORG", "CUSTOM_GPU_NVIDIA"}


def test_a_card_without_partial_reconfiguration_is_one_region(rig):
    """R3: a non-PR device yields exactly 1 region."""
    assert [node.name for node in rig.agent.nodes() if "0000:af:00.0" in node.name] == ["compute-1_0000:af:00.0_R1"]


def test_a_region_without_handles_is_reported_but_is_no_provider(tmp_path):
    """R3, R7: 0..n functions per region; Placement has no inventory without units."""
    card = default_simulated_host()[0]
    empty = replace(card, deployables=(Deployable("0000:3b:00.0_R3", (), TYPE_R1), *card.deployables))
    rig = Rig(tmp_path, devices=(empty,))
    assert [node.name for node in rig.agent.nodes()] == [f"{HOST}_{R1}", f"{HOST}_{R2}"]
    assert len(device_reports(rig.held)[0].deployables) == 3


def test_a_repeated_discovery_or_restart_changes_nothing(rig):
    """R6: after a restart the devices are the same, without duplicates, plus those that were added."""
    first = rig.agent.nodes()
    rig.watch.arm(None)
    assert rig.agent.nodes() == first
    assert rig.watch.events == [], "nothing is written when nothing changed"
    rig.restart()
    assert rig.agent.nodes() == first
    rig.devices = (
        *rig.devices,
        replace(rig.devices[2], pci_id="0000:c1:00.0", deployables=(Deployable("0000:c1:00.0", ("0000:c1:00.0",)),)),
    )
    rig.restart()
    assert len(rig.agent.nodes()) == len(first) + 1


def test_all_units_of_a_failed_card_are_reserved_and_it_cannot_be_plugged(rig):
    """R7"""
    rig.order(fault("health", "sick", at="0000:3b:00.0"))
    assert rig.node(R1).inventories["CUSTOM_ACCELERATOR_FPGA"].reserved == 2
    assert rig.node(R3).inventories["CUSTOM_ACCELERATOR_FPGA"].reserved == 0
    with pytest.raises(e.NoCapacity, match="is failed"):  # a server that was scheduled before the failure
        rig.plug(new_instance(), fpga(), R1)


def test_if_discovery_fails_the_health_of_the_drivers_devices_is_unknown_and_they_are_kept(rig):
    before = len(rig.agent.nodes())
    rig.order(fault("discover"))
    nodes = rig.agent.nodes()
    assert len(nodes) == before
    assert all(units.reserved == units.total for node in nodes for units in node.inventories.values())
    assert {device.health for device in rig.held.devices} == {Health.UNKNOWN}
    rig.order()
    assert not any(units.reserved for node in rig.agent.nodes() for units in node.inventories.values())


def test_a_removed_card_is_no_provider_any_more_but_one_in_use_stays_reserved(rig):
    instance = new_instance()
    rig.plug(instance, gpu(), GPU)
    rig.order(fault("discover", "vanishes", at=GPU), fault("discover", "vanishes", at="0000:65:00.0"))
    names = {node.name for node in rig.agent.nodes()}
    assert f"{HOST}_0000:65:00.0" not in names
    assert rig.node(GPU).inventories["CUSTOM_ACCELERATOR_GPU"] == Inventory(1, reserved=1, max_unit=1)
    with pytest.raises(e.CleanFailed, match="has vanished"):
        rig.unplug(instance)
    rig.order()
    rig.agent.nodes()
    rig.agent.release_quarantined(GPU)
    assert rig.node(GPU).inventories["CUSTOM_ACCELERATOR_GPU"] == Inventory(1, max_unit=1)
    rig.check()


def test_a_card_that_is_discovered_again_has_the_function_that_it_shows(rig):
    image_id = rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    instance = new_instance()
    rig.plug(instance, fpga(bitstream=image_id), R1)
    rig.unplug(instance)
    rig.order(fault("discover", "vanishes", at="0000:3b:00.0"))
    rig.agent.nodes()
    assert R1 not in rig.held.regions
    rig.order()
    assert any("_FUNCTION_" in trait for trait in rig.node(R1).traits)
    rig.check()


def test_a_plug_calls_the_driver_of_the_selected_provider(tmp_path):
    """R22: 2 drivers, 2 providers: each plug reaches the driver of its provider."""
    clock = SystemClock()
    cards = default_simulated_host()
    drivers = [
        SimulatedAccelerators([cards[2]], tmp_path / "one", clock, name="one"),
        SimulatedAccelerators([cards[3]], tmp_path / "two", clock, name="two"),
    ]
    agent = agent_of(tmp_path, drivers, clock)
    agent.published({node.name: rp(node.name.removeprefix(f"{HOST}_")) for node in agent.nodes()})
    agent.plug({"uuid": new_instance()}, {"uuid": rp("0000:65:00.0")}, gpu())
    assert [driver.is_dirty("0000:65:00.0") for driver in drivers if driver.name == "two"] == [True]
    with pytest.raises(e.BadRequest):
        agent.plug({"uuid": new_instance()}, {"uuid": rp("elsewhere")}, gpu())


def test_two_drivers_that_report_the_same_device_are_a_start_error(tmp_path):
    clock = SystemClock()
    drivers = [
        SimulatedAccelerators(default_simulated_host(), tmp_path / name, clock, name=name) for name in ("one", "two")
    ]
    with pytest.raises(StartError, match="two accelerator drivers report"):
        agent_of(tmp_path, drivers, clock).start()
    with pytest.raises(StartError, match="same name"):
        DeviceRegistry([drivers[0], drivers[0]])


def test_the_agent_is_ready_only_when_all_discovered_devices_are_published(rig):
    """R13: all devices enumerated and traits published."""
    agent = rig.new_agent()
    with pytest.raises(e.NotReady):
        agent.plug({"uuid": new_instance()}, {"uuid": rp(GPU)}, gpu())
    agent.start()
    assert not agent.wait_ready(0)
    agent.published({node.name: rp(node.name) for node in agent.nodes()})
    assert agent.wait_ready(0)


def test_a_host_without_devices_is_ready_at_once(tmp_path):
    """R13: a host with no devices returns at once."""
    agent = agent_of(tmp_path, [], SystemClock())
    agent.start()
    assert agent.wait_ready(0)
    assert agent.nodes() == []


def test_publishing_the_providers_ends_a_wait_for_readiness(rig):
    agent = rig.new_agent()
    agent.start()
    waited = []
    thread = threading.Thread(target=lambda: waited.append(agent.wait_ready(30)))
    thread.start()
    agent.published({node.name: rp(node.name) for node in agent.nodes()})
    thread.join(10)
    assert waited == [True]


def test_a_restarted_agent_knows_the_uuids_of_its_providers(rig):
    agent = rig.new_agent()
    agent.start()
    assert agent.plug({"uuid": new_instance()}, {"uuid": rp(GPU)}, gpu()) == [{"pci_id": GPU}]


def test_reports_contain_the_loaded_bitstreams_and_the_attached_handles(rig):
    image_id = rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    instance = new_instance()
    specs = {
        "resources1:CUSTOM_ACCELERATOR_GPU": "1",
        "resources2:CUSTOM_ACCELERATOR_FPGA": "1",
        "bitstream2": image_id,
    }
    rig.plug_groups(instance, specs, {"1": [rp(GPU)], "2": [rp(R1)]})
    parts = {part.name: part for device in device_reports(rig.held) for part in device.deployables}
    assert parts[R1].bitstream_id == image_id
    assert [function.id for function in parts[R1].functions] == [AES]
    assert [handle.state for handle in parts[R1].handles] == ["attached", "free"]
    assert parts[R1].rp_uuid == rp(R1)
    rows = [(row.pci_id, row.group, row.device_rp_uuid, row.instance_uuid) for row in attachment_reports(rig.held)]
    assert rows == [(GPU, 0, rp(GPU), instance), ("0000:3b:00.1", 1, rp(R1), instance)]
