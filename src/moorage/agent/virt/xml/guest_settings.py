"""[pure] Renders the guest settings of a flavor and image as elements of libvirt's domain XML.

`render_settings` adds them to a definition. The names are keys of extra specs, or image properties where there is no
such key; `moorage.scheduler.spec_table` lists those that the virt driver honours. The definition's metadata contain
them too, so that `domain_xml.parse_domain` reads them back.
"""

from collections.abc import Callable, Mapping
from xml.etree import ElementTree as ET

from moorage.agent.virt.driver import VirtError

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
