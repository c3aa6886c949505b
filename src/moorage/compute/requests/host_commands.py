"""What every operation begins with: the action is noted, the task is set, and the server's host is told.

Inside the caller's transaction; whoever calls sends the hint to the queue after the commit.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection

from moorage.compute.model.job_payloads import host_job
from moorage.compute.model.lifecycle import Operation
from moorage.compute.model.servers import Action, Server
from moorage.compute.store import action_store, host_store, server_store
from moorage.core.caller import Caller
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, Invalid
from moorage.core.ids import Ids


class HostCommands:
    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids

    def begin_action(
        self, connection: Connection, caller: Caller, request_id: str, server_id: str, name: str
    ) -> Action:
        """Note the action, without its events."""
        now = self._clock.now()
        action = Action(
            self._ids.uuid(), server_id, request_id, name, caller.user_id, caller.project_id, now, now, None
        )
        action_store.begin_action(connection, action)
        return action

    def command_host(
        self,
        connection: Connection,
        caller: Caller,
        request_id: str,
        server: Server,
        operation: Operation,
        arguments: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """Note the task and the job for the server's host. Answers the queue to hint at.

        Raises `Conflict` for a server without a host, `Invalid` where its hypervisor cannot do it.
        """
        if server.host is None:
            raise Conflict(f"Instance {server.id} is not ready: it is on no host")
        check_capability(connection, server, operation)
        now = self._clock.now()
        action = self.begin_action(connection, caller, request_id, server.id, operation.name)
        action_store.begin_event(connection, action.id, operation.event, server.host, now)
        if operation.task is not None:
            server_store.update_server(connection, server.id, now, task_state=operation.task)
        job_id = self._ids.uuid()
        ids = {"action_id": action.id, "request_id": request_id}
        job = host_job(job_id, operation.kind, server, server.host, ids, {"key": job_id, **arguments})
        server_store.HOST_JOBS.enqueue(connection, job, now)
        return server.host


def check_capability(connection: Connection, server: Server, operation: Operation) -> None:
    """Raises `Invalid` when the hypervisor that the server is on cannot do it at all."""
    host = None if server.host is None else host_store.host(connection, server.host)
    if operation.capability is None or host is None or operation.capability in host.report.capabilities:
        return
    raise Invalid(
        f"The hypervisor of instance {server.id} does not support '{operation.name}'.", code="compute.unsupported"
    )
