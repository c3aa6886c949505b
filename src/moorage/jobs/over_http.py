"""A host's jobs over HTTP, as each service that has work for hosts offers them to their agents.

POST <service>/agent/v1/hosts/{host}/jobs   ``{"worker", "limit"}`` -> its next jobs
PUT  <service>/agent/v1/jobs/{id}           ``{"epoch", "state", "result"}``: what became of one -> ``{"more"}``, whether
                                            the host may have others, or nothing
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from moorage.core.errors import Conflict, RemoteError
from moorage.jobs.model import FENCED_CODE, Job
from moorage.wire.body import Schema
from moorage.wire.client import ServiceClient

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
REPORT = Schema(
    {
        "type": "object",
        "properties": {
            "epoch": {"type": "integer", "minimum": 0, "maximum": 2147483647},
            "state": {"type": "string", "enum": ["running", "done", "failed"]},
            "result": {"type": ["object", "null"]},
        },
        "required": ["epoch", "state"],
        "additionalProperties": False,
    }
)


@dataclass(frozen=True)
class Report:
    """What an agent says of a job."""

    state: str  #: ``running``, ``done`` or ``failed``
    epoch: int
    result: Mapping[str, Any]

    @property
    def error(self) -> str | None:
        """Why it failed, in one sentence."""
        if self.state != "failed":
            return None
        return str(self.result.get("error") or "the host gave no reason")


@dataclass(frozen=True, slots=True)
class AgentJob:
    """A job as its agent sees it. `payload`: see who enqueues it."""

    id: str
    kind: str
    key: str
    epoch: int
    attempt: int
    payload: Mapping[str, Any]


def report_of(document: Mapping[str, Any]) -> Report:
    """From a body that `REPORT` accepts."""
    return Report(document["state"], document["epoch"], document.get("result") or {})


def job_document(job: Job) -> dict[str, object]:
    return {
        "id": job.id,
        "kind": job.kind,
        "key": job.key,
        "epoch": job.epoch,
        "attempt": job.attempt,
        "payload": job.payload,
    }


class HostJobsClient:
    """The agent's side."""

    def __init__(self, http: ServiceClient) -> None:
        self._http = http

    def claim_jobs(self, host: str, worker: str, limit: int = 1) -> list[AgentJob]:
        """Not repeated by itself: a worker whose answer was lost asks again, and gets the same jobs."""
        body = {"worker": worker, "limit": limit}
        rows = self._http.request("POST", f"/agent/v1/hosts/{quote(host, safe='')}/jobs", json=body)["jobs"]
        return [
            AgentJob(row["id"], row["kind"], row["key"], row["epoch"], row["attempt"], row["payload"]) for row in rows
        ]

    def report_job(self, job_id: str, epoch: int, state: str, result: Mapping[str, Any] | None = None) -> bool:
        """`state`: running, done or failed. The same report again is fine. False: the host has no other job now.

        Raises `Conflict` ``jobs.fenced`` when another worker has the job by now: stop working on it.
        """
        body = {"epoch": epoch, "state": state, "result": dict(result or {})}
        try:
            answer = self._http.request("PUT", f"/agent/v1/jobs/{quote(job_id, safe='')}", json=body)
        except RemoteError as error:
            if error.status == 409:
                raise Conflict(error.message, code=FENCED_CODE) from error
            raise
        return answer is None or bool(answer.get("more", True))
