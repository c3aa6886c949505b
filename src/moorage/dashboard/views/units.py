"""Resource classes in words, and amounts and spans of time with their unit. Pure."""

from collections.abc import Mapping
from datetime import timedelta

#: The resource class that counts whole hosts.
HOSTS = "HOSTS"
_WORDS: Mapping[str, str] = {
    HOSTS: "Whole hosts", "VCPU": "Processors", "PCPU": "Dedicated processors", "MEMORY_MB": "Memory",
    "DISK_GB": "Disk", "PGPU": "GPUs", "VGPU": "Virtual GPUs", "FPGA": "FPGAs",
    "CUSTOM_ACCELERATOR_FPGA": "FPGA regions", "CUSTOM_ACCELERATOR_GPU": "GPUs",
}  # fmt: skip

#: {resource class: MiB per unit}. OpenStack's names say MB and GB, but mean 2**20 and 2**30 bytes.
_MIB: Mapping[str, int] = {"MEMORY_MB": 1, "DISK_GB": 1024}
#: (MiB, unit). A unit is used from ten of it on, or if the amount is a whole number of it.
_UNITS = ((1024**2, "TiB"), (1024, "GiB"))


def class_words(name: str) -> str:
    """``Memory`` for ``MEMORY_MB``, ``Fast scratch`` for ``CUSTOM_FAST_SCRATCH``."""
    return _WORDS.get(name) or name.removeprefix("CUSTOM_").replace("_", " ").capitalize()


def amount_text(name: str, amount: int) -> str:
    """`amount` units of the class `name`: ``441 GiB`` for 451,584 ``MEMORY_MB``, ``16`` for 16 ``VCPU``."""
    return size_text(amount * _MIB[name]) if name in _MIB else f"{amount:,}"


def size_text(mib: int) -> str:
    """``512 MiB``, ``2.5 GiB``, ``31.5 GiB``, ``441 GiB``, ``9,800 GiB``, ``12 TiB``."""
    for length, unit in _UNITS:
        if mib >= 10 * length or (mib >= length and (mib % length == 0 or unit == "GiB")):
            return f"{_rounded(mib / length)} {unit}"
    return f"{mib:,} MiB" if mib else "0"


def _rounded(number: float) -> str:
    """At most one digit after the point, and none from 100 on."""
    return f"{round(number):,}" if number >= 100 or number == round(number) else f"{number:.1f}".removesuffix(".0")


def flavor_size(vcpus: int, ram_mb: int, disk_gb: int) -> str:
    """``2 VCPU, 4 GiB, 20 GiB disk``"""
    return f"{vcpus} VCPU, {size_text(ram_mb)}, {size_text(1024 * disk_gb)} disk"


def span_text(span: timedelta) -> str:
    """``3 d 4 h``, ``25 min``, ``40 s``: the two largest units."""
    left = int(abs(span.total_seconds()))
    words = []
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length_s)
        if count:
            words.append(f"{count} {unit}")
    return " ".join(words[:2]) or "0 s"
