"""The background task that takes functions of network cards from guests whose ports are gone.

Neutron's agent for such cards does nothing when a port is deleted, and Neutron sends no event if the port's owner has
taken it from the server before. The guest would stay in the network, and in the VLAN when somebody else gets that.

Any number of processes may run it: the second one finds the interface detached. A server that is busy, or off until it
is started, is tried again each time.
"""

import logging
from datetime import datetime, timedelta

from moorage.compute.deps import ComputeDeps
from moorage.compute.servers.plugging_service import PluggingService
from moorage.compute.store import server_store
from moorage.core.caller import Caller
from moorage.core.errors import MoorageError
from moorage.db.session import read
from moorage.network.client.server_ports import ServerPorts

log = logging.getLogger(__name__)

PERIOD = timedelta(minutes=1)
_CALLER = Caller("moorage", "", frozenset({"service"}))


class DevicePortsTask:
    """A port that is missing at two checks is gone: a Neutron that answers wrongly once takes nothing from a guest."""

    name = "compute.device_ports"

    def __init__(self, deps: ComputeDeps, server_ports: ServerPorts, plugging: PluggingService) -> None:
        self._deps = deps
        self._server_ports = server_ports
        self._plugging = plugging
        self._missing: set[tuple[str, str]] = set()  #: (server id, port id), at the last check

    def run_once(self) -> datetime:
        with read(self._deps.engine) as connection:
            attached = server_store.device_ports(connection)
        missing: set[tuple[str, str]] = set()
        for server_id, port_ids in attached.items():
            try:
                present = self._server_ports.plugged(server_id)
            except MoorageError as error:
                log.info("the network service does not tell", extra={"server": server_id, "why": error.message})
                missing |= {one for one in self._missing if one[0] == server_id}
                continue
            missing |= {(server_id, port_id) for port_id in port_ids if port_id not in present}
        for server_id, port_id in sorted(missing & self._missing):
            self._plugging.detach(_CALLER, "", server_id, port_id)
        self._missing = missing
        return self._deps.clock.now() + PERIOD
