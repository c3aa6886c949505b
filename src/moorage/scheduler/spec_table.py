"""The table of extra specs and image properties: what each becomes, and which component honours it.

    SPECS        one entry for each key that Nova 34 validates, and for Moorage's own
    spec_entry   key of a flavor -> its entry, or None
    image_entry  image property -> its entry, or None

The owner of a server relies on each key, so a component honours it, or the server is refused (`spec_rules`).
docs/reference/extra-specs.md is generated from the table; tests/docs/test_extra_specs_page.py compares it with Nova's
own lists. Sources: `nova.api.validation.extra_specs` and `nova.objects.image_meta` of Nova 34.

In keys, ``#`` stands for a number, ``<S>`` for nothing or the suffix of a request group, and other names in angle
brackets for any text. Pure: no I/O here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import cache


class HonouredBy(StrEnum):
    """The values are printed on the page."""

    PLACEMENT = "Placement"
    SCHEDULER = "scheduler"
    COMPUTE = "compute"
    ACCELERATOR = "accelerator service and agent"
    #: Sent to the host as a setting of the guest (`spec_rules.guest_settings`).
    DRIVER = "virt driver"
    DRIVER_AND_IMAGE = "virt driver, which reads the image"
    #: No component: a server is refused unless the value is one of `SpecEntry.harmless`.
    NOTHING = "refused"
    #: It describes the image, or only drivers that Nova no longer has use it.
    FACT = "descriptive only"


@dataclass(frozen=True)
class SpecEntry:
    """`key`: of a flavor; `image`: image property with the same meaning; either may be empty."""

    key: str
    image: str
    by: HonouredBy
    becomes: str = ""
    values: str = r"(?s:.*)"  #: regular expression for all values, which Nova checks from microversion 2.86 on
    meaning: str = ""  #: `values` in words
    harmless: str = ""  #: regular expression for values that need no action; with `NOTHING`, other values are refused
    harmless_words: str = ""  #: `harmless` in words
    aliases: Sequence[str] = ()  #: further keys of flavors
    image_aliases: Sequence[str] = ()  #: former names of the image property

    def holds_without_action(self, value: str) -> bool:
        """Whether a server with this value gets the same guest as one without the key."""
        return bool(self.harmless) and re.fullmatch(self.harmless, value.strip()) is not None


#: Namespaces in which Nova knows every key (`validators.NAMESPACES`), without those with a key ``<KEY>``.
_NAMESPACES = frozenset({"accel", "hw", "hw_rng", "hw_video", "os", "pci_passthrough", "quota"})
_MASK = r"\^?\d+(-\d+)?(,\^?\d+(-\d+)?)*"
_BOOLEAN = r"(?i:1|0|t|true|on|y|yes|f|false|off|n|no)"
_FALSE = r"(?i:|0|f|false|off|n|no|none)"
_FROM_0, _FROM_1 = r"\s*\d+\s*", r"\s*0*[1-9]\d*\s*"
_ANY = r"(?s:.*)"
_NO_PINNING = "no driver of Moorage pins processors"
_NO_NUMA = "guests have no NUMA nodes of their own"
_NO_INTERFACES = "interfaces are virtio, without settings"
_NO_SCREEN = "guests have no screen and no input devices"
_VMWARE = "for VMware only"


def _one_of(*values: str) -> tuple[str, str]:
    return "|".join(map(re.escape, values)), f"one of {', '.join(values)}"


def _placement(key: str, image: str, becomes: str, meaning: str) -> SpecEntry:
    return SpecEntry(key, image, HonouredBy.PLACEMENT, becomes, meaning=meaning)


def _accelerator(key: str, becomes: str, values: str = r"(?s:.{1,255})", meaning: str = "an id or a name") -> SpecEntry:
    image = key if key.startswith("accel:") and key != "accel:device_profile" else ""
    return SpecEntry(key, image, HonouredBy.ACCELERATOR, becomes, values, meaning)


def _refused(
    key: str, image: str, why: str, values: tuple[str, str] = (_ANY, ""), harmless: str = "", *, words: str = "",
    aliases: Sequence[str] = (), image_aliases: Sequence[str] = (),
) -> SpecEntry:  # fmt: skip
    return SpecEntry(
        key, image, HonouredBy.NOTHING, why, values[0], values[1], harmless, words or harmless.replace("|", ", "),
        aliases, image_aliases,
    )  # fmt: skip


def _refused_flag(key: str, image: str, why: str, *, aliases: Sequence[str] = ()) -> SpecEntry:
    return _refused(key, image, why, (_BOOLEAN, "true or false"), _FALSE, words="false", aliases=aliases)


def _driver(
    key: str, image: str, becomes: str, values: tuple[str, str], harmless: str = "", *, aliases: Sequence[str] = ()
) -> SpecEntry:
    """An entry that becomes elements of a domain's XML; see `moorage.agent.virt.domain_xml`."""
    return SpecEntry(key, image, HonouredBy.DRIVER, becomes, *values, harmless, aliases=aliases)


def _fact(image: str, becomes: str = "", *image_aliases: str) -> SpecEntry:
    return SpecEntry("", image, HonouredBy.FACT, becomes, image_aliases=image_aliases)


_NUMBER = (_FROM_1, "a whole number from 1")
_COUNT = (_FROM_0, "a whole number")

SPECS: tuple[SpecEntry, ...] = (
    _placement("resources<S>:<CLASS>", "", "`resources<S>`",
               "an amount; 0 removes the class from the request; PCPU: 0; guests get devices of classes "
               "`CUSTOM_ACCELERATOR_*` only"),
    _placement("trait<S>:<TRAIT>", "trait:<TRAIT>", "`required<S>`", "required or forbidden; of images, required"),
    _placement("group_policy", "", "`group_policy`", "none or isolate"),
    _placement("same_subtree", "", "`same_subtree`", "<S>,<S>; `;` separates sets"),
    _placement("root_required", "", "`root_required`", "<TRAIT>,!<TRAIT>"),
    _accelerator("accel:device_profile", "the groups of the profile", r"[a-zA-Z0-9_-]{1,255}", "name of a profile"),
    # The function of a region: keys of the accelerator service (docs/evidence/specs/accelerator-attach.md, A2). Nova
    # has them only in device profiles.
    _accelerator("accel:bitstream_id", "the bitstream of a region"),
    _accelerator("accel:function_id", "the function of a region"),
    _accelerator("accel:function_name", "the function of a region"),
    _accelerator("accel:bitstream_signature", "only signed bitstreams", r"(?i:required|true|1|yes)", "required"),
    *(
        _accelerator(key, becomes, _ANY, meaning)
        for key, becomes, meaning in (
            ("accel<S>:bitstream_id", "the same, for the group S", "an id"),
            ("accel<S>:function_id", "the same, for the group S", "an id or a trait"),
            ("accel<S>:function_name", "the same, for the group S", "a name"),
            ("accel<S>:bitstream_signature", "the same, for the group S", "required"),
            ("bitstream<S>", "as `accel<S>:bitstream_id`", "an id"),
            ("bitstream<S>:<ID>", "as `accel<S>:bitstream_id`", "required"),
            ("function<S>", "as `accel<S>:function_id`", "an id or a trait"),
            ("function<S>:<ID>", "as `accel<S>:function_id`", "required"),
            ("function_name<S>", "as `accel<S>:function_name`", "a name"),
            ("function_name<S>:<NAME>", "as `accel<S>:function_name`", "required"),
        )
    ),
    SpecEntry(
        "pci_passthrough:alias", "", HonouredBy.ACCELERATOR,
        "for each device the groups that `[compute] pci_aliases` names",
        r"[^:]+:\d+(?:\s*,\s*[^:]+:\d+)*", "<alias>:<count>, separated by commas",
    ),
    SpecEntry(
        "aggregate_instance_extra_specs:<KEY>", "", HonouredBy.SCHEDULER,
        "only hosts in an aggregate with such metadata", meaning="a value, or an operator and values",
    ),
    SpecEntry("", "hw_architecture", HonouredBy.SCHEDULER, "only hosts of it", image_aliases=("architecture",)),
    SpecEntry("", "img_hv_type", HonouredBy.SCHEDULER, "only hosts of it", image_aliases=("hypervisor_type",)),
    SpecEntry("", "img_config_drive", HonouredBy.COMPUTE, "mandatory: a config drive", meaning="optional or mandatory"),
    SpecEntry("", "os_command_line", HonouredBy.DRIVER_AND_IMAGE, "`cmdline`, with `kernel_id`"),
    SpecEntry("", "hw_qemu_guest_agent", HonouredBy.DRIVER_AND_IMAGE, "a channel for the guest agent"),
    _driver("hw:boot_menu", "hw_boot_menu", "`bootmenu`", (_BOOLEAN, "true or false"), _FALSE),
    _driver("hw:hide_hypervisor_id", "img_hide_hypervisor_id", "`kvm/hidden`", (_BOOLEAN, "true or false"), _FALSE,
            aliases=("hide_hypervisor_id",)),
    _driver("hw:pmu", "hw_pmu", "`pmu`", (_BOOLEAN, "true or false")),
    _driver("hw:watchdog_action", "hw_watchdog_action", "`watchdog`, i6300esb",
            _one_of("none", "pause", "poweroff", "reset", "disabled"), "disabled"),
    _driver("hw_rng:allowed", "", "`rng`, virtio; decides whether there is one", (_BOOLEAN, "true or false")),
    _driver("", "hw_rng_model", "`rng`, if the flavor has no `hw_rng:allowed`", _one_of("virtio")),
    _driver("", "os_type", "`clock` in local time, if windows", (_ANY, ""), r"(?is:(?!windows\Z).*)"),
    _driver("hw_rng:rate_bytes", "", "`rng/rate`", _COUNT, "0"),
    _driver("hw_rng:rate_period", "", "`rng/rate`", _COUNT, "0"),
    _driver("quota:cpu_shares", "", "`cputune/shares`", _COUNT, "0"),
    _driver("quota:cpu_period", "", "`cputune/period`", _COUNT, "0"),
    _driver("quota:cpu_quota", "", "`cputune/quota`", (r"\s*-?\d+\s*", "a whole number"), r"0|-\d+"),
    *(
        _driver(f"quota:disk_{way}_{unit}_sec", "", f"`iotune/{way}_{unit}_sec` of each disk", _COUNT, "0")
        for way in ("read", "write", "total") for unit in ("bytes", "iops")
    ),
    _refused("hw:cpu_policy", "hw_cpu_policy", _NO_PINNING, _one_of("shared", "dedicated", "mixed"), "shared"),
    _refused("hw:cpu_dedicated_mask", "", _NO_PINNING, (_MASK, "processors, like 0-3,^1")),
    _refused("hw:cpu_thread_policy", "hw_cpu_thread_policy", _NO_PINNING, _one_of("prefer", "isolate", "require"),
             "prefer"),
    _refused("hw:emulator_threads_policy", "", _NO_PINNING, _one_of("share", "isolate"), "share"),
    _refused_flag("hw:cpu_realtime", "", _NO_PINNING),
    _refused("hw:cpu_realtime_mask", "hw_cpu_realtime_mask", _NO_PINNING, (_MASK, "processors, like 0-3,^1")),
    _refused("hw:cpu_sockets", "hw_cpu_sockets", "no topology is set", _NUMBER),
    _refused("hw:cpu_cores", "hw_cpu_cores", "no topology is set", _NUMBER),
    _refused("hw:cpu_threads", "hw_cpu_threads", "no topology is set", _NUMBER, "1"),
    _refused("hw:cpu_max_sockets", "hw_cpu_max_sockets", "no topology is set", _NUMBER),
    _refused("hw:cpu_max_cores", "hw_cpu_max_cores", "no topology is set", _NUMBER),
    _refused("hw:cpu_max_threads", "hw_cpu_max_threads", "no topology is set", _NUMBER),
    _refused("hw:numa_nodes", "hw_numa_nodes", _NO_NUMA, _NUMBER),
    _refused("hw:numa_cpus.#", "hw_numa_cpus.#", _NO_NUMA, (_MASK, "processors, like 0-3,^1")),
    _refused("hw:numa_mem.#", "hw_numa_mem.#", _NO_NUMA, _NUMBER),
    _refused("hw:mem_page_size", "hw_mem_page_size", "guests have the host's small pages",
             (r"large|small|any|\d+([kKMGT]i?)?(b|bit|B)?", "large, small, any or a size like 2MB"), "small|any"),
    _refused_flag("hw:locked_memory", "hw_locked_memory", "memory is not locked"),
    _refused("hw:pci_numa_affinity_policy", "hw_pci_numa_affinity_policy", _NO_NUMA,
             _one_of("required", "preferred", "legacy", "socket"), "preferred|legacy"),
    _refused("hw:pmem", "", "persistent memory is not attached",
             (r"([a-zA-Z0-9_]+,?)+", "names of persistent memory, like 4GB,4GB")),
    _refused_flag("hw:mem_encryption", "hw_mem_encryption", "memory is not encrypted"),
    _refused("hw:mem_encryption_model", "hw_mem_encryption_model", "memory is not encrypted",
             _one_of("amd-sev", "amd-sev-es", "amd-sev-snp", "intel-tdx")),
    _refused("hw:tpm_version", "hw_tpm_version", "guests have no TPM", _one_of("1.2", "2.0")),
    _refused("hw:tpm_model", "hw_tpm_model", "guests have no TPM", _one_of("tpm-tis", "tpm-crb")),
    _refused("hw:tpm_secret_security", "", "guests have no TPM", _one_of("user", "host", "deployment")),
    _refused("os:secure_boot", "os_secure_boot", "guests boot with a BIOS", _one_of("disabled", "required"),
             "disabled|optional"),
    _refused("", "hw_firmware_type", "guests boot with a BIOS", _one_of("bios", "uefi"), "bios"),
    _refused_flag("", "hw_firmware_stateless", "guests boot with a BIOS"),
    _refused_flag("hw:ephemeral_encryption", "hw_ephemeral_encryption", "disks are not encrypted"),
    _refused("hw:ephemeral_encryption_format", "hw_ephemeral_encryption_format", "disks are not encrypted",
             _one_of("plain", "luks", "luksv2")),
    _refused("", "hw_ephemeral_encryption_secret_uuid", "disks are not encrypted"),
    _refused("hw:serial_port_count", "hw_serial_port_count", "guests have one serial port", _COUNT, "1"),
    _refused_flag("hw:virtio_packed_ring", "hw_virtio_packed_ring", "rings are not packed"),
    _refused("hw:viommu_model", "hw_viommu_model", "guests have no IOMMU",
             _one_of("intel", "smmuv3", "virtio", "auto")),
    _refused("hw:sound_model", "hw_sound_model", "guests have no sound device",
             _one_of("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio")),
    _refused("hw:usb_model", "hw_usb_model", "guests have no chosen USB controller",
             _one_of("none", "nec-xhci", "qemu-xhci")),
    _refused("hw:redirected_usb_ports", "hw_redirected_usb_ports", "USB is not redirected",
             (r"\d|1[0-5]", "a whole number from 0 to 15"), "0"),
    _refused_flag("hw:vif_multiqueue_enabled", "hw_vif_multiqueue_enabled", _NO_INTERFACES),
    _refused("", "hw_vif_model", _NO_INTERFACES, (_ANY, ""), "virtio"),
    _refused("hw_video:ram_max_mb", "", _NO_SCREEN, _COUNT, _FROM_0, words="all: it limits `hw_video_ram`"),
    _refused("", "hw_video_ram", _NO_SCREEN, _COUNT, "0"),
    _refused("", "hw_video_model", _NO_SCREEN, (_ANY, ""), "none"),
    _refused("", "hw_pointer_model", _NO_SCREEN),
    _refused("", "hw_input_bus", _NO_SCREEN),
    _refused("", "hw_disk_bus", "disks are on virtio", (_ANY, ""), "virtio"),
    _refused("", "hw_scsi_model", "disks are on virtio"),
    _refused("", "vmware_adaptertype", "disks are on virtio"),
    _refused("", "hw_cdrom_bus", "guests have no CD drive; the config drive is a disk on virtio", (_ANY, ""), "virtio"),
    _refused("", "hw_floppy_bus", "guests have no floppy drive"),
    _refused("", "hw_machine_type", "`[libvirt] machine` is the type of all guests"),
    _refused("", "hw_emulation_architecture", "guests have the host's architecture"),
    _refused("", "hw_vm_mode", "guests are hvm", (_ANY, ""), "hvm", image_aliases=("vm_mode",)),
    _refused("", "hw_maxphysaddr_mode", "the hypervisor decides", _one_of("passthrough", "emulate")),
    _refused("", "hw_maxphysaddr_bits", "the hypervisor decides", _COUNT),
    _refused_flag("", "hw_time_hpet", "the hypervisor decides"),
    _refused("", "img_hv_requested_version", "versions are not compared",
             image_aliases=("hypervisor_version_requires",)),
    _refused("", "img_block_device_mapping", "there are no volumes", (_ANY, ""), r"|\[\]", words="an empty list",
             image_aliases=("block_device_mapping",)),
    _refused("", "os_admin_user", "`server set --password` is for root", (_ANY, ""), "root"),
    _refused_flag("", "os_require_quiesce", "images are taken as after a power cut"),
    _refused("", "hw_rescue_bus", "the rescue disk is on virtio; read when a server is rescued with the image",
             (_ANY, ""), "virtio"),
    _refused("", "hw_rescue_device", "the rescue image is a disk; read when a server is rescued with the image",
             (_ANY, ""), "disk"),
    *(
        _refused(f"quota:vif_{way}_{unit}", "", _NO_INTERFACES, _COUNT, "0")
        for way in ("inbound", "outbound") for unit in ("average", "peak", "burst")
    ),
    *(
        _refused(f"quota:{what}_{rest}", "", _VMWARE, values)
        for what in ("cpu", "memory", "disk_io", "vif")
        for rest, values in (
            ("limit", _COUNT), ("reservation", (r"\s*-?\d+\s*", "a whole number")), ("shares_share", _COUNT),
            ("shares_level", _one_of("custom", "high", "normal", "low")),
        )
    ),
    _refused("vmware:<KEY>", "", _VMWARE),
    _refused("capabilities:<KEY>", "", "use a trait, or an aggregate"),
    _fact("img_linked_clone", _VMWARE, "vmware_linked_clone"),
    _fact("hw_disk_type", _VMWARE, "vmware_disktype"),
    _fact("hw_auto_disk_config", "Xen", "auto_disk_config"),
    _fact("hw_device_id", "Xen", "xenapi_device_id"),
    _fact("hw_ipxe_boot", "Xen", "ipxe_boot"),
    _fact("img_compression_level", "Xen", "xenapi_image_compression_level"),
    _fact("img_bittorrent", "Xen", "bittorrent"),
    _fact("img_cache_in_nova", "Xen", "cache_in_nova"),
    _fact("img_use_agent", "Xen", "xenapi_use_agent"),
    _fact("os_skip_agent_inject_files_at_boot", "Xen", "xenapi_skip_agent_inject_files_at_boot"),
    _fact("os_skip_agent_inject_ssh", "Xen", "xenapi_skip_agent_inject_ssh"),
    _fact("img_version", "a fact about the image", "vmware_image_version"),
    _fact("os_distro", "a fact about the image", "vmware_ostype"),
    _fact("img_owner_id", "a fact about the image", "owner_id"),
    _fact("img_root_device_name", "a fact about the image", "root_device_name"),
    _fact("img_bdm_v2", "the form of `img_block_device_mapping`", "bdm_v2"),
    _fact("img_mappings", "names for the flavor's own disks", "mappings"),
    *(
        _fact(f"img_signature{rest}", "a fact about the data; agents verify it of bitstreams")
        for rest in ("", "_hash_method", "_certificate_uuid", "_key_type")
    ),
)  # fmt: skip

#: Image properties that matter only if a server is rescued with the image.
RESCUE_PROPERTIES = frozenset({"hw_rescue_bus", "hw_rescue_device"})


def spec_entry(key: str) -> SpecEntry | None:
    """The entry of a flavor's extra spec."""
    return _by_key().get(_numbered(key)) or next((entry for form, entry in _key_forms() if form.fullmatch(key)), None)


def image_entry(name: str) -> SpecEntry | None:
    """The entry of an image property, also under a former name."""
    return _by_image().get("trait:<TRAIT>" if name.startswith("trait:") else _numbered(name))


def is_of_known_namespace(key: str) -> bool:
    """Whether only the entries of the table are keys of this namespace: ``hw:x`` of flavors, ``hw_x`` of images."""
    namespace, colon, _ = key.partition(":")
    return namespace in _NAMESPACES if colon else key.startswith("hw_")


def similar_keys(key: str) -> list[str]:
    """Known extra specs, or image properties if `key` has no colon, that `key` may be a misspelling of: at most 3."""
    known = [entry.key for entry in SPECS if entry.key] if ":" in key else list(_by_image())
    return get_close_matches(key, known, cutoff=0.8)


def _numbered(key: str) -> str:
    return re.sub(r"\.\d+\Z", ".#", key)


@cache
def _by_key() -> dict[str, SpecEntry]:
    return {key: entry for entry in SPECS for key in (entry.key, *entry.aliases) if key and "<" not in key}


@cache
def _by_image() -> dict[str, SpecEntry]:
    return {name: entry for entry in SPECS for name in (entry.image, *entry.image_aliases) if name}


@cache
def _key_forms() -> list[tuple[re.Pattern[str], SpecEntry]]:
    """The entries whose keys have variable parts. ``function_name`` comes before ``function``, of which ``_name`` would
    be a suffix.
    """
    variable = [entry for entry in SPECS if "<" in entry.key]
    variable.sort(key=lambda entry: entry.key, reverse=True)
    variable.sort(key=lambda entry: not entry.key.startswith("function_name"))
    return [(_form(entry.key), entry) for entry in variable]


def _form(key: str) -> re.Pattern[str]:
    text = re.escape(key).replace("<S>", r"([A-Za-z0-9_-]{1,64})?")
    return re.compile(re.sub(r"<[A-Z]+>", r"(?s:.+)", text))
