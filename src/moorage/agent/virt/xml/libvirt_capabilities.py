"""[pure] What libvirt says of its host, as resource providers: the root with its inventories and traits, the NUMA nodes.

The traits of the CPU are those of what a guest gets (``host-model``), not of what is soldered on the board: under
software emulation the two have little in common.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from moorage.agent.tree.provider_tree import ProviderNode, ProviderTree
from moorage.agent.virt.driver import VirtError
from moorage.agent.virt.xml.domain_xml import read_xml
from moorage.core.inventories import Inventory

#: libvirt's name of a CPU feature -> the traits, where the trait is not just the name in capitals.
_OTHER_NAMES = {
    "aes": ("AESNI",),
    "amx-bf16": ("AMXBF16",),
    "amx-int8": ("AMXINT8",),
    "amx-tile": ("AMXTILE",),
    "amd-no-ssb": ("AMD_NO_SSB",),
    "amd-ssbd": ("AMD_SSBD",),
    "avx512-vpopcntdq": ("AVX512VPOPCNTDQ",),
    "bmi1": ("BMI",),
    "fma": ("FMA3",),
    "gfni": ("AVX512GFNI",),
    "ibpb": ("AMD_IBPB",),
    "md-clear": ("INTEL_MD_CLEAR",),
    "pcid": ("INTEL_PCID",),
    "pclmuldq": ("CLMUL",),
    "pni": ("SSE3",),
    "rtm": ("TSX",),
    "sha-ni": ("SHA",),
    "spec-ctrl": ("INTEL_SPEC_CTRL",),
    "ssbd": ("INTEL_SSBD",),
    "sse4.1": ("SSE41",),
    "sse4.2": ("SSE42",),
    "svm": ("SVM", "AMD_SVM"),
    "vaes": ("AVX512VAES",),
    "virt-ssbd": ("AMD_VIRT_SSBD",),
    "vmx": ("VMX", "INTEL_VMX"),
    "vpclmulqdq": ("AVX512VPCLMULQDQ",),
}
_SAME_NAMES = frozenset(
    {
        "3dnow", "abm", "avx", "avx2", "avx512bitalg", "avx512bw", "avx512cd", "avx512dq", "avx512er", "avx512f",
        "avx512ifma", "avx512pf", "avx512vbmi", "avx512vbmi2", "avx512vl", "avx512vnni", "bmi2", "f16c", "fma4", "mmx",
        "mpx", "pdpe1gb", "sgx", "sse", "sse2", "sse4a", "ssse3", "stibp", "tbm", "xop",
    }
)  # fmt: skip

#: What every guest of this driver has, and what images it can be made from.
_OWN_TRAITS = frozenset(
    {
        "COMPUTE_ACCELERATORS",
        "COMPUTE_FIRMWARE_BIOS",
        "COMPUTE_GRAPHICS_MODEL_NONE",
        "COMPUTE_IMAGE_TYPE_AKI",
        "COMPUTE_IMAGE_TYPE_AMI",
        "COMPUTE_IMAGE_TYPE_ARI",
        "COMPUTE_IMAGE_TYPE_QCOW2",
        "COMPUTE_IMAGE_TYPE_RAW",
        "COMPUTE_STORAGE_BUS_VIRTIO",
    }
)


@dataclass(frozen=True)
class NumaCell:
    """A NUMA node."""

    id: int
    memory_mb: int
    cpus: int


@dataclass(frozen=True)
class Capabilities:
    arch: str
    cells: tuple[NumaCell, ...]
    virt_types: frozenset[str]  #: for guests of the host's own architecture: ``qemu``, ``kvm``

    @property
    def vcpus(self) -> int:
        return sum(cell.cpus for cell in self.cells)

    @property
    def memory_mb(self) -> int:
        return sum(cell.memory_mb for cell in self.cells)


@dataclass(frozen=True)
class Shares:
    """What the operator keeps for the host itself, and how far its resources are given out more than once."""

    reserved_cpus: int = 0
    reserved_memory_mb: int = 512
    reserved_disk_gb: int = 0
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0


def read_capabilities(xml: str) -> Capabilities:
    """Of libvirt's ``<capabilities>``. Raises `VirtError` where they say nothing of CPUs or memory."""
    try:
        root = read_xml(xml, "libvirt's capabilities")
        arch = root.findtext("host/cpu/arch") or ""
        cells = tuple(_cell(element) for element in root.iterfind("host/topology/cells/cell"))
        guests = [guest for guest in root.iterfind("guest/arch") if guest.get("name") == arch]
    except (ValueError, KeyError) as error:
        raise VirtError(f"libvirt's capabilities cannot be read: {error}") from error
    if not cells or not guests:
        raise VirtError(f"libvirt knows no memory, or no emulator for {arch or 'its host'}; install QEMU for it")
    virt_types = frozenset(domain.attrib["type"] for guest in guests for domain in guest.iterfind("domain"))
    return Capabilities(arch, cells, virt_types)


def _cell(element: ET.Element) -> NumaCell:
    memory = element.find("memory")
    if memory is None or memory.get("unit") != "KiB":
        raise VirtError("libvirt's capabilities give a NUMA node no memory in KiB")
    return NumaCell(int(element.attrib["id"]), int(memory.text or "0") // 1024, len(element.findall("cpus/cpu")))


def guest_cpu(domain_capabilities: str, arch: str) -> str | None:
    """The CPU that ``host-model`` gives a guest, as an element ``<cpu>``; None where there is no such model."""
    mode = read_xml(domain_capabilities, "libvirt's capabilities of domains").find(
        "cpu/mode[@name='host-model'][@supported='yes']"
    )
    if mode is None:
        return None
    cpu = ET.Element("cpu")
    ET.SubElement(cpu, "arch").text = arch
    cpu.extend(mode)
    return ET.tostring(cpu, encoding="unicode")


def cpu_features(cpu: str) -> frozenset[str]:
    """Names of what an expanded ``<cpu>`` has; what it forbids is not among them."""
    found = read_xml(cpu, "libvirt's CPU").iter("feature")
    return frozenset(feature.attrib["name"] for feature in found if feature.get("policy") in (None, "require", "force"))


def cpu_traits(features: Iterable[str]) -> frozenset[str]:
    """``{"sse4.2", "vme"}`` is ``{"HW_CPU_X86_SSE42"}``: what has no trait is left out."""
    traits: set[str] = set()
    for feature in features:
        names = _OTHER_NAMES.get(feature) or ((feature.upper(),) if feature in _SAME_NAMES else ())
        traits.update(f"HW_CPU_X86_{name}" for name in names)
    return frozenset(traits)


def numa_name(host: str, cell: int) -> str:
    return f"{host}_NUMA_{cell}"


def providers(
    host: str, capabilities: Capabilities, features: frozenset[str], disk_gb: int, shares: Shares
) -> ProviderTree:
    """The root and a provider per NUMA node, which carries no inventory: devices hang below it."""
    arch = f"{capabilities.arch.upper()}"
    inventories = {
        "VCPU": _inventory(capabilities.vcpus, shares.reserved_cpus, shares.cpu_allocation_ratio),
        "MEMORY_MB": _inventory(capabilities.memory_mb, shares.reserved_memory_mb, shares.ram_allocation_ratio),
        "DISK_GB": _inventory(disk_gb, shares.reserved_disk_gb, shares.disk_allocation_ratio),
    }
    root = ProviderNode(
        name=host,
        # Placement takes no inventory of nothing.
        inventories={name: inventory for name, inventory in inventories.items() if inventory.total},
        traits=_OWN_TRAITS | cpu_traits(features) | {f"HW_ARCH_{arch}", f"COMPUTE_ARCH_{arch}"},
    )
    cells = (
        ProviderNode(numa_name(host, cell.id), parent=host, traits=frozenset({"HW_NUMA_ROOT"}))
        for cell in capabilities.cells
    )
    return ProviderTree([root, *cells])


def _inventory(total: int, reserved: int, ratio: float) -> Inventory:
    """One server may have all of it."""
    return Inventory(total=total, reserved=min(reserved, total), max_unit=max(total, 1), allocation_ratio=ratio)
