"""Between a host that attaches ports of a Neutron to a guest, and Neutron.

A port that is a device is bound when the host has chosen the device (`bind_device`); other ports were bound before the
host got its job.

A host starts a guest when its ports are plugged. Neutron says so in an event (`record_event`); in case an event was
lost, the host has Neutron asked from time to time (`unplugged_ports`). Ports of our own network service need no
plugging, so they are always plugged.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial

import msgspec
from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.model.job_payloads import PortsUpdate, ports_job, read_payload
from moorage.compute.model.servers import BUILD_QUEUE, InterfaceState, NetworkInterface, Server
from moorage.compute.scheduling.interfaces import bind_device, with_binding
from moorage.compute.servers.interface_service import InterfaceService
from moorage.compute.store import server_store
from moorage.core.caller import Caller
from moorage.core.errors import Conflict, MoorageError, NotFound
from moorage.db.session import in_transaction
from moorage.jobs.contract import DEVICE, JobKind, PortDevice
from moorage.jobs.model import JobState
from moorage.network.client.server_ports import PortsRefused

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PluggingService:
    deps: ComputeDeps
    interfaces: InterfaceService

    def unplugged_ports(self, server: Server, *, refresh: bool) -> list[str]:
        """The ports that Neutron still has to connect on the server's host; with `refresh` it is asked."""
        unplugged = _unplugged(server)
        if not refresh or not unplugged or self.deps.server_ports is None:
            return unplugged
        said = self.deps.server_ports.plugged(server.id)
        plugged = {port_id for port_id, is_plugged in said.items() if is_plugged}
        return _unplugged(self._set_plugged(server, plugged, is_plugged=True))

    def bind_device(self, host: str, server_id: str, port_id: str, device: PortDevice) -> NetworkInterface | None:
        """Binds a port of a server to the device that `host` has chosen for it, while the host works on the server.

        None: Neutron no longer has the port for this server, so the server does not have it any more, either. May be
        repeated. Raises `NotFound` for a port that is no device of the server, `Conflict` for a host that works on no
        job of the server, and `PortsRefused`.
        """
        server = in_transaction(self.deps.engine, partial(_server_in_work, host, server_id, port_id))
        bound: NetworkInterface | None = None
        try:
            bound = bind_device(self.deps.server_ports, server, port_id, device, host)
        except PortsRefused as refused:
            if refused.status != 404 or self._has_port_in_neutron(server_id, port_id):
                raise  # not the port is missing, but something else, such as its network

        def store(connection: Connection) -> None:
            now = _server_in_work(host, server_id, port_id, connection)
            after = [
                one if bound is None or one.port_id != port_id else with_binding(one, bound)
                for one in now.interfaces
                if bound is not None or one.port_id != port_id
            ]
            self._write(connection, now, tuple(after))

        in_transaction(self.deps.engine, store)
        return bound

    def _has_port_in_neutron(self, server_id: str, port_id: str) -> bool:
        return self.deps.server_ports is not None and port_id in self.deps.server_ports.plugged(server_id)

    def record_event(
        self, caller: Caller, request_id: str, server: Server, name: str, status: str, port_id: str
    ) -> None:
        """`name`: of the event, ``network-...``; others are ignored. `port_id` is empty if the event has no tag."""
        if name == "network-vif-plugged" and status == "failed":
            log.warning("neutron could not plug a port", extra={"server": server.id, "port": port_id})
        elif name in ("network-vif-plugged", "network-vif-unplugged"):
            self._set_plugged(server, {port_id}, is_plugged=name == "network-vif-plugged")
        elif name == "network-changed" and (not port_id or _has_port(server, port_id)):
            self._bind_again(request_id, server)
        elif name == "network-vif-deleted" and _has_port(server, port_id):
            self.detach(caller, request_id, server.id, port_id)

    def _set_plugged(self, server: Server, port_ids: Collection[str], *, is_plugged: bool) -> Server:
        def change(one: NetworkInterface) -> NetworkInterface:
            return msgspec.structs.replace(one, is_plugged=is_plugged) if one.port_id in port_ids else one

        return in_transaction(self.deps.engine, partial(self._update, server, change))

    def _update(
        self, seen: Server, change: Callable[[NetworkInterface], NetworkInterface], connection: Connection
    ) -> Server:
        server = server_store.lock_server(connection, seen.id)
        if server is None:
            return seen
        after = tuple(change(one) for one in server.interfaces)
        self._write(connection, server, after)
        return replace(server, interfaces=after)

    def _write(self, connection: Connection, server: Server, after: tuple[NetworkInterface, ...]) -> None:
        if after != server.interfaces:
            server_store.update_server(connection, server.id, self.deps.clock.now(), interfaces=after)

    def _bind_again(self, request_id: str, server: Server) -> None:
        """Has the ports read again, unless a job waits that will: Neutron sends one event for each change. (A job in
        progress may have read them before the change.)
        """

        def enqueue(connection: Connection) -> None:
            for job in server_store.BUILD_JOBS.story(connection, server.id):
                is_waiting = job.state is JobState.READY and job.kind is JobKind.PORTS
                if is_waiting and not read_payload(job, PortsUpdate).release:
                    return
            again = ports_job(self.deps.ids.uuid(), server.id, request_id, release=False)
            server_store.BUILD_JOBS.enqueue(connection, again, self.deps.clock.now())

        if server.interfaces:
            in_transaction(self.deps.engine, enqueue)
            self.deps.hints.send(BUILD_QUEUE)

    def detach(self, caller: Caller, request_id: str, server_id: str, port_id: str) -> None:
        """The port is gone, so the guest loses its interface."""
        try:
            self.interfaces.detach(caller, request_id, server_id, port_id, is_gone=True)
        except MoorageError as error:
            extra = {"server": server_id, "port": port_id, "reason": error.message}
            log.warning("the interface of a deleted port could not be detached", extra=extra)


def _server_in_work(host: str, server_id: str, port_id: str, connection: Connection) -> Server:
    """The server, locked, if the port is a device of it and `host` works on a job of it."""
    server = server_store.lock_server(connection, server_id)
    if server is None or not any(one.port_id == port_id and one.kind == DEVICE for one in server.interfaces):
        raise NotFound(f"Server {server_id} has no port {port_id} with a device profile.")
    jobs = server_store.HOST_JOBS.story(connection, server_id)
    if not any(job.queue == host and job.state is JobState.CLAIMED for job in jobs):
        raise Conflict(f"Host {host} works on no job of server {server_id}.")
    return server


def _has_port(server: Server, port_id: str) -> bool:
    """False for a port of somebody else who has written the server's id into it."""
    return any(one.port_id == port_id for one in server.interfaces)


def _unplugged(server: Server) -> list[str]:
    here = [one for one in server.interfaces if one.state is not InterfaceState.DETACHING]
    return [one.port_id for one in here if not one.is_plugged]
