"""Use cases of ports: those that projects create, and those that the compute service asks for on behalf of servers.

    PUT of a server's ports    a port that exists is bound to the server, any other one is made with a free address;
                               repeated, it finds what it made
    PUT of their addresses     what hosts learned from DHCP servers, for the ports of their own servers
    DELETE of them             deletes the ports made for the server, and frees those that its project made

The compute service names the project of each port: a port or network that this project may not use is not found.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Forbidden, Invalid, NotFound, OverQuota
from moorage.db.session import in_transaction, read
from moorage.network.addressing import free_addresses, is_in_pools, is_in_subnet, parse_address, version_of
from moorage.network.deps import NetworkDeps
from moorage.network.model import Network, Port, PortAddress, Subnet
from moorage.network.network_service import usable, visible_project
from moorage.network.store import network_store

T = TypeVar("T")

log = logging.getLogger(__name__)

#: The first three bytes of Neutron's MAC addresses, which it may be told apart by.
_MAC_PREFIX = "fa:16:3e"


@dataclass(frozen=True)
class WantedAddress:
    """One of a port's addresses; with both None, any free one."""

    subnet_id: str | None = None
    address: str | None = None


@dataclass(frozen=True)
class NewPort:
    """`wanted` None: one address of each IP version that the network has."""

    network_id: str
    project_id: str
    name: str = ""
    description: str = ""
    wanted: Sequence[WantedAddress] | None = None
    mac: str | None = None
    id: str | None = None
    server_id: str = ""
    host: str = ""


@dataclass(frozen=True)
class ServerPort:
    """A port that a server needs. `network_id` None: it exists and is the project's."""

    id: str
    project_id: str
    server_id: str
    host: str
    network_id: str | None = None
    address: str | None = None


@dataclass(frozen=True)
class LearnedAddresses:
    """What `host` reports of a port of one of its servers: all addresses that it knows, or none."""

    port_id: str
    server_id: str
    host: str
    mac: str
    addresses: Sequence[str]


@dataclass(frozen=True)
class _Learned:
    """`port` None: the report is not about a port of that server. `rows`: its learned addresses, with their subnets."""

    port: Port | None
    rows: list[tuple[PortAddress, Subnet]]

    @property
    def is_stored(self) -> bool:
        present = () if self.port is None else self.port.addresses
        return [one for one in present if one.is_learned] == [one for one, _ in self.rows]


@dataclass
class _Usage:
    """The addresses of a network that are taken, including those that this transaction gives out."""

    network: Network
    subnets: Sequence[Subnet]
    taken: set[str] = field(default_factory=set)
    #: {subnet id: its free addresses from the last one that was given}: many ports then need one pass over a pool.
    free: dict[str, Iterator[str]] = field(default_factory=dict)

    def free_in(self, subnet: Subnet) -> Iterator[str]:
        """`taken` only grows, so a pass never has to begin again."""
        if subnet.id not in self.free:
            self.free[subnet.id] = free_addresses(subnet.pools, self.taken)
        return self.free[subnet.id]


@dataclass(frozen=True)
class PortService:
    deps: NetworkDeps

    # -------------------------------------------------------------------------------------------------- projects

    def ports(self, caller: Caller, filters: Mapping[str, Collection[str]]) -> list[Port]:
        """The project's ports; administrators see all.

        `filters`: {key of `network_store.PORT_COLUMNS`: accepted values}.
        """
        with read(self.deps.engine) as connection:
            return network_store.find_ports(connection, visible_project(caller), filters)

    def port(self, caller: Caller, port_id: str) -> Port:
        with read(self.deps.engine) as connection:
            found = network_store.find_ports(connection, visible_project(caller), {"id": [port_id]})
        if not found:
            raise _no_port(port_id)
        return found[0]

    def count(self, project_id: str) -> int:
        with read(self.deps.engine) as connection:
            return network_store.count_ports(connection, project_id)

    def create_port(self, caller: Caller, new: NewPort, *, any_address: bool) -> Port:
        """`any_address`: also outside of the pools, for operators. Raises `NotFound` for a network that the caller may
        not use, `OverQuota`, and `Conflict` if no wanted address is free.
        """

        def insert(connection: Connection) -> Port:
            self._lock_quota(connection, [new.project_id])
            self._check_quota(connection, new.project_id, 1)
            network = network_store.lock_networks(connection, [new.network_id]).get(new.network_id)
            usage = self._usage(connection, usable(network, caller, new.network_id))
            (port,) = self._made(connection, [new], {new.network_id: usage}, any_address=any_address)
            network_store.insert_ports(connection, [port])
            return port

        return self._without_collision(insert)

    def update_port(self, caller: Caller, port_id: str, values: Mapping[str, str]) -> None:
        """`values`: of `name` and `description`."""

        def change(connection: Connection) -> None:
            self._owned(connection, caller, port_id)
            if values:
                network_store.update_ports(connection, [port_id], self.deps.clock.now(), **values)

        in_transaction(self.deps.engine, change)

    def delete_port(self, caller: Caller, port_id: str) -> None:
        """Raises `Conflict` for a port of a server."""

        def remove(connection: Connection) -> None:
            port = self._owned(connection, caller, port_id)
            if port.device_id:
                raise Conflict(
                    f"Port {port_id} is in use by server {port.device_id}; detach it first: openstack server remove "
                    f"port {port.device_id} {port_id}",
                    code="network.in_use",
                )
            network_store.delete_ports(connection, [port_id])

        in_transaction(self.deps.engine, remove)

    def _owned(self, connection: Connection, caller: Caller, port_id: str) -> Port:
        port = network_store.lock_ports(connection, [port_id]).get(port_id)
        if port is None or not caller.may_see(port.project_id):
            raise _no_port(port_id)
        return port

    # --------------------------------------------------------------------------------------------------- servers

    def provide(self, wanted: Sequence[ServerPort]) -> list[tuple[Port, Network, list[Subnet]]]:
        """The ports, bound to their servers: all or none, in the order of `wanted`. May be repeated.

        Raises `NotFound` for a port or network that the project may not use; `Conflict` if a port belongs to another
        server or no address is free; `OverQuota`.
        """
        return self._without_collision(lambda connection: self._provide(connection, wanted))

    def _provide(
        self, connection: Connection, wanted: Sequence[ServerPort]
    ) -> list[tuple[Port, Network, list[Subnet]]]:
        now = self.deps.clock.now()
        present = network_store.find_ports(connection, None, {"id": [one.id for one in wanted]})
        self._lock_quota(connection, {one.project_id for one in wanted if one.network_id})
        named = {one.network_id for one in wanted if one.network_id} | {port.network_id for port in present}
        networks = network_store.lock_networks(connection, named)
        # Read again: only with the locks no other transaction makes one of them.
        present_by_id = network_store.lock_ports(connection, [one.id for one in wanted])
        usages: dict[str, _Usage] = {}
        new: list[NewPort] = []
        for one in wanted:
            port = present_by_id.get(one.id)
            if port is not None:
                _check_binding(port, one)
                continue
            network = networks.get(one.network_id or "")
            if one.network_id is None:
                raise _no_port(one.id)
            if network is None or not (network.is_shared or network.project_id == one.project_id):
                raise NotFound(f"Network {one.network_id} could not be found.", code="network.no_network")
            if network.id not in usages:
                usages[network.id] = self._usage(connection, network)
            address = None if one.address is None else [WantedAddress(address=one.address)]
            new.append(
                NewPort(network.id, one.project_id, wanted=address, id=one.id, server_id=one.server_id, host=one.host)
            )
        for project_id in {one.project_id for one in new}:
            self._check_quota(connection, project_id, sum(one.project_id == project_id for one in new))
        made = {port.id: port for port in self._made(connection, new, usages, any_address=False)}
        if made:
            network_store.insert_ports(connection, [*made.values()])
        for one in wanted:
            port = present_by_id.get(one.id)
            if port is not None and (port.device_id, port.host) != (one.server_id, one.host):
                network_store.update_ports(connection, [port.id], now, device_id=one.server_id, host=one.host)
                network_store.replace_learned_addresses(connection, port, ())
                present_by_id[port.id] = replace(port, device_id=one.server_id, host=one.host, addresses=port.given)
        subnets = network_store.subnets_of(connection, networks)
        every = [made.get(one.id) or present_by_id[one.id] for one in wanted]
        return [(port, networks[port.network_id], subnets.get(port.network_id, [])) for port in every]

    def release(self, server_id: str, port_id: str | None = None) -> None:
        """Takes all ports, or one, from the server. Does nothing for a port of another server."""

        def remove(connection: Connection) -> None:
            filters = {"device_id": [server_id]} | ({} if port_id is None else {"id": [port_id]})
            found = network_store.find_ports(connection, None, filters)
            locked = network_store.lock_ports(connection, [port.id for port in found]) if found else {}
            held = [port for port in locked.values() if port.device_id == server_id]
            if made := [port.id for port in held if port.is_for_server]:
                network_store.delete_ports(connection, made)
            if kept := [port for port in held if not port.is_for_server]:
                ids = [port.id for port in kept]
                network_store.update_ports(connection, ids, self.deps.clock.now(), device_id="", host="")
                for port in kept:
                    network_store.replace_learned_addresses(connection, port, ())

        in_transaction(self.deps.engine, remove)

    def learn(self, reports: Sequence[LearnedAddresses]) -> list[list[tuple[PortAddress, Subnet]]]:
        """Replaces the learned addresses of the ports; returns those that they have now, in the order of `reports`.

        Hosts, and guests, may say anything. So a port gets only addresses that a DHCP server may have given it
        (`choose_learned`), and nothing changes for a port that is not of this server, on this host, with this MAC
        address. Refusals are logged.
        """
        with read(self.deps.engine) as connection:
            found = [self._decide(connection, report) for report in reports]
        return [
            one.rows if one.is_stored else self._without_collision(partial(self._learn, report=report))
            for one, report in zip(found, reports, strict=True)
        ]

    def _learn(self, connection: Connection, report: LearnedAddresses) -> list[tuple[PortAddress, Subnet]]:
        found = network_store.find_ports(connection, None, {"id": [report.port_id]})
        network_store.lock_networks(connection, [port.network_id for port in found])
        network_store.lock_ports(connection, [report.port_id])
        # Decided again: only with the locks no other transaction takes one of the addresses.
        decision = self._decide(connection, report)
        if decision.port is not None and not decision.is_stored:
            network_store.replace_learned_addresses(connection, decision.port, [one for one, _ in decision.rows])
            network_store.update_ports(connection, [report.port_id], self.deps.clock.now())
        return decision.rows

    def _decide(self, connection: Connection, report: LearnedAddresses) -> _Learned:
        where = {"port": report.port_id, "server": report.server_id, "host": report.host}
        port = next(iter(network_store.find_ports(connection, None, {"id": [report.port_id]})), None)
        if port is None or (port.device_id, port.host, port.mac) != (report.server_id, report.host, report.mac):
            log.warning("a host reported addresses for a port that its server does not have", extra=where)
            return _Learned(None, [])
        subnets = network_store.subnets_of(connection, [port.network_id]).get(port.network_id, [])
        own = {one.address for one in port.addresses}
        taken = network_store.used_addresses(connection, port.network_id) - own
        choice = choose_learned([] if port.given else subnets, taken, report.addresses)
        if choice.refused:
            log.warning("a port does not get addresses that its host reported", extra=where | {"why": choice.refused})
        return _Learned(port, choice.accepted)

    # ------------------------------------------------------------------------------------------------- allocation

    def _without_collision(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a transaction. The constraints hold if a program gives out addresses without the lock."""
        try:
            return in_transaction(self.deps.engine, work)
        except IntegrityError as error:
            raise Conflict("Another request took this port or address; repeat the request.") from error

    def _lock_quota(self, connection: Connection, project_ids: Collection[str]) -> None:
        if self.deps.quota_ports >= 0:
            network_store.lock_projects(connection, project_ids)

    def _check_quota(self, connection: Connection, project_id: str, more: int) -> None:
        """The caller holds the project's lock."""
        limit = self.deps.quota_ports
        if 0 <= limit < network_store.count_ports(connection, project_id) + more:
            raise OverQuota(
                f"Quota exceeded for resources: ['port']. A project has at most {limit} ports; delete some, or ask the "
                "operator to raise [network] quota_ports.",
                code="network.over_quota",
            )

    def _usage(self, connection: Connection, network: Network) -> _Usage:
        subnets = network_store.subnets_of(connection, [network.id]).get(network.id, [])
        return _Usage(network, subnets, network_store.used_addresses(connection, network.id))

    def _made(
        self, connection: Connection, new: Sequence[NewPort], usages: Mapping[str, _Usage], *, any_address: bool
    ) -> list[Port]:
        """The ports with their addresses; not inserted yet."""
        now = self.deps.clock.now()
        macs = self._free_macs(connection, [one.mac for one in new])
        made = []
        for one, mac in zip(new, macs, strict=True):
            usage = usages[one.network_id]
            given = _choose(usage, one.wanted, any_address=any_address)
            usage.taken.update(each.address for each in given)
            made.append(
                Port(
                    one.id or self.deps.ids.uuid(), one.network_id, one.project_id, one.name, one.description, mac,
                    one.server_id, one.host, bool(one.server_id), now, now, tuple(given),
                )
            )  # fmt: skip
        return made

    def _free_macs(self, connection: Connection, given: Sequence[str | None]) -> list[str]:
        """The given address, or for each None one that no port has."""
        if not given:
            return []
        chosen: list[str] = []
        for mac in given:
            candidate = mac
            while candidate is None or candidate in chosen:
                digits = self.deps.ids.uuid()
                candidate = f"{_MAC_PREFIX}:{digits[0:2]}:{digits[2:4]}:{digits[4:6]}"
            chosen.append(candidate)
        taken = network_store.used_macs(connection, chosen)
        for at, (mac, candidate) in enumerate(zip(given, chosen, strict=True)):
            if candidate not in taken:
                continue
            if mac is not None:
                raise Conflict(f"Unable to complete operation: the mac address {mac} is in use.", code="network.in_use")
            chosen[at] = self._free_macs(connection, [None])[0]
        return chosen


@dataclass(frozen=True)
class LearnedChoice:
    """`refused`: {reported address: why the port does not get it}"""

    accepted: list[tuple[PortAddress, Subnet]]
    refused: dict[str, str]


def choose_learned(subnets: Sequence[Subnet], taken: Collection[str], reported: Sequence[str]) -> LearnedChoice:
    """The addresses that a port may have learned: at most one of each subnet whose addresses a DHCP server gives.

    Addresses outside of these subnets are left out without a reason: a guest has them for its own purposes.
    """
    choice = LearnedChoice([], {})
    for text in reported:
        address = _parsed(text)
        if address is None:
            choice.refused[text] = "it is not an address"
            continue
        subnet = next((one for one in subnets if not one.pools and is_in_subnet(address, one.cidr)), None)
        if subnet is None or address in [one.address for one, _ in choice.accepted]:
            continue
        if address == subnet.gateway:
            choice.refused[text] = "it is the gateway's"
        elif address in taken:
            choice.refused[text] = "another port has it"
        elif subnet in [each for _, each in choice.accepted]:
            choice.refused[text] = "the port has an address of this subnet"
        else:
            choice.accepted.append((PortAddress(subnet.id, address, is_learned=True), subnet))
    return choice


def _parsed(text: str) -> str | None:
    try:
        return str(parse_address(text))
    except Invalid:
        return None


def _check_binding(port: Port, wanted: ServerPort) -> None:
    if port.project_id != wanted.project_id or wanted.network_id not in (None, port.network_id):
        raise _no_port(wanted.id)
    if port.device_id not in ("", wanted.server_id):
        raise Conflict(f"Port {port.id} is still in use by server {port.device_id}.", code="network.in_use")


def _choose(usage: _Usage, wanted: Sequence[WantedAddress] | None, *, any_address: bool) -> list[PortAddress]:
    """Raises `Invalid` for an address that the network does not have, `Conflict` if none is free."""
    if wanted is None:
        given = []
        for version in (4, 6):
            subnets = [one for one in usage.subnets if one.pools and version_of(one.cidr) == version]
            if subnets:
                given.append(_any_of(usage, subnets))
        return given
    given = []
    for one in wanted:
        subnets = [each for each in usage.subnets if one.subnet_id in (None, each.id)]
        if one.subnet_id is not None and not subnets:
            raise Invalid(f"Subnet {one.subnet_id} is not one of network {usage.network.id}; name one of its subnets.")
        if one.address is None:
            given.append(_any_of(usage, [each for each in subnets if each.pools]))
        else:
            given.append(_this_one(usage, subnets, str(parse_address(one.address)), any_address=any_address))
        usage.taken.add(given[-1].address)
    return given


def _any_of(usage: _Usage, subnets: Sequence[Subnet]) -> PortAddress:
    for subnet in subnets:
        for address in usage.free_in(subnet):
            return PortAddress(subnet.id, address)
    raise Conflict(
        f"No more IP addresses available on network {usage.network.id}: all of its pools are in use; delete servers or "
        "ports there, or ask the operator to enlarge a pool.",
        code="network.no_address",
    )


def _this_one(usage: _Usage, subnets: Sequence[Subnet], address: str, *, any_address: bool) -> PortAddress:
    for subnet in subnets:
        if not is_in_subnet(address, subnet.cidr):
            continue
        if address in usage.taken:
            raise Conflict(f"IP address {address} already allocated in subnet {subnet.id}.", code="network.in_use")
        if not any_address and not is_in_pools(address, subnet.pools):
            raise Forbidden(
                f"IP address {address} is in no allocation pool of subnet {subnet.id}, so only operators may give it; "
                "choose one of a pool.",
                code="network.outside_pools",
            )
        return PortAddress(subnet.id, address)
    raise Invalid(f"IP address {address} is not a valid IP for the subnets of network {usage.network.id}.")


def _no_port(port_id: str) -> NotFound:
    return NotFound(f"Port {port_id} could not be found.", code="network.no_port")
