"""Domain definitions of guests: they read back the same and are valid in libvirt's schema."""

import itertools
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from moorage.agent.virt.domain_xml import (
    DomainDisk,
    GuestPaths,
    Machine,
    is_moorage_domain,
    parse_domain,
    render_domain,
    render_interface,
    rescue_image,
)
from moorage.agent.virt.driver import DomainInterface, DomainSpec, VirtError

A = "aaaaaaaa-0000-4000-8000-000000000000"
FULL = DomainSpec(
    A,
    'a <&> "server"\nof two lines',
    2,
    2048,
    20,
    "image-1",
    ("0000:3b:00.1", "0000:af:1f.7"),
    frozenset({"compute-1", "compute-1_NUMA_1"}),
    mdev_uuids=("c2177883-f1bb-47f0-914d-32a22e3a8804",),
    interfaces=(
        DomainInterface("fa:16:3e:00:00:01", "br0", True, vlan=5, addresses=("192.0.2.100",)),
        DomainInterface("fa:16:3e:00:00:02", "default", False),
        DomainInterface("fa:16:3e:00:00:03", "br-int", True, addresses=(), ovs_port=A, mtu=1450),
    ),
    ephemeral_gb=3,
    swap_mb=512,
    project_id="red",
    flavor="big & tall",
)
#: A port of a Neutron that is a function of a network card.
FUNCTION = DomainInterface("fa:16:3e:00:00:04", "", False, vlan=100, device="0000:c1:00.2")
WITH_FUNCTION = replace(FULL, interfaces=(*FULL.interfaces, FUNCTION, replace(FUNCTION, vlan=None)))
PARTS = GuestPaths(
    disks=(
        DomainDisk("/i/disk", "qcow2"),
        DomainDisk("/i/disk.swap", "raw"),
        DomainDisk("/i/disk.config", "raw", read_only=True),
    ),
    console="/i/console.log",
    kernel="/i/kernel",
    initrd="/i/initrd",
    cmdline="root=/dev/vda console=ttyS0",
    guest_agent=True,
    rescue_image="image-2",
)
MACHINES = [
    Machine(),
    Machine("kvm", model="pc", cpu_mode="host-passthrough"),
    Machine(cpu_mode="host-model", emulates_devices=True),
]


def test_characters_that_xml_cannot_contain_are_replaced():
    """One definition that cannot be parsed would stop the agent from reading all others."""
    spec = DomainSpec(A, "a\x00\x1b[2J\ud800\uffffb", 1, 1, flavor="\x08")
    read = parse_domain(render_domain(spec, parts=GuestPaths(cmdline="root=\x01")))
    assert (read.name, read.flavor) == ("a\ufffd\ufffd[2J\ufffd\ufffdb", "\ufffd")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("parts", [GuestPaths(), PARTS])
@pytest.mark.parametrize("spec", [FULL, DomainSpec(A, "plain", 1, 1)], ids=["full", "plain"])
def test_a_definition_reads_back_as_it_was_written(spec, parts, machine):
    assert parse_domain(render_domain(spec, [1], machine, parts)) == spec


def test_an_interface_that_is_a_function_of_a_network_card_is_no_other_device():
    text = render_domain(WITH_FUNCTION, [1], None, PARTS)
    assert parse_domain(text) == WITH_FUNCTION
    assert text.count(b'<interface type="hostdev" managed="yes">') == 2
    assert text.count(b'<hostdev mode="subsystem" type="pci"') == len(FULL.pci_addresses)


def test_an_emulated_device_cannot_be_an_interface():
    with pytest.raises(VirtError, match=r"0000:c1:00\.2 is emulated"):
        render_domain(WITH_FUNCTION, (), Machine(emulates_devices=True))


def test_the_memory_of_a_definition_is_read_in_libvirts_unit():
    """The definition is in MiB, but libvirt returns KiB."""
    told = render_domain(FULL, (), MACHINES[0], PARTS).decode()
    answered = told.replace('<memory unit="MiB">2048</memory>', '<memory unit="KiB">2097152</memory>')
    assert answered != told
    assert parse_domain(answered) == FULL


def test_the_rescue_image_of_a_domain_is_read_from_its_definition():
    assert rescue_image(render_domain(FULL, (), None, PARTS)) == "image-2"
    assert rescue_image(render_domain(FULL)) is None


def test_definitions_of_other_programs_are_recognised():
    assert is_moorage_domain(render_domain(FULL))
    assert not is_moorage_domain(
        "<domain type='qemu'><name>theirs</name><metadata><x xmlns='urn:other'/></metadata></domain>"
    )
    assert not is_moorage_domain("no xml")


def test_two_servers_of_one_name_have_two_domains():
    other = DomainSpec("bbbbbbbb-0000-4000-8000-000000000000", FULL.name, 1, 1)
    assert render_domain(FULL).split(b"<name>")[1] != render_domain(other).split(b"<name>")[1]


def test_a_port_of_a_neutron_has_the_mark_and_the_name_that_its_agent_expects():
    port_id = "0123456789ab-4000-8000-000000000000"
    interface = DomainInterface(
        "fa:16:3e:00:00:03", "br-int", True, addresses=("192.0.2.7",), ovs_port=port_id, mtu=1450
    )
    text = ET.tostring(render_interface(interface), encoding="unicode")
    assert '<virtualport type="openvswitch"><parameters interfaceid="0123456789ab-4000-8000-000000000000" />' in text
    assert '<target dev="tap0123456789a" />' in text
    assert '<mtu size="1450" />' in text
    assert "filterref" not in text


def test_with_emulated_devices_each_pci_device_becomes_a_shared_memory_device():
    passed = render_domain(FULL, (), Machine()).decode()
    emulated = render_domain(FULL, (), Machine(emulates_devices=True)).decode()
    assert passed.count('type="pci" managed="yes"') == 2
    assert "<shmem" not in passed
    assert emulated.count('<shmem name="moorage-0000:') == 2
    assert 'type="pci"' not in emulated


def test_each_definition_is_valid_in_libvirts_schema(tmp_path):
    validate = shutil.which("virt-xml-validate")
    if validate is None or shutil.which("xmllint") is None:
        pytest.skip("virt-xml-validate and xmllint are not installed (Debian: libvirt-clients, libxml2-utils)")
    paths = []
    numa = ([], [1], [0, 1])
    for number, (spec, machine, parts, nodes) in enumerate(
        itertools.product((FULL, DomainSpec(A, "plain", 1, 1)), MACHINES, (GuestPaths(), PARTS), numa)
    ):
        path = tmp_path / f"{number}.xml"
        path.write_bytes(render_domain(spec, nodes, machine, parts))
        paths.append(path)
    schema = "/usr/share/libvirt/schemas/domain.rng"
    done = subprocess.run(
        ["xmllint", "--noout", "--relaxng", schema, *paths], capture_output=True, text=True, check=False
    )
    assert done.stderr.count(" validates\n") == len(paths), done.stderr
    # One also with libvirt's own program, which takes a tenth of a second for each file.
    done = subprocess.run([validate, paths[-1], "domain"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_invalid_definition_is_invalid_in_libvirts_schema(tmp_path):
    """Shows that the test above can fail."""
    if shutil.which("virt-xml-validate") is None or shutil.which("xmllint") is None:
        pytest.skip("virt-xml-validate and xmllint are not installed (Debian: libvirt-clients, libxml2-utils)")
    path = tmp_path / "wrong.xml"
    path.write_bytes(render_domain(FULL, (), None, PARTS).replace(b'mode="subsystem"', b'mode="somehow"'))
    done = subprocess.run(["virt-xml-validate", path, "domain"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
