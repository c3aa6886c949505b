"""libvirt's domains: power states, devices, copies of a disk, and which domains are this agent's.

Calls that QEMU itself answers have a time limit (`call_with_timeout`), because libvirt waits as long as QEMU hangs.
Not here: definitions (`domain_xml`) and files (`libvirt_guests`).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from xml.etree import ElementTree as ET

import libvirt

from moorage.agent.model import DomainPowerState
from moorage.agent.virt.domain_xml import (
    interface_element,
    is_moorage_domain,
    parse_domain,
    read_xml,
    render_interface,
    rescue_image,
)
from moorage.agent.virt.driver import Domain, DomainInterface, NoSuchDomain, VirtError
from moorage.agent.virt.libvirt_calls import GuestHangs, call_with_timeout, run_program
from moorage.agent.virt.libvirt_connection import VirConnect, VirDomain
from moorage.core.clock import Clock

log = logging.getLogger(__name__)

_POLL_S = 0.3
#: Pause before a request to shut down is repeated: a guest that is booting ignores the first one.
_REPEAT_SHUTDOWN_S = 10
#: Time for a running guest to release a device that is detached.
_RELEASE_TIMEOUT_S = 30
_BACKUP_TIMEOUT_S = 3600
#: Time to save a guest's memory to disk, or to restore it.
_SAVE_TIMEOUT_S = 3600
#: Time for an answer of the guest agent, which is a tenant's program.
_AGENT_TIMEOUT_S = 20
_ADMINISTRATOR = "root"

#: A domain that is shutting down still runs. Other states, such as crashed or never started, count as off.
_POWER = {
    libvirt.VIR_DOMAIN_RUNNING: DomainPowerState.RUNNING,
    libvirt.VIR_DOMAIN_BLOCKED: DomainPowerState.RUNNING,
    libvirt.VIR_DOMAIN_SHUTDOWN: DomainPowerState.RUNNING,
    libvirt.VIR_DOMAIN_PAUSED: DomainPowerState.PAUSED,
    libvirt.VIR_DOMAIN_PMSUSPENDED: DomainPowerState.PAUSED,
}


def power_of(domain: VirDomain) -> DomainPowerState:
    state = domain.state()[0]
    if state in _POWER:
        return _POWER[state]
    return DomainPowerState.SUSPENDED if domain.hasManagedSaveImage() else DomainPowerState.SHUTOFF


def is_out_of_space(domain: VirDomain) -> bool:
    """Whether QEMU paused the domain because the host could not write its data."""
    return tuple(domain.state()) == (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR)


def definition_of(domain: VirDomain) -> str:
    """The persistent definition, not that of the running domain."""
    text: str = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    return text


def start(domain: VirDomain) -> None:
    """Start the domain from its disk or its saved memory, or resume it, with all devices of its definition."""
    if not domain.isActive():
        call_with_timeout(domain.create, within_s=_SAVE_TIMEOUT_S)
    elif power_of(domain) is DomainPowerState.PAUSED:
        call_with_timeout(domain.resume)
    _attach_missing(domain)


def start_paused(domain: VirDomain) -> None:
    """Starts the domain, whose guest does not run yet; `start` lets it. Does nothing if it is active."""
    if not domain.isActive():
        call_with_timeout(domain.createWithFlags, libvirt.VIR_DOMAIN_START_PAUSED, within_s=_SAVE_TIMEOUT_S)


def pause(domain: VirDomain) -> None:
    call_with_timeout(domain.suspend)


def attach_interface(domain: VirDomain, interface: DomainInterface) -> None:
    """Attaches it to the running guest and to its definition, unless they have it."""
    text = ET.tostring(render_interface(interface), encoding="unicode")
    if domain.isActive() and interface_element(domain.XMLDesc(), interface.mac) is None:
        call_with_timeout(domain.attachDeviceFlags, text, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    if interface_element(definition_of(domain), interface.mac) is None:
        call_with_timeout(domain.attachDeviceFlags, text, libvirt.VIR_DOMAIN_AFFECT_CONFIG)


def detach_interface(domain: VirDomain, mac: str, clock: Clock) -> None:
    """Detaches it from the running guest, which must release it, then from its definition."""
    if domain.isActive() and (element := interface_element(domain.XMLDesc(), mac)) is not None:
        if power_of(domain) is DomainPowerState.PAUSED:
            raise VirtError("the guest is paused, so it cannot release the interface; unpause it and try again")
        _detach_running(domain, element, mac, clock)
    if (element := interface_element(definition_of(domain), mac)) is not None:
        text = ET.tostring(element, encoding="unicode")
        call_with_timeout(domain.detachDeviceFlags, text, libvirt.VIR_DOMAIN_AFFECT_CONFIG)


def _detach_running(domain: VirDomain, element: ET.Element, mac: str, clock: Clock) -> None:
    """Libvirt removes the element when QEMU reports that the guest has released the device."""
    text = ET.tostring(element, encoding="unicode")
    try:
        call_with_timeout(domain.detachDeviceFlags, text, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    except libvirt.libvirtError as error:
        if "already in the process of unplug" not in str(error):  # of an earlier call, which was interrupted
            raise
    until = clock.now() + timedelta(seconds=_RELEASE_TIMEOUT_S)
    while domain.isActive() and interface_element(domain.XMLDesc(), mac) is not None:
        if clock.now() >= until:
            raise VirtError(
                f"the guest did not release the interface within {_RELEASE_TIMEOUT_S} s; if it is still booting, try "
                "again later"
            )
        clock.sleep(_POLL_S)


def inject_nmi(domain: VirDomain) -> None:
    """Send an NMI; the guest decides how to react."""
    call_with_timeout(domain.injectNMI, 0)


def set_password(domain: VirDomain, password: str) -> None:
    """Set the administrator's password through the guest agent."""
    domain.agentSetResponseTimeout(_AGENT_TIMEOUT_S, 0)
    call_with_timeout(domain.setUserPassword, _ADMINISTRATOR, password, 0, within_s=2 * _AGENT_TIMEOUT_S)


def turn_off(domain: VirDomain) -> None:
    """Stops the domain at once, without a shutdown of the guest, and deletes its saved memory."""
    if domain.isActive():
        _ignoring_off(domain.destroy)
    if domain.hasManagedSaveImage():
        domain.managedSaveRemove()


def shut_down(domain: VirDomain, clock: Clock, timeout_s: float) -> bool:
    """Asks a running guest to shut down, and waits up to `timeout_s`. Returns whether the domain is off."""
    if power_of(domain) is not DomainPowerState.RUNNING:
        return not domain.isActive()
    begin = clock.now()
    requested_at = None
    while domain.isActive():
        now = clock.now()
        if now - begin >= timedelta(seconds=timeout_s):
            return False
        if requested_at is None or now - requested_at >= timedelta(seconds=_REPEAT_SHUTDOWN_S):
            try:
                _ignoring_off(lambda: call_with_timeout(domain.shutdown))
            except GuestHangs:
                return False
            requested_at = now
        clock.sleep(_POLL_S)
    return True


def _ignoring_off(call: Callable[[], object]) -> None:
    """Calls `call`; ignores its error if the domain has gone off by itself."""
    try:
        call()
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_OPERATION_INVALID:
            raise


def suspend(domain: VirDomain, clock: Clock) -> None:
    """Saves the domain's memory to disk. First detaches its passed-through devices, whose state cannot be saved."""
    for device in _passed_through(domain.XMLDesc()):
        call_with_timeout(
            domain.detachDeviceFlags, ET.tostring(device, encoding="unicode"), libvirt.VIR_DOMAIN_AFFECT_LIVE
        )
    until = clock.now() + timedelta(seconds=_RELEASE_TIMEOUT_S)
    while _passed_through(domain.XMLDesc()):
        if clock.now() >= until:
            raise VirtError(
                f"the guest did not release its devices within {_RELEASE_TIMEOUT_S} s; if it is still booting, try "
                "again later"
            )
        clock.sleep(_POLL_S)
    call_with_timeout(domain.managedSave, within_s=_SAVE_TIMEOUT_S)


#: Where libvirt looks for addresses, most reliable first: leases of its own DHCP servers, the guest agent (a tenant's
#: program), and the host's ARP table (whatever the guest has sent).
_ADDRESS_SOURCES = (
    libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE,
    libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT,
    libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_ARP,
)
#: Time for a guest agent's answer about addresses, for which a whole round of reports waits.
_ADDRESSES_TIMEOUT_S = 2
#: Maximum number of addresses of an interface that are reported.
MAX_LEARNED_ADDRESSES = 8


@dataclass(frozen=True)
class AddressAnswer:
    """`by_mac` None: not known now; the addresses that were known may still be right."""

    by_mac: dict[str, tuple[str, ...]] | None
    agent_failed: bool = False


def learned_addresses(domain: VirDomain, macs: Sequence[str], *, ask_agent: bool) -> AddressAnswer:
    """{MAC address: its addresses}, from the first source that knows any; `macs` in lower case.

    Empty for a domain that is off. Whatever a guest agent does, others are not affected: every failure is an answer.
    """
    found: dict[str, tuple[str, ...]] = {}
    is_complete, agent_failed = True, False
    try:
        if not domain.isActive():
            return AddressAnswer({})
        for source in _ADDRESS_SOURCES:
            is_agent = source == libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT
            if len(found) == len(macs) or (is_agent and not _has_connected_agent(domain)):
                continue
            said = None if is_agent and not ask_agent else _addresses_by_mac(domain, source)
            if said is None:
                is_complete = False
                agent_failed |= is_agent and ask_agent
            for mac, addresses in (said or {}).items():
                if mac in macs and addresses:
                    found.setdefault(mac, addresses)
    except libvirt.libvirtError:  # the domain vanished, or libvirt did: then the next call says so
        return AddressAnswer(None)
    return AddressAnswer(found if is_complete or len(found) == len(macs) else None, agent_failed)


def _has_connected_agent(domain: VirDomain) -> bool:
    channels = read_xml(domain.XMLDesc(), "the definition").iterfind("devices/channel/target")
    return any(
        target.get("name") == "org.qemu.guest_agent.0" and target.get("state") == "connected" for target in channels
    )


def _addresses_by_mac(domain: VirDomain, source: int) -> dict[str, tuple[str, ...]] | None:
    """{MAC address: addresses that others can reach}; empty if this libvirt lacks the source, None if it fails."""
    try:
        if source == libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT:
            domain.agentSetResponseTimeout(_ADDRESSES_TIMEOUT_S, 0)
        said = call_with_timeout(domain.interfaceAddresses, source, within_s=2 * _ADDRESSES_TIMEOUT_S)
    except GuestHangs:
        return None
    except libvirt.libvirtError as error:
        is_lacking = error.get_error_code() in (libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED)
        return {} if is_lacking else None
    by_mac: dict[str, tuple[str, ...]] = {}
    for one in (said or {}).values():
        mac = (one["hwaddr"] or "").lower()
        addresses = [address for each in one["addrs"] or () if (address := _reachable(each["addr"])) is not None]
        by_mac[mac] = (by_mac.get(mac, ()) + tuple(addresses))[:MAX_LEARNED_ADDRESSES]
    return by_mac


def _reachable(text: str) -> str | None:
    """The address in canonical form; None for one that is none, or is not for other machines."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        return None
    return str(address)


def _attach_missing(domain: VirDomain) -> None:
    """Attaches the devices that `suspend` has detached."""
    present = {_source_address(device) for device in _passed_through(domain.XMLDesc())}
    for device in _passed_through(definition_of(domain)):
        if _source_address(device) not in present:
            call_with_timeout(
                domain.attachDeviceFlags, ET.tostring(device, encoding="unicode"), libvirt.VIR_DOMAIN_AFFECT_LIVE
            )


def _passed_through(definition: str) -> list[ET.Element]:
    return read_xml(definition, "the definition").findall("devices/hostdev")


def _source_address(device: ET.Element) -> tuple[tuple[str, str], ...]:
    address = device.find("source/address")
    return tuple(sorted(address.attrib.items())) if address is not None else ()


def copy_disk(domain: VirDomain, disk: Path, to: Path, clock: Clock) -> None:
    """Copies `disk` of the domain as it is now to one qcow2 file. The guest keeps running."""
    to.unlink(missing_ok=True)
    if not domain.isActive():
        run_program(["qemu-img", "convert", "-f", "qcow2", "-O", "qcow2", disk, to])
        return
    _abort_backup(domain)  # left by an agent that was killed during a copy
    call_with_timeout(domain.backupBegin, _backup_xml(domain, disk, to), None, 0)
    until = clock.now() + timedelta(seconds=_BACKUP_TIMEOUT_S)
    while domain.jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE:
        if clock.now() >= until:
            _abort_backup(domain)
            raise VirtError(f"copying the disk took longer than {_BACKUP_TIMEOUT_S} s")
        clock.sleep(_POLL_S)
    ended = domain.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
    if ended.get("type") != libvirt.VIR_DOMAIN_JOB_COMPLETED:
        raise VirtError(f"the disk could not be copied: {ended.get('errmsg') or 'the job ended early'}")


def _backup_xml(domain: VirDomain, disk: Path, to: Path) -> str:
    """The XML for a backup of `disk` alone; it excludes each other disk of the domain by name."""
    backup = ET.Element("domainbackup", mode="push")
    disks = ET.SubElement(backup, "disks")
    for element in read_xml(domain.XMLDesc(), "the definition").iterfind("devices/disk"):
        source, target = element.find("source"), element.find("target")
        if target is None:
            continue
        if source is None or source.get("file") != str(disk):
            ET.SubElement(disks, "disk", name=target.attrib["dev"], backup="no")
            continue
        copied = ET.SubElement(disks, "disk", name=target.attrib["dev"], backup="yes", type="file")
        ET.SubElement(copied, "driver", type="qcow2")
        ET.SubElement(copied, "target", file=str(to))
    return ET.tostring(backup, encoding="unicode")


def _abort_backup(domain: VirDomain) -> None:
    if domain.jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE:
        call_with_timeout(domain.abortJob)


class OwnDomains:
    """Looks up and lists this agent's domains. Logs a warning about other domains of the host."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._foreign: frozenset[str] = frozenset()
        self._out_of_space: frozenset[str] = frozenset()

    def find_domain(self, link: VirConnect, uuid: str) -> VirDomain | None:
        """The domain of this uuid, or None. Raises `VirtError` for a domain that this agent did not make."""
        try:
            domain = link.lookupByUUIDString(uuid)
        except libvirt.libvirtError as error:
            if error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_INVALID_ARG):
                return None
            raise
        if not is_moorage_domain(definition_of(domain)):
            raise VirtError(
                f"domain {domain.name()} has the uuid {uuid}, but this agent did not make it; it is left alone"
            )
        return domain

    def require_domain(self, link: VirConnect, uuid: str) -> VirDomain:
        """The domain of this uuid. Raises `NoSuchDomain`."""
        domain = self.find_domain(link, uuid)
        if domain is None:
            raise NoSuchDomain(f"there is no server {uuid} on host {self._host}")
        return domain

    def all_domains(self, link: VirConnect) -> dict[str, Domain]:
        """{uuid: domain}. Logs foreign domains, and guests that are out of disk space, once per change."""
        found: dict[str, Domain] = {}
        foreign: set[str] = set()
        out_of_space: set[str] = set()
        for domain in link.listAllDomains():
            try:
                definition = definition_of(domain)
                if not is_moorage_domain(definition):
                    foreign.add(domain.name())
                    continue
                spec = parse_domain(definition)
                found[spec.uuid] = Domain(spec, power_of(domain), rescue_image(definition) is not None)
                # After `power_of`: a guest that this list shows as paused for lack of space is then logged too.
                if is_out_of_space(domain):
                    out_of_space.add(spec.uuid)
            except libvirt.libvirtError as error:
                if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:  # it was removed in between
                    raise
        self._log_changes(foreign, out_of_space)
        return found

    def _log_changes(self, foreign: set[str], out_of_space: set[str]) -> None:
        if foreign != self._foreign:
            log.warning(
                "this host runs domains that this agent did not make; they are left alone, and their resources are not "
                "subtracted from the host's inventories",
                extra={"domains": sorted(foreign)},
            )
        if out_of_space - self._out_of_space:
            log.error(
                "guests are paused because this host could not write to their disks; free space below [libvirt] "
                "instances_path, then unpause them",
                extra={"guests": sorted(out_of_space)},
            )
        self._foreign, self._out_of_space = frozenset(foreign), frozenset(out_of_space)
