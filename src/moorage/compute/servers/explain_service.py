"""Explains why a server would find a host or not, now: the scheduler's own decision, without a claim."""

from collections.abc import Mapping
from dataclasses import dataclass

from moorage.compute.deps import ComputeDeps
from moorage.compute.model.servers import Server
from moorage.compute.requests.server_request import NewServer
from moorage.compute.requests.server_service import visible
from moorage.compute.scheduling.pipeline import HostSelector
from moorage.compute.scheduling.placement_request import HostRequest
from moorage.compute.servers.create_service import CreateService
from moorage.compute.store import server_store
from moorage.core.caller import Caller
from moorage.core.errors import Invalid, NotBuilt, RemoteError, Unavailable
from moorage.db.session import read
from moorage.scheduler.flavor_resources import scheduling_properties
from moorage.scheduler.reasons import Reasons


@dataclass(frozen=True)
class HostExplanation:
    """`hosts`: names of hosts that can run the server, best first. `fault`: the fault message of an existing server."""

    hosts: tuple[str, ...]
    reasons: Reasons
    fault: str | None = None


@dataclass(frozen=True)
class ExplainService:
    """`selector` None: this process is not connected to Placement."""

    deps: ComputeDeps
    creation: CreateService
    selector: HostSelector | None

    def explain_new_server(self, caller: Caller, new: NewServer, *, may_force_host: bool) -> HostExplanation:
        """Raises as creating the server would."""
        server, needs = self.creation.hypothetical_server(caller, new, may_force_host=may_force_host)
        return self._explained(server, needs)

    def explain_server(self, caller: Caller, server_id: str) -> HostExplanation:
        """Explains another placement of the same server. Its own allocations count as used; its host is excluded."""
        with read(self.deps.engine) as connection:
            server = visible(server_store.server(connection, server_id), caller, server_id)
        rules_out = {} if server.host is None else {server.host: "the server is on this host now"}
        return self._explained(server, scheduling_properties(server.image_properties or {}), rules_out)

    def _explained(
        self, server: Server, needs: Mapping[str, str], excluded_hosts: Mapping[str, str] | None = None
    ) -> HostExplanation:
        if self.selector is None:
            raise NotBuilt("This compute service is not connected to Placement.")
        try:
            hosts, no_host = self.selector.explain(HostRequest(server, needs, excluded_hosts=excluded_hosts or {}))
        except RemoteError as error:
            if error.status >= 500:
                raise Unavailable(error.message) from error
            raise Invalid(error.message) from error
        return HostExplanation(hosts, no_host.reasons, None if server.fault is None else server.fault.message)
