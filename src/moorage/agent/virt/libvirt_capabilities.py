"""[pure] Turns libvirt's description of its host into resource providers: a root with inventories and traits, and the
NUMA nodes.

The CPU traits are those of a guest's CPU (``host-model``), not of the physical CPU: with software emulation the two
differ widely.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from moorage.agent.tree.provider_tree import ProviderNode, ProviderTree
from moorage.agent.virt.domain_xml import read_xml
from moorage.agent.virt.driver import VirtError
from moorage.core.inventories import Inventory

#: {libvirt's name of a CPU feature: traits without ``HW_CPU_X86_``}, if they are not just the name in capitals.
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
#: Features whose trait is ``HW_CPU_X86_`` and the name in capitals.
_SAME_NAMES = frozenset(
    {
        "3dnow", "abm", "avx", "avx2", "avx512bitalg", "avx512bw", "avx512cd", "avx512dq", "avx512er", "avx512f",
        "avx512ifma", "avx512pf", "avx512vbmi", "avx512vbmi2", "avx512vl", "avx512vnni", "bmi2", "f16c", "fma4", "mmx",
        "mpx", "pdpe1gb", "sgx", "sse", "sse2", "sse4a", "ssse3", "stibp", "tbm", "xop",
    }
)  # fmt: skip

#: Traits of every host with this driver: its guests' hardware, and the images that it accepts.
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
class HostShares:
    """The resources that the operator reserves for the host itself, and the allocation ratios of its inventories."""

    reserved_cpus: int = 0
    reserved_memory_mb: int = 512
    reserved_disk_gb: int = 0
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0


def read_capabilities(xml: str) -> Capabilities:
    """Reads libvirt's ``<capabilities>``. Raises `VirtError` if they have no NUMA cells or no emulator."""
    try:
        root = read_xml(xml, "libvirt's capabilities")
        arch = root.findtext("host/cpu/arch") or ""
        cells = tuple(_cell(element) for element in root.iterfind("host/topology/cells/cell"))
        guests = [guest for guest in root.iterfind("guest/arch") if guest.get("name") == arch]
    except (ValueError, KeyError) as error:
        raise VirtError(f"libvirt's capabilities cannot be read: {error}") from error
    if not cells or not guests:
        raise VirtError(f"libvirt reports no memory, or no emulator for {arch or 'its host'}; install QEMU for it")
    virt_types = frozenset(domain.attrib["type"] for guest in guests for domain in guest.iterfind("domain"))
    return Capabilities(arch, cells, virt_types)


def _cell(element: ET.Element) -> NumaCell:
    memory = element.find("memory")
    if memory is None or memory.get("unit") != "KiB":
        raise VirtError("libvirt's capabilities have a NUMA node without a memory size in KiB")
    return NumaCell(int(element.attrib["id"]), int(memory.text or "0") // 1024, len(element.findall("cpus/cpu")))


def guest_cpu(domain_capabilities: str, arch: str) -> str | None:
    """The guest's CPU with ``host-model``, as an element ``<cpu>``; None if there is no such model."""
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
    """Names of the features that an expanded ``<cpu>`` has, without those that its policies disable or forbid."""
    found = read_xml(cpu, "libvirt's CPU").iter("feature")
    return frozenset(feature.attrib["name"] for feature in found if feature.get("policy") in (None, "require", "force"))


def cpu_traits(features: Iterable[str]) -> frozenset[str]:
    """``{"sse4.2", "vme"}`` gives ``{"HW_CPU_X86_SSE42"}``: features without a trait are left out."""
    traits: set[str] = set()
    for feature in features:
        names = _OTHER_NAMES.get(feature) or ((feature.upper(),) if feature in _SAME_NAMES else ())
        traits.update(f"HW_CPU_X86_{name}" for name in names)
    return frozenset(traits)


def numa_name(host: str, cell: int) -> str:
    return f"{host}_NUMA_{cell}"


def providers(
    host: str, capabilities: Capabilities, features: frozenset[str], disk_gb: int, shares: HostShares
) -> ProviderTree:
    """The root, and for each NUMA node a provider without inventories, below which the host's devices are added."""
    arch = f"{capabilities.arch.upper()}"
    inventories = {
        "VCPU": _inventory(capabilities.vcpus, shares.reserved_cpus, shares.cpu_allocation_ratio),
        "MEMORY_MB": _inventory(capabilities.memory_mb, shares.reserved_memory_mb, shares.ram_allocation_ratio),
        "DISK_GB": _inventory(disk_gb, shares.reserved_disk_gb, shares.disk_allocation_ratio),
    }
    root = ProviderNode(
        name=host,
        # Placement refuses an inventory with total 0.
        inventories={name: inventory for name, inventory in inventories.items() if inventory.total},
        traits=_OWN_TRAITS | cpu_traits(features) | {f"HW_ARCH_{arch}", f"COMPUTE_ARCH_{arch}"},
    )
    cells = (
        ProviderNode(numa_name(host, cell.id), parent=host, traits=frozenset({"HW_NUMA_ROOT"}))
        for cell in capabilities.cells
    )
    return ProviderTree([root, *cells])


def _inventory(total: int, reserved: int, ratio: float) -> Inventory:
    """An inventory that one server may use completely."""
    return Inventory(total=total, reserved=min(reserved, total), max_unit=max(total, 1), allocation_ratio=ratio)
