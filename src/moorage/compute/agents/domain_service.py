"""Reports of host agents on their domains: guests that shut down, domains that vanished, console output, addresses
from DHCP servers, and failed devices.

An agent fetches the servers that it should have, inspects its domains, and reports. A server that changed in between
is left unchanged, because the report is about its former state.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.model import observed_state
from moorage.compute.model.observed_state import device_change, has_device_fault
from moorage.compute.model.servers import Fault, InterfaceAddress, Server
from moorage.compute.scheduling.interfaces import learn_addresses
from moorage.compute.store import server_store
from moorage.compute.store.server_store import ServerQuery
from moorage.core.errors import MoorageError, NotFound
from moorage.db.session import in_transaction, read
from moorage.network.client.server_ports import LearnedPort

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExpectedServer:
    """A server of a host. `mark` differs after each change of the server; None: an operation is in progress."""

    id: str
    mark: str | None


@dataclass(frozen=True)
class DomainReport:
    id: str
    mark: str
    power: str  #: see `observed_state.POWERS`


@dataclass(frozen=True)
class DomainService:
    deps: ComputeDeps

    def expected_servers(self, host: str) -> list[ExpectedServer]:
        with read(self.deps.engine) as connection:
            servers = list(server_store.find_servers(connection, ServerQuery(host=host, softly_deleted=True)))
        return [
            ExpectedServer(server.id, server.updated_at.isoformat() if observed_state.is_settled(server) else None)
            for server in servers
        ]

    def server_on_host(self, host: str, server_id: str) -> Server:
        """Raises `NotFound` for a server that is not on this host."""
        with read(self.deps.engine) as connection:
            server = server_store.server(connection, server_id)
        if server is None or server.host != host:
            raise NotFound(f"there is no server {server_id} on host {host}")
        return server

    def report_domains(self, host: str, reports: Sequence[DomainReport], consoles: Mapping[str, str]) -> None:
        """Applies the reports of a host. `consoles`: {server id: last part of its console text}, where it changed."""
        now = self.deps.clock.now()

        def apply_reports(connection: Connection) -> None:
            for report in reports:
                server = server_store.lock_server(connection, report.id)
                if server is None or server.host != host or server.updated_at.isoformat() != report.mark:
                    continue
                change = observed_state.power_change(server, report.power)
                if change is None:
                    continue
                changes: dict[str, object] = {"vm_state": change.vm_state, "power_state": change.power}
                if change.error is not None:
                    changes["fault"] = Fault(500, change.error, f"host {host}, power synchronisation", now)
                server_store.update_server(connection, report.id, now, **changes)
            for server_id, text in consoles.items():
                server = server_store.server(connection, server_id)
                if server is not None and server.host == host:
                    server_store.save_console(connection, server_id, text, now)

        in_transaction(self.deps.engine, apply_reports)

    def report_addresses(self, host: str, reports: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
        """Applies what a host learned: {server id: {MAC address: addresses}}, for each server all that the host knows.

        Concerns only interfaces with DHCP of the host's own servers; the network service decides which of the addresses
        they may have. If it does not answer, the next report changes the servers.
        """
        if not reports:
            return
        with read(self.deps.engine) as connection:
            servers = list(server_store.find_servers(connection, ServerQuery(host=host, softly_deleted=True)))
        # Also without a change: a port loses its learned addresses when it is bound to another host.
        known = [
            LearnedPort(one.port_id, server.id, host, one.mac, said)
            for server in servers
            if server.id in reports
            for one in server.interfaces
            if one.is_dhcp and ((said := tuple(reports[server.id].get(one.mac, ()))) or one.learned)
        ]
        try:
            learned = learn_addresses(self.deps.server_ports, known)
        except MoorageError as error:
            log.warning("addresses of servers could not be stored", extra={"host": host, "why": error.message})
            return
        for server_id in sorted({one.server_id for one in known}):
            in_transaction(self.deps.engine, partial(self._store_learned, host, server_id, learned))

    def _store_learned(
        self, host: str, server_id: str, learned: Mapping[str, tuple[InterfaceAddress, ...]], connection: Connection
    ) -> None:
        server = server_store.lock_server(connection, server_id)
        if server is None or server.host != host:
            return
        after = tuple(
            msgspec.structs.replace(one, learned=learned[one.port_id]) if one.port_id in learned else one
            for one in server.interfaces
        )
        if after != server.interfaces:
            server_store.update_server(connection, server_id, self.deps.clock.now(), interfaces=after)

    def report_devices(self, host: str, failed: Mapping[str, Sequence[str]]) -> None:
        """Applies a complete report: {server id: descriptions of its failed devices}, of all servers of the host."""
        with read(self.deps.engine) as connection:
            servers = list(server_store.find_servers(connection, ServerQuery(host=host)))
        concerned = [server.id for server in servers if server.id in failed or has_device_fault(server)]
        now = self.deps.clock.now()

        def apply_report(connection: Connection) -> list[tuple[Server, bool]]:
            changed = []
            for server_id in sorted(concerned):
                server = server_store.lock_server(connection, server_id)
                if server is None or server.host != host:
                    continue
                changes = device_change(server, failed.get(server_id, ()), now)
                if changes is not None:
                    server_store.update_server(connection, server_id, now, **changes)
                    changed.append((server, server_id in failed))
            return changed

        for server, has_failed in in_transaction(self.deps.engine, apply_report) if concerned else ():
            log.warning(
                "a device of a server has failed" if has_failed else "the devices of a server work again",
                extra={"server": server.id, "host": host, "devices": list(failed.get(server.id, ()))},
            )
