"""Values of extra specs that hypervisors read, not the scheduler: refused from microversion 2.86 on, as Nova does.

Below it clients may set anything in these namespaces, so there only what bears on scheduling is checked.
Source: the validators of Nova 34 (`nova.api.validation.extra_specs`), each value tried.
"""

import re
from collections.abc import Iterator, Mapping

from moorage.core.errors import Invalid

_MASK = r"\^?\d+(-\d+)?(,\^?\d+(-\d+)?)*"
_BOOLEAN = r"(?i:1|0|t|true|on|y|yes|f|false|off|n|no)"
_FROM_0, _FROM_1 = r"\s*\d+\s*", r"\s*0*[1-9]\d*\s*"

#: {key: (expression for its value, what that means)}; ``#`` in a key stands for a number.
_KNOWN: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("hw:boot_menu", "hw:cpu_realtime", "hw:ephemeral_encryption", "hw:hide_hypervisor_id", "hw:locked_memory", "hw:mem_encryption", "hw:pmu", "hw:vif_multiqueue_enabled", "hw:virtio_packed_ring"), (_BOOLEAN, "true or false")),
    **dict.fromkeys(("hw:cpu_cores", "hw:cpu_max_cores", "hw:cpu_max_sockets", "hw:cpu_max_threads", "hw:cpu_sockets", "hw:cpu_threads", "hw:numa_mem.#", "hw:numa_nodes"), (_FROM_1, "a whole number from 1")),
    **dict.fromkeys(("hw:cpu_dedicated_mask", "hw:cpu_realtime_mask", "hw:numa_cpus.#"), (_MASK, "processors, like 0-3,^1")),
    **{
        key: ("|".join(map(re.escape, values)), f"one of {', '.join(values)}")
        for key, values in {
            "hw:cpu_policy": ("shared", "dedicated", "mixed"),
            "hw:cpu_thread_policy": ("prefer", "isolate", "require"),
            "hw:emulator_threads_policy": ("share", "isolate"),
            "hw:ephemeral_encryption_format": ("plain", "luks", "luksv2"),
            "hw:mem_encryption_model": ("amd-sev", "amd-sev-es", "amd-sev-snp", "intel-tdx"),
            "hw:pci_numa_affinity_policy": ("required", "preferred", "legacy", "socket"),
            "hw:sound_model": ("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio"),
            "hw:tpm_model": ("tpm-tis", "tpm-crb"),
            "hw:tpm_secret_security": ("user", "host", "deployment"),
            "hw:tpm_version": ("1.2", "2.0"),
            "hw:usb_model": ("none", "nec-xhci", "qemu-xhci"),
            "hw:viommu_model": ("intel", "smmuv3", "virtio", "auto"),
            "hw:watchdog_action": ("none", "pause", "poweroff", "reset", "disabled"),
        }.items()
    },
    "hw:mem_page_size": (r"large|small|any|\d+([kKMGT]i?)?(b|bit|B)?", "large, small, any or a size like 2MB"),
    "hw:pmem": (r"([a-zA-Z0-9_]+,?)+", "names of persistent memory, like 4GB,4GB"),
    "hw:redirected_usb_ports": (r"\d|1[0-5]", "a whole number from 0 to 15"),
    "hw:serial_port_count": (_FROM_0, "a whole number"),
    "accel:device_profile": (r"[a-zA-Z0-9_-]{1,255}", "the name of a device profile"),
    # What a region is to carry: the accelerators' own (docs/evidence/specs/accelerator-attach.md, A2); Nova has them in profiles.
    **dict.fromkeys(("accel:bitstream_id", "accel:function_id", "accel:function_name"), (r".{1,255}", "an id or a name")),
    "accel:bitstream_signature": (r"(?i:required|true|1|yes)", "required"),
}  # fmt: skip
_NAMESPACES = {key.partition(":")[0] for key in _KNOWN}


def meanings() -> dict[str, str]:
    """{key: what its value is}, for the reference of extra specs."""
    return {key: meaning for key, (_, meaning) in _KNOWN.items()}


def check_known(given: Mapping[str, str]) -> None:
    """Raises `Invalid` for an unknown key of a known namespace, and for a value that a known key does not have."""
    for key, value in given.items():
        pattern, meaning = _KNOWN.get(re.sub(r"\.\d+\Z", ".#", key), ("", ""))
        if pattern and re.fullmatch(pattern, value) is None:
            raise Invalid(f"{key}={value}: this extra spec takes {meaning}")
        if not pattern and key.partition(":")[0] in _NAMESPACES:
            near = ", ".join(sorted(_near(key))) or "see the reference of flavor extra specs"
            raise Invalid(f"{key}: there is no such extra spec; {near}")


def _near(key: str) -> Iterator[str]:
    """Known keys that begin like `key`."""
    for length in range(len(key), len(key.partition(":")[0]) + 2, -1):
        if found := [known for known in _KNOWN if known.startswith(key[:length])]:
            yield from (f"there is {known}" for known in found[:3])
            return
