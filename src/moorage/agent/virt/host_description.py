"""The description of a simulated host: the default, or a YAML file such as::

name: compute-1
vcpus: 16
memory_mb: 32768
reserved_memory_mb: 512
disk_gb: 500
numa_nodes: 2
traits: [HW_CPU_X86_AVX2]
"""

from pathlib import Path

import msgspec

from moorage.core.errors import StartError


class HostDescription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str = "compute-1"
    vcpus: int = 16
    memory_mb: int = 32768
    reserved_memory_mb: int = 512
    disk_gb: int = 500
    numa_nodes: int = 2
    cpu_allocation_ratio: float = 1.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    traits: tuple[str, ...] = ("COMPUTE_IMAGE_TYPE_QCOW2", "COMPUTE_IMAGE_TYPE_RAW", "HW_ARCH_X86_64")
    host_ip: str = "127.0.0.1"
    uuid: str | None = None  #: uuid of its resource provider, if it must be known in advance

    def __post_init__(self) -> None:
        if min(self.vcpus, self.memory_mb, self.disk_gb, self.numa_nodes) < 1:
            raise ValueError("vcpus, memory_mb, disk_gb and numa_nodes must be at least 1")
        if not 0 <= self.reserved_memory_mb < self.memory_mb:
            raise ValueError("reserved_memory_mb must be at least 0 and less than memory_mb")

    def numa_name(self, node: int) -> str:
        return f"{self.name}_NUMA_{node}"


def read_description(path: Path) -> HostDescription:
    """Raises `StartError`, which names the file and the fault."""
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=HostDescription)
    except OSError as error:
        raise StartError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StartError(f"{path}: is not a valid description of a host: {error}") from error
