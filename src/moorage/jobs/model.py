"""A job: work for a host or a worker, and the states that it goes through.

Not here: the table of jobs (`moorage.jobs.store`), and the hints that shorten the wait for one
(`moorage.jobs.wakeups`).
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from moorage.core.json import JsonObject
from moorage.core.states import transition_table
from moorage.jobs.contract import JobKind


class JobState(StrEnum):
    READY = "ready"
    CLAIMED = "claimed"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


#: CLAIMED to CLAIMED: after the lease of a claim has ended, another worker claims the job in a new epoch.
TRANSITIONS = transition_table(
    "a job",
    {
        JobState.READY: [JobState.CLAIMED, JobState.CANCELLED],
        JobState.CLAIMED: [
            JobState.CLAIMED,
            JobState.READY,
            JobState.DONE,
            JobState.FAILED,
            JobState.CANCELLED,
        ],
    },
)

#: States of a job that is not finished. It holds back the younger jobs of its key.
OPEN = frozenset(TRANSITIONS.allowed)

#: ``code`` in `Job.result` of a job that was given up after its last attempt.
ATTEMPTS_CODE = "jobs.attempts"

#: `MoorageError.error_code` for a report of a claim that is not the newest any more.
FENCED_CODE = "jobs.fenced"


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to enqueue. Enqueueing the same `id` again has no effect."""

    id: str
    #: Its claimants: the name of a host, or of a service's queue (``compute-build``); or a further queue of a host
    #: (``compute-1/clean``).
    queue: str
    kind: JobKind
    key: str  #: jobs of one key run one at a time, in order, across all queues
    payload: JsonObject  #: `moorage.jobs.contract` has the structs of hosts' jobs
    not_before: datetime | None = None  #: it may not be claimed before this moment; until then it holds back its key


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    queue: str
    kind: JobKind
    key: str
    payload: JsonObject
    state: JobState
    attempt: int  #: number of claims so far
    epoch: int  #: grows with each claim; a report with an older epoch is refused
    #: CLAIMED: when other workers may claim it. READY: it may not be claimed before this moment (None: at once).
    lease_until: datetime | None
    worker: str | None  #: last claimant
    created_at: datetime
    finished_at: datetime | None
    result: JsonObject | None
