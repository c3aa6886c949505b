"""[pure] The networks of the configuration file, one per line of the section ``[network]``:

    lab  = bridge br0 subnet 192.0.2.0/24 gateway 192.0.2.1 dns 192.0.2.53 addresses 192.0.2.100-192.0.2.199
    lab5 = vlan 5 on br0 subnet 198.51.100.0/24
    nat  = libvirt default subnet 192.168.122.0/24 addresses dhcp

``gateway`` is the subnet's first address unless the line names another one or ``none``. ``addresses`` are the pools
that servers get theirs from, separated by commas; without it, all but the gateway. ``addresses dhcp``: the DHCP server
of that network gives them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from moorage.core.errors import Invalid
from moorage.network.addressing import SubnetPlan, plan_subnet
from moorage.network.model import NetworkKind, Segment

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
#: Linux allows 15 characters for the name of a bridge; libvirt's networks may have longer ones.
_BRIDGE = re.compile(r"[A-Za-z0-9_.-]{1,15}\Z")
_LIBVIRT_NETWORK = re.compile(r"[A-Za-z0-9_.-]{1,50}\Z")
_OPTIONS = ("subnet", "gateway", "dns", "addresses")
_EXAMPLE = "bridge br0 subnet 192.0.2.0/24 gateway 192.0.2.1 dns 192.0.2.53 addresses 192.0.2.100-192.0.2.199"
MAX_SEGMENTATION_ID = 4094


@dataclass(frozen=True, slots=True)
class NetworkEntry:
    name: str
    segment: Segment
    subnet: SubnetPlan


def parse_entries(lines: Mapping[str, str]) -> tuple[NetworkEntry, ...]:
    """`lines`: {name: text}. Raises `Invalid`, which names the line and says what to write."""
    entries: list[NetworkEntry] = []
    for name, text in lines.items():
        try:
            entries.append(_entry(name, text))
        except Invalid as error:
            raise Invalid(f"{name} = {text[:200]}: {error.message}") from error
    seen: dict[Segment, str] = {}
    for entry in entries:
        if (other := seen.setdefault(entry.segment, entry.name)) != entry.name:
            raise Invalid(f"{entry.name} and {other} are both {entry.segment}; remove one of them.")
    return tuple(entries)


def checked_segment(kind: NetworkKind, physical_network: str, segmentation_id: int | None) -> Segment:
    """Raises `Invalid`."""
    form = _LIBVIRT_NETWORK if kind is NetworkKind.LOCAL else _BRIDGE
    if not form.match(physical_network):
        what = "network of libvirt" if kind is NetworkKind.LOCAL else "bridge (up to 15 letters, digits, . _ -)"
        raise Invalid(f"{physical_network[:60]!r} is not the name of a {what}; write the name of one on the hosts.")
    if kind is NetworkKind.VLAN and not (segmentation_id and 1 <= segmentation_id <= MAX_SEGMENTATION_ID):
        raise Invalid(f"A VLAN has a number from 1 to {MAX_SEGMENTATION_ID}, not {segmentation_id}; write its number.")
    if kind is not NetworkKind.VLAN and segmentation_id is not None:
        raise Invalid(f"A network of type {kind} has no segmentation id; leave it out, or use type vlan.")
    return Segment(kind, physical_network, segmentation_id)


def _entry(name: str, text: str) -> NetworkEntry:
    if not _NAME.match(name):
        raise Invalid("a network's name has letters, digits, . _ and -, and begins with a letter or digit.")
    words = text.split()
    match words:
        case ["bridge", bridge, *rest]:
            segment = checked_segment(NetworkKind.FLAT, bridge, None)
        case ["libvirt", network, *rest]:
            segment = checked_segment(NetworkKind.LOCAL, network, None)
        case ["vlan", number, "on", bridge, *rest]:
            digits = int(number) if number.isascii() and number.isdigit() and len(number) <= 4 else 0
            segment = checked_segment(NetworkKind.VLAN, bridge, digits)
        case _:
            raise Invalid(
                "begin with 'bridge BRIDGE', 'vlan NUMBER on BRIDGE' or 'libvirt NETWORK', for example: "
                f"{name} = {_EXAMPLE}"
            )
    return NetworkEntry(name, segment, _subnet(rest))


def _subnet(words: list[str]) -> SubnetPlan:
    if len(words) % 2:
        raise Invalid(f"{words[-1]!r} has no value; options are pairs, for example: subnet 192.0.2.0/24")
    given: dict[str, str] = {}
    for option, value in zip(words[::2], words[1::2], strict=True):
        if option not in _OPTIONS:
            raise Invalid(f"there is no option {option!r}; options are {', '.join(_OPTIONS)}")
        if option in given:
            raise Invalid(f"{option} is there twice; write it once, with several values separated by commas")
        given[option] = value
    if "subnet" not in given:
        raise Invalid(
            "the subnet is missing, without which no server gets an address; write for example: subnet 192.0.2.0/24"
        )
    gateway = given.get("gateway", "")
    return plan_subnet(
        given["subnet"],
        None if gateway == "none" else gateway,
        given["dns"].split(",") if "dns" in given else (),
        _pools(given.get("addresses")),
    )


def _pools(text: str | None) -> list[tuple[str, str]] | None:
    if text is None:
        return None
    if text == "dhcp":
        return []
    pools = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash:
            raise Invalid(f"addresses has {part!r}; write FIRST-LAST, such as 192.0.2.100-192.0.2.199, or dhcp")
        pools.append((first, last))
    return pools
