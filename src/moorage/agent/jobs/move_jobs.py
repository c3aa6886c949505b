"""What a host does for a server that comes or goes.

move-out:  stop -> snapshot -> unplug   a failure before the devices go: started again, as if nothing had been
move-in:   as a build, from the image that move-out made; off where it was off
move-back: plug -> start                what move-out did, undone: the domain and its disk were never gone
remake:    plug -> rebuild          from that image, on the same host; a failure leaves it off and without devices
strip:     stop -> unplug
back again (remake-back, return): stop -> unplug -> plug -> rebuild, from the image that has the old disk
shelve:    stop -> snapshot             the devices stay until it is offloaded
receive, hand-over, take-over           a domain that must not stop; it has no devices
"""

from functools import partial
from typing import Any

from moorage.agent.jobs.server_build import Builder, Built, JobLost, KeepAlive
from moorage.agent.jobs.snapshots import Snapshots
from moorage.agent.model.job_payloads import (
    BuildOrder,
    HandOverOrder,
    RebuildOrder,
    ServerRef,
    SnapshotOrder,
    StartOrder,
)
from moorage.agent.model.power import PowerAction
from moorage.agent.virt.driver import VirtDriver


class MoveWork:
    """Every method may be run again after a crash at any line."""

    def __init__(self, driver: VirtDriver, builder: Builder, snapshots: Snapshots) -> None:
        self._driver = driver
        self._builder = builder
        self._snapshots = snapshots

    def out(self, order: SnapshotOrder, keep_alive: KeepAlive) -> int:
        """How many devices were released."""
        self.shelve(order, keep_alive)
        return self._builder.detach(order.server_ref, keep_alive)

    def shelve(self, order: SnapshotOrder, keep_alive: KeepAlive) -> None:
        try:
            self._power(order, PowerAction.STOP, keep_alive)
            self._builder.meanwhile(lambda: self._snapshots.take(order), keep_alive)
        except Exception:  # raised again: whatever it is, the server must not stay off for it
            if order.start:
                self._power(order, PowerAction.START, keep_alive)
            raise

    def back(self, order: StartOrder, keep_alive: KeepAlive) -> Built:
        built = self._builder.attach(order, keep_alive)
        if order.start:
            self._power(order, PowerAction.START, keep_alive)
        return built

    def come(self, order: StartOrder, keep_alive: KeepAlive) -> Built:
        return self._builder.build(order, keep_alive, start=order.start)

    def remake(self, order: RebuildOrder, keep_alive: KeepAlive) -> Built:
        try:
            return self._builder.rebuild(order, keep_alive)
        except JobLost:
            raise
        except Exception:  # raised again: whatever it is, what the old flavor needs must be free for the way back
            self.strip(order.server_ref, keep_alive)
            raise

    def remake_back(self, order: RebuildOrder, keep_alive: KeepAlive) -> Built:
        self.strip(order.server_ref, keep_alive)
        return self._builder.rebuild(order, keep_alive)

    def strip(self, server: ServerRef, keep_alive: KeepAlive) -> int:
        """How many devices were released. Off before they go: no guest holds what the next tenant gets."""
        if server.id in self._driver.domains():
            self._builder.meanwhile(lambda: self._driver.power(server.id, PowerAction.STOP), keep_alive)
        return self._builder.detach(server, keep_alive)

    def receive(self, order: BuildOrder) -> dict[str, Any]:
        return {"target": dict(self._driver.receive(self._builder.spec_of(order)))}

    def hand_over(self, order: HandOverOrder, keep_alive: KeepAlive) -> None:
        self._builder.meanwhile(lambda: self._driver.hand_over(order.server.id, order.target), keep_alive)

    def take_over(self, uuid: str) -> dict[str, Any]:
        return {"power_state": self._driver.take_over(uuid).value}

    def _power(self, order: BuildOrder, action: PowerAction, keep_alive: KeepAlive) -> None:
        self._builder.meanwhile(partial(self._driver.power, order.server.id, action), keep_alive)
