"""The agent takes no job while the hypervisor is unavailable, so the job waits instead of failing."""

import pytest

from moorage.agent.jobs.job_task import JobsWhileReady
from moorage.agent.virt.driver import HypervisorUnavailable


class Queue:
    """Stands in for the service that has the jobs, and records the requests."""

    def __init__(self):
        self.asked = []

    def claim_jobs(self, host, worker, limit=1):
        self.asked.append(("claim", host, worker, limit))
        return ["job"]

    def report_job(self, job_id, epoch, state, result=None):
        self.asked.append(("report", job_id, epoch, state, result))


def test_jobs_are_claimed_only_while_the_hypervisor_is_available_and_reported_at_any_time():
    queue, away = Queue(), [True]

    def ready():
        if away[0]:
            raise HypervisorUnavailable("libvirt does not answer")

    jobs = JobsWhileReady(queue, ready)
    with pytest.raises(HypervisorUnavailable):
        jobs.claim_jobs("metal-1", "metal-1/1")
    jobs.report_job("job", 1, "done", {"a": 1})
    assert queue.asked == [("report", "job", 1, "done", {"a": 1})]
    away[0] = False
    assert jobs.claim_jobs("metal-1", "metal-1/1", limit=2) == ["job"]
    assert queue.asked[1:] == [("claim", "metal-1", "metal-1/1", 2)]
