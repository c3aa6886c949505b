"""Chooses the networks and ports of new servers, and of interfaces that are attached to one, with the rights of the
caller who asks for them.

The ports are not touched here: the job that builds a server binds them, when its host is known
(`moorage.compute.scheduling.commit_selection`), or `interface_service` does. A network or port that disappears in
between fails the build or the attachment.

Errors are those of Nova: for new servers of 31.0.0 (`nova.network.neutron`, `API.validate_networks`), for attached
interfaces of 34.0.0, whose statuses differ.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from moorage.compute.model.servers import NetworkInterface
from moorage.compute.requests.server_request import NewServer, WantedInterface
from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Invalid, NotBuilt, NotFound, OverQuota
from moorage.jobs.contract import DEVICE
from moorage.network.client.server_ports import ExistingPort, NetworkLookup, UsableNetwork


def chosen_interfaces(
    lookup: NetworkLookup | None, caller: Caller, new: NewServer
) -> tuple[tuple[NetworkInterface, ...], int]:
    """(interfaces of each server of the request, the number of servers for which the project may create ports).

    Ports that are to be made have no id yet. Raises `Invalid` for a network or port that the project cannot use,
    `Conflict` for a port in use and for a choice among several networks, and `OverQuota`.
    """
    if lookup is None:
        if new.interfaces:
            raise NotBuilt("This cloud has no network service, so servers have no networks. Use networks: none.")
        return (), new.count
    if new.interfaces == ():
        return (), new.count
    found = lookup.networks(caller.credentials)
    networks = {one.id: one for one in found if one.shared or one.project_id == caller.project_id}
    if new.interfaces is None:
        interfaces = _only_network(networks.values())
    else:
        _check_several(new)
        ports = _ports(lookup, caller, new.interfaces)
        interfaces = tuple(_interface(one, networks, ports) for one in new.interfaces)
    return interfaces, _servers_within_quota(lookup, caller, new, sum(one.is_made for one in interfaces))


def attached_interface(
    lookup: NetworkLookup | None, caller: Caller, project_id: str, wanted: WantedInterface
) -> NetworkInterface:
    """An interface to attach to a server of the project, without port id if its port is to be made.

    `wanted` without network and port: the only network. Raises `NotFound` for a network or port that the caller cannot
    see or the project cannot use, `Conflict` for a port in use, `Invalid`, and `OverQuota`.
    """
    if lookup is None:
        raise NotBuilt("This cloud has no network service, so servers have no interfaces to attach or detach.")
    found = lookup.networks(caller.credentials)
    networks = {one.id: one for one in found if one.shared or one.project_id == project_id}
    network_id = wanted.network_id
    if wanted.port_id is not None:
        port = lookup.ports(caller.credentials, [wanted.port_id]).get(wanted.port_id)
        if port is None:
            raise NotFound(f"Port id {wanted.port_id} could not be found.")
        if port.project_id != project_id:
            raise Invalid(f"Port {wanted.port_id} not usable for the server: it belongs to another project.")
        if _device_profile(port) is not None:
            raise NotBuilt(
                f"Port {port.id} has the device profile {port.device_profile}; such a port is given to a server when "
                "it is created, and cannot be attached to one."
            )
        if port.device_id:
            raise Conflict(f"Port {wanted.port_id} is still in use.")
        network_id = port.network_id
    elif network_id is None:
        if len(networks) > 1:
            raise Invalid("Multiple possible networks found, use a Network ID to be more specific.")
        network_id = next(iter(networks), None)
        if network_id is None:
            raise Invalid(f"No specific network was requested and none are available for project '{project_id}'.")
    network = networks.get(network_id)
    if network is None:
        raise NotFound(f"Network {network_id} could not be found.")
    interface = _interface_on(network, wanted)
    if interface.is_made and lookup.free_ports(caller.credentials, project_id) == 0:
        raise OverQuota("Maximum number of ports exceeded")
    return interface


def _only_network(networks: Collection[UsableNetwork]) -> tuple[NetworkInterface, ...]:
    if len(networks) > 1:
        raise Conflict("Multiple possible networks found, use a Network ID to be more specific.")
    return tuple(_interface_on(one, WantedInterface()) for one in networks)


def _check_several(new: NewServer) -> None:
    wanted = new.interfaces or ()
    if new.count > 1 and any(one.port_id for one in wanted):
        raise Invalid(
            "Failed to launch instances: Unable to launch multiple instances with a single configured port ID. Please "
            "launch your instance one by one with different ports."
        )
    if new.count > 1 and any(one.address for one in wanted):
        raise Invalid("Failed to launch instances: max_count cannot be greater than 1 if an fixed_ip is specified.")


def _ports(lookup: NetworkLookup, caller: Caller, wanted: Sequence[WantedInterface]) -> dict[str, ExistingPort]:
    """{id: port} of the wanted ports that exist."""
    ids = [one.port_id for one in wanted if one.port_id is not None]
    if not ids:
        return {}
    if len(set(ids)) < len(ids):
        raise Invalid("Each port can be given to the server once.")
    found = lookup.ports(caller.credentials, ids)
    for port_id in ids:
        port = found.get(port_id)
        if port is None:
            raise Invalid(f"Port id {port_id} could not be found.")
        if port.project_id != caller.project_id:
            raise Invalid(f"Port {port_id} not usable for the server: it belongs to another project.")
        if port.device_id:
            raise Conflict(f"Port {port_id} is still in use.")
    return dict(found)


def _device_profile(port: ExistingPort) -> str | None:
    """The profile of a port of a Neutron that is a device. Raises `NotBuilt` for one that hosts cannot attach."""
    if port.vnic_type == "normal" and not port.device_profile:
        return None
    if port.vnic_type == "accelerator-direct" and port.device_profile:
        return port.device_profile
    profile = f"the device profile {port.device_profile}" if port.device_profile else "no device profile"
    raise NotBuilt(
        f"Port {port.id} has the VNIC type {port.vnic_type} and {profile}; servers of this cloud have ports of the "
        "type normal without one, and of the type accelerator-direct with one."
    )


def _interface(
    wanted: WantedInterface, networks: Mapping[str, UsableNetwork], ports: Mapping[str, ExistingPort]
) -> NetworkInterface:
    port = None if wanted.port_id is None else ports[wanted.port_id]
    network_id = wanted.network_id if port is None else port.network_id
    network = networks.get(network_id or "")
    if network is None:
        raise Invalid(f"Network {network_id} could not be found.")
    interface = _interface_on(network, wanted)
    if port is None or (profile := _device_profile(port)) is None:
        return interface
    return msgspec.structs.replace(interface, kind=DEVICE, device_profile=profile)


def _interface_on(network: UsableNetwork, wanted: WantedInterface) -> NetworkInterface:
    if not network.subnets:
        raise Invalid(f"Network {network.id} requires a subnet in order to boot instances on.")
    return NetworkInterface(
        port_id=wanted.port_id or "",
        network_id=network.id,
        is_made=wanted.port_id is None,
        wanted_address=wanted.address,
        tag=wanted.tag,
        network_name=network.name,
    )


def _servers_within_quota(lookup: NetworkLookup, caller: Caller, new: NewServer, ports: int) -> int:
    """Number of servers that can each get so many new ports. Raises `OverQuota` if it is less than `new.least`."""
    free = lookup.free_ports(caller.credentials, caller.project_id) if ports else None
    count = new.count if free is None else min(new.count, free // ports)
    if count < min(new.least, new.count):
        raise OverQuota("Maximum number of ports exceeded")
    return count
