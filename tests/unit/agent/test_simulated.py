"""The simulated hypervisor: domains as files, power, console and injected faults."""

import re
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import pytest

from moorage.agent.model import DomainPowerState, PowerAction
from moorage.agent.tree.provider_tree import ProviderTree
from moorage.agent.virt.domain_xml import parse_domain, render_domain
from moorage.agent.virt.driver import DomainInterface, DomainSpec, NoSuchDomain, VirtError
from moorage.agent.virt.fault_injection import FaultInjection
from moorage.agent.virt.host_description import HostDescription, read_description
from moorage.agent.virt.simulated import SimulatedDriver
from moorage.core.clock import VirtualClock
from moorage.core.errors import StartError
from moorage.core.inventories import Inventory

A, B = "aaaaaaaa-0000-4000-8000-000000000000", "bbbbbbbb-0000-4000-8000-000000000000"
SPEC = DomainSpec(
    A,
    "a <&> server",
    2,
    2048,
    20,
    "image-1",
    ("0000:3b:00.1", "10de:af:1f.7"),
    frozenset({"compute-1", "compute-1_NUMA_1"}),
)


@pytest.fixture
def clock():
    return VirtualClock(datetime(2030, 1, 1, tzinfo=UTC))


@pytest.fixture
def driver(tmp_path, clock):
    return SimulatedDriver(HostDescription(), tmp_path, clock)


def test_a_definition_reads_back_as_it_was_written():
    assert parse_domain(render_domain(SPEC)) == SPEC
    assert parse_domain(render_domain(DomainSpec(A, "plain", 1, 1))) == DomainSpec(A, "plain", 1, 1)


INTERFACES = (
    DomainInterface("fa:16:3e:00:00:01", "br0", True, addresses=("192.0.2.100", "192.0.2.101")),
    DomainInterface("fa:16:3e:00:00:02", "br0", True, vlan=5, addresses=("198.51.100.9",)),
    DomainInterface("fa:16:3e:00:00:03", "default", False),
)


def test_interfaces_let_only_the_addresses_of_the_guest_through():
    text = render_domain(DomainSpec(A, "a", 1, 64, interfaces=INTERFACES))
    assert parse_domain(text).interfaces == INTERFACES
    lab, vlan, nat = ET.fromstring(text).iterfind("devices/interface")
    assert (lab.get("type"), lab.find("source").attrib, lab.find("mac").get("address")) == (
        "bridge", {"bridge": "br0"}, "fa:16:3e:00:00:01",
    )  # fmt: skip
    assert (lab.find("model").get("type"), lab.find("filterref").get("filter")) == ("virtio", "clean-traffic")
    assert [(one.get("name"), one.get("value")) for one in lab.iterfind("filterref/parameter")] == [
        ("IP", "192.0.2.100"), ("IP", "192.0.2.101"),
    ]  # fmt: skip
    assert vlan.find("vlan/tag").get("id") == "5"
    assert (nat.get("type"), nat.find("source").attrib) == ("network", {"network": "default"})
    learning = nat.find("filterref/parameter")
    assert (learning.get("name"), learning.get("value")) == ("CTRL_IP_LEARNING", "dhcp")


def test_a_domain_definition_has_the_format_of_libvirt(driver, tmp_path):
    driver.spawn(SPEC)
    domain = ET.parse(tmp_path / "domains" / f"{A}.xml").getroot()
    assert (domain.tag, domain.findtext("name"), domain.findtext("uuid")) == ("domain", f"moorage-{A}", A)
    assert (domain.findtext("vcpu"), domain.findtext("memory"), domain.find("memory").get("unit")) == (
        "2",
        "2048",
        "MiB",
    )
    assert [element.attrib for element in domain.iterfind("devices/hostdev/source/address")] == [
        {"domain": "0x0000", "bus": "0x3b", "slot": "0x00", "function": "0x1"},
        {"domain": "0x10de", "bus": "0xaf", "slot": "0x1f", "function": "0x7"},
    ]
    assert domain.find("devices/hostdev").attrib == {"mode": "subsystem", "type": "pci", "managed": "yes"}
    assert domain.find("numatune/memory").get("nodeset") == "1"


@pytest.mark.parametrize(
    "data", [b"", b"<domain/>", b"<domain><uuid>u</uuid></domain>", render_domain(SPEC).replace(b"2048", b"much")]
)
def test_a_damaged_domain_definition_is_an_error(data):
    with pytest.raises(VirtError, match="definition"):
        parse_domain(data)


def test_a_pci_address_of_another_form_is_refused():
    with pytest.raises(VirtError, match=re.escape("'3b:00' is not a PCI address; it looks like 0000:3b:00.1")):
        render_domain(DomainSpec(A, "a", 1, 1, pci_addresses=("3b:00",)))


def test_the_console_log_names_the_attached_devices(driver):
    driver.spawn(SPEC)
    assert "pci 0000:3b:00.1: attached\npci 10de:af:1f.7: attached\n" in driver.console(A)


def test_domains_survive_a_restart_of_the_agent(driver, tmp_path, clock):
    driver.spawn(SPEC)
    driver.power(A, PowerAction.PAUSE)
    again = SimulatedDriver(HostDescription(), tmp_path, clock)
    assert again.domains()[A].spec == SPEC
    assert again.domains()[A].power is DomainPowerState.PAUSED
    assert "booting" in again.console(A)


def test_spawning_a_domain_twice_boots_it_once(driver):
    driver.spawn(SPEC)
    driver.spawn(SPEC)
    assert driver.console(A).count("booting") == 1


def test_a_domain_that_was_only_defined_is_started_by_the_next_spawn(driver):
    driver.spawn(SPEC, start=False)
    assert driver.domains()[A].power is DomainPowerState.SHUTOFF
    assert driver.spawn(SPEC).power is DomainPowerState.RUNNING


def test_spawning_with_another_definition_replaces_the_old_one(driver):
    driver.spawn(SPEC)
    other = DomainSpec(A, "a", 4, 4096)
    driver.spawn(other)
    assert driver.domains()[A].spec == other


def test_destroy_removes_all_files_and_can_be_repeated(driver, tmp_path):
    driver.spawn(SPEC)
    assert driver.destroy(A)
    assert not driver.destroy(A)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("before", "action", "after"),
    [
        ([], "stop", "shutoff"), ([], "pause", "paused"), ([], "reboot", "running"), ([], "start", "running"), ([], "unpause", "running"),
        (["stop"], "start", "running"), (["stop"], "stop", "shutoff"), (["stop"], "reboot", "running"),
        (["pause"], "unpause", "running"), (["pause"], "stop", "shutoff"), (["pause"], "pause", "paused"), (["pause"], "reboot", "running"),
    ],
)  # fmt: skip
def test_each_power_action_leads_to_its_power_state(driver, before, action, after):
    driver.spawn(SPEC)
    for step in before:
        driver.power(A, PowerAction(step))
    assert driver.power(A, PowerAction(action)) == after
    assert driver.domains()[A].power == after


def test_a_stopped_domain_cannot_be_paused(driver):
    driver.spawn(SPEC)
    driver.power(A, PowerAction.STOP)
    with pytest.raises(VirtError, match="cannot go from shutoff to paused"):
        driver.power(A, PowerAction.PAUSE)


@pytest.mark.parametrize("uuid", [B, "../../etc/passwd", ""])
def test_an_operation_on_an_unknown_server_is_no_such_domain(driver, uuid):
    for call in (driver.console, lambda uuid: driver.power(uuid, PowerAction.START)):
        with pytest.raises(NoSuchDomain):
            call(uuid)


def test_a_device_of_a_running_domain_cannot_be_used_by_another_domain(driver):
    """The driver refuses this like libvirt: a last protection if the records were ever wrong."""
    driver.spawn(SPEC)
    second = DomainSpec(B, "b", 1, 512, pci_addresses=("0000:3b:00.1",))
    with pytest.raises(VirtError, match=r"PCI device 0000:3b:00\.1 is in use by domain a <&> server"):
        driver.spawn(second)
    driver.power(A, PowerAction.STOP)
    assert driver.spawn(second).power is DomainPowerState.RUNNING


def test_operations_take_their_configured_latency(tmp_path, clock):
    driver = SimulatedDriver(HostDescription(), tmp_path, clock, FaultInjection({"spawn": 30, "stop": 5}))
    before = clock.now()
    driver.spawn(SPEC)
    driver.power(A, PowerAction.STOP)
    assert (clock.now() - before).total_seconds() == 35


def test_an_injected_fault_makes_an_operation_fail_as_often_as_set(driver):
    driver.faults.fail("spawn", "no space left on the disk", times=1, name="a <&> server")
    with pytest.raises(VirtError, match="no space left on the disk"):
        driver.spawn(SPEC)
    assert driver.domains() == {}
    driver.spawn(SPEC)


def test_the_provider_tree_of_the_default_host_has_two_numa_nodes(tmp_path, clock):
    """The default host is compute-1."""
    tree = SimulatedDriver(HostDescription(), tmp_path, clock).update_provider_tree(ProviderTree())
    assert [(node.name, node.parent) for node in tree] == [
        ("compute-1", None), ("compute-1_NUMA_0", "compute-1"), ("compute-1_NUMA_1", "compute-1"),
    ]  # fmt: skip
    assert tree["compute-1"].inventories == {
        "VCPU": Inventory(16, max_unit=16),
        "MEMORY_MB": Inventory(32768, 512, max_unit=32768),
        "DISK_GB": Inventory(500, max_unit=500),
    }
    assert tree["compute-1_NUMA_0"].traits == {"HW_NUMA_ROOT"}


def test_a_host_can_be_described_in_a_file(tmp_path):
    path = tmp_path / "host.yaml"
    path.write_text("name: big\nvcpus: 128\nmemory_mb: 1000000\nnuma_nodes: 8\ntraits: [CUSTOM_BIG]\n")
    description = read_description(path)
    assert (description.name, description.vcpus, description.disk_gb) == ("big", 128, 500)


@pytest.mark.parametrize("text", ["vcpus: many", "colour: red", "vcpus: 0", "memory_mb: 100", "a: [", "- 1"])
def test_an_invalid_host_description_is_a_start_error_that_names_the_file(tmp_path, text):
    path = tmp_path / "host.yaml"
    path.write_text(text)
    with pytest.raises(StartError, match=r"host\.yaml"):
        read_description(path)
    with pytest.raises(StartError, match=r"nowhere\.yaml"):
        read_description(tmp_path / "nowhere.yaml")
