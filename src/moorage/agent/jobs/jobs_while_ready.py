"""Jobs are asked for only while the hypervisor answers: what it could not do now waits, and is done when it is back."""

from collections.abc import Callable, Mapping
from typing import Any

from moorage.jobs.job_api import AgentJob, HostJobsClient


class JobsWhileReady(HostJobsClient):
    """`ready` raises `MoorageError` while the hypervisor is away; asking for jobs raises that then."""

    def __init__(self, jobs: HostJobsClient, ready: Callable[[], object]) -> None:  # no link of its own
        self._jobs = jobs
        self._ready = ready

    def claim_jobs(self, host: str, worker: str, limit: int = 1) -> list[AgentJob]:
        self._ready()
        return self._jobs.claim_jobs(host, worker, limit)

    def report_job(self, job_id: str, epoch: int, state: str, result: Mapping[str, Any] | None = None) -> bool:
        return self._jobs.report_job(job_id, epoch, state, result)
