"""Registered addresses: the use cases of ``/floatingips``. An administrator names them; leases get them.

An address may be registered that Neutron never gives out by itself: on an external network, in one of its subnets and
outside of that one's allocation pools, and nobody's now.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from moorage.core.clock import Clock
from moorage.core.errors import Conflict, Invalid, NotBuilt, NotFound
from moorage.core.ids import Ids
from moorage.db.transactions import in_transaction, read
from moorage.network.client import NetworkClient, Subnet
from moorage.reservation.capacity.addresses import RegisteredAddress
from moorage.reservation.steps.floating_ip_steps import NO_NETWORK_SERVICE
from moorage.reservation.store import address_store as store


class FloatingIps:
    def __init__(self, engine: Engine, clock: Clock, ids: Ids, network: NetworkClient | None) -> None:
        self._engine = engine
        self._clock = clock
        self._ids = ids
        self._network = network

    def index(self) -> list[RegisteredAddress]:
        with read(self._engine) as connection:
            return store.all_floating_ips(connection)

    def show(self, floating_ip_id: str) -> RegisteredAddress:
        with read(self._engine) as connection:
            return _found(store.find(connection, floating_ip_id), floating_ip_id)

    def create(self, network_id: str, text: str) -> RegisteredAddress:
        """Register the address. Raises `Invalid` where it can never be one, `Conflict` where somebody has it,
        `NotBuilt` without a network service.
        """
        if self._network is None:
            raise NotBuilt(f"Floating IPs cannot be registered: {NO_NETWORK_SERVICE}")
        address = _parsed(text)
        subnet = _subnet_of(self._network, network_id, address)
        for port in self._network.ports_at(network_id, str(address)):
            raise Conflict(
                f"{address} is in use: port {port.id} ({port.owner or 'of no service'}) of project {port.project_id} "
                "has it; delete that first"
            )
        now = self._clock.now()
        floating_ip = RegisteredAddress(self._ids.uuid(), network_id, subnet.id, str(address), True, now, None)
        try:
            in_transaction(self._engine, lambda connection: store.insert_floating_ip(connection, floating_ip))
        except IntegrityError:
            raise Conflict(f"Floating IP {address} of subnet {subnet.id} is registered already") from None
        return floating_ip

    def delete(self, floating_ip_id: str) -> None:
        def work(connection: Connection) -> None:
            floating_ip = _found(store.find(connection, floating_ip_id, lock=True), floating_ip_id)
            if store.is_allocated(connection, floating_ip.id):
                raise Conflict(
                    f"Can't delete floating IP {floating_ip.id}. {floating_ip.floating_ip_address} is reserved; wait "
                    "for the end of the leases that have it, or delete them"
                )
            store.delete_floating_ip(connection, floating_ip.id)

        in_transaction(self._engine, work)


def _parsed(text: str) -> IPv4Address | IPv6Address:
    try:
        return ip_address(text)
    except ValueError:
        raise Invalid(f"floating_ip_address: {text} is not an IP address") from None


def _subnet_of(network: NetworkClient, network_id: str, address: IPv4Address | IPv6Address) -> Subnet:
    """Raises `Invalid` with the reason why no subnet of the network will do."""
    found = network.network(network_id)
    if found is None:
        raise Invalid(f"floating_network_id: there is no network {network_id}")
    if not found.is_external:
        raise Invalid(f"floating_network_id: network {network_id} is not external; floating IPs cannot come from it")
    for subnet in network.subnets(network_id):
        block = ip_network(subnet.cidr, strict=False)
        if address.version != block.version or address not in block:
            continue
        for first, last in subnet.pools:
            if ip_address(first) <= address <= ip_address(last):  # type: ignore[operator]  # all three are of one IP version; `ip_address` returns a union of both
                raise Invalid(
                    f"{address} lies in the allocation pool {first} to {last} of subnet {subnet.id}: Neutron may give "
                    "it to anybody; name one outside, or make the pool smaller"
                )
        if subnet.gateway is not None and address == ip_address(subnet.gateway):
            raise Invalid(f"{address} is the gateway of subnet {subnet.id}")
        if address.version == 4 and block.prefixlen < 31 and address in (block[0], block[-1]):
            raise Invalid(f"{address} is no host of subnet {subnet.id}: the first and the last address have a meaning")
        return subnet
    raise Invalid(f"{address} lies in no subnet of network {network_id}")


def _found(floating_ip: RegisteredAddress | None, floating_ip_id: str) -> RegisteredAddress:
    if floating_ip is None:
        raise NotFound(f"Floating IP {floating_ip_id} not found.")
    return floating_ip
