"""[pure] Subnets in CIDR notation, their pools of addresses, and the choice of free addresses.

    "192.0.2.0/29", gateway "192.0.2.1"  ->  pools 192.0.2.2-192.0.2.6; free with .2 in use: .3, .4, .5, .6

All texts are in the canonical form of `ipaddress`, so that equal addresses are equal texts.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import pairwise

from moorage.core.errors import Invalid

Address = IPv4Address | IPv6Address

#: Maximum number of pools of a subnet, and of its name servers.
MAX_POOLS = 32
MAX_NAME_SERVERS = 5


@dataclass(frozen=True, slots=True)
class AddressPool:
    """The addresses from `first` to `last`, both included."""

    first: str
    last: str


@dataclass(frozen=True, slots=True)
class SubnetPlan:
    """The checked values of a subnet. `pools` are sorted and do not overlap; none: an outside DHCP server gives the
    addresses.
    """

    cidr: str
    gateway: str | None
    dns: tuple[str, ...]
    pools: tuple[AddressPool, ...]


def plan_subnet(
    cidr: str, gateway: str | None, dns: Sequence[str], pools: Sequence[tuple[str, str]] | None
) -> SubnetPlan:
    """`gateway` "" means the first address of the subnet, None none; `pools` None means all its addresses except the
    gateway. Raises `Invalid`.
    """
    network = _network(cidr)
    gate = _first_host(network) if gateway == "" else None if gateway is None else parse_address(gateway)
    if gate is not None and not _is_host_of(network, gate):
        raise Invalid(f"The gateway {gate} is not an address of a host in {network}; name one of its addresses.")
    if len(dns) > MAX_NAME_SERVERS:
        raise Invalid(f"A subnet has at most {MAX_NAME_SERVERS} name servers; {len(dns)} are given.")
    if pools is not None and len(pools) > MAX_POOLS:
        raise Invalid(f"A subnet has at most {MAX_POOLS} allocation pools; {len(pools)} are given.")
    ranges = _whole(network, gate) if pools is None else sorted(_range(network, *each) for each in pools)
    for (_, last), (first, _) in pairwise(ranges):
        if first <= last:
            raise Invalid(f"The allocation pools overlap at {_text(network, first)}; give each address one pool.")
    if gate is not None and any(first <= int(gate) <= last for first, last in ranges):
        raise Invalid(f"An allocation pool contains the gateway {gate}; let the pool begin after it or end before it.")
    return SubnetPlan(
        str(network),
        None if gate is None else str(gate),
        tuple(str(parse_address(each)) for each in dns),
        tuple(AddressPool(_text(network, first), _text(network, last)) for first, last in ranges),
    )


def free_addresses(pools: Iterable[AddressPool], used: Collection[str]) -> Iterator[str]:
    """The addresses of the pools that are not in `used`, from the lowest."""
    for pool in pools:
        first, last = ip_address(pool.first), ip_address(pool.last)
        for number in range(int(first), int(last) + 1):
            found = str(type(first)(number))
            if found not in used:
                yield found


def is_in_pools(address: str, pools: Iterable[AddressPool]) -> bool:
    wanted = ip_address(address)
    return any(
        ip_address(pool.first).version == wanted.version
        and int(ip_address(pool.first)) <= int(wanted) <= int(ip_address(pool.last))
        for pool in pools
    )


def is_in_subnet(address: str, cidr: str) -> bool:
    """Whether a host of the subnet may have the address."""
    return _is_host_of(ip_network(cidr), ip_address(address))


def overlap(one: str, other: str) -> bool:
    """Whether two subnets have an address in common."""
    first, second = ip_network(one), ip_network(other)
    return first.version == second.version and first.overlaps(second)


def version_of(cidr: str) -> int:
    """4 or 6."""
    return ip_network(cidr).version


def parse_address(text: str) -> Address:
    """Raises `Invalid`."""
    try:
        found = ip_address(text)
    except ValueError as error:
        raise Invalid(f"{text[:60]!r} is not an IP address; write one such as 192.0.2.10.") from error
    if isinstance(found, IPv6Address) and found.scope_id is not None:
        raise Invalid(f"{text[:60]!r} has a zone; write the address without it.")
    return found


def _network(cidr: str) -> IPv4Network | IPv6Network:
    try:
        found = ip_network(cidr)
    except ValueError as error:
        raise Invalid(f"{cidr[:60]!r} is not a subnet ({error}); write one such as 192.0.2.0/24.") from error
    if found.prefixlen > found.max_prefixlen - 2:
        raise Invalid(f"The subnet {found} is too small; the longest prefix is /{found.max_prefixlen - 2}.")
    return found


def _first_host(network: IPv4Network | IPv6Network) -> Address:
    return network[1]


def _is_host_of(network: IPv4Network | IPv6Network, address: Address) -> bool:
    if address.version != network.version or int(address) == int(network.network_address):
        return False
    is_broadcast = network.version == 4 and int(address) == int(network.broadcast_address)
    return int(network.network_address) < int(address) <= int(network.broadcast_address) and not is_broadcast


def _whole(network: IPv4Network | IPv6Network, gateway: Address | None) -> list[tuple[int, int]]:
    first = int(network.network_address) + 1
    last = int(network.broadcast_address) - (1 if network.version == 4 else 0)
    if gateway is None:
        return [(first, last)]
    parts = [(first, int(gateway) - 1), (int(gateway) + 1, last)]
    return [(low, high) for low, high in parts if low <= high]


def _range(network: IPv4Network | IPv6Network, start: str, end: str) -> tuple[int, int]:
    first, last = parse_address(start), parse_address(end)
    for each in (first, last):
        if not _is_host_of(network, each):
            raise Invalid(f"The pool {start}-{end} leaves the subnet {network}; choose its ends among its addresses.")
    if int(first) > int(last):
        raise Invalid(f"The pool {start}-{end} ends before it begins; exchange its ends.")
    return int(first), int(last)


def _text(network: IPv4Network | IPv6Network, number: int) -> str:
    return str(IPv4Address(number) if network.version == 4 else IPv6Address(number))
