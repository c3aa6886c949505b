"""Which domains of a libvirt are this agent's: found by their uuid, listed, told from those of others.

`link` is libvirt's connection, and what is found is a domain of its bindings (`Any`: they have no types).
"""

import logging
from typing import Any

import libvirt

from moorage.agent.virt import libvirt_domain as guest
from moorage.agent.virt.driver import Domain, NoSuchDomain, VirtError
from moorage.agent.virt.xml.domain_xml import is_ours, parse, rescue_image

log = logging.getLogger(__name__)


class KnownDomains:
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
        if not is_ours(guest.definition_of(domain)):
            raise VirtError(f"domain {domain.name()} has the uuid {uuid} but was not made by this agent; left alone")
        return domain

    def domain(self, link: Any, uuid: str) -> Any:
        """Raises `NoSuchDomain`."""
        domain = self.find(link, uuid)
        if domain is None:
            raise NoSuchDomain(f"there is no server {uuid} on host {self._host}")
        return domain

    def all(self, link: Any) -> dict[str, Domain]:
        """By uuid. Domains of others, and guests that stand still, are named in the log, once for each change."""
        found: dict[str, Domain] = {}
        strangers: set[str] = set()
        stuck: set[str] = set()
        for domain in link.listAllDomains():
            try:
                definition = guest.definition_of(domain)
                if not is_ours(definition):
                    strangers.add(domain.name())
                    continue
                spec = parse(definition)
                found[spec.uuid] = Domain(spec, guest.power_of(domain), rescue_image(definition) is not None)
                if guest.lacks_room(domain):  # asked last: whoever is shown as paused is named too
                    stuck.add(spec.uuid)
            except libvirt.libvirtError as error:
                if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:  # it went in between
                    raise
        self._say(strangers, stuck)
        return found

    def _say(self, strangers: set[str], stuck: set[str]) -> None:
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
