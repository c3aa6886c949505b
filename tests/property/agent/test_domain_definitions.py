"""For any server, machine and files, the definition is valid in libvirt's schema and reads back the same."""

import shutil
import subprocess
import tempfile
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.agent.virt.domain_xml import DomainDisk, GuestPaths, Machine, parse_domain, render_domain
from moorage.agent.virt.driver import DomainSpec

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")


def is_allowed(character: str) -> bool:
    """Whether the Compute API allows it in a server's name: printable characters and blanks."""
    kind = unicodedata.category(character)
    return not kind.startswith("C") and (not kind.startswith("Z") or kind == "Zs")


names = st.text(st.characters(exclude_categories=["Cs", "Cc"]).filter(is_allowed), min_size=1, max_size=40)
pci_addresses = st.builds(
    "{:04x}:{:02x}:{:02x}.{}".format,
    st.integers(0, 0xFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F), st.integers(0, 7),
)  # fmt: skip
paths = st.sampled_from(["/var/lib/moorage/instances/guests/x/disk", "/a b/<&>'\"/disk", "/ä/disk"])
specs = st.builds(
    DomainSpec,
    uuid=st.uuids(version=4).map(str),
    name=names,
    vcpus=st.integers(1, 512),
    memory_mb=st.integers(1, 1 << 24),
    disk_gb=st.integers(0, 1 << 20),
    image_id=st.none() | st.uuids().map(str),
    pci_addresses=st.lists(pci_addresses, max_size=4, unique=True).map(tuple),
    provider_ancestors=st.frozensets(names, max_size=3),
    mdev_uuids=st.lists(st.uuids(version=4).map(str), max_size=3, unique=True).map(tuple),
    ephemeral_gb=st.integers(0, 1000),
    swap_mb=st.integers(0, 1000),
    project_id=st.none() | st.uuids().map(lambda uuid: uuid.hex),
    flavor=st.none() | names,
)
machines = st.builds(
    Machine,
    virt_type=st.sampled_from(["qemu", "kvm"]),
    model=st.sampled_from(["q35", "pc"]),
    cpu_mode=st.sampled_from([None, "host-model", "host-passthrough", "maximum"]),
    emulates_devices=st.booleans(),
)
parts = st.builds(
    GuestPaths,
    disks=st.lists(st.builds(DomainDisk, paths, st.sampled_from(["qcow2", "raw"]), st.booleans()), max_size=5).map(
        tuple
    ),
    console=st.none() | paths,
    kernel=st.none() | paths,
    initrd=st.none() | paths,
    cmdline=st.none() | st.sampled_from(["root=/dev/vda console=ttyS0", 'a="<&>\'"']),
    guest_agent=st.booleans(),
    rescue_image=st.none() | st.uuids().map(str),
)
definitions = st.tuples(specs, st.lists(st.integers(0, 63), max_size=3, unique=True), machines, parts)


@given(definitions)
def test_a_definition_reads_back_as_it_was_written(definition):
    spec, _, machine, _ = definition
    back = parse_domain(render_domain(*definition))
    assert back == spec, machine


@settings(max_examples=25, deadline=None)
@given(st.lists(definitions, min_size=1, max_size=20))
def test_definitions_are_valid_in_libvirts_schema(some):
    """Many at once, because loading the schema takes most of the time."""
    if shutil.which("xmllint") is None or not SCHEMA.exists():
        pytest.skip("xmllint or libvirt's schemas are not installed (Debian: libxml2-utils, libvirt-clients)")
    with tempfile.TemporaryDirectory() as directory:
        paths = [Path(directory, f"{number}.xml") for number in range(len(some))]
        for path, definition in zip(paths, some, strict=True):
            path.write_bytes(render_domain(*definition))
        done = subprocess.run(
            ["xmllint", "--noout", "--relaxng", SCHEMA, *paths], capture_output=True, text=True, check=False
        )
    assert done.stderr.count(" validates\n") == len(paths), done.stderr
