"""The serial console of a guest of libvirt: its pty, through a stream of libvirtd.

Each console has a connection of its own, so that much output of a guest does not delay other calls. libvirtd opens the
pty, so the agent needs no rights on it, and gives it to one stream at a time.
"""

import logging
import threading

import libvirt

from moorage.agent.model import DomainPowerState
from moorage.agent.virt import libvirt_domain as guest
from moorage.agent.virt.domain_xml import parse_domain
from moorage.agent.virt.driver import VirtError
from moorage.agent.virt.libvirt_connection import LibvirtConnection
from moorage.agent.virt.libvirt_domain import OwnDomains

log = logging.getLogger(__name__)

#: Maximum number of bytes that a call returns or sends.
_CHUNK_BYTES = 16_384


class LibvirtConsole:
    """See `GuestConsole`."""

    def __init__(self, connection: LibvirtConnection, own_domains: OwnDomains, uuid: str) -> None:
        """Raises `NoSuchDomain` also for a domain that the agent did not make, `VirtError` for one that is off."""
        self._connection = connection
        self._lock = threading.Lock()
        self._is_closed = False
        try:
            with connection.use() as link:
                domain = own_domains.require_domain(link, uuid)
                if guest.power_of(domain) is DomainPowerState.SHUTOFF:
                    name = parse_domain(guest.definition_of(domain)).name
                    raise VirtError(f"{name} is off, so it has no console")
                self._stream = link.newStream()
                # The flag ends the stream that has the pty now: an earlier one of this agent, or `virsh console`.
                domain.openConsole(None, self._stream, libvirt.VIR_DOMAIN_CONSOLE_FORCE)
        except VirtError:
            connection.close()
            raise

    def read(self) -> bytes:
        try:
            return self._stream.recv(_CHUNK_BYTES)
        except libvirt.libvirtError as error:
            log.debug("a console has ended", extra={"why": str(error)})
            return b""

    def write(self, data: bytes) -> None:
        try:
            while data and not self._is_closed:
                data = data[self._stream.send(data[:_CHUNK_BYTES]) :]
        except libvirt.libvirtError as error:
            log.debug("a console has ended", extra={"why": str(error)})

    def close(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        try:
            self._stream.abort()
        except libvirt.libvirtError as error:  # it has ended already
            log.debug("a console has ended", extra={"why": str(error)})
        self._connection.close()
