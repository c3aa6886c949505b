"""[pure] A server's definition as a hypervisor keeps it: libvirt's domain XML, written and read back.

What libvirt has no element for (the server's name, its image, the sizes of its disks, the providers nearby) stands in
`metadata`, where libvirt keeps what others put there. `parse_domain` reads what `render_domain` wrote, also after libvirt has put its
own words around it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from moorage.agent.virt.driver import DomainSpec, VirtError

NAMESPACE = "urn:moorage:domain:1"

#: Characters that XML 1.0 has no way to write (its section 2.2): a definition that has one can never be read again.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

#: Megabytes of an emulated device's memory, which the guest sees as its second BAR.
EMULATED_DEVICE_MB = 1
_EMULATED = "moorage-"


@dataclass(frozen=True)
class Machine:
    """What all guests of a host are made of."""

    virt_type: str = "qemu"  #: ``kvm``, or ``qemu``: software emulation
    arch: str = "x86_64"
    model: str = "q35"
    cpu_mode: str | None = None  #: ``host-model``, ``host-passthrough``, ``maximum``; None: QEMU's own default
    #: Each device of a server is an `ivshmem` of QEMU's instead of the host's own: for hosts without VFIO.
    emulates_devices: bool = False


@dataclass(frozen=True)
class DomainDisk:
    path: str
    format: str  #: ``qcow2`` or ``raw``; never found out from the content, which is a tenant's
    read_only: bool = False


@dataclass(frozen=True)
class GuestPaths:
    """The files of one guest on its host."""

    disks: tuple[DomainDisk, ...] = ()  #: ``vda``, ``vdb`` ... in this order
    console: str | None = None  #: the file that the serial port's output goes to
    kernel: str | None = None
    initrd: str | None = None
    cmdline: str | None = None
    guest_agent: bool = False
    rescue_image: str | None = None  #: the first disk is made from it


def render_domain(
    spec: DomainSpec, numa_nodes: Sequence[int] = (), machine: Machine | None = None, parts: GuestPaths | None = None
) -> bytes:
    """`numa_nodes`: of the host, where the guest's memory should be."""
    machine, parts = machine or Machine(), parts or GuestPaths()
    ET.register_namespace("moorage", NAMESPACE)
    domain = ET.Element("domain", type=machine.virt_type)
    # A name of libvirt's is unique on its host and goes into paths; a server's is neither.
    _text(domain, "name", domain_name(spec.uuid))
    _text(domain, "uuid", spec.uuid)
    _metadata(domain, spec, parts)
    _text(domain, "memory", str(spec.memory_mb), unit="MiB")
    _text(domain, "vcpu", str(spec.vcpus))
    if numa_nodes:
        nodeset = ",".join(str(node) for node in sorted(numa_nodes))
        # "preferred" takes one node only.
        mode = "preferred" if len(numa_nodes) == 1 else "interleave"
        ET.SubElement(ET.SubElement(domain, "numatune"), "memory", mode=mode, nodeset=nodeset)
    _os(domain, machine, parts)
    if machine.cpu_mode:
        ET.SubElement(domain, "cpu", mode=machine.cpu_mode)
    features = ET.SubElement(domain, "features")
    for feature in ("acpi", "apic"):
        ET.SubElement(features, feature)
    for event, does in (("poweroff", "destroy"), ("reboot", "restart"), ("crash", "restart")):
        _text(domain, f"on_{event}", does)
    _devices(domain, spec, machine, parts)
    ET.indent(domain)
    text = _NO_XML.sub("\N{REPLACEMENT CHARACTER}", ET.tostring(domain, encoding="unicode"))
    return f"{text}\n".encode()


def domain_name(uuid: str) -> str:
    return f"moorage-{uuid}"


def _metadata(domain: ET.Element, spec: DomainSpec, parts: GuestPaths) -> None:
    attributes = {
        "name": spec.name,
        "disk_gb": str(spec.disk_gb),
        "ephemeral_gb": str(spec.ephemeral_gb),
        "swap_mb": str(spec.swap_mb),
    }
    known = {"image": spec.image_id, "project": spec.project_id, "flavor": spec.flavor, "rescue": parts.rescue_image}
    attributes |= {name: value for name, value in known.items() if value}
    server = ET.SubElement(ET.SubElement(domain, "metadata"), f"{{{NAMESPACE}}}server", attributes)
    for provider in sorted(spec.near):
        _text(server, f"{{{NAMESPACE}}}near", provider)


def _os(domain: ET.Element, machine: Machine, parts: GuestPaths) -> None:
    system = ET.SubElement(domain, "os")
    _text(system, "type", "hvm", arch=machine.arch, machine=machine.model)
    for tag in ("kernel", "initrd", "cmdline"):
        if text := getattr(parts, tag):
            _text(system, tag, text)
    if not parts.kernel:
        ET.SubElement(system, "boot", dev="hd")


def _devices(domain: ET.Element, spec: DomainSpec, machine: Machine, parts: GuestPaths) -> None:
    devices = ET.SubElement(domain, "devices")
    for disk, letter in zip(parts.disks, "abcdefgh", strict=False):
        element = ET.SubElement(devices, "disk", type="file", device="disk")
        ET.SubElement(
            element, "driver", name="qemu", type=disk.format, cache="none" if not disk.read_only else "default"
        )
        ET.SubElement(element, "source", file=disk.path)
        ET.SubElement(element, "target", dev=f"vd{letter}", bus="virtio")
        if disk.read_only:
            ET.SubElement(element, "readonly")
    if parts.console:
        serial = ET.SubElement(devices, "serial", type="pty")
        ET.SubElement(serial, "log", file=parts.console, append="on")
        ET.SubElement(serial, "target", port="0")
    if parts.guest_agent:
        channel = ET.SubElement(devices, "channel", type="unix")
        ET.SubElement(channel, "target", type="virtio", name="org.qemu.guest_agent.0")
    for address in spec.pci_addresses:
        devices.append(_emulated(address) if machine.emulates_devices else _passed_through(address))
    for uuid in spec.mdev_uuids:
        hostdev = ET.SubElement(devices, "hostdev", mode="subsystem", type="mdev", managed="no", model="vfio-pci")
        ET.SubElement(ET.SubElement(hostdev, "source"), "address", uuid=uuid)


def _passed_through(address: str) -> ET.Element:
    hostdev = ET.Element("hostdev", mode="subsystem", type="pci", managed="yes")
    ET.SubElement(ET.SubElement(hostdev, "source"), "address", _pci_attributes(address))
    return hostdev


def _emulated(address: str) -> ET.Element:
    """In the role of a master its memory goes along when the guest is suspended."""
    _pci_attributes(address)
    shmem = ET.Element("shmem", name=f"{_EMULATED}{address}", role="master")
    ET.SubElement(shmem, "model", type="ivshmem-plain")
    _text(shmem, "size", str(EMULATED_DEVICE_MB), unit="M")
    return shmem


def shared_memory_name(address: str) -> str:
    """Of the emulated device with this address: a file of the host's ``/dev/shm``."""
    return f"{_EMULATED}{address}"


def is_ours(data: str | bytes) -> bool:
    """Whether a definition is by `render_domain`: libvirt's host may have others."""
    try:
        return read_xml(data, "the definition").find(f"metadata/{{{NAMESPACE}}}server") is not None
    except VirtError:
        return False


def rescue_image(data: str | bytes) -> str | None:
    """The image that a domain in rescue was booted from; None where it is not in rescue."""
    server = read_xml(data, "the definition").find(f"metadata/{{{NAMESPACE}}}server")
    return None if server is None else server.get("rescue")


def parse_domain(data: str | bytes) -> DomainSpec:
    """Raises `VirtError` for anything but a definition by `render_domain`."""
    try:
        domain = read_xml(data, "the definition")
        server = domain.find(f"metadata/{{{NAMESPACE}}}server")
        if server is None:
            raise VirtError("the definition is not by this agent: its metadata is missing")
        return DomainSpec(
            uuid=_found(domain, "uuid"),
            name=server.attrib["name"],
            vcpus=int(_found(domain, "vcpu")),
            memory_mb=_memory_mb(domain),
            disk_gb=int(server.get("disk_gb", "0")),
            ephemeral_gb=int(server.get("ephemeral_gb", "0")),
            swap_mb=int(server.get("swap_mb", "0")),
            image_id=server.get("image"),
            project_id=server.get("project"),
            flavor=server.get("flavor"),
            pci_addresses=tuple(_pci_addresses(domain)),
            mdev_uuids=tuple(
                element.attrib["uuid"] for element in domain.iterfind("devices/hostdev[@type='mdev']/source/address")
            ),
            near=frozenset(element.text or "" for element in server.iterfind(f"{{{NAMESPACE}}}near")),
        )
    except (ValueError, KeyError) as error:
        raise VirtError(f"the definition cannot be read: {error}") from error


def _memory_mb(domain: ET.Element) -> int:
    """In KiB in what libvirt answers, whatever it was told."""
    element = domain.find("memory")
    scale = {"KiB": 1 << 10, "MiB": 1 << 20}[element.get("unit", "KiB") if element is not None else "KiB"]
    return int(_found(domain, "memory")) * scale >> 20


def _pci_addresses(domain: ET.Element) -> list[str]:
    """In the order of the definition; it has either kind, not both."""
    passed = [_pci_address(found) for found in domain.iterfind("devices/hostdev[@type='pci']/source/address")]
    names = [found.get("name", "") for found in domain.iterfind("devices/shmem")]
    return passed + [name.removeprefix(_EMULATED) for name in names if name.startswith(_EMULATED)]


def _text(parent: ET.Element, tag: str, text: str, **attributes: str) -> None:
    ET.SubElement(parent, tag, attributes).text = text


def _found(domain: ET.Element, tag: str) -> str:
    text = domain.findtext(tag)
    if text is None:
        raise VirtError(f"the definition has no <{tag}>")
    return text


def _pci_attributes(address: str) -> dict[str, str]:
    """Of ``dddd:bb:dd.f``."""
    try:
        domain, bus, rest = address.split(":")
        slot, function = rest.split(".")
        values = {"domain": int(domain, 16), "bus": int(bus, 16), "slot": int(slot, 16), "function": int(function, 8)}
    except ValueError as error:
        raise VirtError(f"{address!r} is not a PCI address; it looks like 0000:3b:00.1") from error
    widths = {"domain": 4, "bus": 2, "slot": 2, "function": 1}
    return {name: f"0x{value:0{widths[name]}x}" for name, value in values.items()}


def _pci_address(element: ET.Element) -> str:
    domain, bus, slot, function = (int(element.attrib[name], 16) for name in ("domain", "bus", "slot", "function"))
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:o}"


def read_xml(text: str | bytes, what: str) -> ET.Element:
    """Raises `VirtError` for what is no XML; it says of `what`."""
    try:
        # No outsider writes it: libvirt does, which runs as root on this host and escapes whatever name a tenant chose,
        # or this agent did. Against a bomb of entities, all the same, expat has a bound of its own.
        return ET.fromstring(text)  # noqa: S314 - no outsider writes it, and expat bounds entities: see above
    except ET.ParseError as error:
        raise VirtError(f"{what} cannot be read: {error}") from error
