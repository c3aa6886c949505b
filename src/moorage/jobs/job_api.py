"""A host's jobs over HTTP: both sides. Each service that has jobs for hosts offers these routes to their agents.

POST <service>/agent/v1/hosts/{host}/jobs   ``{"worker", "limit"}`` -> its next jobs, and ``{"more"}``, whether the
                                            host may have others
PUT  <service>/agent/v1/jobs/{id}           ``{"epoch", "state", "result"}``: a report -> ``{"more"}``, whether the host
                                            may have other jobs, or nothing

An agent reaches only its own host's jobs: `agent_route` compares the host in a path with the caller's, and `is_of_host`
the queue of a job.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeVar
from urllib.parse import quote

import msgspec

from moorage.core.errors import Conflict, Forbidden, RemoteError
from moorage.core.names import QUEUES
from moorage.jobs.model import FENCED_CODE, Job
from moorage.wire.body import Schema
from moorage.wire.client import ServiceClient
from moorage.wire.http import Request, Response, Route

S = TypeVar("S")

CLAIM = Schema(
    {
        "type": "object",
        "properties": {
            "worker": {"type": "string", "minLength": 1, "maxLength": 255},
            "limit": {"type": "integer", "minimum": 1},
        },
        "required": ["worker"],
        "additionalProperties": False,
    }
)


class ReportState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


REPORT = Schema(
    {
        "type": "object",
        "properties": {
            "epoch": {"type": "integer", "minimum": 0, "maximum": 2147483647},
            "state": {"type": "string", "enum": [state.value for state in ReportState]},
            "result": {"type": ["object", "null"]},
        },
        "required": ["epoch", "state"],
        "additionalProperties": False,
    }
)


@dataclass(frozen=True)
class JobReport:
    """An agent's report on a job. `result`: see `moorage.jobs.contract`; empty while the job is running."""

    state: ReportState
    epoch: int
    result: Mapping[str, object]

    @property
    def error(self) -> str | None:
        """The reason why the job failed, in one sentence; None if it did not fail."""
        if self.state is not ReportState.FAILED:
            return None
        return str(self.result.get("error") or "the host gave no reason")


@dataclass(frozen=True, slots=True)
class AgentJob:
    """A job as its agent sees it."""

    id: str
    kind: str  #: a `moorage.jobs.contract.JobKind`, unless the service is of a newer release
    key: str
    epoch: int
    attempt: int
    payload: Mapping[str, object]
    may_have_more: bool = True  #: whether the host may have another job beside those of this answer


def agent_route(
    method: str,
    path: str,
    handler: Callable[..., Response],
    rule: str,
    schema: Schema | None = None,
    *,
    effect: Literal["change", "none", "routine"] = "change",
    reads: str = "json",
) -> Route[S]:
    """A route for agents: below ``/agent/v1/hosts/{host}``, or one whose handler calls `is_of_host`."""
    check = check_host if "{host}" in path else None
    return Route(method, path, handler, rule, schema=schema, before_schema=check, reads=reads, effect=effect)


def check_host(request: Request[S], host: str, **_: str) -> None:
    """Raises `Forbidden` if the caller is the agent of another host."""
    if request.caller.host not in (None, host):
        raise Forbidden(
            f"the agent of host {request.caller.host} may not act for host {host}", code="jobs.other_host", host=host
        )


def is_of_host(job: Job, host: str | None) -> bool:
    """Whether the agent of `host` may report on `job`; `host` None: a service, which may report on every host's jobs.

    A host's queues have its name, or its name and a suffix: ``compute-1/clean``.
    """
    return job.queue not in QUEUES and (host is None or job.queue == host or job.queue.startswith(f"{host}/"))


class _ReportBody(msgspec.Struct):
    state: ReportState
    epoch: int
    result: dict[str, object] | None = None


def report_of(document: object) -> JobReport:
    """Reads a body that the schema `REPORT` has accepted."""
    read = msgspec.convert(document, _ReportBody)
    return JobReport(read.state, read.epoch, read.result or {})


def claim_document(jobs: Sequence[Job], may_have_more: Callable[[str], bool]) -> dict[str, object]:
    """The answer to a claim of jobs. `may_have_more`: whether a host's queue may have another job."""
    return {
        "jobs": [
            {
                "id": job.id,
                "kind": job.kind,
                "key": job.key,
                "epoch": job.epoch,
                "attempt": job.attempt,
                "payload": job.payload,
            }
            for job in jobs
        ],
        "more": bool(jobs) and may_have_more(jobs[0].queue),
    }


class HostJobsClient:
    """The agent's side of the routes."""

    def __init__(self, http: ServiceClient) -> None:
        self._http = http

    def claim_jobs(self, host: str, worker: str, limit: int = 1) -> list[AgentJob]:
        """Claim jobs, without a retry: a worker whose answer was lost asks again, and gets the same jobs."""
        body = {"worker": worker, "limit": limit}
        answer = self._http.request("POST", f"/agent/v1/hosts/{quote(host, safe='')}/jobs", json=body)
        may_have_more = answer.get("more", True)  # a service of an older release does not say
        return msgspec.convert([row | {"may_have_more": may_have_more} for row in answer["jobs"]], list[AgentJob])

    def report_job(self, job_id: str, epoch: int, state: str, result: Mapping[str, object] | None = None) -> bool:
        """Report a job as running, done or failed; may be repeated. Returns False when the host has no other job now.

        Raises `Conflict` ``jobs.fenced`` when another worker has the job now: stop working on it.
        """
        body = {"epoch": epoch, "state": state, "result": dict(result or {})}
        try:
            answer = self._http.request("PUT", f"/agent/v1/jobs/{quote(job_id, safe='')}", json=body)
        except RemoteError as error:
            if error.status == 409:
                raise Conflict(error.message, code=FENCED_CODE) from error
            raise
        return answer is None or bool(answer.get("more", True))
