"""Remote provider configuration of a host: orders for its agent, and the agent's answers.

An order is a host job like any other, so it is kept until it is done and reported once, but it concerns no server. The
files stay on the host: its agent validates them, and changes Placement or refuses
(`moorage.agent.control`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.store import host_store, server_store
from moorage.core.errors import Conflict, NotFound
from moorage.db.session import in_transaction, read
from moorage.jobs.contract import JobKind, ProviderConfigJob, payload_document
from moorage.jobs.model import Job, NewJob

#: An order that no agent has claimed by then expires, because its author no longer expects it to happen.
ORDER_LIFETIME = timedelta(minutes=5)


@dataclass(frozen=True)
class ProviderConfigService:
    deps: ComputeDeps

    def order_provider_config(self, host: str, action: str, files: Mapping[str, str], request_id: str) -> Job:
        """`action`: show, plan or apply. Raises `NotFound`, and `Conflict` for a host that is forced down."""
        now = self.deps.clock.now()
        payload = ProviderConfigJob(
            do=action, files=files, expires_at=(now + ORDER_LIFETIME).isoformat(), request_id=request_id
        )
        kind = JobKind.PROVIDER_CONFIG
        new = NewJob(self.deps.ids.uuid(), host, kind, f"provider-config:{host}", payload_document(kind, payload))

        def enqueue_order(connection: Connection) -> Job:
            found = host_store.host(connection, host)
            if found is None:
                raise NotFound(f"Compute host {host} could not be found.")
            if found.forced_down:
                raise Conflict(f"Compute host {host} is forced down: its agent would not answer.")
            server_store.HOST_JOBS.enqueue(connection, new, now)
            return self._found(connection, host, new.id)

        job = in_transaction(self.deps.engine, enqueue_order)
        self.deps.hints.send(host)
        return job

    def find_order(self, host: str, order_id: str) -> Job:
        with read(self.deps.engine) as connection:
            return self._found(connection, host, order_id)

    def _found(self, connection: Connection, host: str, order_id: str) -> Job:
        job = server_store.HOST_JOBS.get(connection, order_id)
        if job is None or job.kind is not JobKind.PROVIDER_CONFIG or job.queue != host:
            raise NotFound(f"There is no order {order_id} for the provider configuration of {host}.")
        return job
