"""Why a server would find a host or not, now: the scheduler's own decision, without a claim and without a server."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Engine

from moorage.compute.model.servers import Server
from moorage.compute.requests.server_request import NewServer
from moorage.compute.requests.server_service import visible
from moorage.compute.scheduling.host_selection import HostSelector
from moorage.compute.servers.create_service import CreateService
from moorage.compute.store import server_store
from moorage.core.caller import Caller
from moorage.core.errors import Invalid, NotBuilt, RemoteError, Unavailable
from moorage.db.transactions import read
from moorage.scheduler.flavor_resources import scheduling_properties
from moorage.scheduler.reasons import Reasons


@dataclass(frozen=True)
class HostExplanation:
    """`hosts`: those that would take it, the best first. `fault`: what an existing server was told when it failed."""

    hosts: tuple[str, ...]
    reasons: Reasons
    fault: str | None = None


class ExplainService:
    """`selector` None: this process knows no Placement."""

    def __init__(self, engine: Engine, creation: CreateService, selector: HostSelector | None) -> None:
        self._engine = engine
        self._creation = creation
        self._selector = selector

    def explain_new_server(self, caller: Caller, new: NewServer, *, may_force_host: bool) -> HostExplanation:
        """Raises as making it would."""
        server, needs = self._creation.hypothetical_server(caller, new, may_force_host=may_force_host)
        return self._explained(server, needs)

    def explain_server(self, caller: Caller, server_id: str) -> HostExplanation:
        """As if it were placed once more; what it holds now is taken."""
        with read(self._engine) as connection:
            server = visible(server_store.server(connection, server_id), caller, server_id)
        rules_out = {} if server.host is None else {server.host: "it is there"}
        return self._explained(server, scheduling_properties(server.image_properties or {}), rules_out)

    def _explained(
        self, server: Server, needs: Mapping[str, str], excluded_hosts: Mapping[str, str] | None = None
    ) -> HostExplanation:
        if self._selector is None:
            raise NotBuilt("This compute service is not connected to a Placement that it could ask.")
        try:
            hosts, no_host = self._selector.explain(server, needs, excluded_hosts=excluded_hosts)
        except RemoteError as error:
            if error.status >= 500:
                raise Unavailable(error.message) from error
            raise Invalid(error.message) from error
        return HostExplanation(hosts, no_host.reasons, None if server.fault is None else server.fault.message)
