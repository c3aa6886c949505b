"""[pure] A server's definition as a hypervisor keeps it: libvirt's domain XML, written and read back.

What libvirt has no element for (image, size of the disk, the providers nearby) stands in `metadata`, where libvirt
keeps what others put there.
"""

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from moorage.agent.virt.driver import DomainSpec, VirtError

NAMESPACE = "urn:moorage:domain:1"


def render(spec: DomainSpec, numa_nodes: Sequence[int] = ()) -> bytes:
    """`numa_nodes`: of the host, where the guest's memory should be."""
    ET.register_namespace("moorage", NAMESPACE)
    domain = ET.Element("domain", type="qemu")
    _text(domain, "name", spec.name)
    _text(domain, "uuid", spec.uuid)
    _metadata(domain, spec)
    _text(domain, "memory", str(spec.memory_mb), unit="MiB")
    _text(domain, "vcpu", str(spec.vcpus))
    if numa_nodes:
        nodeset = ",".join(str(node) for node in sorted(numa_nodes))
        ET.SubElement(ET.SubElement(domain, "numatune"), "memory", mode="preferred", nodeset=nodeset)
    _text(ET.SubElement(domain, "os"), "type", "hvm", arch="x86_64", machine="q35")
    devices = ET.SubElement(domain, "devices")
    for address in spec.pci_addresses:
        hostdev = ET.SubElement(devices, "hostdev", mode="subsystem", type="pci", managed="yes")
        ET.SubElement(ET.SubElement(hostdev, "source"), "address", _pci_attributes(address))
    ET.indent(domain)
    return f"{ET.tostring(domain, encoding='unicode')}\n".encode()


def parse(data: bytes) -> DomainSpec:
    """Raises `VirtError` for anything but a definition by `render`."""
    try:
        domain = ET.fromstring(data)  # noqa: S314 - written by this agent, in its own directory
        server = domain.find(f"metadata/{{{NAMESPACE}}}server")
        if server is None:
            raise VirtError("the definition is not by this agent: its metadata is missing")
        return DomainSpec(
            uuid=_found(domain, "uuid"),
            name=_found(domain, "name"),
            vcpus=int(_found(domain, "vcpu")),
            memory_mb=int(_found(domain, "memory")),
            disk_gb=int(server.get("disk_gb", "0")),
            image_id=server.get("image"),
            pci_addresses=tuple(_pci_address(element) for element in domain.iterfind("devices/hostdev/source/address")),
            near=frozenset(element.text or "" for element in server.iterfind(f"{{{NAMESPACE}}}near")),
        )
    except (ET.ParseError, ValueError, KeyError) as error:
        raise VirtError(f"the definition cannot be read: {error}") from error


def _metadata(domain: ET.Element, spec: DomainSpec) -> None:
    attributes = {"disk_gb": str(spec.disk_gb)} | ({"image": spec.image_id} if spec.image_id else {})
    server = ET.SubElement(ET.SubElement(domain, "metadata"), f"{{{NAMESPACE}}}server", attributes)
    for provider in sorted(spec.near):
        _text(server, f"{{{NAMESPACE}}}near", provider)


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
