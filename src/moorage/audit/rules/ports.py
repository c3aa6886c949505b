"""Ports of servers: those whose server is gone or does not list them, and servers that list a port that is gone. Pure.

Judges only servers on a host without an operation in progress (`model.AuditedServer`), and neither servers nor ports
that changed within the grace period: an operation binds a port before or after it changes the server.

Servers whose addresses have the MAC addresses of their ports agree. The collector reads the others' interfaces. A port
without an address (a DHCP server gives it, and no host has reported it) does not show in a server's addresses, so
servers with such ports are read, too; a server that lists a single lost port of this kind is not noticed.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from moorage.audit.model import AuditedPort, AuditedServer, AuditSnapshot, Compute, Finding, FindingKind, Repair


def doubtful_servers(snapshot: AuditSnapshot) -> frozenset[str]:
    """Servers whose interfaces have to be read to compare them with the ports."""
    if snapshot.compute is None or snapshot.ports is None:
        return frozenset()
    by_server = _by_server(snapshot.ports)
    return frozenset(
        uuid
        for uuid, server in _judged(snapshot.compute)
        if not _agrees(server, by_server.get(uuid, []))
    )  # fmt: skip


def _agrees(server: AuditedServer, ports: list[AuditedPort]) -> bool:
    return all(port.has_address for port in ports) and server.macs == {port.mac for port in ports}


def port_findings(snapshot: AuditSnapshot, grace: timedelta) -> Iterator[Finding]:
    compute, ports = snapshot.compute, snapshot.ports
    if compute is None or ports is None:
        return
    judged = dict(_judged(compute))
    for uuid, port in sorted(ports.items()):
        if snapshot.now - port.changed_at < grace:
            continue
        if port.server not in compute.servers:
            yield Finding(
                FindingKind.PORT_WITHOUT_SERVER, uuid, port.host, f"compute knows no server {port.server}",
                "releases it: one that was made for the server is deleted, others become free",
                Repair.RELEASE_PORT, is_safe=True,
            )  # fmt: skip
        elif _is_unlisted(snapshot, port) and _is_old(snapshot, judged[port.server], grace):
            yield Finding(
                FindingKind.UNLISTED_PORT, uuid, port.host, f"server {port.server} has no such interface",
                "nothing: look whether the guest still has it; with --also UUID releases it", Repair.RELEASE_PORT,
            )  # fmt: skip
    for uuid, listed in sorted(snapshot.interfaces.items()):
        if uuid not in judged or not _is_old(snapshot, judged[uuid], grace):
            continue
        if lost := sorted(listed & snapshot.lost_ports):
            yield Finding(
                FindingKind.SERVER_WITHOUT_PORT, uuid, judged[uuid].node or "",
                f"it lists the port {lost[0]}, which does not exist or is not its own",
                f"nothing: detach it (openstack server remove port {uuid} {lost[0]}), then attach the network again",
            )  # fmt: skip


def _judged(compute: Compute) -> list[tuple[str, AuditedServer]]:
    return [(uuid, server) for uuid, server in sorted(compute.states.items()) if server.node is not None]


def _is_unlisted(snapshot: AuditSnapshot, port: AuditedPort) -> bool:
    listed = snapshot.interfaces.get(port.server)
    return listed is not None and port.uuid not in listed


def _is_old(snapshot: AuditSnapshot, server: AuditedServer, grace: timedelta) -> bool:
    return snapshot.now - server.updated_at >= grace


def _by_server(ports: Mapping[str, AuditedPort]) -> dict[str, list[AuditedPort]]:
    found: dict[str, list[AuditedPort]] = {}
    for port in ports.values():
        found.setdefault(port.server, []).append(port)
    return found
