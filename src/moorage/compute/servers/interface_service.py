"""Use cases that attach an interface to a server or detach one. Its host carries them out.

Attach, with what a kill after each step leaves:

    1. choose network or port            with the caller's rights (`network_choice`); nothing
    2. enqueue a release of the port     it waits for `RELEASE_AFTER`, and releases what step 3 may have bound
    3. bind the port to server and host  with the rights of the service, which makes it if it is missing; see 2
    4. cancel 2, write the interface, enqueue the host's job, in one transaction; the host attaches

Detach enqueues the host's job. The port is released when the host reports that the guest no longer has it.

Statuses and messages are those of Nova 34.0.0.
"""

from dataclasses import dataclass, replace
from datetime import timedelta

import msgspec
from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.model import lifecycle
from moorage.compute.model.job_payloads import (
    PortRelease,
    interface_payload,
    read_payload,
    release_port_job,
    server_situation,
)
from moorage.compute.model.lifecycle import Operation
from moorage.compute.model.servers import (
    BUILD_QUEUE,
    MAX_INTERFACES,
    InterfaceState,
    NetworkInterface,
    Server,
)
from moorage.compute.requests.host_commands import HostCommands, check_capability
from moorage.compute.requests.network_choice import attached_interface
from moorage.compute.requests.server_request import WantedInterface
from moorage.compute.requests.server_service import visible
from moorage.compute.scheduling.interfaces import bind_ports
from moorage.compute.store import server_store
from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Forbidden, Invalid, MoorageError, NotBuilt, NotFound
from moorage.db.session import in_transaction, read
from moorage.jobs.contract import DEVICE, InterfaceJob
from moorage.jobs.model import OPEN
from moorage.network.client.server_ports import PortsRefused

#: A request that attaches an interface and has not ended after this time is dead: its port is released. Longer than a
#: client waits for an answer of the network service.
RELEASE_AFTER = timedelta(minutes=5)


@dataclass(frozen=True)
class InterfaceService:
    deps: ComputeDeps
    commands: HostCommands

    def attach(self, caller: Caller, request_id: str, server_id: str, wanted: WantedInterface) -> NetworkInterface:
        """The interface with its address; its host attaches it afterwards.

        Raises `NotFound` for a server, network or port, `Conflict` for a state that does not allow it or a port or
        address in use, `Invalid`, `Forbidden` and `OverQuota`.
        """
        operation = lifecycle.ATTACH_INTERFACE
        with read(self.deps.engine) as connection:
            server = visible(server_store.server(connection, server_id), caller, server_id)
            self._check(connection, caller, server, operation)
        interface = attached_interface(self.deps.networks, caller, server.project_id, wanted)
        if interface.is_made:
            interface = msgspec.structs.replace(interface, port_id=self.deps.ids.uuid())
        release_id = self._reserve(caller, server_id, interface.port_id)
        try:
            interface = self._bound(server, interface)
            self._commit(caller, request_id, server_id, interface, release_id)
        except MoorageError:
            self._give_up(server_id, interface.port_id, release_id)
            raise
        return interface

    def _check(self, connection: Connection, caller: Caller, server: Server, operation: Operation) -> None:
        lifecycle.check(operation, server_situation(server), caller)
        check_capability(connection, server, operation)

    def _reserve(self, caller: Caller, server_id: str, port_id: str) -> str:
        """Enqueues the release for a dead request, and returns its id. Refuses a second request with the same port."""

        def reserve(connection: Connection) -> str:
            server = visible(server_store.lock_server(connection, server_id), caller, server_id)
            self._check(connection, caller, server, lifecycle.ATTACH_INTERFACE)
            if len(server.interfaces) >= MAX_INTERFACES:
                raise Invalid(f"A server has at most {MAX_INTERFACES} interfaces; detach one first.")
            in_progress = any(
                job.state in OPEN and read_payload(job, PortRelease).server_id == server_id
                for job in server_store.BUILD_JOBS.story(connection, _key(port_id))
            )
            if in_progress or any(one.port_id == port_id for one in server.interfaces):
                raise Conflict(f"Port {port_id} is still in use.")
            now = self.deps.clock.now()
            job = release_port_job(
                self.deps.ids.uuid(), server_id, port_id, key=_key(port_id), not_before=now + RELEASE_AFTER
            )
            server_store.BUILD_JOBS.enqueue(connection, job, now)
            return job.id

        return in_transaction(self.deps.engine, reserve)

    def _bound(self, server: Server, interface: NetworkInterface) -> NetworkInterface:
        alone = replace(server, interfaces=(interface,))
        try:
            (bound,) = bind_ports(self.deps.server_ports, [(alone, server.host or "")])[server.id]
        except PortsRefused as refused:
            raise _AS_NOVA.get(refused.status, Conflict)(refused.message) from refused
        return msgspec.structs.replace(bound, state=InterfaceState.ATTACHING)

    def _commit(
        self, caller: Caller, request_id: str, server_id: str, interface: NetworkInterface, release_id: str
    ) -> None:
        operation = lifecycle.ATTACH_INTERFACE

        def commit(connection: Connection) -> str:
            server = visible(server_store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(operation, server_situation(server), caller)
            if not server_store.BUILD_JOBS.cancel(connection, release_id, self.deps.clock.now()):
                raise Conflict(f"Attaching port {interface.port_id} took too long; repeat the request.")
            return self._command(
                connection, caller, request_id, server, operation, interface, (*server.interfaces, interface)
            )

        self.deps.hints.send(in_transaction(self.deps.engine, commit))

    def _give_up(self, server_id: str, port_id: str, release_id: str) -> None:
        """Has the port released at once, unless the server has it: the commit may have succeeded although it raised."""

        def expedite(connection: Connection) -> None:
            now = self.deps.clock.now()
            server_store.BUILD_JOBS.cancel(connection, release_id, now)
            job = release_port_job(self.deps.ids.uuid(), server_id, port_id, key=_key(port_id))
            server_store.BUILD_JOBS.enqueue(connection, job, now)

        in_transaction(self.deps.engine, expedite)
        self.deps.hints.send(BUILD_QUEUE)

    def detach(self, caller: Caller, request_id: str, server_id: str, port_id: str, *, is_gone: bool = False) -> None:
        """Raises `NotFound` for an interface that the server does not have, and `Conflict`; `NotBuilt` for a device,
        unless the network service no longer has the port for the server (`is_gone`): then the guest must lose it.
        """
        operation = lifecycle.LOSE_INTERFACE if is_gone else lifecycle.DETACH_INTERFACE

        def begin(connection: Connection) -> str | None:
            server = visible(server_store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(operation, server_situation(server), caller)
            interface = next((one for one in server.interfaces if one.port_id == port_id), None)
            if interface is None:
                raise NotFound(f"Instance {server_id} does not have a port with id {port_id}")
            if interface.kind == DEVICE and not is_gone:
                raise NotBuilt(
                    f"Port {port_id} has the device profile {interface.device_profile}; such a port stays with its "
                    "server until the server is deleted."
                )
            if interface.state is InterfaceState.DETACHING:
                return None
            leaving = msgspec.structs.replace(interface, state=InterfaceState.DETACHING)
            after = tuple(leaving if one is interface else one for one in server.interfaces)
            return self._command(connection, caller, request_id, server, operation, leaving, after)

        queue = in_transaction(self.deps.engine, begin)
        if queue is not None:
            self.deps.hints.send(queue)

    def _command(
        self,
        connection: Connection,
        caller: Caller,
        request_id: str,
        server: Server,
        operation: Operation,
        interface: NetworkInterface,
        after: tuple[NetworkInterface, ...],
    ) -> str:
        """Writes the interfaces `after` and enqueues the host's job; returns the queue to wake."""
        server_store.update_server(connection, server.id, self.deps.clock.now(), interfaces=after)
        remaining = tuple(one for one in after if one.state is not InterfaceState.DETACHING)
        return self.commands.command_host(
            connection, caller, request_id, replace(server, interfaces=remaining), operation,
            lambda header, key: InterfaceJob(
                **header, key=key, interface=interface_payload(interface),
                restarts=interface.kind == DEVICE and server.vm_state in lifecycle.RUNNING_STATES,
            ),
        )  # fmt: skip


def _key(port_id: str) -> str:
    """Of the release for a dead request: not the server's, whose jobs must not wait for it."""
    return f"port:{port_id}"


#: {status of the network service: error}. Others are conflicts.
_AS_NOVA: dict[int, type[MoorageError]] = {400: Invalid, 403: Forbidden, 404: NotFound}
