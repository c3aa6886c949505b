"""Keeps the capacity of the registered hosts in the database equal to the inventories in Placement.

    refresh: change log of Placement since the last position -> changed hosts -> their trees -> computehost_resources

`refresh` is one small request if nothing has changed. Admission calls it before each plan, and the host monitor
regularly; the monitor then examines the slots on `take_changed`. The position is in the database, so that a process
that starts need not read all hosts.

OpenStack Placement has no change log: then admission relies on the last reading, and the monitor reads all hosts.
"""

import math
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from moorage.core.errors import ConcurrentUpdate
from moorage.core.inventories import Inventory
from moorage.core.names import reservation_provider
from moorage.db.session import in_transaction, read
from moorage.placement.client.change_log import ProviderChanges
from moorage.placement.client.placement_client import PlacementClient, Provider
from moorage.reservation.capacity.calendar import HostCapacity
from moorage.reservation.model.slot_demand import label
from moorage.reservation.store import capacity_store, host_store

#: Attempts to write capacities while other processes write newer ones.
ATTEMPTS = 5


class PlacementCapacity:
    """One per process. Thread-safe."""

    def __init__(self, engine: Engine, placement: PlacementClient) -> None:
        self._engine = engine
        self._placement = placement
        self._lock = threading.Lock()
        self._position: int | None = None
        self._roots: dict[str, str] = {}  #: {uuid of a root: its name}
        self._unread: dict[int, str] = {}  #: see `read_again`
        self._changed: set[int] = set()
        self._is_examined = False  #: whether `take_changed` has returned None, which means all hosts

    def refresh(self, *, reads_all: bool = False) -> bool:
        """Reads the hosts that changed in Placement; returns whether a capacity in the database changed.

        `reads_all`: without a change log, read all hosts. Raises the errors of the client, and `ConcurrentUpdate` if
        other processes wrote newer capacities during each attempt.
        """
        with self._lock:
            for _ in range(ATTEMPTS):
                before = self._known_position()
                changes = None if before is None else self._placement.change_log.since(before)
                position = self._placement.change_log.newest_position() if changes is None else changes.position
                if position is None and not reads_all:
                    return False
                hosts = self._hosts_of(changes) | self._unread
                written = self._read(hosts, position) if hosts or changes is None else False
                if written is not None:
                    self._position, self._unread = position, {}
                    return written
            raise ConcurrentUpdate("the capacity of hosts changes faster than it can be read; repeat the request")

    def read_host(self, host_id: int, hypervisor_hostname: str) -> None:
        """Reads one host, for its registration and its update. Raises `ConcurrentUpdate` as `refresh`."""
        with self._lock:
            for _ in range(ATTEMPTS):
                position = self._placement.change_log.newest_position()
                with read(self._engine) as connection:
                    is_only = not capacity_store.ready_hosts(connection).keys() - {host_id}
                if self._read({host_id: hypervisor_hostname}, position, is_complete=is_only) is not None:
                    return
        raise ConcurrentUpdate(f"the capacity of host {hypervisor_hostname} changes faster than it can be read")

    def read_again(self, host_id: int, hypervisor_hostname: str) -> None:
        """The next `refresh` reads this host, whether it changed or not."""
        with self._lock:
            self._unread[host_id] = hypervisor_hostname

    def take_changed(self) -> frozenset[int] | None:
        """Ids of the hosts that changed in Placement since the last call; None at the first call: all hosts."""
        with self._lock:
            changed, self._changed = frozenset(self._changed), set()
            is_first, self._is_examined = not self._is_examined, True
            return None if is_first else changed

    def put_back(self, host_ids: Collection[int] | None) -> None:
        """The hosts that `take_changed` returned could not be examined: the next call returns them again."""
        with self._lock:
            if host_ids is None:
                self._is_examined = False
            else:
                self._changed.update(host_ids)

    def save_position(self) -> None:
        """Stores the position, so that a process that starts later continues from it."""
        with self._lock:
            position = self._position
        if position is None:
            return

        def save(connection: Connection) -> None:
            capacity_store.set_position(connection, position, capacity_store.lock_position(connection))

        with read(self._engine) as connection:
            stored = capacity_store.position(connection)
        if stored is None or stored < position:
            with suppress(IntegrityError):  # another process has written the first position
                in_transaction(self._engine, save)

    def _known_position(self) -> int | None:
        if self._position is None:
            with read(self._engine) as connection:
                self._position = capacity_store.position(connection)
        return self._position

    def _hosts_of(self, changes: ProviderChanges | None) -> dict[int, str]:
        """{host id: hypervisor hostname} of the registered hosts that these changes concern. None: any host may have
        changed.
        """
        names = None if changes is None or changes.is_everything else self._changed_roots(changes)
        if names is not None and not names:
            return {}
        with read(self._engine) as connection:
            return capacity_store.ready_hosts(connection, names)

    def _changed_roots(self, changes: ProviderChanges) -> frozenset[str] | None:
        """Names of the roots of the changed providers, without changes of reservation providers only.

        None if a deleted provider's root is not known any more.
        """
        names = set()
        for uuid, now in changes.places.items():
            place = self._placement.change_log.past_place(uuid) if now is None else now
            if place is None:
                return None
            root = place.name if place.root_uuid == uuid else self._root_name(place.root_uuid)
            if root is None:
                continue  # the root was deleted as well, which is another of the changes
            if place.name != reservation_provider(root):
                names.add(root)
        return frozenset(names)

    def _root_name(self, uuid: str) -> str | None:
        if uuid not in self._roots:
            found = self._placement.provider(uuid)
            if found is None:
                return None
            self._roots[uuid] = found.name
        return self._roots[uuid]

    def _read(self, hosts: Mapping[int, str], position: int | None, *, is_complete: bool = True) -> bool | None:
        """Reads these hosts, and writes those that differ; returns whether any did.

        None: another process has written capacities that it read after `position`. `is_complete`: all other hosts are
        known up to `position`.
        """
        found = {host_id: read_capacity(self._placement, host_id, name) for host_id, name in hosts.items()}

        def write(connection: Connection) -> bool | None:
            stored = None if position is None else capacity_store.lock_position(connection)
            if stored is not None and position is not None and stored > position:
                return None
            known = capacity_store.capacity_rows(connection, list(found))
            there = set(host_store.lock_hosts(connection, found))
            differing = [host for host in sorted(found.keys() & there) if _rows(found[host]) != known.get(host, set())]
            for host in differing:
                host_store.set_capacity(connection, host, found[host])
            if position is not None and is_complete:
                capacity_store.set_position(connection, position, stored)
            return bool(differing)

        try:
            result = in_transaction(self._engine, write)
        except IntegrityError:  # another process has written the first position
            return None
        if result is not None:
            self._changed.update(found)
        return result


def read_capacity(placement: PlacementClient, host_id: int, hypervisor_hostname: str) -> HostCapacity:
    """The capacity that may be allocated, ``(total - reserved) * allocation_ratio``, of all providers of the host's
    tree (A14); empty if Placement does not have the host.
    """
    root = placement.provider_by_name(hypervisor_hostname)
    if root is None:
        return HostCapacity(host_id, {})
    capacity: dict[str, int] = {}
    largest: dict[str, int] = {}
    providers: dict[str, str] = {}
    above: dict[str, list[str]] = {}
    places: Counter[str] = Counter()
    tree = _tree(placement, root)
    by_uuid = {provider.uuid: provider for provider, _ in tree}
    for provider, inventories in sorted(tree, key=lambda each: (each[0].uuid != root.uuid, each[0].name)):
        if provider.name == reservation_provider(hypervisor_hostname):
            continue
        for name, each in inventories.items():
            key = label(name, places[name])
            places[name] += 1
            capacity[key] = max(0, math.floor((each.total - each.reserved) * each.allocation_ratio))
            largest[key], providers[key] = each.max_unit, provider.name
            above[provider.name] = _above(provider, by_uuid)
    return HostCapacity(host_id, capacity, largest, providers, above)


def _tree(placement: PlacementClient, root: Provider) -> list[tuple[Provider, Mapping[str, Inventory]]]:
    """The providers of the tree with their inventories: one request from Moorage, one per provider from others."""
    states = placement.tree_states(root.uuid)
    if states is not None:
        return [(state.provider, state.inventories) for state in states]
    return [(provider, placement.inventories(provider.uuid)[1]) for provider in placement.tree(root.uuid)]


def _above(provider: Provider, tree: Mapping[str, Provider]) -> list[str]:
    """The names of the provider's ancestors, nearest first."""
    names = []
    parent = tree.get(provider.parent_uuid or "")
    while parent is not None:
        names.append(parent.name)
        parent = tree.get(parent.parent_uuid or "")
    return names


def _rows(capacity: HostCapacity) -> set[tuple[object, ...]]:
    """In the form of `capacity_store.capacity_rows`."""
    return {
        (
            place.partition("#")[0],
            (provider := capacity.providers.get(place)),
            amount,
            capacity.largest.get(place, amount),
            tuple(capacity.above.get(provider or "", ())),
        )
        for place, amount in capacity.capacity.items()
    }
