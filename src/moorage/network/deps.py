"""The dependencies of the network service's use cases: database, clock, ids and the quota of ports."""

from dataclasses import dataclass

from sqlalchemy import Engine

from moorage.core.clock import Clock
from moorage.core.ids import Ids

#: Neutron's default.
QUOTA_PORTS = 500


@dataclass(frozen=True)
class NetworkDeps:
    engine: Engine
    clock: Clock
    ids: Ids
    quota_ports: int = QUOTA_PORTS  #: maximum number of ports of a project; -1: unlimited
