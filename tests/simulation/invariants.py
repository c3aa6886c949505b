"""The invariants that hold at every moment: checked after each step if a database or a file has changed."""

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from moorage.accelerator.model.attach_state import AttachState
from moorage.durable import DurableDocument

if TYPE_CHECKING:
    from tests.simulation.world import World

_IN_USE = """
SELECT p.name, c.name, SUM(a.used), (i.total - i.reserved) * i.allocation_ratio
FROM allocations a JOIN providers p ON p.id = a.provider_id JOIN resource_classes c ON c.id = a.class_id
LEFT JOIN inventories i ON i.provider_id = a.provider_id AND i.class_id = a.class_id
GROUP BY a.provider_id, a.class_id
"""
_EVENTS = "SELECT id, lease_id, event_type, status, epoch FROM events"
_FINAL = frozenset({"DONE", "ERROR"})


class _Watched:
    """A database of a part. It is read without simulated faults, and only after a write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._version = -1

    def connection(self) -> sqlite3.Connection:
        if self._connection is None:
            # Not with sqlite3.connect, which the simulation has replaced.
            self._connection = sqlite3.Connection(str(self._path), isolation_level=None)
        return self._connection

    def changed(self) -> sqlite3.Connection | None:
        (version,) = self.connection().execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return None
        self._version = version
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class Invariants:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._databases = {
            name: _Watched(world.parts[name].state / f"{name}.db")
            for name in ("placement", "compute", "accelerator", "reservation")
        }
        self._in_use: dict[tuple[str, str], int] = {}
        self._events: dict[str, tuple[str, int]] = {}
        self._checkpoints: dict[str, int] = {}
        self.checks = 0

    def check(self) -> None:
        self.checks += 1
        if connection := self._databases["placement"].changed():
            self._capacity(connection)
        if connection := self._databases["reservation"].changed():
            self._order_of_events(connection)
        for host in self._world.hosts:
            self._one_owner(host)

    def database(self, name: str) -> sqlite3.Connection:
        """Reads what a part has written, without faults."""
        return self._databases[name].connection()

    def close(self) -> None:
        for database in self._databases.values():
            database.close()

    def _capacity(self, connection: sqlite3.Connection) -> None:
        """Allocations never exceed capacity. Where an operator reduces capacity below usage, usage does not grow."""
        in_use: dict[tuple[str, str], int] = {}
        for provider, name, used, capacity in connection.execute(_IN_USE):
            in_use[provider, name] = used
            if used > (capacity or 0.0) and used > self._in_use.get((provider, name), 0):
                self._world.wrong(f"{provider} has {used} {name} in use of {capacity}")
        self._in_use = in_use

    def _order_of_events(self, connection: sqlite3.Connection) -> None:
        """A finished event of a lease does not run again, and no later one runs before it."""
        now: dict[str, tuple[str, int]] = {}
        started: set[str] = set()
        ended: set[str] = set()
        for event, lease, kind, status, epoch in connection.execute(_EVENTS):
            now[event] = (status, epoch)
            before = self._events.get(event)
            if before and before[1] > epoch:
                self._world.wrong(f"{kind} of lease {lease}: epoch {before[1]}, then {epoch}")
            if kind == "start_lease" and status in _FINAL:
                started.add(lease)
            if kind == "end_lease" and status == "DONE":
                ended.add(lease)
            if before and before[0] == "DONE" and status == "IN_PROGRESS" and kind != "before_end_lease":
                self._world.wrong(f"{kind} of lease {lease} is done, and begun again")
        if before_start := ended - started:
            self._world.wrong(f"lease {min(before_start)} has ended and not started")
        self._events = now

    def _one_owner(self, host: str) -> None:
        """No attach handle is in two attachments."""
        path = self._world.parts[host].state / "accelerators" / "checkpoint.json"
        try:
            written = path.stat().st_mtime_ns
        except FileNotFoundError:
            return
        if self._checkpoints.get(host) == written:
            return
        self._checkpoints[host] = written
        owners: dict[str, str] = {}
        for owner, attachment in holdings_of(path).attachments.items():
            for handle in attachment.handles:
                if (other := owners.setdefault(handle.pci_id, owner)) != owner:
                    self._world.wrong(f"{handle.pci_id} of {host} belongs to {other} and {owner}")


class _Document(msgspec.Struct):
    holdings: AttachState


def holdings_of(path: Path) -> AttachState:
    raw = DurableDocument(path).read()
    return AttachState() if raw is None else msgspec.json.decode(raw, type=_Document).holdings
