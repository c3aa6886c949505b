"""The use cases of ``/floatingips``: addresses that an administrator registers for leases.

Only an address that Neutron never assigns by itself can be registered: it must be in a subnet of an external network,
outside the subnet's allocation pools, and not in use.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from moorage.core.errors import Conflict, Invalid, NotBuilt, NotFound
from moorage.db.session import in_transaction, read
from moorage.network.client.neutron_client import NetworkClient, NeutronSubnet
from moorage.reservation.capacity.addresses import RegisteredAddress
from moorage.reservation.deps import ReservationDeps
from moorage.reservation.steps.floating_ip_steps import NO_NETWORK_SERVICE
from moorage.reservation.store import address_store as store


@dataclass(frozen=True)
class FloatingIps:
    deps: ReservationDeps

    def list_addresses(self) -> list[RegisteredAddress]:
        with read(self.deps.engine) as connection:
            return store.all_floating_ips(connection)

    def get_address(self, floating_ip_id: str) -> RegisteredAddress:
        with read(self.deps.engine) as connection:
            return _found(store.find(connection, floating_ip_id), floating_ip_id)

    def create_address(self, network_id: str, text: str) -> RegisteredAddress:
        """Registers the address `text`. Raises `Invalid` if it is unsuitable, `Conflict` if it is in use or already
        registered, `NotBuilt` without a network service.
        """
        if self.deps.network is None:
            raise NotBuilt(f"Floating IPs cannot be registered: {NO_NETWORK_SERVICE}")
        address = _parsed(text)
        subnet = _subnet_of(self.deps.network, network_id, address)
        for port in self.deps.network.ports_at(network_id, str(address)):
            raise Conflict(
                f"{address} is in use by port {port.id} ({port.owner or 'no owner'}) of project {port.project_id}; "
                "delete the port first"
            )
        now = self.deps.clock.now()
        floating_ip = RegisteredAddress(self.deps.ids.uuid(), network_id, subnet.id, str(address), True, now, None)
        try:
            in_transaction(self.deps.engine, lambda connection: store.insert_floating_ip(connection, floating_ip))
        except IntegrityError:
            raise Conflict(f"Floating IP {address} of subnet {subnet.id} is already registered") from None
        return floating_ip

    def delete_address(self, floating_ip_id: str) -> None:
        def delete_unreserved(connection: Connection) -> None:
            floating_ip = _found(store.find(connection, floating_ip_id, lock=True), floating_ip_id)
            if store.is_allocated(connection, floating_ip.id):
                raise Conflict(
                    f"Can't delete floating IP {floating_ip.id}. {floating_ip.floating_ip_address} is reserved; wait "
                    "until its leases end, or delete them"
                )
            store.delete_floating_ip(connection, floating_ip.id)

        in_transaction(self.deps.engine, delete_unreserved)


def _parsed(text: str) -> IPv4Address | IPv6Address:
    try:
        return ip_address(text)
    except ValueError:
        raise Invalid(f"floating_ip_address: {text} is not an IP address") from None


def _subnet_of(network: NetworkClient, network_id: str, address: IPv4Address | IPv6Address) -> NeutronSubnet:
    """The subnet that contains the address. Raises `Invalid` with the reason if there is none or it is unsuitable."""
    found = network.network(network_id)
    if found is None:
        raise Invalid(f"floating_network_id: network {network_id} does not exist")
    if not found.is_external:
        raise Invalid(f"floating_network_id: network {network_id} is not external, so it has no floating IPs")
    for subnet in network.subnets(network_id):
        block = ip_network(subnet.cidr, strict=False)
        if address.version != block.version or address not in block:
            continue
        for first, last in subnet.pools:
            if int(ip_address(first)) <= int(address) <= int(ip_address(last)):
                raise Invalid(
                    f"{address} is in the allocation pool {first} to {last} of subnet {subnet.id}, from which Neutron "
                    "assigns addresses; choose an address outside the pool, or shrink the pool"
                )
        if subnet.gateway is not None and address == ip_address(subnet.gateway):
            raise Invalid(f"{address} is the gateway of subnet {subnet.id}")
        if address.version == 4 and block.prefixlen < 31 and address in (block[0], block[-1]):
            raise Invalid(f"{address} is the first or last address of subnet {subnet.id}, which cannot be a host's")
        return subnet
    raise Invalid(f"{address} is in no subnet of network {network_id}")


def _found(floating_ip: RegisteredAddress | None, floating_ip_id: str) -> RegisteredAddress:
    if floating_ip is None:
        raise NotFound(f"Floating IP {floating_ip_id} not found.")
    return floating_ip
