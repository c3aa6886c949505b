"""[pure] A server's definition as a hypervisor stores it, libvirt's domain XML: writes it and reads it back.

Values for which libvirt has no element (the server's name, its image, the sizes of its disks, `provider_ancestors`) are
in the element `metadata`, which libvirt keeps unchanged. `parse_domain` reads what `render_domain` wrote, also after
libvirt has added its own elements.

`render_settings` adds the guest settings of a flavor and image as elements. Their names are keys of extra specs, or
image properties where there is no such key; `moorage.scheduler.spec_table` lists those that the virt driver honours.
The metadata contain them too, so that `parse_domain` reads them back.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from moorage.agent.virt.driver import DomainInterface, DomainSpec, VirtError

NAMESPACE = "urn:moorage:domain:1"

#: Characters that XML 1.0 does not allow (section 2.2): a definition with one of them could not be read again.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

#: Megabytes of an emulated device's memory, which the guest sees as its second BAR.
EMULATED_DEVICE_MB = 1
_EMULATED = "moorage-"


@dataclass(frozen=True)
class Machine:
    """The virtual machine type of all guests of a host."""

    virt_type: str = "qemu"  #: ``kvm``, or ``qemu``: software emulation
    arch: str = "x86_64"
    model: str = "q35"
    cpu_mode: str | None = None  #: ``host-model``, ``host-passthrough``, ``maximum``; None: QEMU's own default
    #: Each device of a server is an `ivshmem` device of QEMU instead of the host's device: for hosts without VFIO.
    emulates_devices: bool = False
    #: Number of interfaces that can be added to a running guest. (Other models than ``q35`` need no spare ports.)
    spare_ports: int = 0


@dataclass(frozen=True)
class DomainDisk:
    path: str
    format: str  #: ``qcow2`` or ``raw``; never detected from the content, which belongs to a tenant
    read_only: bool = False


@dataclass(frozen=True)
class GuestPaths:
    """The files of one guest on its host, and how it boots from them."""

    disks: tuple[DomainDisk, ...] = ()  #: ``vda``, ``vdb`` ... in this order
    console: str | None = None  #: the file for the serial port's output
    kernel: str | None = None
    initrd: str | None = None
    cmdline: str | None = None
    guest_agent: bool = False
    rescue_image: str | None = None  #: image of the first disk, while the guest is in rescue


def render_domain(
    spec: DomainSpec, host_nodes: Sequence[int] = (), machine: Machine | None = None, parts: GuestPaths | None = None
) -> bytes:
    """The definition as XML. `host_nodes`: ids of the host's NUMA nodes for the guest's memory."""
    machine, parts = machine or Machine(), parts or GuestPaths()
    ET.register_namespace("moorage", NAMESPACE)
    domain = ET.Element("domain", type=machine.virt_type)
    # libvirt needs names that are unique on the host and valid in paths; the names of servers need not be either.
    _add_text(domain, "name", domain_name(spec.uuid))
    _add_text(domain, "uuid", spec.uuid)
    _add_metadata(domain, spec, parts)
    _add_text(domain, "memory", str(spec.memory_mb), unit="MiB")
    _add_text(domain, "vcpu", str(spec.vcpus))
    if host_nodes:
        nodeset = ",".join(str(node) for node in sorted(host_nodes))
        # "preferred" takes one node only.
        mode = "preferred" if len(host_nodes) == 1 else "interleave"
        ET.SubElement(ET.SubElement(domain, "numatune"), "memory", mode=mode, nodeset=nodeset)
    _add_os(domain, machine, parts)
    if machine.cpu_mode:
        ET.SubElement(domain, "cpu", mode=machine.cpu_mode)
    features = ET.SubElement(domain, "features")
    for feature in ("acpi", "apic"):
        ET.SubElement(features, feature)
    for event, does in (("poweroff", "destroy"), ("reboot", "restart"), ("crash", "restart")):
        _add_text(domain, f"on_{event}", does)
    _add_devices(domain, spec, machine, parts)
    render_settings(domain, dict(spec.settings))
    ET.indent(domain)
    text = _NO_XML.sub("\N{REPLACEMENT CHARACTER}", ET.tostring(domain, encoding="unicode"))
    return f"{text}\n".encode()


def domain_name(uuid: str) -> str:
    return f"moorage-{uuid}"


def _add_metadata(domain: ET.Element, spec: DomainSpec, parts: GuestPaths) -> None:
    attributes = {
        "name": spec.name,
        "disk_gb": str(spec.disk_gb),
        "ephemeral_gb": str(spec.ephemeral_gb),
        "swap_mb": str(spec.swap_mb),
    }
    known = {"image": spec.image_id, "project": spec.project_id, "flavor": spec.flavor, "rescue": parts.rescue_image}
    attributes |= {name: value for name, value in known.items() if value}
    server = ET.SubElement(ET.SubElement(domain, "metadata"), f"{{{NAMESPACE}}}server", attributes)
    for provider in sorted(spec.provider_ancestors):
        _add_text(server, f"{{{NAMESPACE}}}near", provider)
    for name, value in spec.settings:
        _add_text(server, f"{{{NAMESPACE}}}setting", value, name=name)


def _add_os(domain: ET.Element, machine: Machine, parts: GuestPaths) -> None:
    system = ET.SubElement(domain, "os")
    _add_text(system, "type", "hvm", arch=machine.arch, machine=machine.model)
    for tag in ("kernel", "initrd", "cmdline"):
        if text := getattr(parts, tag):
            _add_text(system, tag, text)
    if not parts.kernel:
        ET.SubElement(system, "boot", dev="hd")


def _add_devices(domain: ET.Element, spec: DomainSpec, machine: Machine, parts: GuestPaths) -> None:
    devices = ET.SubElement(domain, "devices")
    for number in range(_root_ports(spec, machine, parts)):
        if number == 0:
            ET.SubElement(devices, "controller", type="pci", index="0", model="pcie-root")
        ET.SubElement(devices, "controller", type="pci", model="pcie-root-port")
    for disk, letter in zip(parts.disks, "abcdefgh", strict=False):
        element = ET.SubElement(devices, "disk", type="file", device="disk")
        ET.SubElement(
            element, "driver", name="qemu", type=disk.format, cache="none" if not disk.read_only else "default"
        )
        ET.SubElement(element, "source", file=disk.path)
        ET.SubElement(element, "target", dev=f"vd{letter}", bus="virtio")
        if disk.read_only:
            ET.SubElement(element, "readonly")
    for interface in spec.interfaces:
        if interface.device is not None and machine.emulates_devices:
            raise VirtError(f"{interface.device} is emulated, so it cannot be a network interface of the guest")
        devices.append(render_interface(interface))
    if parts.console:
        serial = ET.SubElement(devices, "serial", type="pty")
        ET.SubElement(serial, "log", file=parts.console, append="on")
        ET.SubElement(serial, "target", port="0")
    if parts.guest_agent:
        channel = ET.SubElement(devices, "channel", type="unix")
        ET.SubElement(channel, "target", type="virtio", name="org.qemu.guest_agent.0")
    for address in spec.pci_addresses:
        devices.append(_emulated_device(address) if machine.emulates_devices else _pci_passthrough(address))
    for uuid in spec.mdev_uuids:
        hostdev = ET.SubElement(devices, "hostdev", mode="subsystem", type="mdev", managed="no", model="vfio-pci")
        ET.SubElement(ET.SubElement(hostdev, "source"), "address", uuid=uuid)


#: Devices that libvirt adds to each guest, each with a port of its own: memory balloon, USB, serial channel, bridge.
_ADDED_DEVICES = 4


def _root_ports(spec: DomainSpec, machine: Machine, parts: GuestPaths) -> int:
    """Besides the ports for its devices, libvirt gives a guest one port; more devices fit only into spare ports."""
    if not machine.spare_ports or "q35" not in machine.model:
        return 0
    devices = (parts.disks, spec.interfaces, spec.pci_addresses, spec.mdev_uuids)
    return sum(map(len, devices)) + _ADDED_DEVICES + machine.spare_ports


#: Length of the names of tap devices of Neutron: a name of a device of Linux has at most 15 characters.
_DEVICE_NAME_CHARACTERS = 14


def render_interface(interface: DomainInterface) -> ET.Element:
    """``clean-traffic`` lets only these addresses through, or those that a DHCP server has given.

    A port of a Neutron has the name that Neutron's agents expect, and no filter: they filter themselves.
    """
    if interface.device is not None:
        return _render_function(interface, interface.device)
    kind = "bridge" if interface.is_bridge else "network"
    element = ET.Element("interface", type=kind)
    ET.SubElement(element, "mac", address=interface.mac)
    ET.SubElement(element, "source", {kind: interface.source})
    _add_vlan(element, interface)
    ET.SubElement(element, "model", type="virtio")
    if interface.mtu is not None:
        ET.SubElement(element, "mtu", size=str(interface.mtu))
    if interface.ovs_port is not None:
        port = ET.SubElement(element, "virtualport", type="openvswitch")
        ET.SubElement(port, "parameters", interfaceid=interface.ovs_port)
        ET.SubElement(element, "target", dev=f"tap{interface.ovs_port}"[:_DEVICE_NAME_CHARACTERS])
        return element
    traffic = ET.SubElement(element, "filterref", filter="clean-traffic")
    for address in interface.addresses:
        ET.SubElement(traffic, "parameter", name="IP", value=address)
    if not interface.addresses:
        ET.SubElement(traffic, "parameter", name="CTRL_IP_LEARNING", value="dhcp")
    return element


def _render_function(interface: DomainInterface, address: str) -> ET.Element:
    element = ET.Element("interface", type="hostdev", managed="yes")
    ET.SubElement(element, "mac", address=interface.mac)
    ET.SubElement(ET.SubElement(element, "source"), "address", {"type": "pci", **_pci_attributes(address)})
    _add_vlan(element, interface)
    return element


def _add_vlan(element: ET.Element, interface: DomainInterface) -> None:
    if interface.vlan is not None:
        ET.SubElement(ET.SubElement(element, "vlan"), "tag", id=str(interface.vlan))


def interface_element(data: str | bytes, mac: str) -> ET.Element | None:
    """The interface of a domain with this MAC address."""
    for element in read_xml(data, "the definition").iterfind("devices/interface"):
        if _child(element, "mac").attrib["address"].lower() == mac.lower():
            return element
    return None


def _read_interface(element: ET.Element) -> DomainInterface:
    tag, kind = element.find("vlan/tag"), element.attrib["type"]
    port, mtu = element.find("virtualport/parameters"), element.find("mtu")
    device = element.find("source/address")
    return DomainInterface(
        mac=_child(element, "mac").attrib["address"],
        source=_child(element, "source").attrib[kind] if device is None else "",
        is_bridge=kind == "bridge",
        vlan=None if tag is None else int(tag.attrib["id"]),
        addresses=tuple(
            each.attrib["value"] for each in element.iterfind("filterref/parameter") if each.attrib["name"] == "IP"
        ),
        ovs_port=None if port is None else port.attrib.get("interfaceid"),
        mtu=None if mtu is None else int(mtu.attrib["size"]),
        device=None if device is None else _pci_address(device),
    )


def _pci_passthrough(address: str) -> ET.Element:
    hostdev = ET.Element("hostdev", mode="subsystem", type="pci", managed="yes")
    ET.SubElement(ET.SubElement(hostdev, "source"), "address", _pci_attributes(address))
    return hostdev


def _emulated_device(address: str) -> ET.Element:
    """An emulated device. With the role ``master``, QEMU saves its memory when the guest is suspended."""
    _pci_attributes(address)
    shmem = ET.Element("shmem", name=f"{_EMULATED}{address}", role="master")
    ET.SubElement(shmem, "model", type="ivshmem-plain")
    _add_text(shmem, "size", str(EMULATED_DEVICE_MB), unit="M")
    return shmem


def shared_memory_name(address: str) -> str:
    """Name of the file in the host's ``/dev/shm`` for the emulated device with this address."""
    return f"{_EMULATED}{address}"


def is_moorage_domain(data: str | bytes) -> bool:
    """Whether `render_domain` wrote the definition. The host may have domains of other programs too."""
    try:
        return read_xml(data, "the definition").find(f"metadata/{{{NAMESPACE}}}server") is not None
    except VirtError:
        return False


def rescue_image(data: str | bytes) -> str | None:
    """The image that a domain in rescue boots from; None if it is not in rescue."""
    server = read_xml(data, "the definition").find(f"metadata/{{{NAMESPACE}}}server")
    return None if server is None else server.get("rescue")


def parse_domain(data: str | bytes) -> DomainSpec:
    """Read a definition by `render_domain`. Raises `VirtError` for any other."""
    try:
        domain = read_xml(data, "the definition")
        server = domain.find(f"metadata/{{{NAMESPACE}}}server")
        if server is None:
            raise VirtError("this agent did not write the definition: its metadata is missing")
        return DomainSpec(
            uuid=_required_text(domain, "uuid"),
            name=server.attrib["name"],
            vcpus=int(_required_text(domain, "vcpu")),
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
            interfaces=tuple(_read_interface(element) for element in domain.iterfind("devices/interface")),
            settings=tuple(
                (element.attrib["name"], element.text or "") for element in server.iterfind(f"{{{NAMESPACE}}}setting")
            ),
            provider_ancestors=frozenset(element.text or "" for element in server.iterfind(f"{{{NAMESPACE}}}near")),
        )
    except (ValueError, KeyError) as error:
        raise VirtError(f"the definition cannot be read: {error}") from error


def _memory_mb(domain: ET.Element) -> int:
    """Memory in MiB. libvirt always answers in KiB, even if the domain was defined in another unit."""
    element = domain.find("memory")
    scale = {"KiB": 1 << 10, "MiB": 1 << 20}[element.get("unit", "KiB") if element is not None else "KiB"]
    return int(_required_text(domain, "memory")) * scale >> 20


def _pci_addresses(domain: ET.Element) -> list[str]:
    """PCI addresses of the passed-through or emulated devices, in the guest's order.

    A domain has one of the two kinds.
    """
    passed = [_pci_address(found) for found in domain.iterfind("devices/hostdev[@type='pci']/source/address")]
    names = [found.get("name", "") for found in domain.iterfind("devices/shmem")]
    return passed + [name.removeprefix(_EMULATED) for name in names if name.startswith(_EMULATED)]


def _add_text(parent: ET.Element, tag: str, text: str, **attributes: str) -> None:
    ET.SubElement(parent, tag, attributes).text = text


def _required_text(domain: ET.Element, tag: str) -> str:
    text = domain.findtext(tag)
    if text is None:
        raise VirtError(f"the definition has no <{tag}>")
    return text


def _pci_attributes(address: str) -> dict[str, str]:
    """Attributes of an <address> for ``dddd:bb:dd.f``."""
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
    """Parse XML of a hypervisor. Raises `VirtError` for invalid XML; its message names `what`."""
    try:
        # This agent or libvirt wrote the XML; both escape the names that tenants choose. expat itself limits the
        # expansion of entities.
        return ET.fromstring(text)  # noqa: S314 - no outsider writes it, and expat limits entities: see above
    except ET.ParseError as error:
        raise VirtError(f"{what} cannot be read: {error}") from error


_TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})


def _is_true(value: str) -> bool:
    return value.strip().lower() in _TRUE


def render_settings(domain: ET.Element, settings: Mapping[str, str]) -> None:
    """Adds the elements of all settings to a complete definition. Raises `VirtError` for an unknown setting, which the
    guest would lack.
    """
    for name, value in settings.items():
        if name not in RENDERERS:
            raise VirtError(f"this agent does not know the setting {name}={value}; update the agent")
        RENDERERS[name](domain, name, value.strip())
    _add_random_numbers(domain, settings)


def _child(parent: ET.Element, tag: str) -> ET.Element:
    """The first child of this name; adds one if there is none."""
    found = parent.find(tag)
    return ET.SubElement(parent, tag) if found is None else found


def _boot_menu(domain: ET.Element, name: str, value: str) -> None:
    ET.SubElement(_child(domain, "os"), "bootmenu", enable="yes" if _is_true(value) else "no")


def _hidden(domain: ET.Element, name: str, value: str) -> None:
    kvm = _child(_child(domain, "features"), "kvm")
    ET.SubElement(kvm, "hidden", state="on" if _is_true(value) else "off")


def _performance_counters(domain: ET.Element, name: str, value: str) -> None:
    ET.SubElement(_child(domain, "features"), "pmu", state="on" if _is_true(value) else "off")


def _watchdog(domain: ET.Element, name: str, value: str) -> None:
    ET.SubElement(_child(domain, "devices"), "watchdog", model="i6300esb", action=value)


def _clock(domain: ET.Element, name: str, value: str) -> None:
    """Windows keeps local time in the hardware clock, as Nova's driver knows."""
    if value.lower() == "windows":
        ET.SubElement(domain, "clock", offset="localtime")


def _processor_time(domain: ET.Element, name: str, value: str) -> None:
    """``quota:cpu_shares`` becomes ``<shares>``."""
    ET.SubElement(_child(domain, "cputune"), name.removeprefix("quota:cpu_")).text = value


def _disk_limit(domain: ET.Element, name: str, value: str) -> None:
    """``quota:disk_read_bytes_sec`` becomes ``<read_bytes_sec>`` of each disk, as in Nova."""
    for disk in domain.iterfind("devices/disk"):
        ET.SubElement(_child(disk, "iotune"), name.removeprefix("quota:disk_")).text = value


def _nothing(domain: ET.Element, name: str, value: str) -> None:
    """For settings that `_add_random_numbers` reads together."""


def _add_random_numbers(domain: ET.Element, settings: Mapping[str, str]) -> None:
    """Adds a random number generator: if the flavor allows one, or, without a setting of the flavor, if the image
    names a model.
    """
    allowed = settings.get("hw_rng:allowed")
    if "hw_rng_model" not in settings if allowed is None else not _is_true(allowed):
        return
    device = ET.SubElement(_child(domain, "devices"), "rng", model="virtio")
    if limit := settings.get("hw_rng:rate_bytes"):
        rate = {"bytes": limit.strip()}
        if period := settings.get("hw_rng:rate_period"):
            rate["period"] = period.strip()
        ET.SubElement(device, "rate", rate)
    ET.SubElement(device, "backend", model="random").text = "/dev/urandom"


#: {setting: adds its elements to the definition, from its name and value}
RENDERERS: Mapping[str, Callable[[ET.Element, str, str], None]] = {
    "hw:boot_menu": _boot_menu,
    "hw:hide_hypervisor_id": _hidden,
    "hw:pmu": _performance_counters,
    "hw:watchdog_action": _watchdog,
    "os_type": _clock,
    **dict.fromkeys(("quota:cpu_shares", "quota:cpu_period", "quota:cpu_quota"), _processor_time),
    **{f"quota:disk_{way}_{unit}_sec": _disk_limit for way in ("read", "write", "total") for unit in ("bytes", "iops")},
    **dict.fromkeys(("hw_rng:allowed", "hw_rng:rate_bytes", "hw_rng:rate_period", "hw_rng_model"), _nothing),
}
