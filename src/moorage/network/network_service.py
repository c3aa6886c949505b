"""Use cases of networks and subnets: reading what a project may use; creating and deleting, for operators; and the
networks of the configuration file.
"""

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Forbidden, NotFound, StartError
from moorage.db.session import in_transaction, read
from moorage.network.addressing import SubnetPlan, overlap
from moorage.network.deps import NetworkDeps
from moorage.network.entries import NetworkEntry
from moorage.network.model import Network, Segment, Subnet
from moorage.network.store import network_store

log = logging.getLogger(__name__)

#: Namespace of the ids of configured networks, which are the same in every process and after every start.
_IDS = uuid.UUID("d3a3cc9a-0b0c-5f0e-9a52-5b8a4f6f6f0e")
#: Maximum number of subnets of a network.
MAX_SUBNETS = 16


@dataclass(frozen=True)
class NewNetwork:
    name: str
    project_id: str
    segment: Segment
    is_shared: bool
    description: str


@dataclass(frozen=True)
class NetworkService:
    deps: NetworkDeps

    # -------------------------------------------------------------------------------------------------- reading

    def networks(self, caller: Caller) -> list[tuple[Network, list[Subnet]]]:
        """The networks that the caller's project may use, each with its subnets; administrators see all."""
        with read(self.deps.engine) as connection:
            found = network_store.find_networks(connection, visible_project(caller))
            subnets = network_store.subnets_of(connection, [network.id for network in found])
        return [(network, subnets.get(network.id, [])) for network in found]

    def network(self, caller: Caller, network_id: str) -> tuple[Network, list[Subnet]]:
        """Raises `NotFound`, also for a network that the caller may not use."""
        with read(self.deps.engine) as connection:
            network = usable(network_store.network(connection, network_id), caller, network_id)
            return network, network_store.subnets_of(connection, [network.id]).get(network.id, [])

    def subnet(self, caller: Caller, subnet_id: str) -> Subnet:
        with read(self.deps.engine) as connection:
            return _visible_subnet(connection, caller, subnet_id)

    # ------------------------------------------------------------------------------------------------- changing

    def create_network(self, new: NewNetwork) -> Network:
        """Raises `Conflict` if another network has the same segment."""
        now = self.deps.clock.now()
        network = Network(
            self.deps.ids.uuid(), new.name, new.project_id, new.segment, new.is_shared, False, new.description,
            now, now,
        )  # fmt: skip
        try:
            in_transaction(self.deps.engine, lambda connection: network_store.insert_network(connection, network))
        except IntegrityError as error:
            raise Conflict(
                f"Unable to create the network. There is a network for {new.segment} already; use that one.",
                code="network.attachment_in_use",
            ) from error
        return network

    def update_network(self, caller: Caller, network_id: str, values: Mapping[str, object]) -> None:
        """`values`: of `name`, `description` and `is_shared`. A network with ports of other projects stays shared."""

        def change(connection: Connection) -> None:
            network = self._changeable(connection, caller, network_id)
            if values.get("is_shared") is False and any(
                port.project_id != network.project_id
                for port in network_store.find_ports(connection, None, {"network_id": [network_id]})
            ):
                raise Conflict(
                    f"Unable to reconfigure sharing settings for network {network_id}. Other projects have ports there."
                )
            if values:
                network_store.update_network(connection, network_id, self.deps.clock.now(), **values)

        in_transaction(self.deps.engine, change)

    def delete_network(self, caller: Caller, network_id: str) -> None:
        def remove(connection: Connection) -> None:
            self._changeable(connection, caller, network_id)
            if network_store.has_ports(connection, network_id):
                raise Conflict(
                    f"Unable to complete operation on network {network_id}. There are one or more ports still in use "
                    "on the network; delete the servers and ports first.",
                    code="network.in_use",
                )
            network_store.delete_network(connection, network_id)

        in_transaction(self.deps.engine, remove)

    def create_subnet(
        self, caller: Caller, network_id: str, project_id: str | None, name: str, plan: SubnetPlan
    ) -> Subnet:
        """`project_id` None: the network's. Raises `Conflict` if it overlaps another subnet of the network."""

        def insert(connection: Connection) -> Subnet:
            network = self._changeable(connection, caller, network_id)
            now = self.deps.clock.now()
            present = network_store.subnets_of(connection, [network_id]).get(network_id, [])
            refuse_overlap(plan, present)
            subnet = _subnet_of(plan, self.deps.ids.uuid(), network_id, project_id or network.project_id, name, now)
            network_store.insert_subnet(connection, subnet)
            return subnet

        return in_transaction(self.deps.engine, insert)

    def update_subnet(self, caller: Caller, subnet_id: str, name: str) -> None:
        def change(connection: Connection) -> None:
            subnet = _visible_subnet(connection, caller, subnet_id)
            self._changeable(connection, caller, subnet.network_id)
            network_store.update_subnet(connection, subnet_id, self.deps.clock.now(), name=name)

        in_transaction(self.deps.engine, change)

    def delete_subnet(self, caller: Caller, subnet_id: str) -> None:
        def remove(connection: Connection) -> None:
            subnet = _visible_subnet(connection, caller, subnet_id)
            self._changeable(connection, caller, subnet.network_id)
            if network_store.has_addresses(connection, subnet_id):
                raise Conflict(
                    f"Unable to complete operation on subnet {subnet_id}: One or more ports have an IP allocation from "
                    "this subnet; delete the servers and ports first.",
                    code="network.in_use",
                )
            network_store.delete_subnet(connection, subnet_id)

        in_transaction(self.deps.engine, remove)

    def _changeable(self, connection: Connection, caller: Caller, network_id: str) -> Network:
        """The network, locked. Raises `NotFound`, and `Forbidden` for one of the configuration file."""
        network = usable(network_store.lock_networks(connection, [network_id]).get(network_id), caller, network_id)
        if network.is_configured:
            raise Forbidden(
                f"Network {network.name} is in the section [network] of the configuration file, which alone changes "
                "it: edit or remove its line there, and restart the network service.",
                code="network.configured",
            )
        return network

    # ----------------------------------------------------------------------------------- the configuration file

    def apply_entries(self, entries: Sequence[NetworkEntry], *, are_defaults: bool = False) -> None:
        """Makes the networks of the file what its lines say. Call it at the start. Raises `StartError`.

        A network whose line is gone is deleted; one with ports stays as it is until they are gone. Entries that
        `are_defaults` do not come from the file: they exist only while there is no other network.
        """
        in_transaction(self.deps.engine, lambda connection: self._apply(connection, entries, are_defaults=are_defaults))

    def _apply(self, connection: Connection, entries: Sequence[NetworkEntry], *, are_defaults: bool) -> None:
        wanted = {str(uuid.uuid5(_IDS, entry.name)): entry for entry in entries}
        present = network_store.lock_networks(
            connection, [one.id for one in network_store.find_networks(connection, None)]
        )
        if are_defaults:
            wanted = self._applicable_defaults(connection, wanted, present)
        for network in present.values():
            if network.is_configured and network.id not in wanted:
                if network_store.has_ports(connection, network.id):
                    log.warning(
                        "network stays although its line is gone from [network]: it has ports",
                        extra={"network": network.name},
                    )
                else:
                    network_store.delete_network(connection, network.id)
        holders = {one.segment: one for one in network_store.find_networks(connection, None)}
        for network_id, entry in wanted.items():
            holder = holders.get(entry.segment)
            if holder is not None and holder.id != network_id:
                raise StartError(
                    f"[network] {entry.name}: network {holder.name} ({holder.id}) has the same segment, "
                    f"{entry.segment}; delete that network, or remove this line"
                )
            self._apply_entry(connection, network_id, entry, present.get(network_id))

    def _applicable_defaults(
        self, connection: Connection, wanted: Mapping[str, NetworkEntry], present: Mapping[str, Network]
    ) -> dict[str, NetworkEntry]:
        """The default networks that exist already; all defaults if no other network will be left.

        A network with the name of a default, but another segment or subnet, counts as another network.
        """
        subnets = network_store.subnets_of(connection, list(present))

        def exists(network_id: str, entry: NetworkEntry) -> bool:
            network = present.get(network_id)
            cidrs = [subnet.cidr for subnet in subnets.get(network_id, [])]
            return network is not None and network.segment == entry.segment and cidrs[:1] == [entry.subnet.cidr]

        existing = {network_id: entry for network_id, entry in wanted.items() if exists(network_id, entry)}
        stays = [
            network.id
            for network in present.values()
            if not network.is_configured or network_store.has_ports(connection, network.id)
        ]
        return existing if existing or stays else dict(wanted)

    def _apply_entry(
        self, connection: Connection, network_id: str, entry: NetworkEntry, present: Network | None
    ) -> None:
        now = self.deps.clock.now()
        subnet_id = str(uuid.uuid5(_IDS, f"{entry.name}/subnet"))
        if present is None:
            network = Network(network_id, entry.name, "", entry.segment, True, True, "", now, now)
            network_store.insert_network(connection, network)
            plan = _subnet_of(entry.subnet, subnet_id, network_id, "", f"{entry.name}-subnet", now)
            network_store.insert_subnet(connection, plan)
            return
        before = network_store.subnets_of(connection, [network_id])[network_id][0]
        is_moved = present.segment != entry.segment or before.cidr != entry.subnet.cidr
        if is_moved and network_store.has_ports(connection, network_id):
            raise StartError(
                f"[network] {entry.name}: it was {present.segment} subnet {before.cidr} and has ports, so it cannot "
                f"become {entry.segment} subnet {entry.subnet.cidr}; restore the line, or delete the servers and "
                "ports first"
            )
        if present.segment != entry.segment:
            network_store.update_network(connection, network_id, now, **network_store.segment_values(entry.segment))
        after = _subnet_of(entry.subnet, before.id, network_id, "", before.name, before.created_at, before)
        if before != after:
            network_store.update_subnet(
                connection, before.id, now, cidr=after.cidr, gateway=after.gateway, dns=list(after.dns),
                pools=network_store.pools_value(after.pools),
            )  # fmt: skip


def visible_project(caller: Caller) -> str | None:
    """The project whose view a list has; None: everything."""
    return None if caller.may_see("") else caller.project_id


def usable(network: Network | None, caller: Caller, network_id: str) -> Network:
    """The network. Raises `NotFound` if it is None or the caller may not use it."""
    if network is None or not (network.is_shared or caller.may_see(network.project_id)):
        raise NotFound(f"Network {network_id} could not be found.", code="network.no_network")
    return network


def refuse_overlap(plan: SubnetPlan, present: Sequence[Subnet]) -> None:
    if len(present) >= MAX_SUBNETS:
        raise Conflict(f"A network has at most {MAX_SUBNETS} subnets; delete one first.")
    for other in present:
        if overlap(plan.cidr, other.cidr):
            raise Conflict(
                f"Requested subnet with cidr: {plan.cidr} for network: {other.network_id} overlaps with another "
                f"subnet, {other.cidr}; choose another cidr.",
                code="network.overlap",
            )


def _visible_subnet(connection: Connection, caller: Caller, subnet_id: str) -> Subnet:
    subnet = network_store.subnet(connection, subnet_id)
    network = None if subnet is None else network_store.network(connection, subnet.network_id)
    if subnet is None or network is None or not (network.is_shared or caller.may_see(network.project_id)):
        raise NotFound(f"Subnet {subnet_id} could not be found.", code="network.no_subnet")
    return subnet


def _subnet_of(
    plan: SubnetPlan, subnet_id: str, network_id: str, project_id: str, name: str, now: datetime,
    before: Subnet | None = None,
) -> Subnet:  # fmt: skip
    updated_at = now if before is None else before.updated_at
    return Subnet(
        subnet_id, network_id, project_id, name, plan.cidr, plan.gateway, plan.dns, plan.pools, now, updated_at
    )
