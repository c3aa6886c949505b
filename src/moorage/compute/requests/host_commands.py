"""The common part of all operations: record the action, set the task state, enqueue the job for the server's host.

Runs in the caller's transaction; the caller wakes the returned queue after the commit.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.model.job_payloads import JobHeader, host_job, job_header
from moorage.compute.model.lifecycle import Operation
from moorage.compute.model.servers import Action, Server
from moorage.compute.store import action_store, host_store, server_store
from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Invalid
from moorage.jobs.contract import ServerJob

#: Builds the payload of a job from the fields that all jobs have, and the `key` of the request.
PayloadBuilder = Callable[[JobHeader, str], ServerJob]


def server_job(header: JobHeader, key: str) -> ServerJob:
    """The payload of an operation without further arguments."""
    return ServerJob(**header, key=key)


@dataclass(frozen=True)
class HostCommands:
    deps: ComputeDeps

    def begin_action(
        self, connection: Connection, caller: Caller, request_id: str, server_id: str, name: str
    ) -> Action:
        """Records the action, without events."""
        now = self.deps.clock.now()
        action = Action(
            self.deps.ids.uuid(), server_id, request_id, name, caller.user_id, caller.project_id, now, now, None
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
        payload: PayloadBuilder = server_job,
    ) -> str:
        """Sets the task state and enqueues the host's job; returns the queue to wake.

        Raises `Conflict` for a server without a host, `Invalid` if the host's hypervisor does not support the
        operation.
        """
        if server.host is None:
            raise Conflict(f"Instance {server.id} is not ready: it is on no host")
        check_capability(connection, server, operation)
        now = self.deps.clock.now()
        action = self.begin_action(connection, caller, request_id, server.id, operation.name)
        action_store.begin_event(connection, action.id, operation.event, server.host, now)
        if operation.task is not None:
            server_store.update_server(connection, server.id, now, task_state=operation.task)
        job_id = self.deps.ids.uuid()
        ids = {"action_id": action.id, "request_id": request_id}
        job = host_job(job_id, server.host, operation.job_kind, payload(job_header(server, ids), job_id))
        server_store.HOST_JOBS.enqueue(connection, job, now)
        return server.host


def check_capability(connection: Connection, server: Server, operation: Operation) -> None:
    """Raises `Invalid` if the server's hypervisor does not support the operation."""
    host = None if server.host is None else host_store.host(connection, server.host)
    if operation.capability is None or host is None or operation.capability in host.report.capabilities:
        return
    raise Invalid(
        f"The hypervisor of instance {server.id} does not support '{operation.name}'.", code="compute.unsupported"
    )
