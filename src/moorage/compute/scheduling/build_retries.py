"""Retries of a failed build on another host, and the data that one build job passes to the next.

The payloads of a server's `build` jobs, on the builder's queue and on the hosts' queues, contain

    alternates   other hosts for the server: ``[{"host", "root_uuid", "allocations", "mappings", "candidate_root"}]``
    tried        {host: reason why the build failed there}

The agent of the failed host releases the devices before it reports; the next host attaches its own. The retry job
releases the allocation. After the report, only that job acts on the server.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from moorage.compute.model.job_payloads import SelectHosts, read_payload, scheduling_id
from moorage.compute.model.servers import BUILD_QUEUE, Server, TaskState, VmState
from moorage.compute.scheduling.selection import Alternate
from moorage.compute.store import scheduling_store, server_store
from moorage.jobs.contract import PORT_REFUSED_CODE, AlternatePayload, JobKind
from moorage.jobs.job_api import JobReport
from moorage.jobs.model import Job, NewJob
from moorage.placement.client.placement_client import Candidate

#: Error codes of failures that every host would report, because the request itself is at fault.
REQUEST_FAULT_CODES = frozenset({"moorage.invalid", "accelerator.bad_request"})


def alternate_documents(alternates: Iterable[Alternate]) -> list[dict[str, Any]]:
    return [
        {
            "host": one.host,
            "root_uuid": one.root_uuid,
            "allocations": {uuid: dict(amounts) for uuid, amounts in one.candidate.allocations.items()},
            "mappings": {suffix: list(uuids) for suffix, uuids in one.candidate.mappings.items()},
            "candidate_root": one.candidate.root_uuid,
        }
        for one in alternates
    ]


def alternates_from(payloads: Sequence[AlternatePayload]) -> tuple[Alternate, ...]:
    return tuple(
        Alternate(
            one.host,
            one.root_uuid,
            Candidate(
                one.allocations,
                one.mappings,
                one.candidate_root,
            ),
        )
        for one in payloads
    )


def retry_failed_build(
    connection: Connection, job: Job, server: Server, now: datetime, error: str | None, code: str | None
) -> bool:
    """Enqueues a retry of a failed build on another host, in the transaction of the host's report; returns True if it
    did.

    If True, the caller must only wake the builder. False: the server is no longer being built on this host, there is no
    alternate, or `code` is in `REQUEST_FAULT_CODES`. Records the failure for the host either way, unless a port was
    refused: a tenant chooses it.
    """
    if code != PORT_REFUSED_CODE:
        scheduling_store.note_failed_build(connection, job.queue, now)
    is_ours = (server.vm_state, server.task_state, server.host) == (VmState.BUILDING, TaskState.SPAWNING, job.queue)
    if not is_ours or not job.payload.get("alternates") or code in REQUEST_FAULT_CODES:
        return False
    before = read_payload(job, SelectHosts).tried
    tried: dict[str, str | None] = {**before, job.queue: error}
    server_store.update_server(connection, server.id, now, host=None, placed=None, task_state=TaskState.SCHEDULING)
    kept = {name: job.payload[name] for name in ("action_id", "request_id", "image_properties", "alternates")}
    if server.interfaces:
        kept["has_interfaces"] = True
    job_id = f"{scheduling_id(server.id)}:{len(tried)}"
    server_store.BUILD_JOBS.enqueue(
        connection, NewJob(job_id, BUILD_QUEUE, JobKind.BUILD, server.id, {**kept, "tried": tried}), now
    )
    return True


def worded_as_exhausted(job: Job, report: JobReport) -> JobReport:
    """The report; if earlier hosts failed too, its error says that all retries are exhausted."""
    if report.error is None or not job.payload.get("tried"):
        return report
    return replace(report, result={**report.result, "error": exhausted_message(job.key, report.error)})


def exhausted_message(server_id: str, last: str) -> str:
    return (
        "Exceeded maximum number of retries. Exhausted all hosts available for retrying build failures for instance "
        f"{server_id}. Error from the last host: {last}"
    )
