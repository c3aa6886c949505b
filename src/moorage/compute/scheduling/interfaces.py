"""Binds the ports of servers to their hosts, and releases them."""

import logging
from collections.abc import Mapping, Sequence

import msgspec

from moorage.compute.model.servers import InterfaceAddress, NetworkInterface, Server, VmState
from moorage.core.errors import Unavailable
from moorage.jobs.contract import DEVICE, PortDevice, device_group
from moorage.network.client.server_ports import (
    BoundAddress,
    BoundPort,
    LearnedPort,
    PortsRefused,
    ServerPorts,
    WantedPort,
)

log = logging.getLogger(__name__)

#: {server id: its interfaces}
Interfaces = Mapping[str, tuple[NetworkInterface, ...]]

NO_NETWORK_SERVICE = (
    "this process runs compute without a network service, but servers have ports: add network to [plane] services, or "
    "set [endpoints] moorage_network, or network for a Neutron, and restart it"
)


def bind_ports(server_ports: ServerPorts | None, servers: Sequence[tuple[Server, str]]) -> Interfaces:
    """Binds the ports of each server to the host beside it, in one request; makes those that are missing.

    May be repeated. Raises `PortsRefused`, and `Unavailable` if the network service does not answer.
    """
    wanted = [
        msgspec.structs.replace(
            _existing_port(server, host, one),
            network_id=one.network_id if one.is_made else None,
            address=one.wanted_address,
        )
        for server, host in servers
        for one in server.interfaces
    ]
    bound = iter(_service(server_ports).bind(wanted))
    return {server.id: tuple(_bound_interface(one, next(bound)) for one in server.interfaces) for server, _ in servers}


def update_ports(
    server_ports: ServerPorts | None, server: Server | None, server_id: str, *, release: bool
) -> dict[str, NetworkInterface]:
    """Releases the server's ports, or binds those that exist to its present host and returns {port id: interface}. May
    be repeated.

    A port that the network service refuses does not keep the others: somebody may have taken it away, and a repetition
    would not bring it back.
    """
    bound: dict[str, NetworkInterface] = {}
    if release:
        _service(server_ports).release(server_id, None if server is None else server.project_id)
    elif server is not None and server.vm_state is not VmState.DELETED:
        for one in server.interfaces:
            try:
                (port,) = _service(server_ports).bind([_existing_port(server, server.host or "", one)])
            except PortsRefused as refused:
                log.warning("port not bound", extra={"server": server_id, "port": one.port_id, "reason": str(refused)})
            else:
                bound[one.port_id] = _bound_interface(one, port)
    return bound


def bind_device(
    server_ports: ServerPorts | None, server: Server, port_id: str, device: PortDevice, host: str
) -> NetworkInterface:
    """Binds a port of the kind `DEVICE` to the device that `host` has chosen. May be repeated.

    Raises `PortsRefused`, and `Unavailable` if the network service does not answer.
    """
    interface = next(one for one in server.interfaces if one.port_id == port_id)
    wanted = WantedPort(port_id, server.project_id, server.id, host, device=device)
    (port,) = _service(server_ports).bind([wanted])
    return _bound_interface(interface, port)


def _existing_port(server: Server, host: str, interface: NetworkInterface) -> WantedPort:
    """A port of the kind `DEVICE` is bound to no host until the host has chosen its device, and reported it."""
    if interface.kind != DEVICE:
        return WantedPort(interface.port_id, server.project_id, server.id, host)
    group = device_group(interface.port_id)
    plugged = next((one for one in server.devices if one.get("group") == group and server.host == host), None)
    if plugged is None:
        return WantedPort(interface.port_id, server.project_id, server.id, "")
    device = PortDevice(plugged["pci_id"], plugged["physical_network"])
    return WantedPort(interface.port_id, server.project_id, server.id, host, device=device)


def release_port(server_ports: ServerPorts | None, server_id: str, port_id: str) -> None:
    """May be repeated; does nothing for a port of another server."""
    _service(server_ports).release_port(server_id, port_id)


def _service(server_ports: ServerPorts | None) -> ServerPorts:
    if server_ports is None:
        raise Unavailable(NO_NETWORK_SERVICE)
    return server_ports


def with_binding(interface: NetworkInterface, bound: NetworkInterface) -> NetworkInterface:
    """`interface` with the binding of `bound`, and its own state and learned addresses."""
    return msgspec.structs.replace(bound, state=interface.state, learned=interface.learned)


def _bound_interface(interface: NetworkInterface, port: BoundPort) -> NetworkInterface:
    return msgspec.structs.replace(
        interface,
        port_id=port.id,  # a Neutron chooses it
        mac=port.mac,
        network_id=port.network_id,
        network_name=port.network_name,
        kind=port.kind or interface.kind,  # without a host, a Neutron does not say it
        physical_network=port.physical_network or interface.physical_network,
        segmentation_id=port.segmentation_id,
        is_dhcp=port.is_dhcp,
        addresses=_interface_addresses(port.addresses),
        mtu=port.mtu,
        is_plugged=port.is_plugged,
        learned=(),  # its host reports them
    )


def learn_addresses(
    server_ports: ServerPorts | None, reports: Sequence[LearnedPort]
) -> dict[str, tuple[InterfaceAddress, ...]]:
    """{port id: addresses that its interface has learned}, of those that the network service accepts."""
    learned = _service(server_ports).learn(reports) if reports else []
    return {report.port_id: _interface_addresses(each) for report, each in zip(reports, learned, strict=True)}


def _interface_addresses(addresses: Sequence[BoundAddress]) -> tuple[InterfaceAddress, ...]:
    return tuple(InterfaceAddress(one.address, one.subnet_id, one.cidr, one.gateway, one.dns) for one in addresses)
