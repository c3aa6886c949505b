"""[pure] Values that jobs and drivers share: the files of a config drive, and the power states of a domain.

The files are in the layout that cloud-init and similar programs read:

    openstack/latest/meta_data.json      uuid, names, metadata and public keys of the server
    openstack/latest/user_data           the owner's user data, if there is any
    openstack/latest/vendor_data.json    empty objects: nothing adds vendor data
    openstack/latest/vendor_data2.json
    openstack/latest/network_data.json   interfaces, their addresses, routes and name servers, in Nova's format
    ec2/latest/meta-data.json            the same values under EC2's names

Of power states: the actions that change them, and the transitions that are possible (`POWER`).

Not here: job payloads (`moorage.jobs.contract`), and the image of the drive (`agent.virt.libvirt_guests`).
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address, ip_network

from moorage.core.errors import Conflict
from moorage.core.states import transition_table
from moorage.jobs.contract import AddressPayload, InterfacePayload

_LATEST = "openstack/latest"
_MTU = 1500


@dataclass(frozen=True)
class Guest:
    """The values in a config drive. `user_data` is in base64, as its owner sent it; `public_keys`: {name: key text}."""

    uuid: str
    name: str
    hostname: str
    project_id: str
    instance_name: str = ""
    zone: str | None = None
    launch_index: int = 0
    reservation_id: str = ""
    flavor: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    public_keys: Mapping[str, str] = field(default_factory=dict)
    user_data: str | None = None
    interfaces: tuple[InterfacePayload, ...] = ()


def config_drive_files(guest: Guest) -> dict[str, bytes]:
    """{path below the drive's root: content}."""
    files = {
        f"{_LATEST}/meta_data.json": _encode_json(_meta_data(guest)),
        f"{_LATEST}/vendor_data.json": _encode_json({}),
        f"{_LATEST}/vendor_data2.json": _encode_json({}),
        f"{_LATEST}/network_data.json": _encode_json(_network_data(guest.interfaces)),
        "ec2/latest/meta-data.json": _encode_json(_ec2_meta_data(guest)),
    }
    if guest.user_data:
        text = _decode_user_data(guest.user_data)
        files |= {f"{_LATEST}/user_data": text, "ec2/latest/user-data": text}
    return files


def _meta_data(guest: Guest) -> dict[str, object]:
    keys = [{"name": name, "type": "ssh", "data": text} for name, text in sorted(guest.public_keys.items())]
    document: dict[str, object] = {
        "uuid": guest.uuid,
        "name": guest.name,
        "hostname": guest.hostname,
        "project_id": guest.project_id,
        "launch_index": guest.launch_index,
        "availability_zone": guest.zone,
        "devices": [],
        "dedicated_cpus": [],
    }
    if guest.metadata:
        document["meta"] = dict(guest.metadata)
    if keys:
        document |= {"public_keys": dict(guest.public_keys), "keys": keys}
    return document


def _network_data(interfaces: Sequence[InterfacePayload]) -> dict[str, object]:
    """Links, networks and name servers, as Nova names and numbers them."""
    links: list[dict[str, object]] = []
    networks: list[dict[str, object]] = []
    services: list[dict[str, str]] = []
    for number, interface in enumerate(interfaces):
        link = f"interface{number}"
        links.append(
            {
                "id": link,
                "vif_id": interface.port_id,
                "type": "phy",
                "mtu": None if interface.is_dhcp else interface.mtu or _MTU,
                "ethernet_mac_address": interface.mac,
            }
        )
        if interface.is_dhcp:
            networks.append(
                {"id": f"network{len(networks)}", "type": "ipv4_dhcp", "link": link, "network_id": interface.network_id}
            )
        for one in interface.addresses:
            networks.append(_network(one, f"network{len(networks)}", link, interface.network_id))
            services += [each for each in _name_servers(one) if each not in services]
    return {"links": links, "networks": networks, "services": services}


def _network(one: AddressPayload, name: str, link: str, network_id: str) -> dict[str, object]:
    address, subnet = ip_address(one.address), ip_network(one.cidr)
    everything = ip_network("0.0.0.0/0" if address.version == 4 else "::/0")
    route = {"network": str(everything.network_address), "netmask": str(everything.network_address)}
    return {
        "id": name,
        "type": f"ipv{address.version}",
        "link": link,
        "ip_address": one.address,
        "netmask": str(subnet.netmask),
        "routes": [] if one.gateway is None else [{**route, "gateway": one.gateway}],
        "network_id": network_id,
        "services": _name_servers(one),
    }


def _name_servers(one: AddressPayload) -> list[dict[str, str]]:
    return [{"type": "dns", "address": address} for address in one.dns]


def _ec2_meta_data(guest: Guest) -> dict[str, object]:
    """``local-ipv4`` is empty for a server without addresses, as in Nova."""
    addresses = [one.address for interface in guest.interfaces for one in interface.addresses if "." in one.address]
    names = sorted(guest.public_keys)
    document: dict[str, object] = {
        "ami-launch-index": guest.launch_index,
        "hostname": guest.hostname,
        "instance-id": guest.instance_name.replace("instance-", "i-"),
        "instance-type": guest.flavor,
        "local-hostname": guest.hostname,
        "local-ipv4": addresses[0] if addresses else "",
        "placement": {"availability-zone": guest.zone},
        "public-hostname": guest.hostname,
        "public-ipv4": "",
        "reservation-id": guest.reservation_id,
        "security-groups": [],
    }
    if names:
        document["public-keys"] = {
            str(index): {"_name": f"{index}={name}", "openssh-key": guest.public_keys[name]}
            for index, name in enumerate(names)
        }
    return document


def _encode_json(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _decode_user_data(user_data: str) -> bytes:
    """The decoded user data; unchanged if it is not base64, so that its author finds it in the guest."""
    try:
        return base64.b64decode(user_data, validate=False)
    except (binascii.Error, ValueError):
        return user_data.encode()


class DomainPowerState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    SHUTOFF = "shutoff"
    SUSPENDED = "suspended"  #: its memory is on disk


class PowerAction(StrEnum):
    START = "start"
    STOP = "stop"
    REBOOT = "reboot"  #: asks the guest to shut down first
    REBOOT_HARD = "reboot-hard"  #: stops the guest at once; deletes its saved memory
    PAUSE = "pause"
    UNPAUSE = "unpause"
    SUSPEND = "suspend"
    RESUME = "resume"


#: Actions that boot the guest in any case, also if it runs already.
REBOOTS = frozenset({PowerAction.REBOOT, PowerAction.REBOOT_HARD})


#: The state after each action. If the domain is in that state already, the action does nothing, except `REBOOTS`.
STATE_AFTER = {
    PowerAction.START: DomainPowerState.RUNNING,
    PowerAction.STOP: DomainPowerState.SHUTOFF,
    PowerAction.REBOOT: DomainPowerState.RUNNING,
    PowerAction.REBOOT_HARD: DomainPowerState.RUNNING,
    PowerAction.PAUSE: DomainPowerState.PAUSED,
    PowerAction.UNPAUSE: DomainPowerState.RUNNING,
    PowerAction.SUSPEND: DomainPowerState.SUSPENDED,
    PowerAction.RESUME: DomainPowerState.RUNNING,
}

POWER = transition_table(
    "a domain",
    {
        DomainPowerState.RUNNING: [
            DomainPowerState.PAUSED,
            DomainPowerState.SUSPENDED,
            DomainPowerState.SHUTOFF,
            DomainPowerState.RUNNING,
        ],
        DomainPowerState.PAUSED: [DomainPowerState.RUNNING, DomainPowerState.SHUTOFF],
        DomainPowerState.SUSPENDED: [DomainPowerState.RUNNING, DomainPowerState.SHUTOFF],
        DomainPowerState.SHUTOFF: [DomainPowerState.RUNNING],
    },
)


def is_already_done(before: DomainPowerState, action: PowerAction) -> bool:
    return before is STATE_AFTER[action] and action not in REBOOTS


def why_impossible(before: DomainPowerState, action: PowerAction) -> str | None:
    """The reason why `action` is not possible in this state; None if it is possible."""
    try:
        POWER.check_transition(before, STATE_AFTER[action])
    except Conflict as conflict:
        return conflict.message
    return None
