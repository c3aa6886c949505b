"""One domain at libvirt: its power and how that is changed, its devices, the file of its disk as it is now.

Takes what libvirt's bindings call a domain (`Any`: they have no types). Not here: definitions and files.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillWaiting
from contextvars import copy_context
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from xml.etree import ElementTree as ET

import libvirt

from moorage.agent.model.power import DomainPowerState
from moorage.agent.virt.driver import Domain, NoSuchDomain, VirtError
from moorage.agent.virt.libvirt_programs import run_program
from moorage.agent.virt.xml.domain_xml import is_ours, parse_domain, read_xml, rescue_image
from moorage.core.clock import Clock

log = logging.getLogger(__name__)

_POLL_S = 0.3
#: A guest that was busy booting when it was asked to shut down has not heard it.
_ASK_AGAIN_S = 10
#: For a guest to let go of a device that is taken from it while it runs.
_RELEASE_TIMEOUT_S = 30
_BACKUP_TIMEOUT_S = 3600
#: Memory of a guest on its way to disk or back.
_SAVE_TIMEOUT_S = 3600
#: For the guest agent, which may be anything: it is a tenant's program.
_AGENT_TIMEOUT_S = 20
_ADMINISTRATOR = "root"

#: A domain that is shutting down still runs; one that QEMU left dead or never started is off.
_POWER = {
    libvirt.VIR_DOMAIN_RUNNING: DomainPowerState.RUNNING,
    libvirt.VIR_DOMAIN_BLOCKED: DomainPowerState.RUNNING,
    libvirt.VIR_DOMAIN_SHUTDOWN: DomainPowerState.RUNNING,
    libvirt.VIR_DOMAIN_PAUSED: DomainPowerState.PAUSED,
    libvirt.VIR_DOMAIN_PMSUSPENDED: DomainPowerState.PAUSED,
}


def power_of(domain: Any) -> DomainPowerState:
    state = domain.state()[0]
    if state in _POWER:
        return _POWER[state]
    return DomainPowerState.SUSPENDED if domain.hasManagedSaveImage() else DomainPowerState.SHUTOFF


def lacks_room(domain: Any) -> bool:
    """QEMU stopped it because the host could not write what it wrote."""
    return tuple(domain.state()) == (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR)


def definition_of(domain: Any) -> str:
    """As it is to be, not as it runs."""
    text: str = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    return text


def start(domain: Any) -> None:
    """Running: from its disk, from its saved memory, or from where it was paused; with all devices of its definition."""
    if not domain.isActive():
        call_with_timeout(domain.create, within_s=_SAVE_TIMEOUT_S)
    elif power_of(domain) is DomainPowerState.PAUSED:
        call_with_timeout(domain.resume)
    _attach_missing(domain)


def pause(domain: Any) -> None:
    call_with_timeout(domain.suspend)


def crash(domain: Any) -> None:
    """An NMI: what the guest makes of it is the guest's."""
    call_with_timeout(domain.injectNMI, 0)


def set_password(domain: Any, password: str) -> None:
    """By the guest agent."""
    domain.agentSetResponseTimeout(_AGENT_TIMEOUT_S, 0)
    call_with_timeout(domain.setUserPassword, _ADMINISTRATOR, password, 0, within_s=2 * _AGENT_TIMEOUT_S)


def turn_off(domain: Any) -> None:
    """As when the plug is pulled; saved memory is dropped."""
    if domain.isActive():
        _unless_off(domain.destroy)
    if domain.hasManagedSaveImage():
        domain.managedSaveRemove()


def shut_down(domain: Any, clock: Clock, patience_s: float) -> bool:
    """The guest is asked; whether it obeyed within `patience_s`. One that is paused cannot hear and is not asked."""
    if power_of(domain) is not DomainPowerState.RUNNING:
        return not domain.isActive()
    begin = clock.now()
    asked = None
    while domain.isActive():
        now = clock.now()
        if now - begin >= timedelta(seconds=patience_s):
            return False
        if asked is None or now - asked >= timedelta(seconds=_ASK_AGAIN_S):
            try:
                _unless_off(lambda: call_with_timeout(domain.shutdown))
            except GuestHangs:
                return False
            asked = now
        clock.sleep(_POLL_S)
    return True


def _unless_off(call: Callable[[], object]) -> None:
    """A guest may go off by itself at any moment."""
    try:
        call()
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_OPERATION_INVALID:
            raise


def suspend(domain: Any, clock: Clock) -> None:
    """Its memory goes to disk. What a passed-through device remembers cannot be saved, so those are taken out first."""
    for device in _passed_through(domain.XMLDesc()):
        call_with_timeout(
            domain.detachDeviceFlags, ET.tostring(device, encoding="unicode"), libvirt.VIR_DOMAIN_AFFECT_LIVE
        )
    until = clock.now() + timedelta(seconds=_RELEASE_TIMEOUT_S)
    while _passed_through(domain.XMLDesc()):
        if clock.now() >= until:
            raise VirtError(
                f"the guest did not release its devices within {_RELEASE_TIMEOUT_S} s; is it still booting?"
            )
        clock.sleep(_POLL_S)
    call_with_timeout(domain.managedSave, within_s=_SAVE_TIMEOUT_S)


def _attach_missing(domain: Any) -> None:
    """Devices that were taken out before its memory was saved."""
    present = {_source(device) for device in _passed_through(domain.XMLDesc())}
    for device in _passed_through(definition_of(domain)):
        if _source(device) not in present:
            call_with_timeout(
                domain.attachDeviceFlags, ET.tostring(device, encoding="unicode"), libvirt.VIR_DOMAIN_AFFECT_LIVE
            )


def _passed_through(definition: str) -> list[ET.Element]:
    return read_xml(definition, "the definition").findall("devices/hostdev")


def _source(device: ET.Element) -> tuple[tuple[str, str], ...]:
    address = device.find("source/address")
    return tuple(sorted(address.attrib.items())) if address is not None else ()


def copy_disk(domain: Any, disk: Path, to: Path, clock: Clock) -> None:
    """`disk`, one of the domain's, at this moment and in one piece (qcow2). The guest goes on meanwhile."""
    to.unlink(missing_ok=True)
    if not domain.isActive():
        run_program(["qemu-img", "convert", "-f", "qcow2", "-O", "qcow2", disk, to])
        return
    _abort_backup(domain)  # of an agent that died in the middle
    call_with_timeout(domain.backupBegin, _backup_of(domain, disk, to), None, 0)
    until = clock.now() + timedelta(seconds=_BACKUP_TIMEOUT_S)
    while domain.jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE:
        if clock.now() >= until:
            _abort_backup(domain)
            raise VirtError(f"the copy of the disk was not ready within {_BACKUP_TIMEOUT_S} s")
        clock.sleep(_POLL_S)
    ended = domain.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
    if ended.get("type") != libvirt.VIR_DOMAIN_JOB_COMPLETED:
        raise VirtError(f"the disk could not be copied: {ended.get('errmsg') or 'the job ended early'}")


def _backup_of(domain: Any, disk: Path, to: Path) -> str:
    """Of this disk alone: every other one of the domain is named as not to be copied."""
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


def _abort_backup(domain: Any) -> None:
    if domain.jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE:
        call_with_timeout(domain.abortJob)


T = TypeVar("T")

#: QEMU answers within milliseconds; on a host that is crowded, within a second or two.
ANSWER_TIMEOUT_S = 30.0


class GuestHangs(VirtError):
    """QEMU does not answer. It can be ended: deleting and rebooting hard do that."""

    code = "virt.guest_hangs"


def call_with_timeout(call: Callable[..., T], *arguments: object, within_s: float | None = None) -> T:
    """What `call` answers or raises. Raises `GuestHangs`.

    The thread of a call that was given up ends when QEMU does: libvirt lets go of it then.
    """
    limit_s = ANSWER_TIMEOUT_S if within_s is None else within_s
    answer: Future[T] = Future()
    context = copy_context()

    def ask() -> None:
        try:
            answer.set_result(context.run(call, *arguments))
        except Exception as error:  # noqa: BLE001 - nothing is swallowed: it is raised again where it was asked for
            answer.set_exception(error)

    threading.Thread(target=ask, name="libvirt-ask", daemon=True).start()
    try:
        return answer.result(limit_s)
    except StillWaiting as error:
        if answer.done():  # the call's own TimeoutError
            raise
        raise GuestHangs(
            f"the guest's QEMU did not answer within {limit_s:.0f} s: it hangs; reboot the server hard, or delete it"
        ) from error


class OwnDomains:
    def __init__(self, host: str) -> None:
        self._host = host
        self._strangers: frozenset[str] = frozenset()
        self._stuck: frozenset[str] = frozenset()

    def find(self, link: Any, uuid: str) -> Any:
        """The domain; None where there is none. Raises `VirtError` for somebody else's."""
        try:
            domain = link.lookupByUUIDString(uuid)
        except libvirt.libvirtError as error:
            if error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_INVALID_ARG):
                return None
            raise
        if not is_ours(definition_of(domain)):
            raise VirtError(f"domain {domain.name()} has the uuid {uuid} but was not made by this agent; left alone")
        return domain

    def domain(self, link: Any, uuid: str) -> Any:
        """Raises `NoSuchDomain`."""
        domain = self.find(link, uuid)
        if domain is None:
            raise NoSuchDomain(f"there is no server {uuid} on host {self._host}")
        return domain

    def all_domains(self, link: Any) -> dict[str, Domain]:
        """By uuid. Domains of others, and guests that stand still, are named in the log, once for each change."""
        found: dict[str, Domain] = {}
        strangers: set[str] = set()
        stuck: set[str] = set()
        for domain in link.listAllDomains():
            try:
                definition = definition_of(domain)
                if not is_ours(definition):
                    strangers.add(domain.name())
                    continue
                spec = parse_domain(definition)
                found[spec.uuid] = Domain(spec, power_of(domain), rescue_image(definition) is not None)
                if lacks_room(domain):  # asked last: whoever is shown as paused is named too
                    stuck.add(spec.uuid)
            except libvirt.libvirtError as error:
                if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:  # it went in between
                    raise
        self._log_changes(strangers, stuck)
        return found

    def _log_changes(self, strangers: set[str], stuck: set[str]) -> None:
        if strangers != self._strangers:
            log.warning(
                "this host runs domains that this agent did not make; they are left alone, and what they use is not "
                "taken off what the host offers",
                extra={"domains": sorted(strangers)},
            )
        if stuck - self._stuck:
            log.error(
                "guests stand still, for this host could not write to their disks; make room below [libvirt] "
                "instances_path, then unpause them",
                extra={"guests": sorted(stuck)},
            )
        self._strangers, self._stuck = frozenset(strangers), frozenset(stuck)
